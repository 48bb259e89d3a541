"""The first stage: MaxSim over stored codes, of all pages or of candidates.

Codes of a few bits are scanned twice. A coarse MaxSim in small integers comes with a bound on its
error; only pages that can still be among the best are scored exactly.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.candidates.ivf import (
    EncodedBlock,
    IvfPq,
    candidates_for,
    find_candidates,
    probes_for,
)
from glie.codec.codes import used_rows
from glie.kernels import pq
from glie.kernels.coarse import coarse_maxsim, is_worthwhile
from glie.kernels.maxsim import maxsim, products_of
from glie.kernels.quantize import BFLOAT16, Packed
from glie.kernels.small import is_small
from glie.kernels.top_k import top_k
from glie.pages import Queries
from glie.search.results import Cost, Ranking

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

SCORES_PER_STEP = 1_000_000  # scores held at a time: 4 MB, whatever the size of the index
FEW_PAGES = 1000  # up to this many pages, and 4 times those wanted, skip the coarse scan


class CodeBlock(NamedTuple):
    """Rows `rows` of some stored codes; row r is the page at position first + r."""

    vectors: Packed  # (P, k, B)
    counts: npt.NDArray[Any]  # (P, k), as they are stored: 0 in an unused slot
    first: int
    rows: Ints


class CandidateBlock(NamedTuple):
    """Stored codes with their PQ codes; row r is the page at position first + r."""

    vectors: Packed
    counts: npt.NDArray[Any]
    first: int
    encoded: EncodedBlock


@functools.cache
def warm_up() -> None:
    """Load the compiled loops, so that the seconds of a search do not include it."""
    import glie.kernels._compiled  # noqa: F401  (now nothing is small)

    token, one = np.ones((1, 1), np.float32), np.array([0, 1])
    for dtype in (BFLOAT16, "int8"):  # one loop for all types of a few bits
        stored = Packed.of(token, dtype)
        stored.rows.setflags(write=False)  # as a mapped file is
        maxsim(token, one, stored, one[:1], one[1:])
    coarse_maxsim(token, one, stored, one[:1], one[1:])  # one for all types


class _Part(NamedTuple):
    """Some pages of one block: rows starts[i] to ends[i] of its vectors for each position."""

    vectors: Packed  # (P * k, B)
    starts: Ints
    ends: Ints
    positions: Ints

    @property
    def rows(self) -> tuple[Packed, Ints, Ints]:
        return self.vectors, self.starts, self.ends

    def take(self, places: Ints) -> _Part:
        starts, ends, positions = self.starts[places], self.ends[places], self.positions[places]
        return _Part(self.vectors, starts, ends, positions)


def scan(queries: Queries, blocks: Iterable[CodeBlock], top: int) -> Ranking:
    """The `top` best pages of each query. Equal scores keep the order of insertion."""
    blocks = list(blocks) if len(queries) else []
    if not is_small(sum(_products(queries, block) for block in blocks)):
        warm_up()
    began = time.perf_counter()
    best_positions = [np.empty(0, np.int64) for _ in queries.ids]
    best_scores = [np.empty(0, np.float32) for _ in queries.ids]
    for parts in _steps(blocks, max(1, SCORES_PER_STEP // max(len(queries), 1))):
        floors = [scores[-1] if len(scores) == top else -np.inf for scores in best_scores]
        for q, (positions, scores) in enumerate(_contenders(queries, parts, floors, top)):
            positions = np.concatenate([best_positions[q], positions])
            scores = np.concatenate([best_scores[q], scores])
            keep = top_k(scores, top)
            best_positions[q], best_scores[q] = positions[keep], scores[keep]
    pages = sum(len(block.rows) for block in blocks)
    bytes_read = sum(len(block.rows) * _page_bytes(block) for block in blocks)
    cost = Cost(pages, 0, bytes_read, time.perf_counter() - began)
    return Ranking(best_positions, best_scores, cost)


def _steps(blocks: Sequence[CodeBlock], most: int) -> Iterator[list[_Part]]:
    """The pages of all blocks, up to `most` at a time."""
    parts, room = list[_Part](), most
    for block in blocks:
        flat = block.vectors._replace(
            rows=block.vectors.rows.reshape(-1, block.vectors.rows.shape[2])
        )
        at = 0
        while at < len(block.rows):
            rows = block.rows[at : at + room]
            parts.append(_Part(flat, *used_rows(block.counts, rows), block.first + rows))
            at, room = at + len(rows), room - len(rows)
            if not room:
                yield parts
                parts, room = [], most
    if parts:
        yield parts


def _products(queries: Queries, block: CodeBlock) -> int:
    """The most numbers that are multiplied to score a block."""
    return len(block.rows) * int(block.vectors.rows.shape[1]) * queries.vectors.size


def _page_bytes(block: CodeBlock) -> int:
    """What is read of a page."""
    k, row_bytes = map(int, block.vectors.rows.shape[1:])
    return k * (row_bytes + block.counts.itemsize)


def _contenders(
    queries: Queries, parts: Sequence[_Part], floors: list[float], top: int
) -> Iterator[tuple[Ints, Floats]]:
    """Positions and scores of the pages that can be among the `top` best of each query: at least
    all whose score reaches the query's floor, perhaps more."""
    pages = sum(len(part.positions) for part in parts)
    products = sum(products_of(queries.vectors, *part.rows[1:]) for part in parts)
    few = pages < FEW_PAGES + 4 * top or is_small(products)
    if few or not is_worthwhile(parts[0].vectors):
        positions = np.concatenate([part.positions for part in parts])
        exact = [maxsim(queries.vectors, queries.offsets, *part.rows) for part in parts]
        yield from ((positions, scores) for scores in np.concatenate(exact, axis=1))
        return
    coarse = [coarse_maxsim(queries.vectors, queries.offsets, *part.rows) for part in parts]
    bounds = np.max([bound for _, bound in coarse], axis=0)
    ends = np.cumsum([len(part.positions) for part in parts])
    for q, scores in enumerate(np.concatenate([scores for scores, _ in coarse], axis=1)):
        last = np.partition(scores, pages - top)[pages - top]
        places = np.flatnonzero(scores >= max(floors[q], last - bounds[q]) - bounds[q])
        one = queries.slice(q, q + 1)
        some = [
            part.take(mine - (end - len(part.positions)))
            for part, end, mine in zip(
                parts, ends, np.split(places, np.searchsorted(places, ends[:-1])), strict=True
            )
            if len(mine)
        ]
        exact = [maxsim(one.vectors, one.offsets, *part.rows)[0] for part in some]
        yield np.concatenate([part.positions for part in some]), np.concatenate(exact)


