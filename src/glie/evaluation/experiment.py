"""An experiment: methods, budgets and seeds on sets of vectors."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from glie.codec.codec import SHORTLIST, Codec
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.errors import DatasetError, InputError
from glie.evaluation.encoded import Encoded, check_encoder
from glie.evaluation.measures import (
    StoredCodes,
    each_measure,
    search_codes,
    search_oracle,
    search_vectors,
)
from glie.evaluation.methods import FREE, ORACLE, UNCOMPRESSED, Method, fitted
from glie.evaluation.store import Result, Setting, Store, digest, filename, fingerprint
from glie.pages import Pages, Queries
from glie.search import Ranking
from glie.training.fit import FitStep, fit
from glie.training.recipe import Recipe, recipe_of

DEPTH = 100  # pages of a ranking that are kept: what recall@100 and run files need
SHORTLISTS = (5, 10, 20, 50, 100)
SHORTLIST_K = 4  # the budget of the shortlist table
CAPACITIES = ((128, 1), (256, 1), (512, 1), (512, 3))  # width and depth of a decoder
SHARES = (0.25, 0.5, 1.0)  # of the pages that are fitted on
# tables that take longer: of the length of the shortlist, the size of the decoder, the number of
# pages to fit on; and the intrinsic dimension of the pages
MORE = ("shortlist", "capacity", "data", "geometry")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured."""

    methods: Sequence[str]
    budgets: Sequence[int]
    seeds: Sequence[int] = (0,)
    more: Sequence[str] = ()  # what else is varied: some of MORE
    recipe: str | Recipe = "default"
    epochs: int | None = None


def run(
    sets: Sequence[Encoded],
    plan: Plan,
    codecs: Codecs | None,
    store: Store,
    progress: Callable[[str], None] = lambda what: None,
) -> Iterator[Result]:
    """Every result of a plan, set by set, as it is finished."""
    check_names([encoded.name for encoded in sets])
    for encoded in sets:
        for other in (*sets, *([] if codecs is None else codecs.sources(encoded))):
            check_encoder(other, encoded.encoder)
        if not len(encoded.queries):
            raise DatasetError(
                f"{encoded.name}: it has no questions; nothing can be measured on it"
            )
    for encoded in sets:
        yield from _Bench(encoded, plan, codecs, store, progress).results()


def check_plan(plan: Plan, *, codec: bool, fits: bool, report: bool) -> None:
    """Refuse a plan that cannot be carried out, or parts of it that nothing would come of."""
    from glie.training.fit import check_ready

    for k in plan.budgets:
        CodecConfig(k=k)
    recipe_for(plan)
    needs = {"shortlist": codec or fits, "capacity": fits, "data": fits, "geometry": True}
    for name in plan.more:
        if not needs[name]:
            wanted = "--codec or --fit-on" if name == "shortlist" else "--fit-on"
            raise InputError(f"--more {name}: it is about a fitted codec; give {wanted}")
    if (
        (codec or fits)
        and not plan.more
        and not {"glie-stage1", "glie", ORACLE} & set(plan.methods)
    ):
        raise InputError("--methods: none of them uses the codec; add glie, or leave the codec out")
    if fits:
        check_ready()
    probe = Pages([np.eye(2, 8)])
    for method in FREE:  # what needs an extra that is not there says so now
        if method.name in plan.methods:
            method.compress(probe, 1, 0)
    each_measure({"q": {"p": 1}}, {"q": ["p"]})
    if report:
        from glie.evaluation.plots import check_plotting

        check_plotting()


def recipe_for(plan: Plan) -> Recipe:
    """The recipe of a plan's fits."""
    recipe = recipe_of(plan.recipe)
    return recipe if plan.epochs is None else dataclasses.replace(recipe, epochs=plan.epochs)


