"""nDCG@5 of a code on held-out queries, searched as an index would."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.codec.readout.decoder import Decoder, Unrolled, regenerated, with_steps
from glie.codec.readout.refiner import Refiner, refined
from glie.index.memory import search_codes
from glie.measures import DEPTH, each_measure
from glie.pages import Pages, Queries

SHORTER = (0.5, 0.25, 0.0)  # shares of the decoder's steps that are tried


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
        self._last: tuple[Refiner, dict[int, Codes]] | None = None
        self.free = {k: self._ndcg(code, None) for k, code in codes.items()}

    def single_stage(self, refiner: Refiner) -> dict[int, float]:
        """Score of the refined code alone, by budget."""
        return {k: self._ndcg(codes, None) for k, codes in self._refined(refiner).items()}

    def cascade(self, refiner: Refiner, decoder: Decoder) -> dict[int, float]:
        """Score with the shortlist regenerated, by budget."""
        return {k: self._ndcg(codes, decoder) for k, codes in self._refined(refiner).items()}

    def _refined(self, refiner: Refiner) -> dict[int, Codes]:
        """The refined codes of all pages, cached for the last refiner."""
        if self._last is None or self._last[0] is not refiner:
            codes = {k: refined(refiner, free, self.pages) for k, free in self.codes.items()}
            self._last = refiner, codes
        return self._last[1]

    def best_steps(self, refiner: Refiner, decoder: Decoder) -> dict[int, tuple[float, float]]:
        """By budget: the best share of the decoder's steps, and nDCG@5 with it, score first.

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
            best[k] = float(kept.mean()), chosen
        return best

    def _ndcg(self, codes: Codes, decoder: Decoder | None) -> float:
        return float(self._each(codes, decoder).mean())

    def _each(self, codes: Codes, decoder: Decoder | None) -> npt.NDArray[np.float64]:
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
    error = gains.std(ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return bool(gains.mean() > error)
