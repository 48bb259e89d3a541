"""Measures of rankings: nDCG and recall, by ir-measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from glie.errors import MissingExtraError

DEPTH = 5  # pages of a ranking that nDCG@5 needs
Judgements = Mapping[str, Mapping[str, int]]  # grades, by query and page
Rankings = Mapping[str, Sequence[str]]  # pages, best first, by query

# our names, and those of ir-measures
MEASURES = {
    "ndcg_at_5": "nDCG@5",
    "ndcg_at_10": "nDCG@10",
    "recall_at_5": "R@5",
    "recall_at_10": "R@10",
    "recall_at_100": "R@100",
}


class Judged(Protocol):
    """A set of questions with known answers."""

    @property
    def page_ids(self) -> Sequence[str]: ...

    @property
    def query_ids(self) -> Sequence[str]: ...

    @property
    def relevant(self) -> Judgements: ...


def ndcg_at_5(dataset: Judged, found: Sequence[npt.NDArray[np.int64]]) -> float:
    """Mean nDCG@5 of rankings: rows of pages for each query of the set, best first."""
    pages = dataset.page_ids
    rankings = {
        query: [pages[row] for row in rows]
        for query, rows in zip(dataset.query_ids, found, strict=True)
    }
    return float(np.mean(each_measure(dataset.relevant, rankings, ["ndcg_at_5"])["ndcg_at_5"]))


def each_measure(
    relevant: Judgements, rankings: Rankings, measures: Sequence[str] = tuple(MEASURES)
) -> dict[str, npt.NDArray[np.float64]]:
    """The measures of every query, in the order of the rankings."""
    try:
        import ir_measures
    except ImportError:
        raise MissingExtraError("measuring retrieval", "evaluate") from None
    # ranks instead of scores, so that ties keep our order
    run = {
        query: {page: float(-rank) for rank, page in enumerate(ranking)}
        for query, ranking in rankings.items()
    }
    asked = {ir_measures.parse_measure(MEASURES[name]): name for name in measures}
    found: dict[str, dict[str, float]] = {name: {} for name in measures}
    judged = {query: dict(relevant[query]) for query in rankings}
    for measured in ir_measures.iter_calc(list(asked), judged, run):
        found[asked[measured.measure]][measured.query_id] = float(measured.value)
    # a query without results is missing in the output and scores 0
    return {
        name: np.array([values.get(query, 0.0) for query in rankings])
        for name, values in found.items()
    }
