"""A folder into an index: only what changed, and everything that went wrong by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reportlab.pdfgen import canvas

import glie
import glie.index.adding as adding_module
import glie.ingest as ingest_module
from glie.documents import find_documents
from glie.documents.known import pages_of
from glie.encoders.base import Floats
from glie.ingest import IngestProgress, Reading, ingest, store_documents
from tests.documents.test_ahead import nothing_left
from tests.documents.test_documents import bad_files, make_pdf, picture


class WordEncoder:
    """One fixed random vector a word: an encoder small enough to reason about."""

    name = "words"
    revision = "1"

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        return self.encode_queries([page.text for page in pages])

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        return [np.stack([self._vector(word) for word in text.lower().split()]) for text in texts]

    def _vector(self, word: str) -> Floats:
        v = np.random.default_rng(list(word.encode())).normal(size=32)
        return (v / np.linalg.norm(v)).astype(np.float32)


@pytest.fixture
def empty(tmp_path: Path) -> glie.Index:
    encoder = {"name": "words", "revision": "1"}
    return glie.Index.create(tmp_path / "x.glie", glie.Codec(k=16), encoder=encoder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    make_pdf(folder / "a.pdf", ["tidal energy", "rotor blades"])
    make_pdf(folder / "sub" / "b.pdf", ["holiday allowance"])
    (folder / "c.md").write_text("# Meeting\n\nthe seal was replaced")
    return folder


def ask(index: glie.Index, text: str) -> str:
    return index.search(WordEncoder().encode_queries([text]), top=1)[0].ids[0]


def test_indexes_a_folder(empty: glie.Index, folder: Path) -> None:
    steps: list[IngestProgress] = []
    report = ingest(empty, WordEncoder(), [folder], progress=steps.append)
    assert (report.documents_added, report.pages_added, report.problems) == (3, 4, [])
    assert empty.ids == ["a.pdf#1", "a.pdf#2", "c.md#1", "sub/b.pdf#1"]
    assert ask(empty, "blades") == "a.pdf#2"
    assert ask(empty, "allowance") == "sub/b.pdf#1"
    metadata = empty.metadata("a.pdf#2")
    assert metadata["document"] == "a.pdf"
    assert metadata["page"] == 2
    assert metadata["path"] == str((folder / "a.pdf").resolve())
    assert steps[-1] == IngestProgress.of("sub/b.pdf", 3, 3, 4, 4)
    assert [str(step) for step in steps[:4]] == [  # counted first
        *("1 of 3 documents", "2 of 3 documents", "3 of 3 documents", "0 of 4 pages")
    ]
    assert str(steps[-1]) == "4 of 4 pages"


def test_a_codebook_is_made_of_more_than_the_first_commit_would_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "PAGES_PER_COMMIT", 3)
    for module in (ingest_module, adding_module):
        monkeypatch.setattr(module, "FIRST_PAGES", 10)
    for number in range(20):
        make_pdf(tmp_path / "docs" / f"{number:02}.pdf", [f"page number {number} of many"])
    encoder = {"name": "words", "revision": "1"}
    index = glie.Index.create(tmp_path / "x", glie.Codec(bytes_per_page=400), encoder=encoder)
    sizes = []

    def show(step: IngestProgress) -> None:
        sizes.append(len(index))

    ingest(index, WordEncoder(), [tmp_path / "docs"], progress=show)
    assert index.codec.notes["adapted_to"] == 10
    assert sorted(set(sizes)) == [0, 11, 14, 17]
    assert len(index) == 20


def test_a_second_run_adds_only_what_changed(empty: glie.Index, folder: Path) -> None:
    ingest(empty, WordEncoder(), [folder])
    generation = empty.info().generation
    report = ingest(empty, WordEncoder(), [folder])
    assert (report.documents_unchanged, report.pages_added) == (3, 0)
    assert empty.info().generation == generation

    make_pdf(folder / "a.pdf", ["tidal energy"])  # one page less
    make_pdf(folder / "new.pdf", ["grid connection"])
    report = ingest(empty, WordEncoder(), [folder])
    assert (report.documents_added, report.documents_changed, report.documents_unchanged) == (
        1,
        1,
        2,
    )
    assert sorted(empty.ids) == ["a.pdf#1", "c.md#1", "new.pdf#1", "sub/b.pdf#1"]


def test_bad_files_are_reported_and_the_rest_is_indexed(empty: glie.Index, tmp_path: Path) -> None:
    messages = bad_files(tmp_path / "bad")
    report = ingest(empty, WordEncoder(), [tmp_path / "bad"])
    assert empty.ids == ["good.pdf#1"]
    assert len(report.problems) == len(messages)
    for message in messages.values():
        assert any(problem.startswith(message) for problem in report.problems)


def test_a_document_that_becomes_unreadable_is_not_lost(empty: glie.Index, folder: Path) -> None:
    ingest(empty, WordEncoder(), [folder])
    (folder / "a.pdf").write_bytes(b"overwritten by an accident")
    report = ingest(empty, WordEncoder(), [folder])
    assert len(report.problems) == 1
    assert "a.pdf#1" in empty


def test_pages_without_text_are_counted(empty: glie.Index, tmp_path: Path) -> None:
    picture("Harbour invoice").save(tmp_path / "scan.png")
    report = ingest(empty, WordEncoder(), [tmp_path / "scan.png"], ocr=False)
    assert report.pages_without_text == ["scan.png#1"]
    assert len(empty) == 0
    report = ingest(empty, WordEncoder(), [tmp_path / "scan.png"])
    assert (report.pages_by_ocr, empty.ids) == (1, ["scan.png#1"])


def test_pictures_are_kept_if_asked(empty: glie.Index, folder: Path) -> None:
    ingest(empty, WordEncoder(), [folder], keep_images=True)
    image = empty.image("a.pdf#1")
    assert image is not None
    assert image[:4] == b"RIFF"
    assert empty.image("c.md#1") is None


def test_a_name_that_is_taken_gets_its_folder(empty: glie.Index, tmp_path: Path) -> None:
    for name, text in (("x", "tidal"), ("y", "solar")):
        make_pdf(tmp_path / name / "report.pdf", [text])
        ingest(empty, WordEncoder(), [tmp_path / name])
    assert empty.ids == ["report.pdf#1", "y/report.pdf#1"]
    report = ingest(empty, WordEncoder(), [tmp_path / "x", tmp_path / "y"])
    assert (report.documents_unchanged, report.pages_added) == (2, 0)


def test_several_commits_on_the_way(
    empty: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "PAGES_PER_COMMIT", 3)
    monkeypatch.setattr(ingest_module, "PAGES_PER_ENCODE", 2)
    for i in range(5):
        make_pdf(tmp_path / "many" / f"{i}.pdf", [f"page {i}", f"other {i}"])
    committed: list[int] = []

    def watch(step: IngestProgress) -> None:
        committed.append(len(glie.Index.open(empty.path)))

    report = ingest(empty, WordEncoder(), [tmp_path / "many"], progress=watch)
    assert report.pages_added == 10
    assert sorted(set(committed)) == [0, 4, 8]
    assert len(empty) == 10


def test_pages_that_could_not_be_read_are_tried_again(
    empty: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PDF with a scanned page, indexed without OCR; later OCR is there."""
    picture("Signed delivery").save(tmp_path / "scan.png")
    pdf = canvas.Canvas(str(tmp_path / "mixed.pdf"))
    pdf.drawString(72, 720, "text layer")
    pdf.showPage()
    pdf.drawImage(str(tmp_path / "scan.png"), 50, 400, 500, 150)
    pdf.save()
    report = ingest(empty, WordEncoder(), [tmp_path / "mixed.pdf"], ocr=False)
    assert (empty.ids, report.pages_without_text) == (["mixed.pdf#1"], ["mixed.pdf#2"])
    report = ingest(empty, WordEncoder(), [tmp_path / "mixed.pdf"], ocr=False)
    assert (report.documents_unchanged, report.pages_without_text) == (1, ["mixed.pdf#2"])
    report = ingest(empty, WordEncoder(), [tmp_path / "mixed.pdf"])
    assert (report.documents_changed, report.pages_by_ocr) == (1, 1)
    assert empty.ids == ["mixed.pdf#1", "mixed.pdf#2"]
    report = ingest(empty, WordEncoder(), [tmp_path / "mixed.pdf"])
    assert (report.documents_unchanged, report.pages_added) == (1, 0)


