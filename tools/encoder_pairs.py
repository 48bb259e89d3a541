"""Question-passage pairs: the material of tools/train_encoder.py, of the codebook and the codec.

    python tools/encoder_pairs.py PAIRS --to SET [--questions 1100]

PAIRS is a folder of *.jsonl.gz files with lines {"query", "text", "source"}. The command writes
them as a question set (corpus.jsonl, queries.jsonl, qrels/test.tsv), which tools/fit_codebook.py
and `glie fit` read.

To train on, passages are cut into windows as at inference; of a long passage, the window with the
most of a question's rare words stands for it. Words are English ones without their endings, or
words of any language: in scripts without spaces, every two neighbouring characters.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import Stemmer
from scipy import sparse

BODY = 190  # tokens of a window, without the two special ones
OVERLAP = 32
MOST = 900  # pairs of a source: no kind of question outweighs the others
WORD = re.compile(r"\w+")
STEMMER = Stemmer.Stemmer("english")
# letters and the marks that are written on them; \w leaves out the marks
ANY_WORD = re.compile(r"[\w\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff]+")
# Thai and Lao, Burmese, Khmer, Japanese and Chinese; Korean, whose words have many endings
SPACELESS = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff]+"
)

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Words = Callable[[str], list[str]]


class Pair(NamedTuple):
    question: str
    window: int  # the window that answers it
    source: str


class Material(NamedTuple):
    """All pairs, and all windows that a question may be compared with."""

    pairs: list[Pair]
    windows: list[str]  # texts
    passage: list[int]  # the passage of each window: windows of one passage are no negatives


def stems(text: str) -> list[str]:
    """The words of a text in lower case, without their endings."""
    found: list[str] = STEMMER.stemWords(WORD.findall(text.lower()))
    return found


def word_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of the words of any language; of every two neighbouring characters where no
    spaces are between words."""
    found: list[tuple[int, int]] = []
    for word in ANY_WORD.finditer(text):
        at = word.start()
        for run in SPACELESS.finditer(text, *word.span()):
            found += [(at, run.start())] if at < run.start() else []
            found += [(i, i + 2) for i in range(run.start(), run.end() - 1)]
            found += [run.span()] if len(run[0]) == 1 else []
            at = run.end()
        found += [(at, word.end())] if at < word.end() else []
    return found


def any_words(text: str) -> list[str]:
    """The words of any language, in lower case."""
    lower = text.lower()
    return [lower[first:last] for first, last in word_spans(lower)]


class BM25:
    """BM25 over texts. Words that are common in the questions ("how", "which") count as little as
    words that are common in the texts; without questions it is the usual BM25."""

    def __init__(
        self,
        texts: Sequence[str],
        questions: Sequence[str] | None,
        k1: float = 1.2,
        b: float = 0.6,
        words_of: Words = stems,
    ) -> None:
        self.words: dict[str, int] = {}
        self.words_of = words_of
        counts = self._counts(texts, grow=True)
        lengths = counts.sum(axis=1)
        self.idf = _rarity(counts)
        if questions is not None:
            self.idf = np.minimum(self.idf, _rarity(self._counts(questions)))
        norm = k1 * (1 - b + b * lengths / lengths.mean())
        of_row = np.repeat(norm, np.diff(counts.indptr))
        counts.data *= (k1 + 1) / (counts.data + of_row) * self.idf[counts.indices]
        self.weights = counts.astype(np.float32)

    def asked(self, questions: Sequence[str]) -> sparse.csr_array:
        """Rows that give, multiplied with `weights`, the scores of all texts."""
        return self._counts(questions)

    def rarity(self, word: str) -> float:
        """The weight of a word; one that no text has is the rarest."""
        columns = [self.words.get(part) for part in self.words_of(word)]
        most = self.idf.max()
        return float(max((most if c is None else self.idf[c] for c in columns), default=most))

    def _counts(self, texts: Sequence[str], grow: bool = False) -> sparse.csr_array:
        """How often each text has each word; `grow`: learn new words."""
        rows, columns = [], []
        for row, text in enumerate(texts):
            for word in self.words_of(text):
                if grow:
                    self.words.setdefault(word, len(self.words))
                if word in self.words:
                    rows.append(row)
                    columns.append(self.words[word])
        ones = np.ones(len(rows), np.float32)
        return sparse.csr_array((ones, (rows, columns)), (len(texts), len(self.words)))


