"""The second stage: exact MaxSim over the reconstructed vectors of the shortlist."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.kernels.maxsim import maxsim
from glie.pages import Queries
from glie.search.page_cache import PageCache
from glie.search.results import Ranking

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

PAGES_PER_STEP = 4096  # whose codes are read at a time
VECTORS_PER_STEP = 65_536  # reconstructed at a time: 34 MB at D = 128


def rerank(
    queries: Queries,
    found: Ranking,
    codes_at: Callable[[Ints], Codes],
    cache: PageCache,
    shortlist: int,
) -> Ranking:
    """Reorder the first `shortlist` pages of each query by exact MaxSim over their reconstructed
    vectors. The pages behind them keep order and score. `codes_at` reads the codes at positions,
    which ascend."""
    began = time.perf_counter()
    listed = [positions[:shortlist] for positions in found.positions]
    scores = [found_scores.copy() for found_scores in found.scores]
    # a page on several shortlists is reconstructed once
    ascending = np.sort(np.concatenate([np.empty(0, np.int64), *listed]))
    wanted = ascending[np.diff(ascending, prepend=-1) > 0]
    residual_bytes = cached = 0
    for at in range(0, len(wanted), PAGES_PER_STEP):
        some = wanted[at : at + PAGES_PER_STEP]
        codes = codes_at(some)
        residual_bytes += 0 if codes.residual is None else codes.residual.data.nbytes
        if cache.scores_codes:  # no vectors are written
            cached += _score(queries, listed, some, codes, cache, scores)
            continue
        steps = codes.counts.sum(axis=1, dtype=np.int64).cumsum() // VECTORS_PER_STEP
        for step in np.flatnonzero(np.bincount(steps)):
            mine = np.flatnonzero(steps == step)
            cached += _score(queries, listed, some[mine], codes.take(mine), cache, scores)
    ranked = []
    for q, positions in enumerate(found.positions):
        order = np.arange(len(positions))
        # equal scores keep the order of the first stage
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
    queries: Queries,
    listed: list[Ints],
    positions: Ints,
    codes: Codes,
    cache: PageCache,
    scores: list[Floats],
) -> int:
    """Write the scores of these pages into `scores`, wherever they are listed; returns how many
    pages were cached. `positions` ascend, and no listed page lies between them that is not among
    them."""
    asked = [np.flatnonzero((mine >= positions[0]) & (mine <= positions[-1])) for mine in listed]
    if cache.scores_codes:
        for q, (mine, places) in enumerate(zip(listed, asked, strict=True)):
            if len(places):
                order = np.argsort(mine[places])
                rows = np.searchsorted(positions, mine[places][order])
                some = codes if len(rows) == len(codes) else codes.take(rows)
                scores[q][places[order]] = cache.scores(queries.slice(q, q + 1), some).scores[0]
        return 0
    pages, cached = cache.pages(codes)
    for q, (mine, places) in enumerate(zip(listed, asked, strict=True)):
        if len(places):
            rows = np.searchsorted(positions, mine[places])
            tokens = queries.slice(q, q + 1)
            bounds = pages.offsets[rows], pages.offsets[rows + 1]
            found = maxsim(tokens.vectors, tokens.offsets, pages.vectors, *bounds)
            scores[q][places] = found[0]
    return cached
