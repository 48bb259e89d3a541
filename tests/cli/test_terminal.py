"""What the command line shows while it works."""

from __future__ import annotations

import io

import pytest
import rich.console

from glie.cli import terminal
from glie.cli.terminal import Pace, status_line
from glie.progress import Progress


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
