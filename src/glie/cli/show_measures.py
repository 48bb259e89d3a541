"""What the command line shows of measurements: tables of evaluations, plans, fits and geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich.table
import rich.text

from glie.cli.terminal import output
from glie.wording import count, printable

if TYPE_CHECKING:
    import glie
    from glie.evaluation.comparison import Measured
    from glie.evaluation.tables import Table
    from glie.geometry import CorpusGeometry, Spread


def print_results(measured: Measured) -> None:
    """A table for each set, the mean of several sets, then the tables of --more."""
    from glie.evaluation.experiment import CODEWORD_SHORTLIST
    from glie.evaluation.tables import geometry, per_set, tables

    sets, results, corpora = measured
    for one, table in zip(sets, per_set(results), strict=True):
        what = f"{count(len(one.page_ids), 'page')}, {count(len(one.queries), 'question')}"
        print_table(table._replace(title=f"{one.name}: {what}; nDCG@5"))
    shown = {"projected", "shortlist", CODEWORD_SHORTLIST, "capacity", "data"}
    shown |= {"main", "percent"} if len(sets) > 1 else set()
    for table in tables(results):
        if table.name in shown:
            print_table(table)
    if corpora:
        print_table(geometry(corpora))


def print_table(table: Table) -> None:
    output.print(table.title, soft_wrap=True)
    shown = rich.table.Table(box=None, pad_edge=False)
    for place, heading in enumerate(table.header):
        shown.add_column(heading, justify="right" if place else "left", no_wrap=not place)
    for row in table.rows:
        shown.add_row(*map(rich.text.Text, row))
    output.print(shown)
    if table.note:
        output.print(table.note, style="dim")
    print()


def print_plan(rows: Sequence[glie.Planned], pages: int) -> None:
    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("budget", no_wrap=True)
    has_text = any(row.text_bytes for row in rows)
    sizes = ("bytes", "words") if has_text else ("bytes a page",)
    for heading in (*sizes, "k", "codewords", "top 5 kept", "best kept", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            "uncompressed" if row.budget is None else f"{row.budget:,}",
            f"{row.bytes_per_page:,.0f}",
            *([f"{row.text_bytes:,.0f}" if row.text_bytes else ""] if has_text else []),
            "all" if row.k is None else f"{row.k} x {row.dtype}",
            f"{row.codewords}" if row.codewords else "",
            f"{row.overlap:.1%}",
            f"{row.same_best:.1%}",
            f"{row.error:.3f}",
        )
    output.print(table)
    for row in rows:
        if row.families:
            print(_tried(row))
    print(
        f"measured on {count(pages, 'page')} without metadata. kept: results that agree with a "
        "search over all vectors. error: of the score, for each question vector"
        + ("; words: bytes of the words of a page, which are searched beside" if has_text else "")
    )


def _tried(row: glie.Planned) -> str:
    """What the kinds of code kept that were tried at a budget, the best first."""
    best_first = sorted(row.families.items(), key=lambda family: -family[1])
    kept = ", ".join(f"{name} {share:.0%}" for name, share in best_first)
    return f"{row.budget:,} bytes: best pages kept by {kept}"


def print_fit(codec: glie.Codec, to: Path) -> None:
    notes = codec.notes
    made = " made of page vectors" if notes["pseudo_queries"] else ""
    pace = f", {1000 * notes['step_seconds']:.0f} ms each" if notes["steps"] else ""
    print(
        f"{to}: fitted on {count(notes['trained_pages'], 'page')} and "
        f"{count(notes['queries'], 'question')}{made} in {notes['seconds']:.0f} s "
        f"({count(notes['steps'], 'step')}{pace})"
    )
    asked = count(notes["held_out"], "question")
    if notes["held_out_pages"]:
        apart = f"about {count(notes['held_out_pages'], 'other page')}"
    else:
        apart = "about pages that were fitted on: too few pages have questions"
    print(f"nDCG@5 on {asked} held out, {apart}; over all pages:")
    table = rich.table.Table(box=None, pad_edge=False)
    for heading in ("k", "glie-free", "glie-stage1", "glie", "kept"):
        table.add_column(heading, justify="right")
    for budget in codec.scores:
        kept = "refined, regenerated" if budget.step else "refined, not regenerated"
        if not budget.cascade_pays:
            kept = "glie-free: fitting did not help"
        table.add_row(
            str(budget.k),
            f"{budget.free:.3f}",
            f"{budget.single_stage:.3f}",
            f"{budget.cascade:.3f}",
            kept,
        )
    output.print(table)
    print(f"use it: glie index DOCUMENTS --to INDEX --codec {to}")


def print_geometry(corpora: Sequence[CorpusGeometry], seed: int) -> None:
    from glie.geometry import FEWEST_VECTORS, overall

    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("corpus", overflow="fold")
    for heading in ("pages", "vectors", "D", "norm", "TwoNN", "range", "Gaussian", "uniform"):
        table.add_column(heading, justify="right", no_wrap=True)
    together = overall(corpora)
    for corpus in corpora if len(corpora) == 1 else (*corpora, together):
        table.add_row(
            rich.text.Text(printable(corpus.name), style="bold" if corpus is together else ""),
            f"{len(corpus.pages):,}",
            _ends(corpus.vectors, ",.0f"),
            ", ".join(f"{dim:,}" for dim in corpus.dims),
            _ends(corpus.norm, ".3f"),
            _number(corpus.twonn.median),
            _ends(corpus.twonn, ".1f"),
            _number(corpus.gaussian.median),
            _number(corpus.uniform.median),
        )
    output.print(table)
    print("TwoNN, Gaussian and uniform: intrinsic dimension, the median of the pages")
    for corpus in corpora:
        if corpus.found > len(corpus.pages):
            drawn = f"{len(corpus.pages):,} of {count(corpus.found, 'page')} drawn"
            print(f"{printable(corpus.name)}: {drawn} (seed {seed}); --pages measures more")
    zeros = sum(page.zeros for page in together.pages)
    if zeros:
        print(f"{count(zeros, 'vector')} of length zero left out of the estimates")
    duplicates = sum(page.duplicates for page in together.pages)
    if duplicates:
        print(f"{count(duplicates, 'vector')} equal to another of the same page, counted once")
    if together.not_estimated:
        pages = count(together.not_estimated, "page")
        why = f"fewer than {FEWEST_VECTORS} distinct vectors, or all equally far apart"
        print(f"{pages} without an estimate: {why}")


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _ends(values: Spread, form: str) -> str:
    """The lowest and the highest value, or one value if both print the same."""
    if math.isnan(values.low):
        return "-"
    low, high = format(values.low, form), format(values.high, form)
    return low if low == high else f"{low}-{high}"
