"""Which files change is noticed, and the index follows."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import glie
from glie.ingest import Reading
from glie.watching import Update, changes, update
from tests.documents.test_documents import make_pdf
from tests.test_ingest import WordEncoder, ask

QUIET = 0.1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text("tidal energy")
    return folder


@pytest.fixture
def index(tmp_path: Path) -> glie.Index:
    encoder = {"name": "words", "revision": "1"}
    return glie.Index.create(tmp_path / "docs" / "x.glie", glie.Codec(k=4), encoder=encoder)


@pytest.fixture
def seen(folder: Path, index: glie.Index) -> Iterator[Iterator[set[Path]]]:
    stop = threading.Event()
    found = changes([folder], index.path, quiet=QUIET, stop=stop)
    yield found
    stop.set()
    found.close()  # type: ignore[attr-defined]


def follow(index: glie.Index, folder: Path, only: set[Path]) -> Update:
    return update(index, WordEncoder(), [folder], only, Reading())


def test_what_changes_is_noticed_and_indexed(
    index: glie.Index, folder: Path, seen: Iterator[set[Path]], tmp_path: Path
) -> None:
    assert next(seen) == {folder}  # all that is there
    assert follow(index, folder, {folder}).added == {"a.txt": 1}
    # many writes are one change; the index, hidden files and other kinds are none
    for number in range(3):
        (folder / "b.txt").write_text("rotor blades " * (number + 1))
    (folder / "code.py").write_text("pass")
    found = next(seen)
    assert found == {folder / "b.txt"}
    assert follow(index, folder, found).added == {"b.txt": 1}
    assert ask(index, "blades") == "b.txt#1"
    (folder / "a.txt").write_text("solar power")
    assert follow(index, folder, next(seen)).changed == {"a.txt": 1}
    # a folder that is moved here is one change, of all that is in it
    (tmp_path / "new").mkdir()
    make_pdf(tmp_path / "new" / "c.pdf", ["grid", "cables"])
    shutil.move(tmp_path / "new", folder / "sub")
    found = next(seen)
    assert found == {folder / "sub"}
    assert follow(index, folder, found).added == {"sub/c.pdf": 2}
    (folder / "b.txt").unlink()
    report = follow(index, folder, next(seen)).report
    assert (report.documents_gone, "b.txt#1" in index) == (["b.txt"], True)


def test_only_what_changed_is_looked_at(index: glie.Index, folder: Path) -> None:
    (folder / "bad.pdf").write_bytes(b"no PDF")
    (folder / "new.txt").write_text("grid")
    found = follow(index, folder, {folder / "a.txt"})
    assert (found.added, found.report.problems) == ({"a.txt": 1}, [])
    generation = index.info().generation
    found = follow(index, folder, {folder / "a.txt", folder / "gone.txt"})
    assert (found.added, found.changed, index.info().generation) == ({}, {}, generation)
    found = follow(index, folder, {folder})
    assert found.added == {"new.txt": 1}
    assert found.report.problems == ["bad.pdf: not a PDF, whatever its name says"]


def test_a_folder_that_comes_back_is_looked_at_again(
    folder: Path, seen: Iterator[set[Path]]
) -> None:
    assert next(seen) == {folder}
    away = folder.rename(folder.with_name("away"))
    back = threading.Timer(5 * QUIET, lambda: away.rename(folder))
    back.start()
    assert folder in next(seen)
    back.join()


def test_another_writer_is_waited_for_by_the_caller(index: glie.Index, folder: Path) -> None:
    other = glie.Index.open(index.path)
    with other.writing(), pytest.raises(glie.errors.LockedError):
        follow(index, folder, {folder})
    assert follow(index, folder, {folder}).added == {"a.txt": 1}
    other.refresh()
    other.delete(["a.txt#1"])
    assert follow(index, folder, {folder}).added == {"a.txt": 1}  # what others did is seen


def test_only_folders_are_watched(folder: Path, tmp_path: Path) -> None:
    for path, what in ((folder / "a.txt", "a file"), (tmp_path / "none", "nothing there")):
        with pytest.raises(glie.DocumentError, match=f"expected a folder to watch, found {what}"):
            next(changes([path], tmp_path / "x"))


def test_the_missing_extra(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "watchfiles", None)
    with pytest.raises(glie.MissingExtraError, match=r'pip install "glie\[watch\]"'):
        next(changes([folder], tmp_path / "x"))
