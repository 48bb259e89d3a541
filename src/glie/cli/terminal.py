"""What the command line shows: text as it is, progress where someone watches, errors in a line."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import rich.console
import rich.progress
import rich.table
import rich.text

from glie.wording import count, listing, printable

if TYPE_CHECKING:
    import glie
    from glie.evaluation.comparison import Measured
    from glie.evaluation.light_colpali import TuneProgress
    from glie.evaluation.tables import Table
    from glie.geometry import CorpusGeometry, Spread
    from glie.index.health import Health, Repair
    from glie.ingest import IngestProgress, Report
    from glie.progress import OnProgress, Progress
    from glie.training.fitter import FitProgress

# what documents hold is shown as it is: brackets are not markup, :words: are not pictures
output = rich.console.Console(highlight=False, markup=False, emoji=False)
errors = rich.console.Console(stderr=True, highlight=False, markup=False, emoji=False)

SECONDS_BETWEEN_LINES = 10


@contextmanager
def progress_bar() -> Iterator[Callable[[IngestProgress], None]]:
    """Pages stored: a bar in a terminal, otherwise a line every 10 seconds."""
    columns = (
        rich.progress.TextColumn("{task.fields[counted]}"),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.fields[rate]} a second"),
        rich.progress.TimeRemainingColumn(),
        rich.progress.TextColumn("{task.fields[document]}", style="dim", markup=False),
    )
    began = time.perf_counter()
    due = Due()
    with _bar(*columns) as bar:
        task = bar.add_task("", total=None, counted="0 pages", rate="0.0", document="")

        def show(now: IngestProgress) -> None:
            rate = f"{now.done / (time.perf_counter() - began):.1f}"
            bar.update(
                task,
                total=now.total,
                completed=now.done,
                counted=str(now),
                rate=rate,
                document=now.document,
            )
            if bar.disable and due.now():
                errors.print(f"{now}, {rate} a second", soft_wrap=True)

        yield show


@contextmanager
def fit_bar() -> Iterator[Callable[[FitProgress], None]]:
    """Steps of a fit, its loss, and the scores of the held-out questions: a bar in a terminal,
    otherwise a line for each measurement."""
    measured = 0
    with _bar(*STEP_COLUMNS) as bar:
        task = bar.add_task("", total=None, said="preparing")

        def show(now: FitProgress) -> None:
            nonlocal measured
            said = f"loss {sum(now.losses.values()):.3f}; held out, nDCG@5:"
            for k, free in now.free.items():
                single, cascade = now.single_stage[k], now.cascade[k]
                said += f" k={k} {free:.3f} > {single:.3f} > {cascade:.3f}"
            bar.update(task, total=now.total, completed=now.done, said=said)
            if bar.disable and now.measurements > measured:
                measured = now.measurements
                losses = ", ".join(f"{name} {loss:.4f}" for name, loss in now.losses.items())
                errors.print(f"{now}, epoch {now.epoch}, {said} ({losses})", soft_wrap=True)

        yield show


@contextmanager
def tune_bar() -> Iterator[Callable[[TuneProgress], None]]:
    """Steps of a fine-tuning and its loss: a bar in a terminal, otherwise a line every 10
    seconds."""
    due = Due()
    with _bar(*STEP_COLUMNS) as bar:
        task = bar.add_task("", total=None, said="preparing")

        def show(now: TuneProgress) -> None:
            said = f"loss {now.loss:.4f}"
            bar.update(task, total=now.total, completed=now.done, said=said)
            if bar.disable and (due.now() or now.done == now.total):
                errors.print(f"{now}, {said}", soft_wrap=True)

        yield show


@contextmanager
def status_line(what: str) -> Iterator[OnProgress]:
    """What is being done, and how far it is: a bar in a terminal, otherwise a line every 10
    seconds. Yields the callback that updates it."""
    columns = (
        rich.progress.SpinnerColumn(),
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(bar_width=20),
        rich.progress.TextColumn("{task.fields[pace]}", style="dim", markup=False),
    )
    due, pace = Due(), Pace()
    with _bar(*columns) as bar:
        task = bar.add_task(what, total=None, pace="")

        def show(now: Progress) -> None:
            told = pace.note(now)
            bar.update(task, description=str(now), total=now.total, completed=now.done, pace=told)
            if bar.disable and due.now():
                errors.print(", ".join(filter(None, (str(now), told))), soft_wrap=True)

        yield show


STEP_COLUMNS = (
    rich.progress.TextColumn("step {task.completed} of {task.total}"),
    rich.progress.BarColumn(bar_width=20),
    rich.progress.TimeRemainingColumn(),
    rich.progress.TextColumn("{task.fields[said]}", style="dim", markup=False),
)


def _bar(*columns: rich.progress.ProgressColumn) -> rich.progress.Progress:
    watched = errors.is_terminal
    return rich.progress.Progress(*columns, console=errors, transient=True, disable=not watched)


class Due:
    """Whether it is time for another line: 10 seconds after the last one."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def now(self) -> bool:
        now = time.perf_counter()
        due = now - self._last > SECONDS_BETWEEN_LINES
        self._last = now if due else self._last
        return due


