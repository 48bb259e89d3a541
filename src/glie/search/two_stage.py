"""Search in two stages: rank pages by their codes, then rerank the shortlist by reconstructed
vectors."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.pages import Queries
from glie.search.page_cache import PageCache
from glie.search.rerank import rerank
from glie.search.results import Ranking


class Source(Protocol):
    """The stored pages that one search may find, numbered by position."""

    @property
    def cache(self) -> PageCache | None:
        """What reconstructs pages; None if nothing can."""
        ...

    def rank(self, queries: Queries, count: int) -> Ranking:
        """The `count` best pages of each query by their codes."""
        ...

    def codes_at(self, positions: npt.NDArray[np.int64]) -> Codes:
        """The codes of pages that `rank` found; positions ascend."""
        ...


def two_stage(source: Source, queries: Queries, top: int, shortlist: int) -> Ranking:
    """The `top` best pages of each query: ranked by their codes, the first `shortlist` of them
    reranked by exact MaxSim over their reconstructed vectors.

    The scores descend through both: a reconstructed page contains its stored vectors, so its score
    can only rise. (With numbers of a few bits, up to rounding: the scan rotates its vectors.)
    """
    cache = source.cache if shortlist else None
    found = source.rank(queries, top if cache is None else max(top, shortlist))
    if cache is not None:
        found = rerank(queries, found, source.codes_at, cache, shortlist)
    return Ranking(
        [positions[:top] for positions in found.positions],
        [scores[:top] for scores in found.scores],
        found.cost,
    )
