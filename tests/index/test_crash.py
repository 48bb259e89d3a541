"""A process killed at any moment leaves the last committed state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.index import folder
from tests.conftest import make_arrays, unit

# Adds, deletes and compacts without end; says each state on standard output once it is committed.
CHANGES = """
import sys
import numpy as np
import glie
index = glie.Index.open(sys.argv[1])
rng = np.random.default_rng(int(sys.argv[2]))
step = 0
while True:
    step += 1
    arrays = [rng.normal(size=(4, 8)) for _ in range(3)]
    ids = [f"{sys.argv[2]}-{step}-{i}" for i in range(3)]
    index.add(glie.Pages(arrays, ids=ids, normalize=True))
    print(f"add {step}", flush=True)
    index.delete([ids[1]])
    print(f"delete {step}", flush=True)
    if step % 4 == 0:
        index.compact()
"""


def expected_ids(run: int, lines: list[str]) -> list[str]:
    ids: list[str] = []
    for line in lines:
        verb, step = line.split()
        if verb == "add":
            ids += [f"{run}-{step}-{i}" for i in range(3)]
        else:
            ids.remove(f"{run}-{step}-1")
    return ids


def next_states(run: int, lines: list[str]) -> list[list[str]]:
    """What the index may hold: what was said, or one step more (committed, not yet said)."""
    steps = len(lines) // 2
    follow = f"delete {steps + 1}" if len(lines) % 2 else f"add {steps + 1}"
    return [expected_ids(run, lines), expected_ids(run, [*lines, follow])]


def test_killed_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "killed.glie"
    glie.Index.create(path, glie.Codec(k=2))
    rng = np.random.default_rng(0)
    kept: list[str] = []
    for run in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", CHANGES, str(path), str(run)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()  # it has started, whatever that took
        time.sleep(float(rng.uniform(0, 0.25)))
        process.send_signal(signal.SIGKILL)
        lines = [first.strip(), *process.stdout.read().split("\n")]
        process.wait()
        process.stdout.close()
        lines = [line for line in lines if len(line.split()) == 2]
        index = glie.Index.open(path)
        index.verify()
        new = index.ids[len(kept) :]
        assert index.ids[: len(kept)] == kept
        assert new in next_states(run, lines)
        kept = index.ids
    index.compact()
    assert len(list((path / "segments").iterdir())) == index.info().segments


def test_a_disk_that_fails_after_the_commit_loses_nothing(
    index: glie.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename is made, the folder's fsync is not: the change is there and stays."""
    real = folder._sync

    def fails(path: Path) -> None:
        if path == index.path:
            raise OSError(5, "Input/output error")
        real(path)

    with index.writing():
        with monkeypatch.context() as patch:
            patch.setattr(folder, "_sync", fails)
            with pytest.raises(glie.IndexFolderError, match="the disk did not confirm it"):
                index.add(glie.Pages(make_arrays(1), ids=["new"]))
        assert "new" in index
        index.add(glie.Pages(make_arrays(1), ids=["newer"]))
        with pytest.raises(glie.IdError, match="'new' is already in the index"):
            index.add(glie.Pages(make_arrays(1), ids=["new"]))
    assert glie.Index.open(index.path).ids[-2:] == ["new", "newer"]


@pytest.mark.parametrize("broken", ["write", "fsync", "replace"])
def test_a_disk_that_fails_leaves_the_last_state(
    index: glie.Index, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fails(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    ids = index.ids
    with monkeypatch.context() as patch:
        if broken == "write":
            patch.setattr(folder, "write_durably", fails)
        elif broken == "fsync":
            patch.setattr(os, "fsync", fails)
        else:
            patch.setattr(Path, "replace", fails)
        for change in (
            lambda: index.add(glie.Pages(make_arrays(1), ids=["new"])),
            lambda: index.delete([ids[0]]),
        ):
            with pytest.raises(glie.IndexFolderError, match="No space left on device"):
                change()
    assert index.ids == glie.Index.open(index.path).ids == ids
    index.add(glie.Pages([unit(np.ones((1, 16)))], ids=["new"]))
    assert glie.Index.open(index.path).ids == [*ids, "new"]
    assert len(list((index.path / "segments").iterdir())) == index.info().segments
