"""Codecs and centroids fitted for an experiment, on other pages than those measured."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from glie.codec.codec import Codec
from glie.codec.readout.generative import Generative
from glie.evaluation.baselines import ResidualCode, pooled
from glie.evaluation.encoded import Encoded, joined
from glie.evaluation.methods import with_networks
from glie.evaluation.plan import Plan, check_others, recipe_for
from glie.evaluation.store import Store, fingerprint
from glie.progress import OnProgress, Progress, ignore
from glie.storage import digest
from glie.training.fit import fit
from glie.training.fitter import FitProgress

RESIDUAL_VECTORS = 500_000  # at most, before pooling, to fit centroids on


class Codecs:
    """The fitted codecs to measure: one that is given, or codecs fitted on some sets."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        *,
        given: Codec | None = None,
        fit_on: Sequence[Encoded] | None = None,
        own: Mapping[str, Encoded] | None = None,
        sets: Sequence[Encoded] = (),
        progress: OnProgress = ignore,
    ) -> None:
        """Give a codec, the sets to fit one on, or a set to fit on for each of `sets`, by its name;
        otherwise, each set is measured by a codec of the others of `sets`."""
        if given is None and fit_on is None and own is None:
            check_others(sets)
        self.plan, self.store, self.given, self.fit_on = plan, store, given, fit_on
        self.own, self.sets, self.progress = own, sets, progress
        self._residual_codes: dict[str, ResidualCode] = {}

    def sources(self, encoded: Encoded) -> Sequence[Encoded]:
        """The sets that the codec for a set is fitted on."""
        if self.given is not None:
            return []
        if self.fit_on is not None:
            return self.fit_on
        if self.own is not None:
            return [self.own[encoded.name]]
        return [other for other in self.sets if other is not encoded]

    def pages(self, encoded: Encoded) -> int:
        """The number of pages that the codec for a set can be fitted on."""
        return sum(len(source.page_ids) for source in self.sources(encoded))

    @property
    def fewest_pages(self) -> int:
        """The same, of the set for which there are the fewest."""
        return min(map(self.pages, self.sets))

    def seeds(self) -> Sequence[int]:
        return self.plan.seeds if self.given is None else (0,)

    def codec(
        self,
        encoded: Encoded,
        seed: int,
        *,
        budgets: Sequence[int],
        capacity: tuple[int, int] | None = None,
        share: float = 1.0,
    ) -> Codec:
        if self.given is not None:
            return with_networks(self.given)
        recipe = recipe_for(self.plan)
        if capacity is not None:
            recipe = dataclasses.replace(recipe, width=capacity[0], depth=capacity[1])
        sources = self.sources(encoded)
        decides = [[fingerprint(source) for source in sources], dataclasses.asdict(recipe)]
        key = digest(json.dumps([*decides, sorted(budgets), share]).encode())
        title = "+".join(source.name for source in sources)

        def show(step: FitProgress) -> None:
            what = f"steps of the fit on {title}, seed {seed}"
            self.progress(Progress(what, step.done, step.total))

        def make() -> Codec:
            self.progress(Progress(f"fitting on {title}, seed {seed}"))
            pages, queries, relevant = joined(sources, share, seed)
            return fit(
                pages,
                queries,
                relevant,
                budgets,
                recipe=recipe,
                seed=seed,
                encoder=sources[0].encoder,
                progress=show,
            )

        return with_networks(self.store.codec(f"{title[:80]}-seed{seed}-{key}", make))

    def residual_key(self, encoded: Encoded, bytes_per_page: int, seed: int) -> str:
        """A digest of the inputs of a residual code."""
        decides = [fingerprint(source) for source in self.sources(encoded)]
        return digest(json.dumps([decides, bytes_per_page, seed]).encode())

    def residual_code(self, encoded: Encoded, bytes_per_page: int, seed: int) -> ResidualCode:
        """PLAID's centroids for a budget, fitted on the pages that a codec is fitted on."""
        key = self.residual_key(encoded, bytes_per_page, seed)
        if key not in self._residual_codes:
            sources = self.sources(encoded)
            title = "+".join(source.name for source in sources)
            what = f"fitting centroids on {title}, {bytes_per_page:,} bytes a page"
            self.progress(Progress(what))
            vectors = sum(int(source.lengths.sum()) for source in sources)
            pages, *_ = joined(sources, min(1.0, RESIDUAL_VECTORS / vectors), seed)
            codes = pooled(pages, bytes_per_page)
            self._residual_codes[key] = ResidualCode.fit(codes.vectors[codes.counts > 0], seed)
        return self._residual_codes[key]


def facts(codec: Codec) -> dict[str, Any]:
    """Facts for the tables about a fitted codec, or about the tables of an adapted one."""
    readout, notes = codec.readout, codec.notes
    if isinstance(readout, Generative):
        sizes = (array.size for array in (*readout.fitted.refiner, *readout.fitted.decoder))
        kept = {name: notes.get(name) for name in ("pages", "queries", "steps", "seconds")}
        return {"parameters": int(sum(sizes)), **kept}
    if "adapted_to" in notes:
        _, tables = readout.to_files()
        size = sum(map(len, tables.values()))
        return {"codebook_bytes": size, "pages": notes["adapted_to"]}
    return {}