def scan_candidates(
    queries: Queries,
    blocks: Sequence[CandidateBlock],
    ivf_pq: IvfPq,
    top: int,
    *,
    probes: int | None = None,
    candidates: int | None = None,
) -> Ranking:
    """The `top` best pages of each query among its candidates."""
    warm_up()
    pq.warm_up()
    began = time.perf_counter()
    encoded = [block.encoded for block in blocks]
    pages = sum(block.pages for block in encoded)
    if candidates is None:
        candidates = candidates_for(pages, top)
    wanted = min(pages, max(candidates, top))
    if probes is None:
        probes = probes_for(ivf_pq.lists, blocks[0].vectors.rows.shape[1])
    positions, scores = list[Ints](), list[Floats]()
    scanned = estimated = bytes_read = 0
    for q in range(len(queries)):
        query = queries.slice(q, q + 1)
        chosen = find_candidates(ivf_pq, query.vectors, encoded, wanted, probes)
        codes = [
            CodeBlock(block.vectors, block.counts, block.first, rows)
            for block, rows in zip(blocks, chosen.rows, strict=True)
        ]
        found = scan(query, codes, top)
        positions += found.positions
        scores += found.scores
        scanned += found.cost.pages_scanned
        estimated += chosen.estimated
        bytes_read += chosen.bytes_read + found.cost.bytes_read
    seconds = time.perf_counter() - began
    return Ranking(positions, scores, Cost(scanned, 0, bytes_read, seconds, estimated))
