"""What a search returns: hits, and what finding them cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a search. Queries of one batch share a scan: bytes and seconds are those of the
    whole batch."""

    pages_scanned: int  # pages scored by their codes, summed over queries if they had candidates
    pages_regenerated: int
    bytes_read: int
    seconds: float
    pages_estimated: int = 0  # pages scored by their PQ codes, to choose the candidates
    encode_seconds: float = 0.0  # to encode a Retriever's question, and to load its encoder


class Hit(NamedTuple):
    """One page that a search found."""

    id: str
    score: float
    metadata: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Hits:
    """The best pages for one query, best first: three columns, or a sequence of `Hit`s."""

    ids: list[str]
    scores: list[float]
    metadata: list[dict[str, Any]]
    cost: Cost

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Hit]:
        return map(Hit, self.ids, self.scores, self.metadata)


class Ranking(NamedTuple):
    """Positions and scores of the best pages of each query, best first, and what they cost."""

    positions: list[npt.NDArray[np.int64]]
    scores: list[npt.NDArray[np.float32]]
    cost: Cost


def hits_of(ranking: Ranking, record: Callable[[int], tuple[str, dict[str, Any]]]) -> list[Hits]:
    """The hits of a ranking; `record` returns id and metadata of the page at a position."""
    results = []
    for positions, scores in zip(ranking.positions, ranking.scores, strict=True):
        found = [record(int(position)) for position in positions]
        ids, metadata = [page_id for page_id, _ in found], [entry for _, entry in found]
        results.append(Hits(ids, scores.astype(float).tolist(), metadata, ranking.cost))
    return results
