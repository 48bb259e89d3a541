"""What a code is worth on questions that it was not fitted on: nDCG@5, as search would answer."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from glie.codec.codec import refined
from glie.codec.codes import Codes
from glie.codec.decoder import Decoder, SlotTable, regenerated, with_steps
from glie.codec.refiner import Refiner
from glie.evaluation.measures import DEPTH, mean_ndcg_at_5, search_codes
from glie.pages import Pages, Queries

SHARES = (0.0, 0.25, 0.5, 1.0)


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

    def measure(
        self, refiner: Refiner, decoder: Decoder
    ) -> tuple[dict[int, float], dict[int, float]]:
        """By budget: of the refined code alone, and with the shortlist regenerated."""
        single, cascade = {}, {}
        for k, free in self.codes.items():
            codes = refined(refiner, free, self.pages)
            single[k], cascade[k] = self._ndcg(codes, None), self._ndcg(codes, decoder)
        return single, cascade

    def best_steps(self, refiner: Refiner, decoder: Decoder) -> dict[int, tuple[float, float]]:
        """By budget: nDCG@5 with the share of the decoder's steps that is best, and that share.
        Small clusters, of which there are many at a large k, call for short steps."""
        best = {}
        for k, free in self.codes.items():
            codes = refined(refiner, free, self.pages)
            tried = [
                (self._ndcg(codes, with_steps(decoder, share) if share else None), share)
                for share in SHARES
            ]
            best[k] = max(tried, key=lambda found: (found[0], -found[1]))  # of equals, the shorter
        return best

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
