"""What a search returns: hits, and what finding them cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
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
    missing: tuple[str, ...] = ()  # shards that did not answer in time (glie.distributed)


class Hit(NamedTuple):
    """One page that a search found."""

    id: str
    score: float
    metadata: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Hits:
    """The best pages for one query, best first: three columns, or a sequence of `Hit`s.

    If words were searched too, a score is the sum of what `meaning` and `words` added to it.
    """

    ids: list[str]
    scores: list[float]
    metadata: list[dict[str, Any]]
    cost: Cost
    meaning: list[float] | None = None
    words: list[float] | None = None
    # of a Retriever: how well each page matches; 1 is what questions reach that have nothing to do
    # with the index (glie.strength)
    strength: list[float] | None = dataclasses.field(default=None, kw_only=True)
    # of a question that the encoder does not read; None: it does, or that is not known
    language: str | None = dataclasses.field(default=None, kw_only=True)

    @property
    def weak(self) -> bool:
        """Whether nothing matches well, as far as that is known."""
        return self.strength is not None and max(self.strength, default=0.0) < 1

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def parts(self) -> dict[str, list[float]]:
        """What has added to the scores, by name; empty if meaning alone has."""
        named = {"meaning": self.meaning, "words": self.words}
        return {name: part for name, part in named.items() if part is not None}

    def take(self, rows: Sequence[int]) -> Hits:
        """Some of the hits, by row."""
        columns: dict[str, Any] = {
            name: [column[row] for row in rows]
            for name, column in vars(self).items()
            if isinstance(column, list)
        }
        return dataclasses.replace(self, **columns)

    def __iter__(self) -> Iterator[Hit]:
        return map(Hit, self.ids, self.scores, self.metadata)


class Parts(NamedTuple):
    """What meaning and words have added to the scores of some pages."""

    meaning: npt.NDArray[np.float32]
    words: npt.NDArray[np.float32]


class Ranking(NamedTuple):
    """Positions and scores of the best pages of each query, best first, and what they cost."""

    positions: list[npt.NDArray[np.int64]]
    scores: list[npt.NDArray[np.float32]]
    cost: Cost
    parts: list[Parts] | None = None  # of the scores, if words were searched too


def hits_of(ranking: Ranking, record: Callable[[int], tuple[str, dict[str, Any]]]) -> list[Hits]:
    """The hits of a ranking; `record` returns id and metadata of the page at a position."""
    results = []
    for q, (positions, scores) in enumerate(zip(ranking.positions, ranking.scores, strict=True)):
        found = [record(int(position)) for position in positions]
        ids, metadata = [page_id for page_id, _ in found], [entry for _, entry in found]
        parts = [] if ranking.parts is None else [_listed(part) for part in ranking.parts[q]]
        results.append(Hits(ids, _listed(scores), metadata, ranking.cost, *parts))
    return results


def _listed(scores: npt.NDArray[np.float32]) -> list[float]:
    return [float(score) for score in scores]
