"""Codes searched in memory as an index on disk would search them: for fits and evaluations."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from glie.codec.codec import SHORTLIST
from glie.codec.codes import Codes
from glie.index.format import StoredCodes
from glie.kernels.maxsim import maxsim
from glie.pages import Pages, Queries
from glie.search.results import Cost, Ranking
from glie.search.two_stage import CodeBlock, best_first, prepare, rank, two_stage


class CodesInMemory:
    """Codes as an index stores them, taken in part by part: those of all pages need never be there
    in full precision."""

    def __init__(self, parts: Iterable[Codes], size: Callable[[Codes], int] | None = None) -> None:
        """`size` counts the bytes of codes that stand for others, more compact than an index has
        them."""
        self.blocks: list[CodeBlock] = []
        self.ids: list[str] = []
        self._parts: list[StoredCodes] = []
        self._bytes = 0
        for codes in parts:
            part = StoredCodes.of(codes)
            counts = part.sections["counts"]
            self.blocks.append(
                CodeBlock(part.vectors, counts, len(self.ids), np.arange(len(codes)))
            )
            self._parts.append(part)
            self._bytes += part.bytes if size is None else size(codes)
            self.ids.extend(codes.ids)

    @property
    def bytes_per_page(self) -> float:
        """What is stored of a page, without its id and metadata."""
        return self._bytes / len(self.ids)

    def take(self, rows: npt.NDArray[np.int64]) -> Codes:
        """The codes of some pages, as they are read back."""
        firsts = np.array([block.first for block in self.blocks])
        where = np.searchsorted(firsts, rows, side="right") - 1
        found = [
            self._parts[w].take(np.array([row - firsts[w]]))
            for w, row in zip(where, rows, strict=True)
        ]
        return StoredCodes.joined(found).read([self.ids[row] for row in rows])


def search_codes(
    queries: Queries,
    codes: Codes | CodesInMemory,
    regenerate: Callable[[Codes], Pages] | None,
    top: int,
    shortlist: int = SHORTLIST,
) -> Ranking:
    """The best pages for each query, by row, as an index of these codes would find them: rounded
    as it stores them, the shortlist regenerated if there is a way to."""
    stored = codes if isinstance(codes, CodesInMemory) else CodesInMemory([codes])

    def first_stage(count: int) -> Ranking:
        return rank(queries, stored.blocks, count)

    return two_stage(queries, first_stage, stored.take, regenerate, top, shortlist)


def search_oracle(
    queries: Queries,
    codes: Codes | CodesInMemory,
    read: Callable[[Codes], Pages],
    top: int,
    shortlist: int = SHORTLIST,
) -> Ranking:
    """The same with the true vectors of the shortlist; reading them back from a cache is not part
    of what it took."""
    spent = 0.0

    def timed(listed: Codes) -> Pages:
        nonlocal spent
        began = time.perf_counter()
        pages = read(listed)
        spent += time.perf_counter() - began
        return pages

    found = search_codes(queries, codes, timed, top, shortlist)
    seconds = found.cost.seconds - spent
    return found._replace(cost=dataclasses.replace(found.cost, seconds=seconds))


def search_vectors(queries: Queries, blocks: Iterable[Pages], top: int) -> Ranking:
    """The same by exact MaxSim over all vectors of every page, block after block."""
    prepare()
    positions = [np.empty(0, np.int64) for _ in queries.ids]
    scores = [np.empty(0, np.float32) for _ in queries.ids]
    pages = read = 0
    seconds = 0.0  # of the search: reading blocks back from a cache is not part of it
    for block in blocks:
        began = time.perf_counter()
        rows = block.offsets[:-1], block.offsets[1:]
        found = maxsim(queries.vectors, queries.offsets, block.vectors, *rows)
        for query, mine in enumerate(found):
            best = best_first(mine, top)
            merged = np.concatenate([scores[query], mine[best]])
            keep = best_first(merged, top)
            positions[query] = np.concatenate([positions[query], pages + best])[keep]
            scores[query] = merged[keep]
        pages += len(block)
        read += 2 * block.vectors.size
        seconds += time.perf_counter() - began
    return Ranking(positions, scores, Cost(pages, 0, read, seconds))
