"""Where a page has the words of a question: the snippet shown beside a hit, and its marks."""

from __future__ import annotations

import re
from collections import Counter

from glie.errors import InputError
from glie.lexical.query import Query, parse
from glie.lexical.terms import Analyzer, exact_words
from glie.wording import printable

WORDS = 28  # in a snippet

# Stop words: in every question and on every page.
COMMON = set(
    re.findall(
        r"\w+",
        "a an and are as at be by did do does for from had has have how in is it its many much of "
        "no not on or out s than that the their there this to was were what when where which who "
        "why will with",
    )
)


def question_terms(question: str, analyzer: Analyzer) -> set[str]:
    """The terms of a question without those of stop words, unless they are quoted or there is
    nothing else; and without what it excludes."""
    try:
        query = parse(question, analyzer)
    except InputError:  # quotes around nothing; a search by meaning alone takes them
        query = Query(question, analyzer.counted(question))
    wanted = {term for phrase in query.required for term in analyzer.terms(phrase.text)}
    for start, end, terms in analyzer.words(query.text):
        if not COMMON.issuperset(exact_words(query.text[start:end])):
            wanted.update(terms)
    return wanted or set(query.terms)


def best_snippet(text: str, question: str, analyzer: Analyzer) -> str:
    """The run of 28 words that holds most of the question's words; words that are rare on the
    page count more. Of equals, the earliest."""
    words = text.split()
    wanted = question_terms(question, analyzer)
    found = [wanted.intersection(analyzer.terms(word)) for word in words]
    often = Counter(term for here in found for term in here)
    best, best_weight = 0, -1.0
    for start in range(0, max(1, len(words) - WORDS + 1)):
        if start == 0 or found[start]:  # a run that starts on a match is never worse
            run = found[start : start + WORDS]
            matched = sum(map(len, run))  # breaks ties
            weight = sum(often[term] ** -0.5 for term in set().union(*run)) + 0.1 * matched
            if weight > best_weight:
                best, best_weight = start, weight
    # start a few words earlier, so that the sentence can be read
    first = max(0, min(best - 4, len(words) - WORDS))
    shown = printable(" ".join(words[first : first + WORDS]))
    return f"{'… ' if first else ''}{shown}{' …' if first + WORDS < len(words) else ''}"


def matches(text: str, question: str, analyzer: Analyzer) -> list[tuple[int, int]]:
    """Where the question's words are in a text, as BM25 finds them: (start, end) of each."""
    return analyzer.places(text, question_terms(question, analyzer))
