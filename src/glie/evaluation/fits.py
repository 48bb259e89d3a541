"""What is fitted for an experiment: codecs and centroids of other sets than the one measured."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.codec.codec import Codec
from glie.codec.readout.codebook import Codebook
from glie.evaluation.baselines import ResidualCode, pooled
from glie.evaluation.encoded import Encoded, check_set
from glie.evaluation.plan import Plan, check_others, recipe_for
from glie.evaluation.store import Store, fingerprint
from glie.pages import Pages, Queries
from glie.progress import OnProgress, Progress, ignore
from glie.storage import digest
from glie.training.fit import FitProgress, fit

RESIDUAL_VECTORS = 500_000  # before pooling; centroids are fitted on no more


class Codecs:
    """The fitted codecs that are measured: one that is given, or fits on some sets."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        *,
        given: Codec | None = None,
        fit_on: Sequence[Encoded] | None = None,
        sets: Sequence[Encoded] = (),
        progress: OnProgress = ignore,
    ) -> None:
        """`fit_on` None, without a codec given, means the others of `sets`."""
        if given is None and fit_on is None:
            check_others(sets)
        self.plan, self.store, self.given, self.fit_on = plan, store, given, fit_on
        self.sets, self.progress = sets, progress
        self._residual_codes: dict[str, ResidualCode] = {}

    def sources(self, encoded: Encoded) -> Sequence[Encoded]:
        """What the codec that measures a set is fitted on."""
        if self.given is not None:
            return []
        if self.fit_on is not None:
            return self.fit_on
        return [other for other in self.sets if other is not encoded]

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
            return self.given
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

        return self.store.codec(f"{title[:80]}-seed{seed}-{key}", make)

    def residual_key(self, encoded: Encoded, bytes_per_page: int, seed: int) -> str:
        """What decides a residual code."""
        decides = [fingerprint(source) for source in self.sources(encoded)]
        return digest(json.dumps([decides, bytes_per_page, seed]).encode())

    def residual_code(self, encoded: Encoded, bytes_per_page: int, seed: int) -> ResidualCode:
        """Centroids of the pages that a codec would be fitted on, pooled for a budget."""
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


def joined(
    sets: Sequence[Encoded], share: float = 1.0, seed: int = 0
) -> tuple[Pages, Queries, list[list[str]]]:
    """Several sets as one to fit on, or a share of their pages with the questions they answer:
    pages, questions, and which pages answer which. Ids begin with the set's place and name."""
    for one in sets:
        check_set(one, sets[0].encoder)
    chosen = [_drawn(len(one.page_ids), share, [seed, place]) for place, one in enumerate(sets)]
    lengths = [one.lengths[rows] for one, rows in zip(sets, chosen, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    vectors = np.empty((int(offsets[-1]), sets[0].dim), np.float32)
    ids: list[str] = []
    asked: list[npt.NDArray[np.float32]] = []
    relevant: list[list[str]] = []
    done = 0
    for place, (one, rows) in enumerate(zip(sets, chosen, strict=True)):
        pages = one.take(rows)
        vectors[done : done + len(pages.vectors)] = pages.vectors
        done += len(pages.vectors)
        prefix, known = f"{place}:{one.name}/", set(pages.ids)
        ids.extend(prefix + page for page in pages.ids)
        for query, tokens in zip(one.queries.ids, one.queries, strict=True):
            found = [prefix + page for page in one.relevant[query] if page in known]
            if found:
                asked.append(tokens)
                relevant.append(found)
    return Pages.packed(vectors, offsets, ids), Queries(asked), relevant


def _drawn(total: int, share: float, seed: Sequence[int]) -> npt.NDArray[np.int64]:
    """The rows of a share of some pages, in order."""
    order = np.random.default_rng(seed).permutation(total)
    return np.sort(order[: max(1, round(share * total))])


def facts(codec: Codec) -> dict[str, Any]:
    """What a table says of a fitted codec, or of a codebook that is not everyone's."""
    if codec.fitted is None:
        book = codec.codebook
        if book is None or book is Codebook.shipped():
            return {}
        return {"codebook_bytes": len(book.to_bytes()), "pages": book.notes.get("adapted_to")}
    notes = codec.fitted.notes
    sizes = (array.size for array in (*codec.fitted.refiner, *codec.fitted.decoder))
    return {
        "parameters": int(sum(sizes)),
        **{name: notes.get(name) for name in ("pages", "queries", "steps", "seconds")},
    }
