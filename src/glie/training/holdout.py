"""What a code is worth on questions that it was not fitted on: nDCG@5, as search would answer."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from glie.codec.codec import refined
from glie.codec.codes import Codes
from glie.codec.decoder import Decoder, SlotTable, regenerated
from glie.codec.refiner import Refiner
from glie.evaluation.measures import DEPTH, mean_ndcg_at_5, search_codes
from glie.pages import Pages, Queries


class Holdout:
    """Questions set aside, with the pages that answer them, by row."""

    def __init__(
        self,
        pages: Pages,
        queries: Queries,
        relevant: Sequence[Sequence[int]],
        codes: dict[int, Codes],
    ) -> None:
        self.pages, self.queries, self.codes = pages, queries, codes
        self.qrels = {
            query: {str(row): 1 for row in rows}
            for query, rows in zip(queries.ids, relevant, strict=True)
        }
        self.free = {k: self._ndcg(code, None) for k, code in codes.items()}

    def single_stage(self, refiner: Refiner) -> dict[int, float]:
        """By budget, of the refined code alone."""
        return {k: self._ndcg(self.refined(refiner, k), None) for k in self.codes}

    def cascade(self, refiner: Refiner, decoder: Decoder) -> dict[int, float]:
        """By budget, with the shortlist regenerated."""
        return {k: self._ndcg(self.refined(refiner, k), decoder) for k in self.codes}

    def refined(self, refiner: Refiner, k: int) -> Codes:
        return refined(refiner, self.codes[k], self.pages)

    def _ndcg(self, codes: Codes, decoder: Decoder | None) -> float:
        regenerate = None
        if decoder is not None:
            regenerate = functools.partial(regenerated, SlotTable(decoder))
        found = search_codes(self.queries, codes, regenerate, DEPTH)
        rankings = {
            query: [str(row) for row in rows]
            for query, rows in zip(self.queries.ids, found, strict=True)
        }
        return mean_ndcg_at_5(self.qrels, rankings)
