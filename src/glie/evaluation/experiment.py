"""An experiment: methods, budgets and seeds, measured on encoded sets."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.readout.base import SHORTLIST
from glie.codec.readout.residual import RESIDUAL_SHORTLIST
from glie.codec.store import codec_digest
from glie.errors import DatasetError, InputError
from glie.evaluation.encoded import Encoded, check_set
from glie.evaluation.fits import Codecs, facts
from glie.evaluation.methods import (
    ADAPTED,
    FREE,
    ORACLE,
    PLAID,
    SHIPPED,
    UNCOMPRESSED,
    WITH_CODEWORDS,
    Method,
    codebook_for,
    fitted,
    residual_coded,
)
from glie.evaluation.plan import Plan, check_budgets, check_names, without_codewords
from glie.evaluation.store import Result, Setting, Store, fingerprint
from glie.index.memory import CodesInMemory, search_codes, search_oracle, search_vectors
from glie.measures import each_measure
from glie.pages import Pages
from glie.progress import OnProgress, Progress, ignore
from glie.search.results import Ranking
from glie.training.recipe import recipe_of

DEPTH = 100  # pages of a ranking, for recall@100 and run files
SHORTLISTS = (5, 10, 20, 50, 100)
SHORTLIST_K = 4  # the budget of the shortlist table
ADAPTED_REVISION = 3  # of how a code is chosen: what another one has stored is measured again
CODEWORD_SHORTLIST = "words-shortlist"
CODEWORD_SHORTLISTS = (20, 50, 100, 200, 500)  # longer, as is their default
CODEWORD_SHORTLIST_BYTES = 520  # the budget of their table, or the nearest measured
# width and depth of a decoder, fitted on so many pages at most, at these budgets
CAPACITIES = ((128, 1), (128, 3), (256, 1), (512, 1), (512, 3), (1024, 1), (1024, 3))
CAPACITY_PAGES = 500
CAPACITY_KS = (4, 16)
DATA_PAGES = (1250, 2500, 5000)  # to fit on, as far as there are so many
SHARES = (0.25, 0.5, 1.0)  # of the pages to fit on, if there are fewer than DATA_PAGES[1]


def run(
    sets: Sequence[Encoded],
    plan: Plan,
    codecs: Codecs | None,
    store: Store,
    progress: OnProgress = ignore,
) -> Iterator[Result]:
    """Yield every result of a plan, set by set, as soon as it is measured."""
    check_names([encoded.name for encoded in sets])
    for encoded in sets:
        for other in (*sets, *([] if codecs is None else codecs.sources(encoded))):
            check_set(other, encoded.encoder)
        if not len(encoded.queries):
            raise DatasetError(
                f"{encoded.name}: it has no questions; nothing can be measured on it"
            )
        check_budgets(encoded, plan, codecs is not None)
    if set(plan.methods) == {SHIPPED}:
        for line in without_codewords(sets, plan):
            raise InputError(line)
    for encoded in sets:
        yield from _Bench(encoded, plan, codecs, store, progress).results()


class _Fit(NamedTuple):
    """A fit that differs from the usual one."""

    variant: str
    budgets: tuple[int, ...]
    share: float  # of the pages
    capacity: tuple[int, int] | None = None


class _Coded(NamedTuple):
    """The codes of a set, and the codec that made them."""

    codec: Codec
    codes: CodesInMemory


class _Bench:
    """The measurements on one set."""

    def __init__(
        self,
        encoded: Encoded,
        plan: Plan,
        codecs: Codecs | None,
        store: Store,
        progress: OnProgress,
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
        for name in WITH_CODEWORDS:
            if name in plan.methods and (name == ADAPTED or self._has_codewords):
                for seed in plan.seeds:
                    yield from self._of_codewords(name, seed)
        if self.codecs is not None and PLAID in plan.methods:
            yield from self._of_residuals(self.codecs, plan.seeds[0])
        if self.codecs is not None and plan.learned:
            for seed in self.codecs.seeds():
                yield from self._of_codec(self.codecs, seed)
        if UNCOMPRESSED in plan.methods:
            yield self._uncompressed()

    @property
    def _has_codewords(self) -> bool:
        return codebook_for(self.encoded.encoder, self.encoded.dim) is not None

    def _settings(self, method: str, seed: int, *, by_bytes: bool = False) -> Iterator[Setting]:
        """A method at every budget."""
        for budget in self.plan.budgets:
            sized = by_bytes and self.plan.in_bytes  # then the method chooses the number of vectors
            k = None if sized else self.plan.vectors(budget, self.encoded.dim)
            given = budget if self.plan.in_bytes else None
            yield Setting(self.encoded.name, method, k, seed, bytes=given)

    def _bytes(self, setting: Setting) -> int:
        assert setting.budget is not None
        return self.plan.bytes(setting.budget, self.encoded.dim)

    def _of_code(self, method: Method, seed: int) -> Iterator[Result]:
        settings = self._settings(method.name, seed, by_bytes=method.by_bytes)
        key = self.key if method.revision == 1 else f"{self.key}-{method.revision}"
        yield from self._one_stage(settings, key, functools.partial(self._codes, method))

    def _of_residuals(self, codecs: Codecs, seed: int) -> Iterator[Result]:
        """PLAID; its centroids are fitted only if a result is missing."""

        def codes(setting: Setting) -> CodesInMemory:
            code = codecs.residual_code(self.encoded, self._bytes(setting), seed)
            return self._codes(residual_coded(code), setting)

        for setting in self._settings(PLAID, seed, by_bytes=True):
            decides = codecs.residual_key(self.encoded, self._bytes(setting), seed)
            yield from self._one_stage([setting], f"{self.key}-{decides}", codes)

    def _of_codewords(self, name: str, seed: int) -> Iterator[Result]:
        """Codewords of a codebook; the shortlist is reconstructed and reranked."""
        settings = list(self._settings(name, seed, by_bytes=True))
        nearest = min(
            settings, key=lambda s: abs(math.log(self._bytes(s) / CODEWORD_SHORTLIST_BYTES))
        )
        for setting in settings:
            asked = [setting._replace(shortlist=RESIDUAL_SHORTLIST)]
            if setting is nearest and name == SHIPPED and "shortlist" in self.plan.more:
                asked += [
                    setting._replace(method=method, shortlist=length, variant=CODEWORD_SHORTLIST)
                    for method in (name, ORACLE)
                    for length in CODEWORD_SHORTLISTS
                ]
            # adapted only if a result is missing: its key needs the pages and the budget alone
            codec = self._codec_of_codewords(name, self._bytes(setting))
            coded = functools.cache(functools.partial(self._in_codewords, setting, codec))
            key = f"{self.key}-{codec_digest(codec)}"
            key += f"-{ADAPTED_REVISION}" if codec.adapts else ""
            yield from self._two_stages(asked, key, coded)

    def _codec_of_codewords(self, name: str, size: int) -> Codec:
        book = codebook_for(self.encoded.encoder, self.encoded.dim)
        if name == ADAPTED or book is None:
            return Codec(bytes_per_page=size, adapt=True)
        return Codec.with_codebook(book, size)

    def _in_codewords(self, setting: Setting, codec: Codec) -> _Coded:
        if codec.adapts:
            codec = self._adapted_to_pages(self._bytes(setting), codec)
        codec = codec.with_seed(setting.seed)
        return _Coded(codec, self._stored(setting, codec.compress))

    def _adapted_to_pages(self, size: int, codec: Codec) -> Codec:
        if size not in self._adapted:
            what = f"adapting a codebook to {self.encoded.name}, {size:,} bytes a page"
            self.progress(Progress(what))
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
            yield from self._one_stage(settings, self._fit_key(codec), codes, codec)
        for setting in self._settings("glie", seed):
            both = [method for method in ("glie", ORACLE) if method in plan.methods]
            yield from self._regenerated(codec, setting, both, [SHORTLIST])
        varied = Setting(self.encoded.name, "glie", SHORTLIST_K, seed, variant="shortlist")
        if "shortlist" in plan.more:
            yield from self._regenerated(codec, varied, ["glie", ORACLE], SHORTLISTS)
        if codecs.given is None:
            yield from self._other_fits(codecs, seed)

    def _other_fits(self, codecs: Codecs, seed: int) -> Iterator[Result]:
        """Fits with other decoder sizes, and on fewer pages."""
        plan, pages = self.plan, codecs.pages(self.encoded)
        others: list[_Fit] = []
        if "capacity" in plan.more:
            share = min(1.0, CAPACITY_PAGES / pages)
            others += [
                _Fit(f"{width}x{depth}", CAPACITY_KS, share, (width, depth))
                for width, depth in CAPACITIES
            ]
        if "data" in plan.more:
            others += [_Fit(name, (SHORTLIST_K,), share) for name, share in self._draws(codecs)]
        for variant, budgets, share, capacity in others:
            codec = codecs.codec(
                self.encoded, seed, budgets=budgets, capacity=capacity, share=share
            )
            for k in budgets:
                setting = Setting(self.encoded.name, "glie", k, seed, variant=variant)
                yield from self._regenerated(codec, setting, ["glie"], [SHORTLIST])

    def _draws(self, codecs: Codecs) -> Iterator[tuple[str, float]]:
        """The draws of pages to fit on, by name; the same for all sets, so that they have means."""
        least = 4 * (recipe_of(self.plan.recipe).negatives + 1)
        if codecs.fewest_pages >= DATA_PAGES[1]:
            for number in DATA_PAGES:
                if number <= codecs.fewest_pages:
                    yield f"{number:,} pages", number / codecs.pages(self.encoded)
        else:
            for share in SHARES:
                if round(share * codecs.fewest_pages) >= least:
                    yield f"{share:.0%} of pages", share

    def _regenerated(
        self, codec: Codec, setting: Setting, methods: Sequence[str], shortlists: Sequence[int]
    ) -> Iterator[Result]:
        """A fitted codec at a budget, with some methods and shortlist lengths."""
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
        yield from self._two_stages(asked, self._fit_key(codec), coded)

    def _fit_key(self, codec: Codec) -> str:
        # earlier results, without this ending, left out networks that did not pay
        return f"{self.key}-{codec_digest(codec)}-networks"

    def _one_stage(
        self,
        settings: Iterable[Setting],
        key: str,
        codes: Callable[[Setting], CodesInMemory],
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
        """Two-stage search: the shortlist regenerated or, for the oracle, its true vectors."""

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
        codes: CodesInMemory,
        search: Callable[..., Ranking],
        codec: Codec | None,
    ) -> Result:
        self.progress(Progress(f"searching {setting.dataset}, {setting.label}"))
        found = search(self.encoded.asked, codes, top=DEPTH)
        made = {} if codec is None else facts(codec)
        shared = made.get("codebook_bytes", 0) / len(self.encoded.page_ids)
        return self._judged(setting, found, codes.bytes_per_page + shared, made or None)

    def _uncompressed(self) -> Result:
        setting = Setting(self.encoded.name, UNCOMPRESSED)

        def measure() -> Result:
            self.progress(Progress(f"searching {setting.dataset}, {setting.label}"))
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

    def _codes(self, method: Method, setting: Setting) -> CodesInMemory:
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
    ) -> CodesInMemory:
        """Compress all pages, block by block."""

        def parts() -> Iterator[Codes]:
            done, total = 0, len(self.encoded.page_ids)
            what = f"pages of {setting.dataset} compressed, {setting.label}"
            for block in self.encoded.blocks():
                self.progress(Progress(what, done, total))
                yield compress(block)
                done += len(block)

        return CodesInMemory(parts(), size)

    @functools.cached_property
    def _rows(self) -> dict[str, int]:
        return {page: row for row, page in enumerate(self.encoded.page_ids)}

    def _true_pages(self, codes: Codes) -> Pages:
        return self.encoded.take([self._rows[page] for page in codes.ids])
