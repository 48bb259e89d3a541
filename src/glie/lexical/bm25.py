"""BM25: how well each page matches the terms of a question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from glie.kernels.parallel import over_ranges
from glie.kernels.postings import Place, add_bm25

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

K1 = 1.2  # how soon more of a term stops to matter
B = 0.75  # how much a long page is held against it
FEW_PAGES = 50_000  # scored in one thread: two would take as long


class PostingsFile(Protocol):
    """The postings of some pages."""

    @property
    def lengths(self) -> npt.NDArray[np.uint16]: ...

    def locate(self, term: str) -> Place: ...

    def read(self, place: Place) -> tuple[Ints, Bytes]: ...


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
    places = [
        {term: _located(*one, term) for term in terms} for one in zip(files, live, strict=True)
    ]
    having = {term: sum(mine[term].size for mine in places) for term in terms}
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
    threads = 1 if sum(len(file.lengths) for file in files) < FEW_PAGES else None
    places: list[list[Place]] = [[] for _ in files]
    scores = [np.zeros(0, np.float32) for _ in files]
    weights = list[float]()

    def find(first: int, last: int) -> None:
        for n in range(first, last):
            places[n] = [_located(files[n], live[n], term) for term in terms]

    def score(first: int, last: int) -> None:
        for n in range(first, last):
            penalties = _penalties(files[n].lengths, max(mean, 1), k1, b)
            scores[n] = np.zeros(len(penalties), np.float32)
            for place, weight in zip(places[n], weights, strict=True):
                add_bm25(*files[n].read(place), weight, penalties, scores[n])

    over_ranges(find, len(files), chunk=1, threads=threads)
    for number, (term, times) in enumerate(terms.items()):
        having = sum(mine[number].size for mine in places) if of is None else of.having.get(term, 0)
        weights.append(times * math.log1p((pages - having + 0.5) / (having + 0.5)))
    over_ranges(score, len(files), chunk=1, threads=threads)
    return Scores(scores, sum(weights, start=0.0))


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


def _located(file: PostingsFile, live: npt.NDArray[np.bool_] | None, term: str) -> Place:
    """Where the postings of a term are; those of live pages alone are read at once."""
    place = file.locate(term)
    if live is None or not place.size:
        return place
    rows, frequencies = file.read(place)
    stays = live[rows]
    return place._replace(size=int(stays.sum()), found=(rows[stays], frequencies[stays]))
