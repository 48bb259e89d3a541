"""The tables: one function each, from results to rows of text.

A macro-average weighs every set alike. Learned rows are means over seeds, with the standard error
over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.evaluation.experiment import CODEWORD_SHORTLIST, SHARES, SHORTLIST_K
from glie.evaluation.methods import (
    ADAPTED,
    BASELINES,
    ORACLE,
    SHIPPED,
    TITLES,
    UNCOMPRESSED,
    WITH_CODEWORDS,
)
from glie.evaluation.store import Result
from glie.geometry import CorpusGeometry, overall
from glie.measures import MEASURES

RESAMPLES = 2000  # of the bootstrap
LADDER = ("raw-kmeans", "glie-free", "glie-stage1", "glie")
OURS = (*LADDER[1:], "quantised", *WITH_CODEWORDS)
PROJECTED = (10_000, 1_000_000)  # pages that share a codebook


class Table(NamedTuple):
    """A table as it is shown: text in cells, the first column names the row."""

    name: str
    title: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""

    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        escaped = ([cell.replace("|", "\\|") for cell in cells] for cells in lines)
        text = "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)
        return f"{text}\n\n{self.note}\n" if self.note else f"{text}\n"


class Estimate(NamedTuple):
    """A mean over seeds and its standard error; of one seed there is none."""

    mean: float
    error: float = math.nan

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        if len(values) < 2:
            return cls(float(np.mean(values)))
        return cls(float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if math.isnan(self.error) else f" ± {self.error:.3f}")


class Results:
    """The results of a run, asked by what they are of."""

    def __init__(self, results: Iterable[Result]) -> None:
        self.all = list(results)
        self._main: dict[tuple[str, str, int | None], list[Result]] = {}
        for result in self.all:
            setting = result.setting
            if not setting.variant:
                key = setting.dataset, setting.method, setting.budget
                self._main.setdefault(key, []).append(result)

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(result.setting.dataset for result in self.all))

    @property
    def budgets(self) -> list[int]:
        """Vectors a page, or bytes where they were given so."""
        return sorted({budget for _, _, budget in self._main if budget is not None})

    @property
    def in_bytes(self) -> bool:
        return any(result.setting.bytes is not None for result in self.all)

    @property
    def columns(self) -> list[str]:
        """What a budget is called."""
        return [f"{b:,} bytes" if self.in_bytes else f"k = {b}" for b in self.budgets]

    @property
    def methods(self) -> list[str]:
        """Those with a result on every set, in the order they are always shown."""
        return [
            method
            for method in TITLES
            if method != UNCOMPRESSED
            and self.budgets
            and all(self.of(data, method, k) for data in self.datasets for k in self.budgets)
        ]

    def of(self, dataset: str, method: str, k: int | None) -> list[Result]:
        """One a seed."""
        return self._main.get((dataset, method, k), [])

    def ndcg(self, dataset: str, method: str, k: int | None) -> Estimate:
        return Estimate.of([result.ndcg for result in self.of(dataset, method, k)])

    def macro(
        self, method: str, k: int | None, value: Callable[[Result], float] = lambda r: r.ndcg
    ) -> Estimate:
        """The mean over sets, its error over seeds."""
        columns = [[value(r) for r in self.of(data, method, k)] for data in self.datasets]
        seeds = min(map(len, columns))
        return Estimate.of([float(np.mean([c[seed] for c in columns])) for seed in range(seeds)])

    def each(self, dataset: str, method: str, k: int | None) -> npt.NDArray[np.float64]:
        """nDCG@5 of every question, a mean over seeds."""
        scores = np.array([result.each for result in self.of(dataset, method, k)])
        return np.asarray(scores.mean(axis=0), np.float64)

    @property
    def ceiling(self) -> float | None:
        """Of uncompressed vectors, if they were measured."""
        known = all(self.of(dataset, UNCOMPRESSED, None) for dataset in self.datasets)
        return self.macro(UNCOMPRESSED, None).mean if known and self.datasets else None

    def strongest(self, dataset: str, k: int) -> str | None:
        """The best of the baselines that need no training, on a set at a budget."""
        known = [name for name in BASELINES if self.of(dataset, name, k)]
        return max(known, key=lambda name: self.ndcg(dataset, name, k).mean, default=None)


class Margin(NamedTuple):
    """How far a method is above the strongest baseline, with a 95% interval over questions."""

    mean: float
    low: float
    high: float
    wins: int  # sets on which it is above
    sets: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def margin(results: Results, method: str, k: int) -> Margin | None:
    """Against the strongest training-free baseline, chosen for each set at this budget.

    The interval is a paired bootstrap: questions are drawn again within each set, and the means
    of the sets averaged.
    """
    gains = []
    for dataset in results.datasets:
        rival = results.strongest(dataset, k)
        if rival is None or not results.of(dataset, method, k):
            return None
        gains.append(results.each(dataset, method, k) - results.each(dataset, rival, k))
    if not gains:
        return None
    rng = np.random.default_rng(0)
    drawn = np.zeros(RESAMPLES)
    for gain in gains:
        shares = rng.multinomial(len(gain), np.full(len(gain), 1 / len(gain)), RESAMPLES)
        drawn += shares @ gain / len(gain) / len(gains)
    low, high = np.percentile(drawn, [2.5, 97.5])
    means = [float(gain.mean()) for gain in gains]
    wins = sum(mean > 0 for mean in means)
    return Margin(float(np.mean(means)), float(low), float(high), wins, len(gains))


def rows(results: Results) -> list[dict[str, Any]]:
    """The main table for programs: a row a set, method and budget, means over seeds."""
    found = []
    keys = [
        (dataset, method, k)
        for dataset in results.datasets
        for k in (*results.budgets, None)
        for method in TITLES
        if results.of(dataset, method, k)
    ]
    for dataset, method, k in keys:
        mine = results.of(dataset, method, k)
        scores = Estimate.of([result.ndcg for result in mine])
        measures = {
            name: float(np.mean([result.measures[name] for result in mine])) for name in MEASURES
        }
        found.append(
            {
                "dataset": dataset,
                "method": method,
                "k": mine[0].setting.k,
                "budget_bytes": mine[0].setting.bytes,
                "bytes_per_page": mine[0].bytes_per_page,
                **measures,
                "standard_error": None if math.isnan(scores.error) else scores.error,
                "ms_per_query": float(np.mean([result.ms_per_query for result in mine])),
                "seeds": len(mine),
            }
        )
    return found


def main_sweep(results: Results) -> Table:
    """Macro-averaged nDCG@5 of every method at every budget."""
    budgets = results.budgets
    body = [
        [TITLES[method], *(str(results.macro(method, k)) for k in budgets)]
        for method in results.methods
    ]
    ceiling = results.ceiling
    if ceiling is not None:
        body.append([TITLES[UNCOMPRESSED], *[f"{ceiling:.3f}"] * len(budgets)])
    sets = len(results.datasets)
    title = f"nDCG@5, macro-averaged over {sets} set{'' if sets == 1 else 's'}"
    return Table("main", title, ["method", *results.columns], body)


def per_set(results: Results) -> list[Table]:
    """The same of each set, with what each of our methods keeps of the uncompressed score."""
    tables = []
    for dataset in results.datasets:
        body: list[list[str]] = []
        if results.methods and not results.in_bytes:
            first = results.methods[0]
            sizes = [results.of(dataset, first, k)[0].bytes_per_page for k in results.budgets]
            body.append([f"{TITLES[first]}, bytes a page", *(f"{size:,.0f}" for size in sizes)])
        body += [
            [TITLES[method], *(str(results.ndcg(dataset, method, k)) for k in results.budgets)]
            for method in results.methods
        ]
        if results.of(dataset, UNCOMPRESSED, None):
            ceiling = results.ndcg(dataset, UNCOMPRESSED, None).mean
            body.append([TITLES[UNCOMPRESSED], *[f"{ceiling:.3f}"] * len(results.budgets)])
            for method in [one for one in results.methods if ceiling and one in OURS]:
                kept = [results.ndcg(dataset, method, k).mean / ceiling for k in results.budgets]
                body.append([f"{TITLES[method]}, kept", *(f"{part:.0%}" for part in kept)])
        header = ["method", *results.columns]
        tables.append(Table(f"set-{dataset}", f"nDCG@5 on {dataset}", header, body))
    return tables


def percentages(results: Results) -> Table | None:
    """How much of the uncompressed score each method keeps."""
    ceiling = results.ceiling
    if not ceiling:
        return None
    body = [
        [
            TITLES[method],
            *(f"{results.macro(method, k).mean / ceiling:.0%}" for k in results.budgets),
        ]
        for method in results.methods
    ]
    title = f"Per cent of uncompressed nDCG@5 ({ceiling:.3f})"
    return Table("percent", title, ["method", *results.columns], body)


def improved(results: Results) -> Table | None:
    """On how many sets our methods are above the strongest baseline, and by how much."""
    body = []
    for method in OURS:
        if method in results.methods:
            margins = [margin(results, method, k) for k in results.budgets]
            if all(margins):
                body.append([TITLES[method], *(f"{m.wins} of {m.sets}" for m in margins if m)])
                body.append([f"{TITLES[method]}, margin", *(str(m) for m in margins)])
    if not body:
        return None
    return Table(
        "improved",
        "Sets improved over the strongest training-free baseline, and the mean margin in nDCG@5",
        ["method", *results.columns],
        body,
        "The baseline is chosen for each set and budget. In brackets a 95% interval by paired "
        f"bootstrap over questions ({RESAMPLES:,} draws).",
    )


def ladder(results: Results) -> Table | None:
    """What each part adds: the sphere, the refiner, the decoder."""
    steps = [method for method in LADDER if method in results.methods]
    if len(steps) < 2:
        return None
    body = []
    for place, method in enumerate(steps):
        cells = []
        for k in results.budgets:
            here = results.macro(method, k)
            gain = here.mean - results.macro(steps[place - 1], k).mean if place else None
            cells.append(f"{here.mean:.3f}" + ("" if gain is None else f" ({gain:+.3f})"))
        body.append([TITLES[method], *cells])
    header = ["part", *results.columns]
    return Table("ladder", "The ladder: nDCG@5, and what each part adds", header, body)


def shortlists(results: Results) -> Table | None:
    """What a longer shortlist brings, regenerated and with the true vectors."""
    title = f"Length of the shortlist at k = {SHORTLIST_K}: nDCG@5"
    return _lengths(results, "glie", "shortlist", title)


def word_shortlists(results: Results) -> Table | None:
    """The same where words are looked up."""
    sizes = [r.bytes_per_page for r in results.all if r.setting.variant == CODEWORD_SHORTLIST]
    about = f"{sizes[0]:,.0f} bytes a page" if sizes else ""
    title = f"Length of the shortlist whose words are looked up, {about}: nDCG@5"
    return _lengths(results, SHIPPED, CODEWORD_SHORTLIST, title)


def projected(results: Results) -> Table | None:
    """What an adapted codebook weighs on a page, as measured and where more pages share it."""
    if ADAPTED not in results.methods:
        return None

    def weight(of: Callable[[Result], float]) -> list[str]:
        return [f"{results.macro(ADAPTED, k, of).mean:,.0f}" for k in results.budgets]

    def book(result: Result) -> int:
        return int((result.codec or {})["codebook_bytes"])

    def code(result: Result) -> float:
        return result.bytes_per_page - book(result) / int((result.codec or {})["pages"])

    def shared(pages: int) -> list[str]:
        return weight(lambda result: code(result) + book(result) / pages)

    return Table(
        "projected",
        f"Projected: bytes of {TITLES[ADAPTED]}",
        ["bytes", *results.columns],
        [
            ["codebook", *weight(book)],
            ["code of a page", *weight(code)],
            ["a page, as measured", *weight(lambda result: result.bytes_per_page)],
            *([f"a page of {pages:,}", *shared(pages)] for pages in PROJECTED),
        ],
        "The same code and codebook if so many pages shared it; means over sets and seeds.",
    )


def capacities(results: Results) -> Table | None:
    """What a larger decoder brings."""
    found = _varied(results, lambda s: s.variant[:1].isdigit() and "x" in s.variant, "variant")
    if not found:
        return None
    sizes = {r.setting.variant: (r.codec or {}).get("parameters", 0) for r in results.all}
    body = [[size, f"{sizes[size]:,}", str(estimate)] for (_, size), estimate in found.items()]
    title = f"Size of the decoder at k = {SHORTLIST_K}: nDCG@5"
    return Table(
        "capacity", title, ["width x depth", "parameters of the codec", TITLES["glie"]], body
    )


def data_efficiency(results: Results) -> Table | None:
    """What fitting on fewer pages costs."""
    found = _varied(results, lambda s: s.variant.endswith("of pages"), "variant")
    if not found:
        return None
    pages: dict[str, list[int]] = {}
    for result in results.all:
        pages.setdefault(result.setting.variant, []).append((result.codec or {}).get("pages", 0))
    body = []
    for name in (f"{share:.0%} of pages" for share in SHARES):
        if name not in pages:  # too few to fit on
            continue
        few, many = min(pages[name]), max(pages[name])
        count = f"{few:,}" if few == many else f"{few:,} to {many:,}"
        body.append([name, count, str(found["glie", name])])
    title = f"Fitting on fewer pages, at k = {SHORTLIST_K}: nDCG@5"
    return Table("data", title, ["fitted on", "pages", TITLES["glie"]], body)


def costs(results: Results) -> Table:
    """Bytes a page and milliseconds a query of every method, means over sets."""
    body = []
    for method in results.methods:
        body += [_cost(results, method, k) for k in results.budgets]
    if results.ceiling is not None:
        body.append(_cost(results, UNCOMPRESSED, None))
    budget = "budget" if results.in_bytes else "k"
    return Table(
        "costs",
        "Quality and cost",
        ["method", budget, "bytes a page", *MEASURES.values(), "ms a query"],
        body,
        "Means over sets and seeds. Milliseconds are of one batch of all questions, on the machine "
        "that made the table; reading true vectors back from a cache is not counted.",
    )


def geometry(corpora: Sequence[CorpusGeometry]) -> Table:
    """Intrinsic dimension of the pages, beside its controls."""
    body = []
    for corpus in (*corpora, overall(corpora)) if len(corpora) > 1 else corpora:
        spreads = (corpus.twonn, corpus.gaussian, corpus.uniform)
        medians = ["-" if math.isnan(s.median) else f"{s.median:.1f}" for s in spreads]
        low, high = corpus.twonn.low, corpus.twonn.high
        reach = "-" if math.isnan(low) else f"{low:.1f} to {high:.1f}"
        body.append([corpus.name, f"{len(corpus.pages):,}", medians[0], reach, *medians[1:]])
    header = ["set", "pages measured", "TwoNN, median", "range", "Gaussian", "uniform"]
    return Table("geometry", "Intrinsic dimension of the pages, and two controls", header, body)


def tables(results: Results) -> list[Table]:
    """Every table that there are results for."""
    found: list[Table | None] = [main_sweep(results), percentages(results), ladder(results)]
    found += [improved(results), projected(results), shortlists(results)]
    found += [word_shortlists(results), capacities(results)]
    found += [data_efficiency(results), *per_set(results), costs(results)]
    return [table for table in found if table is not None]


def _cost(results: Results, method: str, k: int | None) -> list[str]:
    stored = results.macro(method, k, lambda result: result.bytes_per_page).mean
    spent = results.macro(method, k, lambda result: result.ms_per_query).mean

    def measured(name: str) -> float:
        return results.macro(method, k, lambda result: result.measures[name]).mean

    scores = [f"{measured(name):.3f}" for name in MEASURES]
    return [
        TITLES[method],
        "all" if k is None else f"{k:,}",
        f"{stored:,.0f}",
        *scores,
        f"{spent:.2f}",
    ]


def _lengths(results: Results, method: str, variant: str, title: str) -> Table | None:
    """A method and its oracle by the length of the shortlist."""
    found = _varied(results, lambda setting: setting.variant == variant, "shortlist")
    if not found:
        return None
    lengths = sorted({length for _, length in found})
    body = [
        [TITLES[name], *(str(found.get((name, length), "-")) for length in lengths)]
        for name in (method, ORACLE)
    ]
    return Table(variant, title, ["method", *(f"L = {length}" for length in lengths)], body)


def _varied(
    results: Results, chosen: Callable[[Any], bool], by: str
) -> dict[tuple[str, Any], Estimate]:
    """Macro-averages by method and by what was varied, in the order they were measured."""
    grouped: dict[tuple[str, Any], dict[int, list[float]]] = {}
    for result in results.all:
        setting = result.setting
        if setting.shortlist is not None and chosen(setting):
            key = setting.method, getattr(setting, by)
            grouped.setdefault(key, {}).setdefault(setting.seed, []).append(result.ndcg)
    return {
        key: Estimate.of([float(np.mean(scores)) for scores in seeds.values()])
        for key, seeds in grouped.items()
    }
