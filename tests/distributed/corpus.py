"""Pages with words, as shards and as one index of the same pages in the same order."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import glie
from glie.distributed.sharded import ShardedIndex
from tests.conftest import Floats, unit

WORDS = [f"w{i}" for i in range(200)]
DIM, PAGES, EACH = 32, 240, 4  # pages of a document
QUESTIONS = [
    *("w3 w17 w40", "w1 w2", "w150 w7 w199 w4", '"w0 w1" w5', "w3 -w2", '"w199" w1', "w60 w61 w62"),
    *('"nowhere" w4 w9', '"w190"', '-"w0 w1" w7 w8', "w12"),
]


@functools.cache
def vectors() -> Floats:
    return unit(np.random.default_rng(1).normal(size=(len(WORDS), DIM)))


def encoded(question: str) -> Floats:
    """A vector for each word of a question; one for one that has none of the known."""
    plain = question.replace('"', " ").replace("-", " ").split()
    rows = [WORDS.index(word) for word in plain if word in WORDS]
    return vectors()[rows or [0]]


class Corpus(NamedTuple):
    ids: list[str]
    arrays: list[Floats]
    texts: list[str | None]  # some pages have none
    metadata: list[dict[str, Any]]

    def take(self, ids: Sequence[str]) -> Corpus:
        rows = [self.ids.index(page_id) for page_id in ids]
        columns: list[list[Any]] = [[column[row] for row in rows] for column in self]
        return Corpus(*columns)

    def add_to(self, index: glie.Index | ShardedIndex, **options: Any) -> None:
        pages = glie.Pages(self.arrays, ids=self.ids)
        index.add(pages, self.metadata, texts=self.texts, **options)


def make_corpus(pages: int = PAGES, seed: int = 0) -> Corpus:
    rng = np.random.default_rng(seed)
    often = 1 / np.arange(1, len(WORDS) + 1)
    rows = [rng.choice(len(WORDS), 40, p=often / often.sum()) for _ in range(pages)]
    ids = [f"{n // EACH}.txt#{n % EACH + 1}" for n in range(pages)]
    return Corpus(
        ids,
        [unit(vectors()[mine] + 0.1 * rng.normal(size=(len(mine), DIM))) for mine in rows],
        [None if n % 7 == 0 else " ".join(WORDS[i] for i in mine) for n, mine in enumerate(rows)],
        [{"document": i.partition("#")[0], "year": 2000 + n % 5} for n, i in enumerate(ids)],
    )


def both(folder: Path, codec: glie.Codec, shards: int = 3) -> tuple[glie.Index, ShardedIndex]:
    """One index, and shards of the same pages. Some pages are deleted from both."""
    corpus = make_corpus()
    many = ShardedIndex.create(folder / "my.shards", shards, codec, language="en")
    corpus.add_to(many)
    one = glie.Index.create(folder / "my.glie", codec, language="en")
    corpus.take(many.ids).add_to(one)
    gone = many.ids[5::23]
    assert many.delete(gone) == one.delete(gone) == len(gone)
    return one, many


def assert_same(one: glie.Index, many: ShardedIndex, top: int = 10, **options: Any) -> None:
    """Both find the same pages with the same scores."""
    queries = None if options.get("mode") == "lexical" else [encoded(text) for text in QUESTIONS]
    expected, found = (index.search(queries, top, **options) for index in (one, many))
    assert len(found) == len(QUESTIONS)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.ids == theirs.ids
        np.testing.assert_allclose(mine.scores, theirs.scores, atol=1e-5)
        assert mine.metadata == theirs.metadata
        assert [*mine.parts] == [*theirs.parts]
        assert mine.cost.missing == ()
    assert any(len(hits) for hits in found)
