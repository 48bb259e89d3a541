"""BM25: how well each page matches the terms of a question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from glie.kernels.postings import add_bm25

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

K1 = 1.2  # how soon more of a term stops to matter
B = 0.75  # how much a long page is held against it


class PostingsFile(Protocol):
    """The postings of some pages."""

    @property
    def lengths(self) -> npt.NDArray[np.uint16]: ...

    def postings(self, term: str) -> tuple[Ints, Bytes]: ...


class Statistics(NamedTuple):
    """What BM25 knows of a collection. Those of several collections add up to those of all."""

    pages: int  # live pages with text
    length: int  # of all of them, in terms
    having: dict[str, int]  # how many of them have each term

    @staticmethod
    def total(parts: Sequence[Statistics]) -> Statistics:
        """Of several collections as one."""
        having = dict[str, int]()
        for part in parts:
            for term, count in part.having.items():
                having[term] = having.get(term, 0) + count
        return Statistics(sum(p.pages for p in parts), sum(p.length for p in parts), having)


class Scores(NamedTuple):
    """BM25 of the pages of each file."""

    pages: list[Floats]
    most: float  # what a page full of the terms would score


def statistics(
    files: Sequence[PostingsFile],
    live: Sequence[npt.NDArray[np.bool_] | None],
    terms: Iterable[str],
) -> Statistics:
    """The statistics of some files and terms; `live` as for `bm25`."""
    pages, length = _sizes(files, live)
    parts = list(zip(files, live, strict=True))
    having = {term: sum(len(_live(*f.postings(term), m)[0]) for f, m in parts) for term in terms}
    return Statistics(pages, length, having)


def bm25(
    files: Sequence[PostingsFile],
    live: Sequence[npt.NDArray[np.bool_] | None],
    terms: Mapping[str, float],
    *,
    of: Statistics | None = None,
    k1: float = K1,
    b: float = B,
) -> Scores:
    """The score of every page of every file; 0 for pages with none of the terms.

    `terms` says how much each term counts. Only live pages score and count in the statistics; None
    for a file whose pages are all live. `of` are the statistics of a larger collection, of which
    these files are a part. The variant is Lucene's: with N pages, of which n have the term, its
    weight is ln(1 + (N - n + 0.5) / (n + 0.5)), and a page with frequency f and length l scores
    weight * f / (f + k1 * (1 - b + b * l / mean length)).
    """
    pages, length = _sizes(files, live) if of is None else (of.pages, of.length)
    mean = length / max(pages, 1)
    penalties = [_penalties(file.lengths, max(mean, 1), k1, b) for file in files]
    scores, most = [np.zeros(len(file.lengths), np.float32) for file in files], 0.0
    for term, times in terms.items():
        found = [_live(*file.postings(term), mask) for file, mask in zip(files, live, strict=True)]
        having = sum(len(rows) for rows, _ in found) if of is None else of.having.get(term, 0)
        weight = times * math.log1p((pages - having + 0.5) / (having + 0.5))
        most += weight
        for (rows, frequencies), penalty, score in zip(found, penalties, scores, strict=True):
            add_bm25(rows, frequencies, weight, penalty, score)
    return Scores(scores, most)


def _sizes(
    files: Sequence[PostingsFile], live: Sequence[npt.NDArray[np.bool_] | None]
) -> tuple[int, int]:
    """The number of live pages, and the sum of their lengths."""
    lengths = [
        file.lengths if mask is None else file.lengths[mask]
        for file, mask in zip(files, live, strict=True)
    ]
    return sum(map(len, lengths)), sum(int(some.sum(dtype=np.int64)) for some in lengths)


def _penalties(lengths: npt.NDArray[np.uint16], mean: float, k1: float, b: float) -> Floats:
    """What is added to the frequencies of each page."""
    return np.float32(k1 * (1 - b)) + np.float32(k1 * b / mean) * lengths.astype(np.float32)


def _live(rows: Ints, frequencies: Bytes, mask: npt.NDArray[np.bool_] | None) -> tuple[Ints, Bytes]:
    """The postings of live pages."""
    if mask is None:
        return rows, frequencies
    stays = mask[rows]
    return rows[stays], frequencies[stays]
