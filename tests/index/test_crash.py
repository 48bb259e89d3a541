"""A process killed at any moment leaves the last committed state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tools.faults import fail_disks, kill_fits, kill_saves, kill_writers

import glie
from glie import storage
from glie.index import folder
from tests.codec.networks import random_codec
from tests.conftest import make_arrays, unit


def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    """Hundreds are killed by tools/faults.py."""
    assert kill_writers(tmp_path, 10, seed=0) == 10


def test_a_killed_save_leaves_one_codec_or_the_other(tmp_path: Path) -> None:
    assert kill_saves(tmp_path, 3, seed=0) == 3


def test_a_killed_fit_leaves_the_codec_before_it(tmp_path: Path) -> None:
    assert kill_fits(tmp_path, 1, seed=0) == 1


def test_a_save_killed_between_its_renames_is_finished_by_the_reader(tmp_path: Path) -> None:
    """New weights have their name, the settings that name them not yet."""
    one, two = (random_codec(16, seed) for seed in (0, 1))
    one.save(tmp_path / "c")
    before = (tmp_path / "c" / "config.json").read_bytes()
    two.save(tmp_path / "c")
    (tmp_path / "c" / "config.json").rename(tmp_path / "c" / "config.json.new")
    (tmp_path / "c" / "config.json").write_bytes(before)
    assert glie.Codec.load(tmp_path / "c").same_as(two)


def test_every_failure_of_the_disk_leaves_the_last_state(tmp_path: Path) -> None:
    """Each write, fsync, rename, removal and new folder of each change fails once, and files stop
    growing at some sizes."""
    assert fail_disks(tmp_path, every_fault=False) >= 100


def test_the_harness_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that is written in place, not renamed into it, is lost with its disk."""

    def in_place(self: folder.Folder, manifest: folder.Manifest) -> None:
        try:
            write = folder.write_durably  # type: ignore[attr-defined]  # which the harness fails
            write(self.path / "manifest.json", manifest.to_json().encode())
        except OSError as error:
            raise glie.IndexFolderError(str(error)) from None

    monkeypatch.setattr(folder.Folder, "commit", in_place)
    with pytest.raises((AssertionError, glie.CorruptIndexError)):
        fail_disks(tmp_path, every_fault=False)


def test_a_disk_that_fails_after_the_commit_loses_nothing(
    index: glie.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename is made, the folder's fsync is not: the change is there and stays."""
    real = storage.sync

    def fails(path: Path) -> None:
        if path == index.path:
            raise OSError(5, "Input/output error")
        real(path)

    with index.writing():
        with monkeypatch.context() as patch:
            patch.setattr(folder, "sync", fails)
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


def test_a_killed_shrink_is_made_again(index: glie.Index, tmp_path: Path) -> None:
    """What it leaves is beside the place it was made for, and goes with the next try."""
    code = f"""
import os
import glie
index = glie.Index.open({str(index.path)!r})
index.shrunk({str(tmp_path / "small.glie")!r}, bytes_per_page=60, progress=lambda now: os._exit(9))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert (tmp_path / "small.glie.making").exists()
    small = index.shrunk(tmp_path / "small.glie", bytes_per_page=60)
    assert small.ids == index.ids
    assert small.path == tmp_path / "small.glie"
    assert not (tmp_path / "small.glie.making").exists()
    with (
        glie.Index.create(tmp_path / "other.glie.making").writing(),
        pytest.raises(glie.LockedError, match="is writing"),
    ):
        index.shrunk(tmp_path / "other.glie", bytes_per_page=60)
