"""What the command line shows while it works."""

from __future__ import annotations

import io
import re
import time
from typing import Any

import pytest
import rich.console

from glie.cli import terminal
from glie.cli.terminal import Pace, fit_bar, progress_bar, status_line
from glie.progress import Progress
from glie.training.fitter import FitProgress
from glie.workload import IngestProgress


def test_the_pace_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    pace = Pace()
    assert pace.note(Progress("loading")) == ""
    assert pace.note(Progress("pages encoded", 16, 1016)) == ""  # one count is not a rate
    now += 10
    assert pace.note(Progress("pages encoded", 36, 1016)) == "2.0 a second, 8:10 left"
    now += 5
    assert pace.note(Progress("pages measured", 1, 200)) == ""  # another task
    now += 1
    assert pace.note(Progress("pages measured", 11, 200)) == "10.0 a second, 0:19 left"
    assert pace.note(Progress("searching")) == ""
    now += 1
    assert pace.note(Progress("pages measured", 12, 200)) == ""


def test_a_bar_where_someone_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    screen = rich.console.Console(file=shown, force_terminal=True, width=120, markup=False)
    monkeypatch.setattr(terminal, "errors", screen)
    with status_line("shrinking [b]") as say:
        for done in (10, 20):
            say(Progress("pages", done, 40))
    for part in ("shrinking [b]", "20 of 40 pages", "━━━", "a second", "left"):
        assert part in shown.getvalue()


def test_a_line_now_and_then_where_it_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", -1)
    with status_line("shrinking") as say:
        say(Progress("pages", 10, 40))
        say(Progress("pages", 20, 40))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "10 of 40 pages"
    assert lines[1].startswith("20 of 40 pages, ")
    assert lines[1].endswith(" left")


def ingest_step(**changes: Any) -> IngestProgress:
    facts = {"document": "a/long/name/of/some/report.pdf", "documents_read": 3, "documents": 40}
    return IngestProgress("pages", 120, 1266, **{**facts, "counted": True, **changes})


def test_the_time_left_is_visible_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """And moves although no page is finished."""
    now = 100.0
    monkeypatch.setattr("glie.cli.terminal.time.perf_counter", lambda: now)
    shown = io.StringIO()
    screen = rich.console.Console(file=shown, force_terminal=True, width=80, markup=False)
    monkeypatch.setattr(terminal, "errors", screen)
    with progress_bar() as show:
        show(ingest_step(stage="counting pages"))
        show(ingest_step(stage="reading by OCR", seconds_left=3725.0))
        time.sleep(0.5)
        now += 5
        time.sleep(0.5)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", text) if "left" in line]
    assert "120 of 1,266 pages" in lines[0]
    assert "1:02:05 left" in lines[0]
    assert "reading by OCR a/long" in lines[0]
    assert "1:02:00 left" in lines[-1]
    assert max(map(len, lines)) <= 80


def test_the_time_left_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", -1)
    with progress_bar() as show:
        show(ingest_step(stage="encoding", document="b.pdf", seconds_left=65.0))
    assert capsys.readouterr().err == "120 of 1,266 pages, 1:05 left, encoding b.pdf\n"


def test_a_fit_says_what_its_figures_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = io.StringIO()
    screen = rich.console.Console(file=shown, force_terminal=True, width=160, markup=False)
    now = FitProgress(
        *("steps", 12, 300), epoch=1, losses={"rank": 0.5}, measurements=1,
        free={4: 0.698}, single_stage={4: 0.69}, cascade={4: 0.701},
    )  # fmt: skip
    with fit_bar() as show:
        show(now)
    said = "12 of 300 steps, epoch 1, loss 0.500; held out, nDCG@5: k=4 0.698 k-means, 0.690 one"
    assert capsys.readouterr().err.startswith(said)
    monkeypatch.setattr(terminal, "errors", screen)
    with fit_bar() as show:
        time.sleep(0.3)
        show(now)
    assert "preparing" in shown.getvalue()
    assert "12 of 300 steps" in shown.getvalue()
    assert "None" not in shown.getvalue()
    assert " > " not in shown.getvalue()


def test_how_far_a_fit_is_is_visible_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    screen = rich.console.Console(file=shown, force_terminal=True, width=80, markup=False)
    monkeypatch.setattr(terminal, "errors", screen)
    scores = {2: 0.698, 4: 0.698, 8: 0.7}
    now = FitProgress(
        *("steps", 12, 300), epoch=1, losses={"rank": 0.5}, measurements=1,
        free=scores, single_stage=scores, cascade=scores,
    )  # fmt: skip
    with fit_bar() as show:
        show(now)
        time.sleep(0.3)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", text) if "held out" in line]
    assert re.match(r"12 of 300 steps [╸━]+ .*:[\d-]+:[\d-]+ loss 0.500; held out", lines[-1])
    assert max(map(len, lines)) <= 80
