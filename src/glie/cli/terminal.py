"""The terminal: consoles, JSON, and progress bars."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rich.console
import rich.progress
import rich.progress_bar
import rich.table
import rich.text

if TYPE_CHECKING:
    from glie.evaluation.light_colpali import TuneProgress
    from glie.ingest import IngestProgress
    from glie.progress import OnProgress, Progress
    from glie.training.fitter import FitProgress

# text of documents is shown as it is: [brackets] are not markup, :words: are not emoji
output = rich.console.Console(highlight=False, markup=False, emoji=False)
errors = rich.console.Console(stderr=True, highlight=False, markup=False, emoji=False)

SECONDS_BETWEEN_LINES = 10


@contextmanager
def progress_bar() -> Iterator[Callable[[IngestProgress], None]]:
    """Pages encoded, the time left and the stage: a bar in a terminal, otherwise a line every 10
    seconds. Between two steps the time goes on as expected, so that the bar always moves."""
    columns = (
        rich.progress.TextColumn("{task.description}", markup=False, table_column=NARROW),
        ElapsedBar(bar_width=16, table_column=NARROW),
        TimeLeft(table_column=NARROW),
        rich.progress.TextColumn(
            "{task.fields[doing]}", style="dim", markup=False, table_column=REST
        ),
    )
    due = Due()
    with _bar(*columns, expand=True) as bar:
        task = bar.add_task("0 pages", total=None, left=None, at=time.perf_counter(), doing="")

        def show(now: IngestProgress) -> None:
            doing = f"{now.stage} {now.document}"
            left, at = now.seconds_left, time.perf_counter()
            bar.update(task, description=str(now), left=left, at=at, doing=doing)
            if bar.disable and due.now():
                told = "" if left is None else f", {minutes(left)} left"
                errors.print(f"{now}{told}, {doing}", soft_wrap=True)

        yield show


def expected_left(task: rich.progress.Task) -> float | None:
    """Seconds left, less those since the last step; a tenth of them stays until the next."""
    left, at = task.fields["left"], task.fields["at"]
    return None if left is None else float(max(left - (time.perf_counter() - at), left / 10))


class TimeLeft(rich.progress.ProgressColumn):
    """The time left, at any moment."""

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        left = expected_left(task)
        return rich.text.Text("" if left is None else f"{minutes(left)} left", style="cyan")


class ElapsedBar(rich.progress.BarColumn):
    """How much of the time is over."""

    def render(self, task: rich.progress.Task) -> rich.progress_bar.ProgressBar:
        left, gone = expected_left(task), task.elapsed or 0.0
        return rich.progress_bar.ProgressBar(
            total=None if left is None else gone + left,
            completed=gone,
            width=self.bar_width,
            pulse=left is None,
            animation_time=task.get_time(),
        )


def minutes(seconds: float) -> str:
    """ "2:05", "1:02:05"."""
    whole = round(seconds)
    hours = f"{whole // 3600}:" if whole >= 3600 else ""
    return f"{hours}{whole % 3600 // 60:0{2 if hours else 1}}:{whole % 60:02}"


@contextmanager
def fit_bar() -> Iterator[Callable[[FitProgress], None]]:
    """Steps of a fit, its loss, and the scores of the held-out questions: a bar in a terminal,
    otherwise a line for each measurement."""
    measured = 0
    with _bar(*STEP_COLUMNS, expand=True) as bar:
        task = bar.add_task("preparing", total=None, said="")

        def show(now: FitProgress) -> None:
            nonlocal measured
            said = f"loss {sum(now.losses.values()):.3f}; held out, nDCG@5:"
            for k, free in now.free.items():
                single, cascade = now.single_stage[k], now.cascade[k]
                said += (
                    f" k={k} {free:.3f} k-means, {single:.3f} one stage, {cascade:.3f} two stages;"
                )
            said = said.rstrip(";")
            bar.update(task, description=str(now), total=now.total, completed=now.done, said=said)
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
    with _bar(*STEP_COLUMNS, expand=True) as bar:
        task = bar.add_task("preparing", total=None, said="")

        def show(now: TuneProgress) -> None:
            said = f"loss {now.loss:.4f}"
            bar.update(task, description=str(now), total=now.total, completed=now.done, said=said)
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


# In a narrow terminal what is said is cut, not how far it is.
NARROW = rich.table.Column(no_wrap=True)
REST = rich.table.Column(no_wrap=True, overflow="ellipsis", ratio=1)
STEP_COLUMNS = (
    rich.progress.TextColumn("{task.description}", markup=False, table_column=NARROW),
    rich.progress.BarColumn(bar_width=16, table_column=NARROW),
    rich.progress.TimeRemainingColumn(table_column=NARROW),
    rich.progress.TextColumn("{task.fields[said]}", style="dim", markup=False, table_column=REST),
)


def _bar(*columns: rich.progress.ProgressColumn, expand: bool = False) -> rich.progress.Progress:
    watched = errors.is_terminal
    return rich.progress.Progress(
        *columns, console=errors, transient=True, disable=not watched, expand=expand
    )


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
        return f"{rate:,.1f} a second, {minutes((progress.total - progress.done) / rate)} left"


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))