class Pace:
    """The rate of a task and the time left. A task that counts something else starts again."""

    def __init__(self) -> None:
        self._what, self._began, self._first = "", 0.0, 0

    def note(self, progress: Progress) -> str:
        """ "2.0 a second, 8:10 left"; empty until that is known."""
        now = time.perf_counter()
        if progress.what != self._what or progress.done < self._first:
            self._what, self._began, self._first = progress.what, now, progress.done
        seconds = now - self._began
        if progress.total is None or progress.done <= self._first or seconds <= 0:
            return ""
        rate = (progress.done - self._first) / seconds
        left = round((progress.total - progress.done) / rate)
        return f"{rate:,.1f} a second, {left // 60}:{left % 60:02} left"


def size(number: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


def print_fit(codec: glie.Codec, to: Path) -> None:
    assert codec.fitted is not None
    notes = codec.fitted.notes
    made = " made of page vectors" if notes["pseudo_queries"] else ""
    pace = f", {1000 * notes['step_seconds']:.0f} ms each" if notes["steps"] else ""
    print(
        f"{to}: fitted on {count(notes['pages'], 'page')} and "
        f"{count(notes['queries'], 'question')}{made} in {notes['seconds']:.0f} s "
        f"({count(notes['steps'], 'step')}{pace})"
    )
    print(f"nDCG@5 on {count(notes['held_out'], 'question')} held out:")
    table = rich.table.Table(box=None, pad_edge=False)
    for heading in ("k", "normalised k-means", "one stage", "two stages", "kept"):
        table.add_column(heading, justify="right")
    for budget in codec.fitted.budgets:
        kept = "refined, regenerated" if budget.step else "refined, not regenerated"
        if not budget.cascade_pays:
            kept = "normalised k-means: fitting did not help"
        table.add_row(
            str(budget.k),
            f"{budget.free:.3f}",
            f"{budget.single_stage:.3f}",
            f"{budget.cascade:.3f}",
            kept,
        )
    output.print(table)
    print(f"use it: glie index DOCUMENTS --to INDEX --codec {to}")


def print_results(measured: Measured) -> None:
    """A table a set and, of several sets, their mean; then what else was asked for."""
    from glie.evaluation.tables import geometry, per_set, tables

    sets, results, corpora = measured
    for one, table in zip(sets, per_set(results), strict=True):
        what = f"{count(len(one.page_ids), 'page')}, {count(len(one.queries), 'question')}"
        print_table(table._replace(title=f"{one.name}: {what}; nDCG@5"))
    shown = {"projected", "shortlist", "words-shortlist", "capacity", "data"}
    shown |= {"main"} if len(sets) > 1 else set()
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
    headings = ("bytes a page", "k", "codewords", "top 5 kept", "best kept", "error")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            "uncompressed" if row.budget is None else f"{row.budget:,}",
            f"{row.bytes_per_page:,.0f}",
            "all" if row.k is None else f"{row.k} x {row.dtype}",
            f"{row.codewords}" if row.codewords else "",
            f"{row.overlap:.1%}",
            f"{row.same_best:.1%}",
            f"{row.error:.3f}",
        )
    output.print(table)
    print(
        f"measured on {count(pages, 'page')} without metadata; kept: what a search over all "
        "vectors finds; error: of a score, a question vector"
    )


