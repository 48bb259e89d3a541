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

SCORES_PER_BLOCK = 4_000_000  # scores held at a time: 16 MB, whatever the size of the index
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


def scan(queries: Queries, blocks: Iterable[CodeBlock], top: int) -> Ranking:
    """The `top` best pages of each query. Equal scores keep the order of insertion."""
    blocks = list(blocks) if len(queries) else []
    if not is_small(sum(_products(queries, block) for block in blocks)):
        warm_up()
    began = time.perf_counter()
    best_positions = [np.empty(0, np.int64) for _ in queries.ids]
    best_scores = [np.empty(0, np.float32) for _ in queries.ids]
    pages = bytes_read = 0
    step = max(1, SCORES_PER_BLOCK // max(len(queries), 1))
    for block in blocks:
        _, k, row_bytes = block.vectors.rows.shape
        flat = block.vectors._replace(rows=block.vectors.rows.reshape(-1, row_bytes))
        for at in range(0, len(block.rows), step):
            rows = block.rows[at : at + step]
            starts, ends = used_rows(block.counts, rows)
            floors = [scores[-1] if len(scores) == top else -np.inf for scores in best_scores]
            found = _contenders(queries, flat, starts, ends, floors, top)
            for q, (places, scores) in enumerate(found):
                positions = np.concatenate([best_positions[q], block.first + rows[places]])
                merged = np.concatenate([best_scores[q], scores])
                keep = top_k(merged, top)
                best_positions[q], best_scores[q] = positions[keep], merged[keep]
            pages += len(rows)
            bytes_read += len(rows) * k * (row_bytes + block.counts.itemsize)
    cost = Cost(pages, 0, bytes_read, time.perf_counter() - began)
    return Ranking(best_positions, best_scores, cost)


def _products(queries: Queries, block: CodeBlock) -> int:
    """The most numbers that are multiplied to score a block."""
    return len(block.rows) * int(block.vectors.rows.shape[1]) * queries.vectors.size


def _contenders(
    queries: Queries, vectors: Packed, starts: Ints, ends: Ints, floors: list[float], top: int
) -> Iterator[tuple[Ints, Floats]]:
    """Row numbers and scores of the pages that can be among the `top` best of each query: at least
    all whose score reaches the query's floor, perhaps more."""
    few = len(starts) < FEW_PAGES + 4 * top or is_small(products_of(queries.vectors, starts, ends))
    if few or not is_worthwhile(vectors):
        everything = np.arange(len(starts))
        for scores in maxsim(queries.vectors, queries.offsets, vectors, starts, ends):
            yield everything, scores
        return
    coarse, bounds = coarse_maxsim(queries.vectors, queries.offsets, vectors, starts, ends)
    for q, (scores, bound) in enumerate(zip(coarse, bounds, strict=True)):
        last = np.partition(scores, len(scores) - top)[len(scores) - top]
        places = np.flatnonzero(scores >= max(floors[q], last - bound) - bound)
        one = queries.slice(q, q + 1)
        yield places, maxsim(one.vectors, one.offsets, vectors, starts[places], ends[places])[0]


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
        probes = probes_for(ivf_pq.lists)
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
