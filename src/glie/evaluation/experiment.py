"""An experiment: methods, budgets and seeds on sets of vectors."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from glie.baselines import ResidualCode, merge, pooled
from glie.codec.codebook import Codebook
from glie.codec.codec import LOOKED_UP, SHORTLIST, Codec
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
from glie.evaluation.methods import (
    ADAPTED,
    FREE,
    NEEDS_CODEC,
    ORACLE,
    PLAID,
    SHIPPED,
    UNCOMPRESSED,
    WORDED,
    Method,
    fitted,
    has_words_for,
    residual_coded,
    seeded,
    vector_bytes,
)
from glie.evaluation.store import Result, Setting, Store, digest, filename, fingerprint
from glie.pages import Pages, Queries
from glie.search import Ranking
from glie.training.fit import FitStep, fit
from glie.training.recipe import Recipe, recipe_of
from glie.wording import count

DEPTH = 100  # pages of a ranking that are kept: what recall@100 and run files need
SHORTLISTS = (5, 10, 20, 50, 100)
SHORTLIST_K = 4  # the budget of the shortlist table
WORD_SHORTLIST = "words-shortlist"
WORD_SHORTLISTS = (20, 50, 100, 200, 500)  # words are looked up for more pages
WORD_SHORTLIST_BYTES = 520  # their budget, or the nearest that is measured
RESIDUAL_VECTORS = 500_000  # before pooling; centroids are fitted on no more
CAPACITIES = ((128, 1), (256, 1), (512, 1), (512, 3))  # width and depth of a decoder
SHARES = (0.25, 0.5, 1.0)  # of the pages that are fitted on
# tables that take longer: of the length of the shortlist, the size of the decoder, the number of
# pages to fit on; and the intrinsic dimension of the pages
MORE = ("shortlist", "capacity", "data", "geometry")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured."""

    methods: Sequence[str]
    budgets: Sequence[int]  # vectors a page, or bytes
    in_bytes: bool = False
    seeds: Sequence[int] = (0,)
    more: Sequence[str] = ()  # what else is varied: some of MORE
    recipe: str | Recipe = "default"
    epochs: int | None = None

    def vectors(self, budget: int, dim: int) -> int:
        """The k of a budget: as many vectors in bfloat16 as fit."""
        if self.in_bytes and budget < vector_bytes(dim):
            raise InputError(
                f"--bytes-per-page: {budget} bytes hold no vector of {dim} numbers in bfloat16, "
                f"which takes {vector_bytes(dim)}"
            )
        return CodecConfig(k=budget // vector_bytes(dim) if self.in_bytes else budget).k

    def bytes(self, budget: int, dim: int) -> int:
        """The bytes of a budget."""
        return budget if self.in_bytes else budget * vector_bytes(dim)

    @property
    def learned(self) -> bool:
        """Whether a fitted codec is measured, if there is one."""
        varied = {"shortlist", "capacity", "data"} & set(self.more)
        return bool(varied or set(NEEDS_CODEC) & set(self.methods))

    def by_vectors(self, codec: bool) -> bool:
        """Whether anything keeps whole vectors in bfloat16; with a codec, its code does."""
        free = {method.name for method in FREE if not method.by_bytes}
        return bool(free & set(self.methods)) or (codec and self.learned)


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
        _check_budgets(encoded, plan, codecs is not None)
    if set(plan.methods) == {SHIPPED}:
        for line in without_words(sets, plan):
            raise InputError(line)
    for encoded in sets:
        yield from _Bench(encoded, plan, codecs, store, progress).results()


def _check_budgets(encoded: Encoded, plan: Plan, codec: bool) -> None:
    """Whether they hold anything, found out before the first is measured."""
    for budget in plan.budgets:
        if plan.by_vectors(codec):
            plan.vectors(budget, encoded.dim)
        if SHIPPED in plan.methods and has_words_for(encoded.encoder, encoded.dim):
            Codec(bytes_per_page=plan.bytes(budget, encoded.dim))


def without_words(sets: Sequence[Encoded], plan: Plan) -> list[str]:
    """What is said of sets that the codebook was not made for."""
    lacking = [one for one in sets if not has_words_for(one.encoder, one.dim)]
    if SHIPPED not in plan.methods or not lacking:
        return []
    book = Codebook.shipped()
    name = None if book.encoder is None else book.encoder["name"]
    return [
        f"{SHIPPED}: left out on {count(len(lacking), 'set')}: the codebook that comes with glie "
        f"is for encoder {name!r} at D = {book.dim}; {ADAPTED} makes one for any"
    ]


def check_plan(plan: Plan, *, codec: bool, fits: bool, report: bool) -> None:
    """Refuse a plan that cannot be carried out, or parts of it that nothing would come of."""
    from glie.training.fit import check_ready

    if not plan.in_bytes:
        for k in plan.budgets:
            CodecConfig(k=k)
    recipe_for(plan)
    listed = codec or fits or SHIPPED in plan.methods
    needs = {"shortlist": listed, "capacity": fits, "data": fits, "geometry": True}
    for name in plan.more:
        if not needs[name]:
            wanted = "--codec or --fit-on" if name == "shortlist" else "--fit-on"
            raise InputError(f"--more {name}: it is about a fitted codec; give {wanted}")
    used = plan.learned or (fits and PLAID in plan.methods)
    if (codec or fits) and not plan.more and not used:
        raise InputError("--methods: none of them uses the codec; add glie, or leave the codec out")
    if fits and plan.learned:
        check_ready()
    probe = Pages([np.eye(2, 8)])
    for method in FREE:  # what needs an extra that is not there says so now
        if method.name in plan.methods:
            method.compress(probe, 64, 0)
    if PLAID in plan.methods:
        merge(probe, 1)
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

    def residual_key(self, encoded: Encoded, bytes_per_page: int, seed: int) -> str:
        """What decides a residual code."""
        decides = [fingerprint(source) for source in self.sources(encoded)]
        return xxhash.xxh3_64_hexdigest(json.dumps([decides, bytes_per_page, seed]).encode())

    def residual_code(self, encoded: Encoded, bytes_per_page: int, seed: int) -> ResidualCode:
        """Centroids of the pages that a codec would be fitted on, pooled for a budget."""
        key = self.residual_key(encoded, bytes_per_page, seed)
        if key not in self._residual_codes:
            sources = self.sources(encoded)
            title = "+".join(source.name for source in sources)
            self.say(f"centroids of {title}, {bytes_per_page:,} bytes a page")
            vectors = sum(int(source.lengths.sum()) for source in sources)
            pages, *_ = joined(sources, min(1.0, RESIDUAL_VECTORS / vectors), seed)
            codes = pooled(pages, bytes_per_page)
            self._residual_codes[key] = ResidualCode.fit(codes.vectors[codes.counts > 0], seed)
        return self._residual_codes[key]


class _Coded(NamedTuple):
    """The codes of a set, and what reads them back."""

    codec: Codec
    codes: StoredCodes


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
        self._adapted: dict[int, Codec] = {}  # by bytes a page; the same for all seeds

    def results(self) -> Iterator[Result]:
        plan = self.plan
        for method in FREE:
            if method.name in plan.methods:
                for seed in plan.seeds if method.seeded else plan.seeds[:1]:
                    yield from self._of_code(method, seed)
        for name in WORDED:
            if name in plan.methods and (name == ADAPTED or self._has_words):
                for seed in plan.seeds:
                    yield from self._of_words(name, seed)
        if self.codecs is not None and PLAID in plan.methods:
            yield from self._of_residuals(self.codecs, plan.seeds[0])
        if self.codecs is not None and plan.learned:
            for seed in self.codecs.seeds():
                yield from self._of_codec(self.codecs, seed)
        if UNCOMPRESSED in plan.methods:
            yield self._uncompressed()

    @property
    def _has_words(self) -> bool:
        return has_words_for(self.encoded.encoder, self.encoded.dim)

    def _settings(self, method: str, seed: int, *, by_bytes: bool = False) -> Iterator[Setting]:
        """A method at every budget."""
        for budget in self.plan.budgets:
            sized = by_bytes and self.plan.in_bytes  # then how many vectors is its own affair
            k = None if sized else self.plan.vectors(budget, self.encoded.dim)
            given = budget if self.plan.in_bytes else None
            yield Setting(self.encoded.name, method, k, seed, bytes=given)

    def _bytes(self, setting: Setting) -> int:
        assert setting.budget is not None
        return self.plan.bytes(setting.budget, self.encoded.dim)

    def _of_code(self, method: Method, seed: int) -> Iterator[Result]:
        settings = self._settings(method.name, seed, by_bytes=method.by_bytes)
        yield from self._one_stage(settings, self.key, functools.partial(self._codes, method))

    def _of_residuals(self, codecs: Codecs, seed: int) -> Iterator[Result]:
        """With centroids that are found once something is to be measured."""

        def codes(setting: Setting) -> StoredCodes:
            code = codecs.residual_code(self.encoded, self._bytes(setting), seed)
            return self._codes(residual_coded(code), setting)

        for setting in self._settings(PLAID, seed, by_bytes=True):
            decides = codecs.residual_key(self.encoded, self._bytes(setting), seed)
            yield from self._one_stage([setting], f"{self.key}-{decides}", codes)

    def _of_words(self, name: str, seed: int) -> Iterator[Result]:
        """With words of a codebook, looked up for a shortlist."""
        settings = list(self._settings(name, seed, by_bytes=True))
        nearest = min(settings, key=lambda s: abs(math.log(self._bytes(s) / WORD_SHORTLIST_BYTES)))
        for setting in settings:
            asked = [setting._replace(shortlist=LOOKED_UP)]
            if setting is nearest and name == SHIPPED and "shortlist" in self.plan.more:
                asked += [
                    setting._replace(method=method, shortlist=length, variant=WORD_SHORTLIST)
                    for method in (name, ORACLE)
                    for length in WORD_SHORTLISTS
                ]
            # adapted only if something is to be measured: pages and budget decide the rest
            codec = Codec(bytes_per_page=self._bytes(setting), adapt=name == ADAPTED)
            coded = functools.cache(functools.partial(self._in_words, setting, codec))
            yield from self._two_stages(asked, f"{self.key}-{digest(codec)}", coded)

    def _in_words(self, setting: Setting, codec: Codec) -> _Coded:
        if codec.adapts:
            codec = self._adapted_to_pages(self._bytes(setting), codec)
        codec = seeded(codec, setting.seed)
        return _Coded(codec, self._stored(setting, codec.compress))

    def _adapted_to_pages(self, size: int, codec: Codec) -> Codec:
        if size not in self._adapted:
            self.progress(f"{self.encoded.name}: a codebook of its pages, {size:,} bytes a page")
            self._adapted[size] = codec.adapted(self.encoded.blocks())
        return self._adapted[size]

    def _of_codec(self, codecs: Codecs, seed: int) -> Iterator[Result]:
        plan = self.plan
        vectors = {plan.vectors(budget, self.encoded.dim) for budget in plan.budgets}
        vectors |= {SHORTLIST_K} if "shortlist" in plan.more else set()
        codec = codecs.codec(self.encoded, seed, budgets=sorted(vectors))
        if "glie-stage1" in plan.methods:
            codes = functools.partial(self._codes, fitted(codec)[0])
            settings = self._settings("glie-stage1", seed)
            yield from self._one_stage(settings, f"{self.key}-{digest(codec)}", codes, codec)
        for setting in self._settings("glie", seed):
            both = [method for method in ("glie", ORACLE) if method in plan.methods]
            yield from self._regenerated(codec, setting, both, [SHORTLIST])
        varied = Setting(self.encoded.name, "glie", SHORTLIST_K, seed, variant="shortlist")
        if "shortlist" in plan.more:
            yield from self._regenerated(codec, varied, ["glie", ORACLE], SHORTLISTS)
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
            setting = Setting(self.encoded.name, "glie", SHORTLIST_K, seed, variant=variant)
            yield from self._regenerated(codec, setting, ["glie"], [SHORTLIST])

    def _regenerated(
        self, codec: Codec, setting: Setting, methods: Sequence[str], shortlists: Sequence[int]
    ) -> Iterator[Result]:
        """A fitted codec at a budget, by some methods and with some shortlists."""
        assert setting.k is not None
        at_k = codec.at(setting.k)

        @functools.cache
        def coded() -> _Coded:
            return _Coded(at_k, self._codes(fitted(codec)[1], setting))

        asked = [
            setting._replace(method=method, shortlist=length)
            for method in methods
            for length in shortlists
        ]
        yield from self._two_stages(asked, f"{self.key}-{digest(codec)}", coded)

    def _one_stage(
        self,
        settings: Iterable[Setting],
        key: str,
        codes: Callable[[Setting], StoredCodes],
        codec: Codec | None = None,
    ) -> Iterator[Result]:
        search = functools.partial(search_codes, regenerate=None, shortlist=0)
        for setting in settings:

            def measure(setting: Setting = setting) -> Result:
                return self._ranked(setting, codes(setting), search, codec)

            yield self.store.result(setting, key, measure)

    def _two_stages(
        self, settings: Iterable[Setting], key: str, coded: Callable[[], _Coded]
    ) -> Iterator[Result]:
        """With the shortlist regenerated, or (the oracle) replaced by the true vectors."""

        def measure(setting: Setting) -> Result:
            codec, codes = coded()
            assert setting.shortlist is not None
            search: Callable[..., Ranking]
            if setting.method == ORACLE:
                search = functools.partial(search_oracle, read=self._true_pages)
            else:
                regenerate = codec.regenerate if codec.regenerates else None
                search = functools.partial(search_codes, regenerate=regenerate)
            search = functools.partial(search, shortlist=setting.shortlist)
            return self._ranked(setting, codes, search, codec)

        for setting in settings:
            yield self.store.result(setting, key, functools.partial(measure, setting))

    def _ranked(
        self,
        setting: Setting,
        codes: StoredCodes,
        search: Callable[..., Ranking],
        codec: Codec | None,
    ) -> Result:
        self.progress(f"{setting.dataset}: {setting.label}, searching")
        found = search(self.encoded.queries, codes, top=DEPTH)
        made = {} if codec is None else facts(codec)
        shared = made.get("codebook_bytes", 0) / len(self.encoded.page_ids)
        return self._judged(setting, found, codes.bytes_per_page + shared, made or None)

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

    def _codes(self, method: Method, setting: Setting) -> StoredCodes:
        budget = self._bytes(setting) if method.by_bytes else setting.k
        assert budget is not None

        def compress(pages: Pages) -> Codes:
            return method.compress(pages, budget, setting.seed)

        return self._stored(setting, compress, method.size)

    def _stored(
        self,
        setting: Setting,
        compress: Callable[[Pages], Codes],
        size: Callable[[Codes], int] | None = None,
    ) -> StoredCodes:
        """The codes of all pages, block by block."""

        def parts() -> Iterator[Codes]:
            done = 0
            for block in self.encoded.blocks():
                self.progress(f"{setting.dataset}: {setting.label}, {done:,} pages")
                yield compress(block)
                done += len(block)

        return StoredCodes(parts(), size)

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
