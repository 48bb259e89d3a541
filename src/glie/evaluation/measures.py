"""Measures of a ranking, by ir-measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.errors import MissingExtraError
from glie.evaluation.cache import Encoded
from glie.evaluation.datasets import Dataset
from glie.index.format import from_bfloat16, to_bfloat16
from glie.kernels.maxsim import maxsim
from glie.pages import Pages, Queries
from glie.search import SHORTLIST, CodeBlock, best_first, two_stage

DEPTH = 5  # pages of a ranking that are judged


def search_codes(
    queries: Queries, codes: Codes, regenerate: Callable[[Codes], Pages] | None, top: int
) -> list[npt.NDArray[np.int64]]:
    """The rows of the best pages for each query, as an index of these codes would find them:
    stored in bfloat16, the shortlist regenerated if there is a way to."""
    stored = to_bfloat16(codes.vectors)
    kept = Codes(from_bfloat16(stored), codes.norms, codes.counts, codes.ids)
    block = CodeBlock(stored, codes.counts, 0, np.arange(len(codes)))
    return two_stage(queries, [block], kept.take, regenerate, top, SHORTLIST).positions


def search_vectors(queries: Queries, pages: Pages, top: int) -> list[npt.NDArray[np.int64]]:
    """The same by exact MaxSim over all vectors of every page."""
    rows = pages.offsets[:-1], pages.offsets[1:]
    scores = maxsim(queries.vectors, queries.offsets, pages.vectors, *rows)
    return [best_first(row, top) for row in scores]


def ndcg_at_5(dataset: Dataset | Encoded, found: Sequence[npt.NDArray[np.int64]]) -> float:
    """Mean nDCG@5 of the rows of pages found for each query, best first, in the set's order."""
    if isinstance(dataset, Encoded):
        pages, queries = dataset.page_ids, dataset.queries.ids
    else:
        pages, queries = list(dataset.pages), list(dataset.queries)
    rankings = {
        query: [pages[row] for row in rows] for query, rows in zip(queries, found, strict=True)
    }
    return mean_ndcg_at_5(dataset.relevant, rankings)


def mean_ndcg_at_5(
    relevant: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Sequence[str]]
) -> float:
    """Mean nDCG@5 of rankings, best first, by query; `relevant` has grades, by query and page."""
    return float(np.mean(list(each_ndcg_at_5(relevant, rankings).values())))


def each_ndcg_at_5(
    relevant: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """nDCG@5 of every query's ranking, in the order of the queries."""
    try:
        import ir_measures
    except ImportError:
        raise MissingExtraError("measuring retrieval", "evaluate") from None
    # ranks, not scores: the measure must see our order, ties included
    run = {
        query: {page: float(-rank) for rank, page in enumerate(ranking)}
        for query, ranking in rankings.items()
    }
    found = {
        measured.query_id: float(measured.value)
        for measured in ir_measures.iter_calc([ir_measures.nDCG @ 5], relevant, run)
    }
    return {query: found.get(query, 0.0) for query in relevant}
