"""nDCG@5 of a code on held-out queries, searched as an index would."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.codec.readout.decoder import AnyDecoder, Unrolled, regenerated, with_steps
from glie.codec.readout.refiner import AnyRefiner, refined
from glie.index.memory import search_codes
from glie.measures import DEPTH, each_measure
from glie.pages import Pages, Queries

SHORTER = (0.5, 0.25, 0.0)  # shares of the decoder's steps that are tried


class BestSteps(NamedTuple):
    """nDCG@5 with the best share of the decoder's steps."""

    score: float
    share: float
    error: float = 0.0  # standard error of the gain over normalised k-means


class Holdout:
    """Held-out queries and the rows of their relevant pages."""

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
        self._last: tuple[AnyRefiner, dict[int, Codes]] | None = None
        self._free = {k: self._each(code, None) for k, code in codes.items()}
        self.free = {k: float(scores.mean()) for k, scores in self._free.items()}

    def single_stage(self, refiner: AnyRefiner) -> dict[int, float]:
        """Score of the refined code alone, by budget."""
        return {k: self._ndcg(codes, None) for k, codes in self._refined(refiner).items()}

    def cascade(self, refiner: AnyRefiner, decoder: AnyDecoder) -> dict[int, float]:
        """Score with the shortlist regenerated, by budget."""
        return {k: self._ndcg(codes, decoder) for k, codes in self._refined(refiner).items()}

    def _refined(self, refiner: AnyRefiner) -> dict[int, Codes]:
        """The refined codes of all pages, cached for the last refiner."""
        if self._last is None or self._last[0] is not refiner:
            codes = {k: refined(refiner, free, self.pages) for k, free in self.codes.items()}
            self._last = refiner, codes
        return self._last[1]

    def single_stage_errors(self, refiner: AnyRefiner) -> dict[int, float]:
        """The standard error of the gain of the refined code alone, by budget."""
        found = self._refined(refiner).items()
        return {k: standard_error(self._each(code, None) - self._free[k]) for k, code in found}

    def best_steps(self, refiner: AnyRefiner, decoder: AnyDecoder) -> dict[int, BestSteps]:
        """The best length of the decoder's steps, by budget.

        A large k makes small clusters, for which shorter steps can be better. The whole length
        stays unless a shorter one is clearly better.
        """
        best = {}
        for k, codes in self._refined(refiner).items():
            chosen, kept = 1.0, self._each(codes, decoder)
            for share in SHORTER:
                tried = self._each(codes, with_steps(decoder, share) if share else None)
                if clearly_better(tried, kept):
                    chosen, kept = share, tried
            error = standard_error(kept - self._free[k])
            best[k] = BestSteps(float(kept.mean()), chosen, error)
        return best

    def _ndcg(self, codes: Codes, decoder: AnyDecoder | None) -> float:
        return float(self._each(codes, decoder).mean())

    def _each(self, codes: Codes, decoder: AnyDecoder | None) -> npt.NDArray[np.float64]:
        """nDCG@5 of every query."""
        regenerate = None
        if decoder is not None:
            regenerate = functools.partial(regenerated, Unrolled(decoder))
        found = search_codes(self.queries, codes, regenerate, DEPTH).positions
        rankings = {
            query: [str(row) for row in rows]
            for query, rows in zip(self.queries.ids, found, strict=True)
        }
        return each_measure(self.qrels, rankings, ["ndcg_at_5"])["ndcg_at_5"]


def clearly_better(scores: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> bool:
    """Whether the mean gain over `others`, on the same queries, exceeds its standard error."""
    gains = scores - others
    return bool(gains.mean() > standard_error(gains))


def standard_error(gains: npt.NDArray[np.float64]) -> float:
    """The standard error of their mean; 0 for a single one."""
    return float(gains.std(ddof=1) / len(gains) ** 0.5) if len(gains) > 1 else 0.0
