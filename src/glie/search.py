"""Searching codes in two stages: MaxSim over every stored page, block by block, keeping the best,
and then exact MaxSim over the regenerated vectors of a shortlist."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes, used_rows
from glie.kernels.coarse import coarse_maxsim
from glie.kernels.maxsim import maxsim
from glie.kernels.quantize import BFLOAT16, BITS, Packed
from glie.pages import Pages, Queries

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

SCORES_PER_BLOCK = 4_000_000  # 16 MB of scores at a time, whatever the size of the index
FEW_PAGES = 1000  # so many, and four times those wanted, are scored exactly at once
PAGES_PER_REGENERATION = 4096
VECTORS_PER_REGENERATION = 65_536  # 34 MB of them at a time, at D = 128


@dataclasses.dataclass(frozen=True)
class Cost:
    """What answering took. A batch shares its scan: bytes and seconds are the whole batch's."""

    pages_scanned: int
    pages_regenerated: int
    bytes_read: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Hits:
    """The best pages for one query, best first."""

    ids: list[str]
    scores: list[float]
    metadata: list[dict[str, Any]]
    cost: Cost

    def __len__(self) -> int:
        return len(self.ids)


class CodeBlock(NamedTuple):
    """Some of the stored codes: rows `rows` of the arrays, at positions first + rows."""

    vectors: Packed  # (P, k, B)
    counts: npt.NDArray[Any]  # (P, k), as they are stored: 0 in a slot that is not used
    first: int
    rows: Ints


class Ranking(NamedTuple):
    """For each query the positions and scores of its best pages, and what the scan cost."""

    positions: list[Ints]
    scores: list[Floats]
    cost: Cost


def rank(queries: Queries, blocks: Iterable[CodeBlock], top: int) -> Ranking:
    """The `top` best pages a query; equal scores stand in the order of insertion."""
    prepare()
    began = time.perf_counter()
    best_positions = [np.empty(0, np.int64) for _ in queries.ids]
    best_scores = [np.empty(0, np.float32) for _ in queries.ids]
    pages = bytes_read = 0
    step = max(1, SCORES_PER_BLOCK // max(len(queries), 1))
    for block in blocks:
        _, k, row_bytes = block.vectors.rows.shape
        flat = block.vectors._replace(rows=block.vectors.rows.reshape(-1, row_bytes))
        starts, ends = used_rows(block.counts)
        for at in range(0, len(block.rows), step):
            rows = block.rows[at : at + step]
            floors = [scores[-1] if len(scores) == top else -np.inf for scores in best_scores]
            found = _contenders(queries, flat, starts[rows], ends[rows], floors, top)
            for q, (places, scores) in enumerate(found):
                positions = np.concatenate([best_positions[q], block.first + rows[places]])
                merged = np.concatenate([best_scores[q], scores])
                keep = best_first(merged, top)
                best_positions[q], best_scores[q] = positions[keep], merged[keep]
            pages += len(rows)
            bytes_read += len(rows) * k * (row_bytes + block.counts.itemsize)
    cost = Cost(pages, 0, bytes_read, time.perf_counter() - began)
    return Ranking(best_positions, best_scores, cost)


@functools.cache
def prepare() -> None:
    """Have the compiled loops in memory, so that what is timed next is only the search."""
    token, one = np.ones((1, 1), np.float32), np.array([0, 1])
    for dtype in (BFLOAT16, "int8"):  # one loop for all types of a few bits
        stored = Packed.of(token, dtype)
        stored.rows.setflags(write=False)  # as a mapped file is
        maxsim(token, one, stored, one[:1], one[1:])
    coarse_maxsim(token, one, stored, one[:1], one[1:])


def _contenders(
    queries: Queries, vectors: Packed, starts: Ints, ends: Ints, floors: list[float], top: int
) -> Iterator[tuple[Ints, Floats]]:
    """For each query the places and scores of all pages that can be among its `top` best, if that
    takes a score of at least its floor; perhaps of others."""
    if vectors.dtype not in BITS or len(starts) < FEW_PAGES + 4 * top:
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


def two_stage(
    queries: Queries,
    blocks: Iterable[CodeBlock],
    codes_at: Callable[[Ints], Codes],
    regenerate: Callable[[Codes], Pages] | None,
    top: int,
    shortlist: int,
) -> Ranking:
    """`rank`, and then the `shortlist` best pages of each query in the order of exact MaxSim over
    their regenerated vectors. The others keep their order behind them.

    That is also the order of the scores: a page contains its code once regenerated, so its score
    can only rise. (Where numbers are stored in a few bits, but for rounding: the scan goes over
    rotated vectors.)
    """
    found = rank(queries, blocks, max(top, shortlist if regenerate else 0))
    if shortlist and regenerate is not None:
        found = _rescored(queries, found, codes_at, regenerate, shortlist)
    return Ranking(
        [positions[:top] for positions in found.positions],
        [scores[:top] for scores in found.scores],
        found.cost,
    )


def _rescored(
    queries: Queries,
    found: Ranking,
    codes_at: Callable[[Ints], Codes],
    regenerate: Callable[[Codes], Pages],
    shortlist: int,
) -> Ranking:
    began = time.perf_counter()
    listed = [positions[:shortlist] for positions in found.positions]
    scores = [found_scores.copy() for found_scores in found.scores]
    # A page on several shortlists is regenerated once, with those that ask for it.
    wanted = np.unique(np.concatenate([np.empty(0, np.int64), *listed]))
    evidence_bytes = 0
    for at in range(0, len(wanted), PAGES_PER_REGENERATION):
        some = wanted[at : at + PAGES_PER_REGENERATION]
        codes = codes_at(some)
        evidence_bytes += 0 if codes.evidence is None else codes.evidence.data.nbytes
        parts = codes.counts.sum(axis=1, dtype=np.int64).cumsum() // VECTORS_PER_REGENERATION
        for part in np.unique(parts):
            mine = np.flatnonzero(parts == part)
            pages = regenerate(codes.take(mine))
            _score(queries, listed, some[mine], pages, scores)
    ranked = []
    for q, positions in enumerate(found.positions):
        order = np.arange(len(positions))
        # equal scores keep the first stage's order
        order[:shortlist] = np.argsort(-scores[q][:shortlist], kind="stable")
        ranked.append(positions[order])
        scores[q] = scores[q][order]
    cost = dataclasses.replace(
        found.cost,
        pages_regenerated=len(wanted),
        bytes_read=found.cost.bytes_read + evidence_bytes,
        seconds=found.cost.seconds + time.perf_counter() - began,
    )
    return Ranking(ranked, scores, cost)


def _score(
    queries: Queries, listed: list[Ints], positions: Ints, pages: Pages, scores: list[Floats]
) -> None:
    """Fill in the scores of those listed pages that are at these, consecutive, positions."""
    for q, mine in enumerate(listed):
        asked = np.flatnonzero((mine >= positions[0]) & (mine <= positions[-1]))
        if len(asked):
            rows = np.searchsorted(positions, mine[asked])
            tokens = queries.slice(q, q + 1)
            scores[q][asked] = maxsim(
                tokens.vectors,
                tokens.offsets,
                pages.vectors,
                pages.offsets[rows],
                pages.offsets[rows + 1],
            )[0]


def best_first(scores: Floats, top: int) -> Ints:
    """Where the `top` largest scores are, largest first, the earlier of equals first."""
    if top < len(scores):
        # everything that could be among the best, in order, then a stable sort of those few
        threshold = np.partition(scores, len(scores) - top)[len(scores) - top]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    order = np.argsort(-scores[candidates], kind="stable")[:top]
    return candidates[order]
