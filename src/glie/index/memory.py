"""Search of codes in memory, with the results of an index on disk: for fits and evaluations."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.codec.readout.base import SHORTLIST
from glie.index.segment import StoredCodes
from glie.kernels.maxsim import maxsim
from glie.kernels.top_k import top_k
from glie.pages import Pages, Queries
from glie.search.page_cache import PageCache
from glie.search.results import Cost, Ranking
from glie.search.scan import CodeBlock, scan, warm_up
from glie.search.two_stage import two_stage


class CodesInMemory:
    """Codes as an index stores them, added part by part: the vectors of all pages are never in
    memory in full precision."""

    def __init__(self, parts: Iterable[Codes], size: Callable[[Codes], int] | None = None) -> None:
        """`size` counts the bytes of a part, if they are not those that an index would store."""
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
        """Stored bytes of a page, without its id and metadata."""
        return self._bytes / len(self.ids)

    def take(self, rows: npt.NDArray[np.int64]) -> Codes:
        """The codes of some pages, rounded as they are stored."""
        firsts = np.array([block.first for block in self.blocks])
        where = np.searchsorted(firsts, rows, side="right") - 1
        found = [
            self._parts[w].take(np.array([row - firsts[w]]))
            for w, row in zip(where, rows, strict=True)
        ]
        return StoredCodes.joined(found).read([self.ids[row] for row in rows])


class _Selection(NamedTuple):
    """All pages of some codes; `search.two_stage` reads it."""

    stored: CodesInMemory
    cache: PageCache | None

    def rank(self, queries: Queries, count: int) -> Ranking:
        return scan(queries, self.stored.blocks, count)

    def codes_at(self, positions: npt.NDArray[np.int64]) -> Codes:
        return self.stored.take(positions)


def search_codes(
    queries: Queries,
    codes: Codes | CodesInMemory,
    regenerate: Callable[[Codes], Pages] | None,
    top: int,
    shortlist: int = SHORTLIST,
) -> Ranking:
    """The best pages of each query, by row, as an index of these codes would find them.
    `regenerate` reconstructs the shortlist; None: codes alone."""
    stored = codes if isinstance(codes, CodesInMemory) else CodesInMemory([codes])
    cache = None if regenerate is None else PageCache(regenerate, most_bytes=0)
    return two_stage(_Selection(stored, cache), queries, top, shortlist)


def search_oracle(
    queries: Queries,
    codes: Codes | CodesInMemory,
    read: Callable[[Codes], Pages],
    top: int,
    shortlist: int = SHORTLIST,
) -> Ranking:
    """`search_codes` with the true vectors of the shortlist. The seconds do not include `read`."""
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
    """The best pages of each query by exact MaxSim over all vectors, block by block."""
    warm_up()
    positions = [np.empty(0, np.int64) for _ in queries.ids]
    scores = [np.empty(0, np.float32) for _ in queries.ids]
    pages = read = 0
    seconds = 0.0  # of the search, without the reading of blocks
    for block in blocks:
        began = time.perf_counter()
        rows = block.offsets[:-1], block.offsets[1:]
        found = maxsim(queries.vectors, queries.offsets, block.vectors, *rows)
        for query, mine in enumerate(found):
            best = top_k(mine, top)
            merged = np.concatenate([scores[query], mine[best]])
            keep = top_k(merged, top)
            positions[query] = np.concatenate([positions[query], pages + best])[keep]
            scores[query] = merged[keep]
        pages += len(block)
        read += 2 * block.vectors.size
        seconds += time.perf_counter() - began
    return Ranking(positions, scores, Cost(pages, 0, read, seconds))
