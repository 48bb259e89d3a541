"""The tables of a report: one function each, from results to rows of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from glie.evaluation.experiment import (
    CAPACITY_KS,
    CAPACITY_PAGES,
    CODEWORD_SHORTLIST,
    SHORTLIST_K,
)
from glie.evaluation.methods import (
    ADAPTED,
    BASELINES,
    LADDER,
    NAMES,
    ORACLE,
    OURS,
    SHIPPED,
    UNCOMPRESSED,
)
from glie.evaluation.results import RESAMPLES, Estimate, Results, margins
from glie.evaluation.store import Result, Setting
from glie.geometry import CorpusGeometry, overall
from glie.measures import MEASURES

FURTHER = {name: shown for name, shown in MEASURES.items() if name != "ndcg_at_5"}
PROJECTED = (10_000, 1_000_000)  # numbers of pages that share a codebook


class Table(NamedTuple):
    """A table of text; the first column names the row."""

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


def rows(results: Results) -> list[dict[str, Any]]:
    """The main table as JSON: a row for each set, method and budget, with means over seeds."""
    found = []
    keys = [
        (dataset, method, k)
        for dataset in results.datasets
        for k in (*results.budgets, None)
        for method in NAMES
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
    budgets, ceiling = results.budgets, results.ceiling
    body = [[name, *(str(results.macro(name, k)) for k in budgets)] for name in results.methods]
    if ceiling is not None:
        body.append([UNCOMPRESSED, *[f"{ceiling:.3f}"] * len(budgets)])
    sets = len(results.datasets)
    title = f"nDCG@5, macro-averaged over {sets} set{'' if sets == 1 else 's'}"
    return Table("main", title, ["method", *results.columns], body)


def per_set(results: Results) -> list[Table]:
    """nDCG@5 on each set, and the share of the uncompressed score that our methods keep."""
    tables = []
    for dataset in results.datasets:
        body: list[list[str]] = []
        if results.methods and not results.in_bytes:
            first = results.methods[0]
            sizes = [results.of(dataset, first, k)[0].bytes_per_page for k in results.budgets]
            body.append([f"{first}, bytes a page", *(f"{size:,.0f}" for size in sizes)])
        body += [
            [method, *(str(results.ndcg(dataset, method, k)) for k in results.budgets)]
            for method in results.methods
        ]
        if results.of(dataset, UNCOMPRESSED, None):
            ceiling = results.ndcg(dataset, UNCOMPRESSED, None).mean
            for method in [one for one in results.methods if ceiling and one in OURS]:
                kept = [results.ndcg(dataset, method, k).mean / ceiling for k in results.budgets]
                body.append([f"{method}, kept", *(f"{part:.0%}" for part in kept)])
            body.append([UNCOMPRESSED, *[f"{ceiling:.3f}"] * len(results.budgets)])
        header = ["method", *results.columns]
        tables.append(Table(f"set-{dataset}", f"nDCG@5 on {dataset}", header, body))
    return tables


def percentages(results: Results) -> Table | None:
    """The share of the uncompressed score that each method keeps."""
    ceiling = results.ceiling
    if not ceiling:
        return None
    body = [
        [
            method,
            *(f"{results.macro(method, k).mean / ceiling:.0%}" for k in results.budgets),
        ]
        for method in results.methods
    ]
    title = f"Per cent of uncompressed nDCG@5 ({ceiling:.3f})"
    return Table("percent", title, ["method", *results.columns], body)


def improved(results: Results) -> Table | None:
    """The number of sets on which our methods beat the strongest training-free method, and by how
    much."""
    body = []
    for method in OURS:
        gains = margins(results, method)
        if gains:
            body.append([method, *(f"{gain.wins} of {gain.sets}" for gain in gains)])
            body.append([f"{method}, margin", *map(str, gains)])
    if not body:
        return None
    return Table(
        "improved",
        "Sets improved over the strongest training-free method, and the mean margin in nDCG@5",
        ["method", *results.columns],
        body,
        "The strongest is chosen for each set and budget among those measured of "
        f"{', '.join(BASELINES)}; glie-free itself is "
        "compared with the others. In brackets a 95% interval by paired "
        f"bootstrap over questions ({RESAMPLES:,} draws).",
    )


def ladder(results: Results) -> Table | None:
    """The gain of each part: normalisation, refiner, decoder."""
    steps = [method for method in LADDER if method in results.methods]
    if len(steps) < 2:
        return None
    body = []
    for place, method in enumerate(steps):
        cells = []
        for k in results.budgets:
            here = results.macro(method, k)
            below = results.macro(steps[place - 1], k).mean if place else 0.0
            cells.append(f"{here.mean - below:+.3f}" if place else f"{here.mean:.3f}")
        body.append([method, *cells])
    header = ["part", *results.headings(steps)]
    return Table("ladder", "The ladder: what each part adds to nDCG@5", header, body)


def shortlists(results: Results) -> Table | None:
    """nDCG@5 by the length of the shortlist, reranked with regenerated and with true vectors."""
    title = f"Length of the shortlist at k = {SHORTLIST_K}: nDCG@5"
    return _lengths(results, "glie", "shortlist", title)


def codeword_shortlists(results: Results) -> Table | None:
    """The same where pages are reconstructed from codewords."""
    sizes = [r.bytes_per_page for r in results.all if r.setting.variant == CODEWORD_SHORTLIST]
    about = f"{sizes[0]:,.0f} bytes a page" if sizes else ""
    title = f"Length of the shortlist reranked with codewords, {about}: nDCG@5"
    return _lengths(results, SHIPPED, CODEWORD_SHORTLIST, title)


def projected(results: Results) -> Table | None:
    """Bytes a page with an adapted codebook, as measured and if more pages share it."""
    if ADAPTED not in results.methods:
        return None

    def weight(of: Callable[[Result], float]) -> list[str]:
        return [f"{results.macro(ADAPTED, k, of).mean:,.0f}" for k in results.budgets]

    def book(result: Result) -> int:
        return int((result.codec or {}).get("codebook_bytes", 0))  # none: anchors alone

    def code(result: Result) -> float:
        return result.bytes_per_page - book(result) / int((result.codec or {}).get("pages", 1))

    def shared(pages: int) -> list[str]:
        return weight(lambda result: code(result) + book(result) / pages)

    return Table(
        "projected",
        f"Projected: bytes of {ADAPTED}",
        ["bytes", *results.columns],
        [
            ["codebook", *weight(book)],
            ["code of a page", *weight(code)],
            ["a page, as measured", *weight(lambda result: result.bytes_per_page)],
            *([f"a page of {pages:,}", *shared(pages)] for pages in PROJECTED),
        ],
        "The same codes, with the codebook shared by more pages; means over sets and seeds.",
    )


def capacities(results: Results) -> Table | None:
    """nDCG@5 by the size of the decoder."""

    def sized(setting: Setting) -> bool:
        return setting.variant[:1].isdigit() and "x" in setting.variant

    found = _varied(results, sized, lambda setting: (setting.variant, setting.k))
    if not found:
        return None
    codecs = {r.setting.variant: r.codec or {} for r in results.all if sized(r.setting)}
    body = [
        [size, f"{codec['parameters']:,}", *(str(found["glie", (size, k)]) for k in CAPACITY_KS)]
        for size, codec in codecs.items()
    ]
    title = f"Size of the decoder, fitted on at most {CAPACITY_PAGES} pages: nDCG@5"
    header = ["width x depth", "params", *(f"k = {k}" for k in CAPACITY_KS)]
    return Table("capacity", title, header, body)


def data_efficiency(results: Results) -> Table | None:
    """nDCG@5 by the number of pages fitted on."""

    def drawn(setting: Setting) -> bool:
        return setting.variant.endswith("pages")

    found = _varied(results, drawn, lambda setting: setting.variant)
    if not found:
        return None
    pages: dict[str, list[int]] = {}
    for result in results.all:
        pages.setdefault(result.setting.variant, []).append((result.codec or {}).get("pages", 0))
    body = []
    for (_, name), score in found.items():
        few, many = min(pages[name]), max(pages[name])
        body.append([name, f"{few:,}" if few == many else f"{few:,} to {many:,}", str(score)])
    title = f"Fitting on fewer pages, at k = {SHORTLIST_K}: nDCG@5"
    return Table("data", title, ["fitted on", "pages", "glie"], body)


def costs(results: Results) -> Table:
    """Further measures, bytes a page and milliseconds a query of every method; means over sets."""
    body = []
    for method in results.methods:
        body += [_cost(results, method, k) for k in results.budgets]
    if results.ceiling is not None:
        body.append(_cost(results, UNCOMPRESSED, None))
    budget = "budget" if results.in_bytes else "k"
    return Table(
        "costs",
        "Further measures, and cost",
        ["method", budget, "bytes a page", *FURTHER.values(), "ms a query"],
        body,
        "Means over sets and seeds. Milliseconds a query are measured on one batch of all "
        "questions, on the machine that made the table, without reading true vectors from a cache.",
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
    """All tables for which there are results."""
    found: list[Table | None] = [main_sweep(results), percentages(results), ladder(results)]
    found += [improved(results), projected(results), shortlists(results)]
    found += [codeword_shortlists(results), capacities(results)]
    found += [data_efficiency(results)]
    found += per_set(results) if len(results.datasets) > 1 else []  # one set is its own mean
    found += [costs(results)]
    return [table for table in found if table is not None]


def _cost(results: Results, method: str, k: int | None) -> list[str]:
    stored = results.macro(method, k, lambda result: result.bytes_per_page).mean
    spent = results.macro(method, k, lambda result: result.ms_per_query).mean

    def measured(name: str) -> float:
        return results.macro(method, k, lambda result: result.measures[name]).mean

    scores = [f"{measured(name):.3f}" for name in FURTHER]
    return [
        method,
        "all" if k is None else f"{k:,}",
        f"{stored:,.0f}",
        *scores,
        f"{spent:.2f}",
    ]


def _lengths(results: Results, method: str, variant: str, title: str) -> Table | None:
    """nDCG@5 of a method and its oracle by the length of the shortlist."""
    found = _varied(results, lambda s: s.variant == variant, lambda s: s.shortlist)
    if not found:
        return None
    both = method, ORACLE
    body = [
        [str(length), *(str(found.get((name, length), "-")) for name in both)]
        for length in sorted({length for _, length in found})
    ]
    return Table(variant, title, ["L", *(name for name in both)], body)


def _varied(
    results: Results, chosen: Callable[[Setting], bool], by: Callable[[Setting], Any]
) -> dict[tuple[str, Any], Estimate]:
    """Macro-averages of chosen settings, by method and by what `by` says of them, in the order
    they were measured."""
    grouped: dict[tuple[str, Any], dict[int, list[float]]] = {}
    for result in results.all:
        setting = result.setting
        if setting.shortlist is not None and chosen(setting):
            key = setting.method, by(setting)
            grouped.setdefault(key, {}).setdefault(setting.seed, []).append(result.ndcg)
    return {
        key: Estimate.of([float(np.mean(scores)) for scores in seeds.values()])
        for key, seeds in grouped.items()
    }
