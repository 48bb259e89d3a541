"""Search by words: terms, questions, postings and BM25."""
