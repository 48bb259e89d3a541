"""A comparison: sets by name, and the plan to measure on them.

Errors are found early: the plan is checked first, then the sets are read. Encoding, fitting and
measuring come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from glie.codec.codec import Codec
from glie.errors import InputError
from glie.evaluation.datasets import load, sets_in
from glie.evaluation.encoded import Encoded
from glie.evaluation.experiment import run
from glie.evaluation.fits import Codecs
from glie.evaluation.methods import ADAPTED, PLAID
from glie.evaluation.plan import Plan, check_names, check_others, check_plan, without_codewords
from glie.evaluation.results import Results
from glie.evaluation.split import split_by_page
from glie.evaluation.store import Store, fingerprint
from glie.evaluation.vectors import vectors_of
from glie.geometry import CorpusGeometry
from glie.geometry import measure as measure_geometry
from glie.progress import OnProgress, ignore

OTHERS, OWN = "others", "own"
NETWORKS = (
    "glie-stage1 and glie: the fitted networks, measured at every k; a codec in use leaves them "
    "out at a k where they did not pay on its holdout."
)


class Measured(NamedTuple):
    """The results of a comparison, and its sets."""

    sets: list[Encoded]
    results: Results
    corpora: list[CorpusGeometry]  # if the plan has `geometry`


class Comparison:
    """Loaded sets, and the plan to measure on them."""

    def __init__(
        self,
        datasets: Sequence[str],
        plan: Plan,
        *,
        codec: Codec | None = None,
        fit_on: Sequence[str] = (),
        to: Path | None = None,
        trec: bool = False,
        language: str | None = None,
    ) -> None:
        """A name of a folder of sets stands for all of them. Give a codec, or name the sets to fit
        one on: ["others"] fits, for each set, on all the others; ["own"] splits each set by page,
        fits on one half and measures the other. `language` selects the questions of all sets."""
        check_plan(plan, codec=codec is not None, fits=bool(fit_on), report=to is not None)
        if trec and to is None:
            raise InputError(
                "--trec: run files are written into the results; name a folder with --to"
            )
        if codec is not None and fit_on:
            raise InputError("--codec and --fit-on: give one of them")
        if codec is not None and not codec.scores:
            raise InputError("--codec: not a fitted codec; glie-free is measured without one")
        others, self.own = list(fit_on) == [OTHERS], list(fit_on) == [OWN]
        self.datasets = [one for name in datasets for one in sets_in(name)]
        if others:
            check_others(self.datasets)
        self.plan, self.codec, self.fits = plan, codec, bool(fit_on)
        named = [] if others or self.own else fit_on
        self.fit_on = [one for name in named for one in sets_in(name)]
        self.store = Store(to, trec=trec)
        names = dict.fromkeys([*self.datasets, *self.fit_on])
        # by the name given
        self.loaded = {name: load(name, language=language) for name in names}
        check_names([self.loaded[name].name for name in self.datasets])

    def notes(self, vectors: Sequence[Encoded]) -> list[str]:
        """Notes for the report: where its codecs come from, and what is left out. `vectors` are
        the loaded sets, encoded, in their order."""
        encoded = self._by_name(vectors)
        sets = [encoded[name] for name in self.datasets]
        lines = [*self._fitted(sets), *without_codewords(sets, self.plan)]
        if self.plan.learned and (self.codec is not None or self.fits):
            lines.append(NETWORKS)
        if ADAPTED in self.plan.methods:
            lines.append(
                f"{ADAPTED}: its codebook is fitted on the pages of each set, never on a question; "
                "its bytes are counted."
            )
        return lines

    def _fitted(self, sets: Sequence[Encoded]) -> list[str]:
        """Notes on what was fitted, and on which sets."""
        codec = self.plan.learned
        if self.codec is not None:
            pages = self.codec.notes.get("pages")
            return [f"The codec was given; it was fitted on {pages} pages."] if codec else []
        if self.own:
            line = (
                "In-domain: each set is split by page, fitted on one half, measured on the other."
            )
            return [line, *(split_by_page(one).note for one in sets)]
        what = ["the codec"] if codec else []
        what += [f"the centroids of {PLAID}"] if PLAID in self.plan.methods else []
        if not self.fits or not what:
            return []
        fitted = " and ".join(what)
        if not self.fit_on:
            return [f"Zero-shot: each set is measured by {fitted} fitted on the other sets."]
        sources = [self.loaded[name].name for name in self.fit_on]
        lines = [f"Fitted on {', '.join(sources)}: {fitted}."]
        measured = [self.loaded[name].name for name in self.datasets]
        seen = [name for name in measured if name in sources]
        if seen:
            lines.append(f"Not zero-shot on {', '.join(seen)}: it is one of these.")
        return lines

    def measure(self, vectors: Sequence[Encoded], progress: OnProgress = ignore) -> Measured:
        """Measure the plan; `vectors` are the loaded sets, encoded, in their order."""
        encoded = self._by_name(vectors)
        sets = [encoded[name] for name in self.datasets]
        codecs = None
        if self.codec is not None:
            for one in sets:
                self.codec.check_encoder(one.encoder)
            codecs = Codecs(self.plan, self.store, given=self.codec)
        elif self.fits:
            own = None
            if self.own:
                both = [split_by_page(one) for one in sets]
                sets, own = [one.test for one in both], {one.test.name: one.train for one in both}
            sources = [encoded[name] for name in self.fit_on] or None
            codecs = Codecs(
                self.plan, self.store, fit_on=sources, own=own, sets=sets, progress=progress
            )
        results = Results(run(sets, self.plan, codecs, self.store, progress))
        asked = sets if "geometry" in self.plan.more else []
        return Measured(sets, results, [self._geometry(one, progress) for one in asked])

    def _by_name(self, vectors: Sequence[Encoded]) -> dict[str, Encoded]:
        return dict(zip(self.loaded, vectors, strict=True))

    def _geometry(self, encoded: Encoded, progress: OnProgress) -> CorpusGeometry:
        def measure() -> CorpusGeometry:
            return measure_geometry({encoded.name: vectors_of(encoded)}, progress=progress)[0]

        return self.store.geometry(encoded.name, fingerprint(encoded), measure)
