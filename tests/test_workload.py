"""How long an ingestion takes is known before it is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas

from glie.documents import FoundDocument, find_documents
from glie.documents.counting import PageCount, PageCounter
from glie.ingest import IngestProgress
from glie.kernels.small import compiling_ahead
from glie.workload import COMPILING, COUNTING, ENCODING, READING, SCANNING, STORING, Workload
from tests.documents.test_documents import bad_files, make_pdf, picture

SECONDS = {"text": 0.05, "ocr": 2.0, "encode": 0.5}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("glie.workload.time.perf_counter", lambda: now[0])
    return now


def run(
    clock: list[float], documents: list[PageCount], seconds: dict[str, float]
) -> list[tuple[float, IngestProgress]]:
    """An ingestion that takes these seconds a page, and what was shown at which time."""
    shown: list[tuple[float, IngestProgress]] = []
    work = Workload(len(documents), lambda step: shown.append((clock[0], step)))
    for number, count in enumerate(documents):
        work.count(f"{number}", count)
    waiting = 0
    for number, (pages, scans) in enumerate(documents):
        work.begin(f"{number}")
        for page in range(pages):
            clock[0] += seconds["ocr" if page < scans else "text"]
            work.read_page(page < scans)
        work.finish(pages)
        waiting += pages
        if waiting >= 64 or number == len(documents) - 1:
            while waiting:
                some = min(waiting, 16)
                clock[0] += some * seconds["encode"]
                work.encode(some)
                waiting -= some
            clock[0] += seconds["encode"]
            work.store()
    return shown


@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("scans_first", [False, True])
def test_the_time_left_is_within_a_factor_of_two(
    clock: list[float], scans_first: bool, factor: float
) -> None:
    """Seven PDFs and 34 pictures, on a machine of any speed."""
    pictures, pdfs = [PageCount(1, 1)] * 34, [PageCount(pages, 0) for pages in (160, 3, 20, 9)]
    documents = pictures + pdfs if scans_first else pdfs + pictures
    shown = run(clock, documents, {kind: factor * s for kind, s in SECONDS.items()})
    total = clock[0]
    for at, step in shown:
        if step.stage != COUNTING and 0.1 * total < at < 0.99 * total:
            assert step.seconds_left is not None
            assert 0.5 < step.seconds_left / (total - at) < 2
            assert step.total == 226
            assert not step.estimated
    assert shown[-1][1].done == shown[-1][1].total == 226


def test_the_time_left_where_threads_read_ahead(clock: list[float]) -> None:
    """Two threads read scans, of 2 seconds each, while the caller encodes: half of the work is
    hidden. Then nothing is left to encode, and scans take what they take."""
    shown: list[tuple[float, IngestProgress]] = []
    work = Workload(400, lambda step: shown.append((clock[0], step)))
    for number in range(400):
        work.count(f"{number}", PageCount(1, 1))
    for number in range(400):
        work.begin(f"{number}")
        work.read_page(True, 1.0)  # a second of the two threads
        work.finish(1)
        if number < 200:
            work.begin_encoding()
            clock[0] += 1.0  # meanwhile the next is read
            work.encode(1)
        else:
            clock[0] += 1.0
    total = clock[0]
    for at, step in shown:
        if step.stage != COUNTING and 0.1 * total < at < 0.5 * total:
            assert step.seconds_left is not None
            assert 0.5 < step.seconds_left / (total - at) < 2


def test_stages_and_what_was_counted_wrong(clock: list[float]) -> None:
    shown: list[IngestProgress] = []
    work = Workload(2, shown.append)
    work.count("a", PageCount(5, 0))
    assert str(shown[-1]) == "1 of 2 documents"
    work.count("b", PageCount(2, 2))
    work.begin("a")
    work.read_page(False)
    work.finish(1)  # the other four are blank
    work.begin("b")
    work.read_page(True)
    work.read_page(True)
    work.finish(2)
    work.begin_encoding()
    work.encode(2)
    work.encode(1)
    assert [step.stage for step in shown] == [
        *(COUNTING, COUNTING, READING, READING, READING),
        *(SCANNING, SCANNING, SCANNING, READING, ENCODING, ENCODING, STORING),
    ]
    assert [str(step) for step in shown[2:]] == [
        *("0 of 7 pages", "0 of 7 pages", *["0 of 3 pages"] * 6),
        *("2 of 3 pages", "3 of 3 pages"),
    ]
    assert [step.document for step in shown[2:6]] == ["a", "a", "a", "b"]
    assert shown[-1].seconds_left == 0


def test_pages_are_counted_before_they_are_read(tmp_path: Path) -> None:
    make_pdf(tmp_path / "text.pdf", [f"page number {n}" for n in range(30)])
    scan = canvas.Canvas(str(tmp_path / "scan.pdf"))
    for _ in range(12):
        scan.drawImage(ImageReader(picture("x")), 0, 0)
        scan.showPage()
    scan.save()
    make_pdf(tmp_path / "mixed.pdf", ["some text", ""])
    picture("x").save(tmp_path / "two.tif", save_all=True, append_images=[picture("y")])
    (tmp_path / "notes.md").write_text("one\ftwo\fthree")
    with PageCounter() as counter:
        found = {one.name: counter.count(one) for one in find_documents([tmp_path])}
    assert found == {
        "text.pdf": (30, 0),
        "scan.pdf": (12, 12),
        "mixed.pdf": (2, 1),
        "two.tif": (2, 2),
        "notes.md": (3, 0),
    }


def test_what_cannot_be_read_counts_nothing(tmp_path: Path) -> None:
    """And does not stop the counting of the rest."""
    bad = bad_files(tmp_path)
    with PageCounter() as counter:
        for name in bad:
            if name not in ("cut.png", "cut.pdf"):  # damaged behind what is looked at
                assert counter.count(FoundDocument(name, tmp_path / name)) == (0, 0), name
        assert counter.count(FoundDocument("good.pdf", tmp_path / "good.pdf")) == (1, 0)


def test_compiling_is_part_of_the_time_left(clock: list[float]) -> None:
    """It happens while the first pages are stored, and says nothing about storing later ones."""
    shown: list[IngestProgress] = []
    work = Workload(2, shown.append)
    for name in "ab":
        work.count(name, PageCount(16, 0))
    work.expect_compiling(15)
    left = []
    for name in "ab":
        work.begin(name)
        for _ in range(16):
            work.read_page(False)
        left.append(shown[-1].seconds_left)
        work.finish(16)
        work.begin_encoding()
        work.encode(16)
        clock[0] += 15 if name == "a" else 0
        work.store()
    assert left == [15, 0]
    assert [step.stage for step in shown].count(COMPILING) == 1
    assert shown[-1].stage == STORING
    assert shown[-1].seconds_left == 0


def test_many_pages_compile_loops_once_on_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glie.kernels.small._LOOPS", "not imported")
    for kept, expected in [(False, True), (True, False)]:
        monkeypatch.setattr("glie.kernels.small._are_kept", lambda kept=kept: kept)
        assert compiling_ahead(1000) is expected
        assert not compiling_ahead(10)
