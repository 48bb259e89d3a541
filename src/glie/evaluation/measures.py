"""Measures of a ranking, by ir-measures."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from glie.errors import MissingExtraError
from glie.evaluation.datasets import Dataset
from glie.search import best_first

DEPTH = 100  # pages of a ranking that are judged


def ndcg_at_5(dataset: Dataset, scores: npt.NDArray[np.float32]) -> float:
    """Mean nDCG@5 of (Q, P) scores, queries and pages in the set's order."""
    try:
        import ir_measures
    except ImportError:
        raise MissingExtraError("measuring retrieval", "evaluate") from None
    pages = list(dataset.pages)
    run = {}
    for query, row in zip(dataset.queries, scores, strict=True):
        order = best_first(row, DEPTH)
        # ranks, not scores: the measure must see our order, ties included
        run[query] = {pages[page]: float(-rank) for rank, page in enumerate(order)}
    qrels = dataset.relevant
    return float(ir_measures.calc_aggregate([ir_measures.nDCG @ 5], qrels, run).popitem()[1])
