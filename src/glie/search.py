"""Searching codes: exact MaxSim over every stored page, block by block, keeping the best."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codes import used_rows
from glie.kernels.maxsim import maxsim, prepare
from glie.pages import Queries

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

SCORES_PER_BLOCK = 4_000_000  # 16 MB of scores at a time, whatever the size of the index


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

    vectors: npt.NDArray[Any]  # (P, k, D) bfloat16 bits or float32
    counts: npt.NDArray[np.uint16]  # (P, k)
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
        _, k, dim = block.vectors.shape
        flat = block.vectors.reshape(-1, dim)
        starts, ends = used_rows(block.counts)
        for at in range(0, len(block.rows), step):
            rows = block.rows[at : at + step]
            scores = maxsim(queries.vectors, queries.offsets, flat, starts[rows], ends[rows])
            for q in range(len(queries)):
                positions = np.concatenate([best_positions[q], block.first + rows])
                merged = np.concatenate([best_scores[q], scores[q]])
                keep = best_first(merged, top)
                best_positions[q], best_scores[q] = positions[keep], merged[keep]
            pages += len(rows)
            bytes_read += len(rows) * k * (dim * block.vectors.itemsize + block.counts.itemsize)
    cost = Cost(pages, 0, bytes_read, time.perf_counter() - began)
    return Ranking(best_positions, best_scores, cost)


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
