"""`glie watch`: a line a change, whatever happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import glie
from tests.cli.conftest import Run

Steps = Callable[[], Iterator[set[Path]]]


def watched(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Let these things happen, and then Ctrl-C."""

    def changes(folders: list[Path], index: Path) -> Iterator[set[Path]]:
        yield set(folders)
        for step in steps:
            step()
            yield set(folders)
        raise KeyboardInterrupt

    monkeypatch.setattr("glie.watching.changes", changes)


def said(out: str) -> list[str]:
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in out.splitlines()]


def test_a_line_a_change(run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("reports/bad.pdf").write_text("no PDF")
    new = Path("reports/new.md")
    watched(
        monkeypatch,
        lambda: new.write_text("Anchors"),
        lambda: new.write_text("Buoys"),
        new.unlink,
        lambda: None,
    )
    done = run("watch", "reports", "--to", "x.glie")
    assert done.code == 0
    assert said(done.out) == [
        "x.glie holds 3 pages; watching reports",
        "added a.pdf: 2 pages",
        "added b.pdf: 1 page",
        "added new.md: 1 page",
        "changed new.md: 1 page",
        "gone new.md: it stays in the index until `glie delete`",
        "stopped",
    ]
    assert "bad.pdf: not a PDF" in done.err
    assert len(glie.Index.open("x.glie")) == 4


def test_it_waits_for_documents_and_for_other_writers(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("new").mkdir()
    run("index", "reports", "--to", "other.glie")
    held: list[Any] = []

    def lock() -> None:
        held.append(glie.Index.open("x.glie").writing())
        held[0].__enter__()
        Path("new/b.md").write_text("Buoys")

    monkeypatch.setattr("glie.cli.watch.time.sleep", lambda seconds: held[0].__exit__(None, None, None))  # fmt: skip
    watched(monkeypatch, lambda: Path("new/a.md").write_text("Anchors"), lock)
    done = run("watch", "new", "--to", "x.glie")
    lines = said(done.out)
    assert lines[0] == "waiting for the first document"
    assert "added a.md: 1 page" in lines
    assert "is writing; try again later" in lines[-3]
    assert lines[-2:] == ["added b.md: 1 page", "stopped"]


def test_an_error_ends_nothing(run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Path("x.glie/manifest.json")
    kept: list[bytes] = []

    def damage() -> None:
        kept.append(manifest.read_bytes())
        manifest.write_text("{")

    watched(
        monkeypatch,
        damage,
        lambda: (manifest.write_bytes(kept[0]), Path("reports/c.md").write_text("Buoys")),
    )
    done = run("watch", "reports", "--to", "x.glie")
    assert done.code == 0
    assert "manifest.json" in done.err
    assert "added c.md: 1 page" in said(done.out)


def test_what_is_mistyped_is_said_before_anything_is_made(run: Run, documents: Path) -> None:
    done = run("watch", "reports/a.pdf", "--to", "x.glie")
    assert (done.code, done.err) == (
        1,
        "glie: reports/a.pdf: expected a folder to watch, found a file\n",
    )
    assert run("watch", "reports", "--to", "x.glie", "--text", "some").code == 2
    assert not Path("x.glie").exists()


def test_in_a_process_until_ctrl_c(documents: Path) -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom glie.cli import main; main()"
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", code, "watch", "reports", "--to", "x.glie"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "added b.pdf" in line:
                Path("reports/late.md").write_text("Buoys")
            elif "added late.md" in line:
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert said("".join(lines))[-2:] == ["added late.md: 1 page", "stopped"]