def print_geometry(corpora: Sequence[CorpusGeometry], seed: int) -> None:
    from glie.documents.snippet import printable
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
        print(f"{count(duplicates, 'vector')} the same as another of the page, counted once")
    if together.not_estimated:
        pages = count(together.not_estimated, "page")
        why = f"fewer than {FEWEST_VECTORS} distinct vectors, or all equally far apart"
        print(f"{pages} without an estimate: {why}")


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _ends(values: Spread, form: str) -> str:
    """From the lowest to the highest, or the one where both read the same."""
    if math.isnan(values.low):
        return "-"
    low, high = format(values.low, form), format(values.high, form)
    return low if low == high else f"{low}-{high}"


def print_report(report: Report, seconds: float) -> None:
    parts = [f"{count(report.documents_added, 'document')} added"]
    if report.documents_changed:
        parts.append(f"{report.documents_changed} changed")
    if report.documents_unchanged:
        parts.append(f"{report.documents_unchanged} unchanged")
    read = f" ({report.pages_by_ocr} read by OCR)" if report.pages_by_ocr else ""
    rate = f", {report.pages_added / seconds:.1f} a second" if report.pages_added else ""
    print(f"{', '.join(parts)}: {count(report.pages_added, 'page')}{read} in {seconds:.1f} s{rate}")


def print_weight(facts: glie.IndexInfo) -> None:
    lean = facts.lean_bytes
    if facts.pages:
        print(
            f"the index holds {count(facts.pages, 'page')} in {size(lean)}, "
            f"{lean / facts.pages:,.0f} bytes a page; their "
            f"{facts.vectors:,} vectors would take {size(facts.uncompressed_bytes)}"
        )
    above = above_budget(facts)
    if above:
        print(above)


NAMED = 5  # pages a fault


def print_health(path: Path, health: Health, *, repairs: bool) -> None:
    """What is damaged, a line a file."""
    read = f"{count(health.files, 'file')}, {size(health.bytes)} read"
    if health.whole:
        print(f"{path}: whole: {count(health.pages, 'page')}, {read}")
        return
    print(f"{path}: {count(len(health.damage), 'fault')}; {read}")
    for damage in health.damage:
        concerned = [printable(page_id) for page_id in damage.pages[:NAMED]]
        others = len(damage.pages) - len(concerned)
        concerned += [f"{others:,} more, which --json names"] if others else []
        concerned += [f"{damage.unnamed:,} whose names cannot be read"] if damage.unnamed else []
        pages = f": {', '.join(concerned)}" if concerned else ""
        number = len(damage.pages) + damage.unnamed
        costs = {
            "pages": f"{count(number, 'page')} lost{pages}",
            "pictures": f"{count(number, 'picture')} lost{pages}",
            "deletions": f"all {count(number, 'page')} of it are kept{pages}",
            "codec": "no page can be read; put the codec's own files back",
            "nothing": f"nothing is lost{pages}",
        }
        print(f"{damage}; {costs[damage.loss]}")
    if not repairs and not any(damage.loss == "codec" for damage in health.damage):
        print(f"whole: {count(health.pages, 'page')}, which `glie verify --repair` keeps")


def print_repair(path: Path, repair: Repair) -> None:
    state = "whole" if repair.after.whole else "still damaged"
    print(f"repaired: the index is {state} and holds {count(repair.after.pages, 'page')}")
    if repair.set_aside:
        print(f"set aside, to look at or delete: {listing(repair.set_aside)} in {path}")
    if repair.before.pages_lost:
        print(
            "to have what is lost again: `glie delete` what is left of these documents, then "
            "`glie add` them"
        )


def above_budget(facts: glie.IndexInfo) -> str | None:
    """Why a page takes more than was asked for, where it does; a candidate index comes on top of that."""
    lean = facts.lean_bytes - facts.candidate_bytes
    if not facts.pages or not facts.budget or lean <= facts.budget * facts.pages:
        return None
    above = f"above the {facts.budget:,} asked for"
    if facts.deleted:
        return f"{above}: deleted pages take space until `glie compact`"
    beside = lean / facts.pages - (facts.code_bytes_per_page or 0)
    return f"{above}: {beside:,.0f} are names and the folder itself, which more pages would share"


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


def fail(message: str, code: int) -> NoReturn:
    errors.print(f"glie: {' '.join(message.split())}", soft_wrap=True)
    sys.exit(code)