def test_pictures_can_be_asked_for_later(empty: glie.Index, folder: Path) -> None:
    ingest(empty, WordEncoder(), [folder])
    report = ingest(empty, WordEncoder(), [folder], keep_images=True)
    assert (report.documents_changed, report.documents_unchanged) == (2, 1)  # the note has none
    assert empty.image("sub/b.pdf#1") is not None


def test_a_moved_folder_is_the_same_folder(empty: glie.Index, folder: Path) -> None:
    ingest(empty, WordEncoder(), [folder])
    ids = sorted(empty.ids)
    moved = folder.rename(folder.parent / "elsewhere")
    report = ingest(empty, WordEncoder(), [moved])
    assert (report.documents_added, report.documents_changed) == (0, 3)
    assert sorted(empty.ids) == ids
    assert empty.metadata("a.pdf#1")["path"] == str((moved / "a.pdf").resolve())


def test_a_page_with_too_many_vectors_is_left_out(
    empty: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glie.codec.anchors.MAX_VECTORS", 3)
    make_pdf(tmp_path / "a.pdf", ["one two three four", "one two"])
    report = ingest(empty, WordEncoder(), [tmp_path / "a.pdf"])
    assert report.problems == ["a.pdf, page 1: 4 vectors, at most 3 fit a code; split the page"]
    assert (empty.ids, report.pages_added) == (["a.pdf#2"], 1)


def test_a_name_that_means_two_documents(
    empty: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pdf(tmp_path / "docs" / "a.pdf", ["outer"])
    make_pdf(tmp_path / "docs" / "sub" / "a.pdf", ["inner"])
    ingest(empty, WordEncoder(), [tmp_path / "docs"])
    monkeypatch.chdir(tmp_path / "docs" / "sub")
    with pytest.raises(glie.IdError, match="stands for two documents"):
        pages_of(empty, ["a.pdf"])
    assert pages_of(empty, [str(tmp_path / "docs" / "a.pdf")]) == ["a.pdf#1"]


def test_names_to_delete(empty: glie.Index, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(empty, WordEncoder(), [folder])
    monkeypatch.chdir(folder.parent)
    assert pages_of(empty, ["a.pdf"]) == ["a.pdf#1", "a.pdf#2"]
    assert pages_of(empty, ["docs/sub/b.pdf"]) == ["sub/b.pdf#1"]
    assert pages_of(empty, ["sub/"]) == ["sub/b.pdf#1"]
    assert pages_of(empty, ["docs/sub", "c.md#1", "docs/sub/b.pdf"]) == ["sub/b.pdf#1", "c.md#1"]
    with pytest.raises(glie.IdError, match=r"old\.pdf: neither a document nor a page"):
        pages_of(empty, ["old.pdf"])
    for wrong in ("b.pdf", "other/b.pdf", "sub/bb.pdf"):
        with pytest.raises(glie.IdError, match=rf"{wrong}: neither .*; did you mean sub/b\.pdf\?$"):
            pages_of(empty, [wrong])
    with pytest.raises(glie.IdError, match=r"`glie info --documents` lists those of an index$"):
        pages_of(empty, ["something else"])


def test_another_encoder_is_refused(empty: glie.Index, folder: Path, tmp_path: Path) -> None:
    class Other(WordEncoder):
        revision = "2"

    with pytest.raises(glie.EncoderError, match=r"made with encoder 'words' \(revision 1\)"):
        ingest(empty, Other(), [folder])
    with pytest.raises(glie.EncoderError, match="does not name the encoder"):
        ingest(glie.Index.create(tmp_path / "y"), WordEncoder(), [folder])


def test_nothing_to_index(empty: glie.Index, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(glie.DocumentError, match="nothing: no documents there"):
        ingest(empty, WordEncoder(), [tmp_path / "nothing"])


def test_a_page_that_ocr_cannot_read_has_no_words(
    empty: glie.Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(path: Path, number: int, lang: str) -> str:
        raise glie.errors.DocumentError("it cannot be drawn")

    monkeypatch.setattr(ingest_module, "scanned_text", unreadable)
    report = ingest(empty, WordEncoder(), [folder], text="ocr")
    assert report.pages_added == len(empty) > 0
    assert any(
        problem.endswith("no words by OCR: it cannot be drawn") for problem in report.problems
    )
    with pytest.raises(glie.InputError, match="text: expected auto, layer, ocr, none, found 'all'"):
        ingest(empty, WordEncoder(), [folder], text="all")


def test_a_document_without_anything_to_read_is_a_problem(empty: glie.Index, folder: Path) -> None:
    blank = canvas.Canvas(str(folder / "blank.pdf"))
    blank.showPage()
    blank.save()
    report = ingest(empty, WordEncoder(), [folder])
    assert report.problems == ["blank.pdf: no text on any of its pages, even by OCR"]
    assert report.documents_added == 3


@pytest.mark.parametrize("text", ["auto", "ocr"])
def test_reading_ahead_changes_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pages, codes, pictures, problems and steps, however many threads read."""
    monkeypatch.setattr(ingest_module, "PAGES_PER_COMMIT", 3)
    monkeypatch.setattr(ingest_module, "PAGES_PER_ENCODE", 2)
    docs = tmp_path / "docs"
    bad_files(docs)
    for number in range(5):
        make_pdf(docs / f"{number}.pdf", [f"page {number}", f"other {number}", "third"])
        (docs / f"{number}.txt").write_text(f"one\ftwo {number}")
    for name in ("Harbour invoice", "Signed delivery"):
        picture(name).save(docs / f"{name}.png")
    found, made = find_documents([docs]), []
    for readers in (0, 1, 3):
        path, done = tmp_path / f"{readers}.glie", list[int]()
        steps = list[tuple[object, ...]]()
        encoder = {"name": "words", "revision": "1"}
        index = glie.Index.create(path, glie.Codec(k=4), encoder=encoder)

        def show(
            step: IngestProgress,
            steps: list[tuple[object, ...]] = steps,
            done: list[int] = done,
            path: Path = path,
        ) -> None:
            assert step.seconds_left is None or step.seconds_left >= 0
            done.append(step.done)
            steps.append((step, step.stage, step.counted, len(glie.Index.open(path))))

        with index.writing():
            reading = Reading(keep_images=True, text=text)
            stored = store_documents(
                index, WordEncoder(), found, {}, reading, show, readers=readers
            )
        pictures = [index.image(page) for page in index.ids]
        files = {file.name: file.read_bytes() for file in path.rglob("*.seg")}
        assert done == sorted(done)
        made.append((stored, steps, list(index.records()), pictures, files))
        assert nothing_left()
    assert len(made[0][2]) == 5 * 5 + 3
    assert made[1] == made[0]
    assert made[2] == made[0]


def test_an_exception_leaves_whole_commits_and_nothing_running(
    empty: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the caller's own progress, as an interrupt would come."""
    monkeypatch.setattr(ingest_module, "PAGES_PER_COMMIT", 3)
    for number in range(9):
        make_pdf(tmp_path / "docs" / f"{number}.pdf", [f"page {number}", f"other {number}"])

    def stop(step: IngestProgress) -> None:
        if step.done > 4 and step.stage == "reading":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(empty, WordEncoder(), [tmp_path / "docs"], progress=stop)
    assert len(glie.Index.open(empty.path)) == 8
    assert nothing_left()
    report = ingest(empty, WordEncoder(), [tmp_path / "docs"])
    assert (report.documents_unchanged, report.documents_added, len(empty)) == (4, 5, 18)


SCRIPT = """
import sys
import glie, glie.documents.process as process, glie.ingest as ingest
from tests.test_ingest import WordEncoder
begin = process.subprocess.Popen.__init__
def noted(self, *given, **named):
    begin(self, *given, **named)
    print("process", self.pid, flush=True)
process.subprocess.Popen.__init__ = noted
ingest.PAGES_PER_COMMIT = 3
index = glie.Index.open(sys.argv[1])
show = lambda step: print("done", step.done, flush=True)
ingest.ingest(index, WordEncoder(), [sys.argv[2]], progress=show)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_whole_commits_and_no_processes(
    sent: signal.Signals, empty: glie.Index, tmp_path: Path
) -> None:
    for number in range(60):
        make_pdf(tmp_path / "docs" / f"{number:02}.pdf", [f"page {number}", f"other {number}"])
    given = [sys.executable, "-c", SCRIPT, str(empty.path), str(tmp_path / "docs")]
    processes = list[int]()
    with subprocess.Popen(
        given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            what, value = line.split()
            if what == "process":
                processes.append(int(value))
            elif int(value) > 4:
                break
        else:
            raise AssertionError(running.communicate()[1])
        running.send_signal(sent)
        rest = running.communicate()[0]
    assert running.returncode in (-sent, 130, 1)
    processes += [int(line.split()[1]) for line in rest.splitlines() if line.startswith("process")]
    assert processes
    for one in processes:
        wait_until_gone(one)
    index = glie.Index.open(empty.path)
    index.verify()
    assert 4 <= len(index) < 120
    assert len(index) % 4 == 0  # two documents a commit
    assert (
        ingest(empty.latest(), WordEncoder(), [tmp_path / "docs"]).pages_added + len(index) == 120
    )


def wait_until_gone(process: int) -> None:
    """Or dead and not yet collected by whoever inherited it."""
    for _ in range(3000):
        with contextlib.suppress(OSError):
            os.kill(process, 0)
            stat = Path(f"/proc/{process}/stat")
            if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)
                continue
        return
    raise AssertionError(f"process {process} is still there")