def check_names(names: Sequence[str]) -> None:
    """Results are told apart by the name of their set, in files too."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(filename(name), name)
        if other is not name or names.count(name) > 1:
            raise DatasetError(f"two sets have the name {name!r}, or nearly so; rename one")


def check_others(sets: Sequence[object]) -> None:
    """Of one set there are no others to fit on."""
    if len(sets) < 2:
        raise InputError("--fit-on others: there is one set; give others to fit on")


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
        say: Callable[[str], None] = lambda what: None,
    ) -> None:
        """`fit_on` None, without a codec given, means the others of `sets`."""
        if given is None and fit_on is None:
            check_others(sets)
        self.plan, self.store, self.given, self.fit_on = plan, store, given, fit_on
        self.sets, self.say = sets, say

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
        key = xxhash.xxh3_64_hexdigest(json.dumps([*decides, sorted(budgets), share]).encode())
        title = "+".join(source.name for source in sources)

        def show(step: FitStep) -> None:
            self.say(f"fitting on {title}, seed {seed}: step {step.step} of {step.steps}")

        def make() -> Codec:
            self.say(f"fitting on {title}, seed {seed}")
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


class _Bench:
    """One set, and what is measured on it."""

    def __init__(
        self,
        encoded: Encoded,
        plan: Plan,
        codecs: Codecs | None,
        store: Store,
        progress: Callable[[str], None],
    ) -> None:
        self.encoded, self.plan, self.codecs, self.store = encoded, plan, codecs, store
        self.progress = progress
        self.key = fingerprint(encoded)

    def results(self) -> Iterator[Result]:
        plan = self.plan
        for method in FREE:
            if method.name in plan.methods:
                for seed in plan.seeds if method.seeded else plan.seeds[:1]:
                    for k in plan.budgets:
                        yield self._of_code(
                            Setting(self.encoded.name, method.name, k, seed), method
                        )
        if self.codecs is not None:
            for seed in self.codecs.seeds():
                yield from self._of_codec(self.codecs, seed)
        if UNCOMPRESSED in plan.methods:
            yield self._uncompressed()

    def _of_codec(self, codecs: Codecs, seed: int) -> Iterator[Result]:
        plan, name = self.plan, self.encoded.name
        budgets = {*plan.budgets, *([SHORTLIST_K] if "shortlist" in plan.more else [])}
        codec = codecs.codec(self.encoded, seed, budgets=sorted(budgets))
        for k in plan.budgets:
            if "glie-stage1" in plan.methods:
                setting = Setting(name, "glie-stage1", k, seed)
                yield self._of_code(setting, fitted(codec)[0], codec)
            both = [method for method in ("glie", ORACLE) if method in plan.methods]
            yield from self._two_stages(codec, both, k, seed, [SHORTLIST])
        if "shortlist" in plan.more:
            yield from self._two_stages(
                codec, ["glie", ORACLE], SHORTLIST_K, seed, SHORTLISTS, "shortlist"
            )
        if codecs.given is None:
            yield from self._other_fits(codecs, seed)

    def _other_fits(self, codecs: Codecs, seed: int) -> Iterator[Result]:
        """With decoders of other sizes, and fitted on fewer pages."""
        plan = self.plan
        others: list[tuple[tuple[int, int] | None, float, str]] = []
        if "capacity" in plan.more:
            others += [(size, 1.0, f"{size[0]}x{size[1]}") for size in CAPACITIES]
        if "data" in plan.more:
            least = recipe_of(plan.recipe).negatives + 1
            pages = sum(len(source.page_ids) for source in codecs.sources(self.encoded))
            shares = [share for share in SHARES if round(share * pages) >= 4 * least]
            others += [(None, share, f"{share:.0%} of pages") for share in shares]
        for capacity, share, variant in others:
            codec = codecs.codec(
                self.encoded, seed, budgets=[SHORTLIST_K], capacity=capacity, share=share
            )
            yield from self._two_stages(codec, ["glie"], SHORTLIST_K, seed, [SHORTLIST], variant)

    def _two_stages(
        self,
        codec: Codec,
        methods: Sequence[str],
        k: int,
        seed: int,
        shortlists: Sequence[int],
        variant: str = "",
    ) -> Iterator[Result]:
        """With the shortlist regenerated, or (the oracle) replaced by the true vectors."""
        method, at_k = fitted(codec)[1], codec.at(k)
        codes = functools.cache(lambda: self._codes(method, k, seed))
        regenerate = at_k.regenerate if at_k.decoder else None
        searches = {
            "glie": functools.partial(search_codes, regenerate=regenerate),
            ORACLE: functools.partial(search_oracle, read=self._true_pages),
        }
        for name in methods:
            for shortlist in shortlists:
                setting = Setting(self.encoded.name, name, k, seed, shortlist, variant)

                def measure(
                    setting: Setting = setting, name: str = name, shortlist: int = shortlist
                ) -> Result:
                    return self._ranked(setting, codes(), searches[name], shortlist, codec)

                yield self.store.result(setting, f"{self.key}-{digest(codec)}", measure)

    def _of_code(self, setting: Setting, method: Method, codec: Codec | None = None) -> Result:
        assert setting.k is not None
        key = self.key if codec is None else f"{self.key}-{digest(codec)}"
        k, seed = setting.k, setting.seed
        search = functools.partial(search_codes, regenerate=None)
        return self.store.result(
            setting,
            key,
            lambda: self._ranked(setting, self._codes(method, k, seed), search, 0, codec),
        )

    def _ranked(
        self,
        setting: Setting,
        codes: StoredCodes,
        search: Callable[..., Ranking],
        shortlist: int,
        codec: Codec | None,
    ) -> Result:
        self.progress(f"{setting.dataset}: {setting.label}, searching")
        found = search(self.encoded.queries, codes, top=DEPTH, shortlist=shortlist)
        made = None if codec is None else facts(codec)
        return self._judged(setting, found, codes.bytes_per_page, made)

    def _uncompressed(self) -> Result:
        setting = Setting(self.encoded.name, UNCOMPRESSED)

        def measure() -> Result:
            self.progress(f"{setting.dataset}: {setting.label}, searching")
            found = search_vectors(self.encoded.queries, self.encoded.blocks(), DEPTH)
            stored = 2 * self.encoded.dim * float(self.encoded.lengths.mean())
            return self._judged(setting, found, stored, None)

        return self.store.result(setting, self.key, measure)

    def _judged(
        self, setting: Setting, found: Ranking, stored: float, codec: dict[str, Any] | None
    ) -> Result:
        self.store.run(setting, self.encoded, found)
        ids, queries = self.encoded.page_ids, self.encoded.queries.ids
        rankings = {
            query: [ids[row] for row in rows]
            for query, rows in zip(queries, found.positions, strict=True)
        }
        each = each_measure(self.encoded.relevant, rankings)
        means = {name: float(np.mean(values)) for name, values in each.items()}
        spent = 1000 * found.cost.seconds / len(queries)
        scores = tuple(round(score, 6) for score in each["ndcg_at_5"])
        return Result(setting, stored, spent, means, scores, codec)

    def _codes(self, method: Method, k: int, seed: int) -> StoredCodes:
        """The codes of all pages, block by block."""

        def parts() -> Iterator[Codes]:
            done = 0
            for block in self.encoded.blocks():
                self.progress(f"{self.encoded.name}: {method.name}, k = {k}, {done:,} pages")
                yield method.compress(block, k, seed)
                done += len(block)

        return StoredCodes(parts())

    @functools.cached_property
    def _rows(self) -> dict[str, int]:
        return {page: row for row, page in enumerate(self.encoded.page_ids)}

    def _true_pages(self, codes: Codes) -> Pages:
        return self.encoded.take([self._rows[page] for page in codes.ids])


def joined(
    sets: Sequence[Encoded], share: float = 1.0, seed: int = 0
) -> tuple[Pages, Queries, list[list[str]]]:
    """Several sets as one to fit on, or a share of their pages with the questions they answer:
    pages, questions, and which pages answer which. Ids begin with the set's place and name."""
    for one in sets:
        check_encoder(one, sets[0].encoder)
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
    """What a table says of a fitted codec."""
    assert codec.fitted is not None
    notes = codec.fitted.notes
    sizes = (array.size for array in (*codec.fitted.refiner, *codec.fitted.decoder))
    return {
        "parameters": int(sum(sizes)),
        **{name: notes.get(name) for name in ("pages", "queries", "steps", "seconds")},
    }
