"""What the command line shows while it works."""

from __future__ import annotations

import io

import pytest
import rich.console

from glie.cli import terminal
from glie.cli.terminal import Pace, status_line


def test_a_pace_is_told_of_lines_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    pace = Pace()
    pace.note("loading")
    assert (pace.total, pace.told) == (None, "")
    pace.note("a set: encoding pages, 16 of 1,016")
    assert (pace.done, pace.total, pace.told) == (16, 1016, "")  # nothing is known yet
    now += 10
    pace.note("a set: encoding pages, 36 of 1,016")
    assert pace.told == "2.0 a second, 8:10 left"
    now += 5
    pace.note("a set: page 1 of 200")  # something else begins
    assert (pace.done, pace.told) == (1, "")
    now += 1
    pace.note("a set: page 11 of 200")
    assert pace.told == "10.0 a second, 0:19 left"
    pace.note("searching")
    assert (pace.total, pace.told) == (None, "")


def test_a_bar_where_someone_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    screen = rich.console.Console(file=shown, force_terminal=True, width=120, markup=False)
    monkeypatch.setattr(terminal, "errors", screen)
    with status_line("shrinking [b]") as say:
        for done in (10, 20):
            say(f"{done} of 40 pages")
    for part in ("shrinking [b]", "20 of 40 pages", "━━━", "a second", "left"):
        assert part in shown.getvalue()


def test_a_line_now_and_then_where_it_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", -1)
    with status_line("shrinking") as say:
        say("10 of 40 pages")
        say("20 of 40 pages")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "10 of 40 pages"
    assert lines[1].startswith("20 of 40 pages, ")
    assert lines[1].endswith(" left")
