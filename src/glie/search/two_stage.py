"""Searching codes in two stages: MaxSim over every stored page, or over the candidates that a
candidate index names, block by block, keeping the best, and then exact MaxSim over the regenerated vectors
of a shortlist."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.candidates.ivf_pq import IvfPq
from glie.codec.codes import Codes, used_rows
from glie.errors import InputError, VectorError
from glie.kernels import pq
from glie.kernels.coarse import MOST_NUMBERS, coarse_maxsim
from glie.kernels.maxsim import maxsim
from glie.kernels.pq import PostingLists, PQCodes, Tables, estimates, pages_in_lists
from glie.kernels.quantize import BFLOAT16, BITS, Packed
from glie.pages import Pages, Queries
from glie.search.page_cache import PageCache
from glie.search.results import Cost, Ranking

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

SCORES_PER_BLOCK = 4_000_000  # 16 MB of scores at a time, whatever the size of the index
FEW_PAGES = 1000  # so many, and four times those wanted, are scored exactly at once
PAGES_PER_REGENERATION = 4096
VECTORS_PER_REGENERATION = 65_536  # 34 MB of them at a time, at D = 128
PROBES = 24  # looked into, times the square root of their number, shared by a query's vectors
CANDIDATES = 16  # scored exactly, times the square root of the number of pages ...
CANDIDATE_SHARE = 10  # ... but fewer than one page in so many, ...
CANDIDATES_EACH = 4  # ... and at least so many times the pages to be found


def questions_of(
    queries: Any, dim: int | None, place: object, *, normalize: bool = False
) -> Queries:
    """Queries for the vectors that are stored at some place."""
    questions = Queries.of(queries, normalize=normalize)
    if len(questions) and dim not in (None, questions.dim):
        raise VectorError(
            f"queries: their vectors have {questions.dim} numbers, those of {place} have {dim}; "
            "encode them with the encoder that made the index"
        )
    return questions


def check_number(name: str, number: object, least: int) -> None:
    """Refuse what is not a whole number of at least so much."""
    whole = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
    if not whole or number < least:  # type: ignore[operator]
        raise InputError(f"{name}: expected a whole number of at least {least}, found {number!r}")


class CodeBlock(NamedTuple):
    """Some of the stored codes: rows `rows` of the arrays, at positions first + rows."""

    vectors: Packed  # (P, k, B)
    counts: npt.NDArray[Any]  # (P, k), as they are stored: 0 in a slot that is not used
    first: int
    rows: Ints


class CandidateBlock(NamedTuple):
    """Codes with their PQ codes, at positions first, first + 1 and so on."""

    vectors: Packed
    counts: npt.NDArray[Any]
    first: int
    pq_codes: PQCodes
    lists: PostingLists  # of the pages by list
    allowed: Mask | None  # which pages may be found; None: all


def rank(queries: Queries, blocks: Iterable[CodeBlock], top: int) -> Ranking:
    """The `top` best pages a query; equal scores stand in the order of insertion."""
    prepare()
    began = time.perf_counter()
    best_positions = [np.empty(0, np.int64) for _ in queries.ids]
    best_scores = [np.empty(0, np.float32) for _ in queries.ids]
    pages = bytes_read = 0
    step = max(1, SCORES_PER_BLOCK // max(len(queries), 1))
    for block in blocks if len(queries) else ():
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
    coarsely = vectors.dtype in BITS and vectors.dim <= MOST_NUMBERS
    if not coarsely or len(starts) < FEW_PAGES + 4 * top:
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


def find(
    queries: Queries,
    blocks: Sequence[CandidateBlock],
    ivf_pq: IvfPq,
    top: int,
    *,
    probes: int | None = None,
    candidates: int | None = None,
) -> Ranking:
    """`rank` over candidates only: a query looks into the lists nearest to each of its vectors, as
    many as make `lists` together, estimates the pages that it meets there, and scores the best
    `candidates` of them."""
    prepare()
    pq.prepare()
    began = time.perf_counter()
    pages = sum(
        len(block.counts) if block.allowed is None else int(np.count_nonzero(block.allowed))
        for block in blocks
    )
    if candidates is None:
        candidates = max(candidates_for(pages), CANDIDATES_EACH * top)
    wanted = min(pages, max(candidates, top))
    if probes is None:
        probes = round(PROBES * math.sqrt(len(ivf_pq.coarse)))
    positions, scores = list[Ints](), list[Floats]()
    scanned = estimated = bytes_read = 0
    for q in range(len(queries)):
        query = queries.slice(q, q + 1)
        tables = ivf_pq.tables(query.vectors)
        probed = _probed(tables.by_token, blocks, probes, wanted)
        found = rank(query, _best_probed(tables, blocks, probed, wanted), top)
        positions += found.positions
        scores += found.scores
        scanned += found.cost.pages_scanned
        estimated += sum(map(len, probed))
        bytes_read += found.cost.bytes_read
        for block, rows in zip(blocks, probed, strict=True):
            bytes_read += len(rows) * block.pq_codes.page_bytes
    seconds = time.perf_counter() - began
    return Ranking(positions, scores, Cost(scanned, 0, bytes_read, seconds, estimated))


def candidates_for(pages: int) -> int:
    """How many of so many pages are scored exactly, unless many are to be found."""
    return min((pages - 1) // CANDIDATE_SHARE, round(CANDIDATES * math.sqrt(pages)))


def _probed(
    by_token: Floats, blocks: Sequence[CandidateBlock], probes: int, wanted: int
) -> list[Ints]:
    """The rows of each block that have a vector in one of the best lists of a token, whose scores
    are `by_token` (T, C): `lists` for all tokens together, and more where those hold fewer than the
    `wanted` pages."""
    tokens, count = by_token.shape
    each = -(-probes // tokens)
    while True:
        each = min(each, count)
        picked = np.unique(np.argpartition(by_token, count - each, axis=1)[:, count - each :])
        probed = []
        for block in blocks:
            marked = pages_in_lists(block.lists, picked, len(block.counts))
            if block.allowed is not None:
                marked &= block.allowed
            probed.append(np.flatnonzero(marked))
        if each == count or sum(map(len, probed)) >= wanted:
            return probed
        each *= 2


def _best_probed(
    tables: Tables, blocks: Sequence[CandidateBlock], probed: Sequence[Ints], wanted: int
) -> list[CodeBlock]:
    """The codes of those pages, out of rows `met` of each block, that are estimated best."""
    guesses = [
        estimates(tables, block.pq_codes, rows) for block, rows in zip(blocks, probed, strict=True)
    ]
    ends = np.cumsum([len(rows) for rows in probed])
    best = np.zeros(int(ends[-1]), bool)
    best[best_first(np.concatenate(guesses), wanted)] = True
    return [
        CodeBlock(block.vectors, block.counts, block.first, rows[mine])
        for block, rows, mine in zip(blocks, probed, np.split(best, ends[:-1]), strict=True)
    ]


def two_stage(
    queries: Queries,
    first_stage: Callable[[int], Ranking],
    codes_at: Callable[[Ints], Codes],
    regenerate: Callable[[Codes], Pages] | None,
    top: int,
    shortlist: int,
) -> Ranking:
    """The best pages by their codes, as many as `first_stage` is asked for, and then the
    `shortlist` best of each query in the order of exact MaxSim over their regenerated vectors. The
    others keep their order behind them.

    That is also the order of the scores: a page contains its code once regenerated, so its score
    can only rise. (Where numbers are stored in a few bits, but for rounding: the scan goes over
    rotated vectors.)
    """
    found = first_stage(max(top, shortlist if regenerate else 0))
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
    residual_bytes = cached = 0
    for at in range(0, len(wanted), PAGES_PER_REGENERATION):
        some = wanted[at : at + PAGES_PER_REGENERATION]
        codes = codes_at(some)
        residual_bytes += 0 if codes.residual is None else codes.residual.data.nbytes
        parts = codes.counts.sum(axis=1, dtype=np.int64).cumsum() // VECTORS_PER_REGENERATION
        for part in np.unique(parts):
            mine = np.flatnonzero(parts == part)
            if isinstance(regenerate, PageCache):
                cached += regenerate.cached(codes.ids[i] for i in mine.tolist())
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
        pages_regenerated=len(wanted) - cached,
        bytes_read=found.cost.bytes_read + residual_bytes,
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


def best_first(scores: Floats | npt.NDArray[np.int32], top: int) -> Ints:
    """Where the `top` largest scores are, largest first, the earlier of equals first."""
    if top < len(scores):
        # everything that could be among the best, in order, then a stable sort of those few
        threshold = np.partition(scores, len(scores) - top)[len(scores) - top]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    order = np.argsort(-scores[candidates], kind="stable")[:top]
    return candidates[order]