def _rarity(counts: sparse.csr_array) -> Floats:
    """BM25's logarithm of how few texts have a word."""
    total, having = counts.shape[0], np.bincount(counts.indices, minlength=counts.shape[1])
    return np.asarray(np.log(1 + (total - having + 0.5) / (having + 0.5)), np.float32)


def read_pairs(
    folder: Path, most: int = MOST, without: Sequence[str] = ()
) -> list[tuple[str, str, str]]:
    """Question, passage and source of the pairs of a folder of *.jsonl.gz files: at most so many of
    each, without those whose names start so."""
    found = []
    for file in sorted(folder.glob("*.jsonl.gz")):
        if file.name.startswith(tuple(without)):
            continue
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            entries = [json.loads(line) for line in lines]
        if len(entries) > most:
            entries = random.Random(0).sample(entries, most)
        found += [(entry["query"], entry["text"], entry["source"]) for entry in entries]
    if not found:
        raise SystemExit(f"{folder}: no *.jsonl.gz with question-passage pairs in it")
    return found


def material(
    given: Sequence[tuple[str, str, str]], tokenizer: Any, words_of: Words = stems
) -> Material:
    """Pairs, their passages cut into windows."""
    passages = list(dict.fromkeys(text for _, text, _ in given))
    number = {text: i for i, text in enumerate(passages)}
    windows: list[str] = []
    owner: list[int] = []
    of_passage: list[list[int]] = []
    for i, (text, encoded) in enumerate(
        zip(passages, tokenizer.encode_batch(passages, add_special_tokens=False), strict=True)
    ):
        spans = encoded.offsets
        mine = []
        start = 0
        while True:
            end = min(start + BODY, len(spans))
            mine.append(len(windows))
            windows.append(text[spans[start][0] : spans[end - 1][1]])
            owner.append(i)
            if end == len(spans):
                break
            start = end - OVERLAP
        of_passage.append(mine)
    questions = [question for question, _, _ in given]
    ranker = BM25(windows, questions, words_of=words_of)
    asked = ranker.asked(questions)
    pairs: list[Pair] = []
    used: dict[int, int] = {}  # windows, and their new numbers
    for row, (question, text, source) in enumerate(given):
        mine = of_passage[number[text]]
        scores = (ranker.weights[mine] @ asked[[row]].T).toarray().ravel()
        best = mine[int(scores.argmax())]
        pairs.append(Pair(question, used.setdefault(best, len(used)), source))
    order = list(used)
    return Material(pairs, [windows[i] for i in order], [owner[i] for i in order])


def same_length(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Batches of texts of similar length, of about so many tokens each."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches, at = [], 0
    while at < len(order):
        size = max(1, tokens // (lengths[order[at]] + 2))
        batches.append(order[at : at + size])
        at += size
    return batches


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--to", type=Path, required=True, help="the folder to make")
    parser.add_argument("--questions", type=int, help="a sample of so many, with their pages")
    arguments = parser.parse_args()
    given = read_pairs(arguments.pairs)
    if arguments.questions:
        given = random.Random(0).sample(given, min(arguments.questions, len(given)))
    (arguments.to / "qrels").mkdir(parents=True, exist_ok=True)
    pages = {text: str(i) for i, text in enumerate(dict.fromkeys(text for _, text, _ in given))}
    with (
        open(arguments.to / "corpus.jsonl", "w", encoding="utf-8") as corpus,
        open(arguments.to / "queries.jsonl", "w", encoding="utf-8") as queries,
        open(arguments.to / "qrels" / "test.tsv", "w", encoding="utf-8") as relevant,
    ):
        for text, name in pages.items():
            corpus.write(json.dumps({"_id": name, "text": text}) + "\n")
        relevant.write("query-id\tcorpus-id\tscore\n")
        for i, (question, text, _) in enumerate(given):
            queries.write(json.dumps({"_id": str(i), "text": question}) + "\n")
            relevant.write(f"{i}\t{pages[text]}\t1\n")
    print(f"{arguments.to}: {len(given):,} questions, {len(pages):,} pages")


if __name__ == "__main__":
    main()
