"""Documents are read ahead: in order, a bounded number of pages, and no longer than wanted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas

import glie
import glie.documents.ahead as ahead_module
import glie.documents.opened as pdfs
from glie.documents import FoundDocument, find_documents, read_document
from glie.documents.ahead import Readers
from glie.documents.process import _answering
from glie.documents.read import OcrThreads
from tests.documents.test_documents import bad_files, make_pdf, picture, raw_pdf

COUNTS = [0, 1, 3]  # threads


def outcomes(threads: int, found: list[FoundDocument]) -> list[object]:
    """What reading each document gives, or the error, and which pages OCR looked at."""
    seen: list[object] = []

    def read(
        document: FoundDocument, each: Callable[[bool], None], threads: OcrThreads | None
    ) -> object:
        return read_document(document, each=each, threads=threads)

    with Readers(threads) as readers:
        for one in readers.documents(found, read):
            pages: list[bool] = []

            def each(by_ocr: bool, seconds: float, pages: list[bool] = pages) -> None:
                assert seconds >= 0
                assert threading.current_thread() is threading.main_thread()
                pages.append(by_ocr)

            try:
                seen.append((one.document, one.result(each), pages))
            except glie.DocumentError as error:
                seen.append((one.document, str(error), pages))
    return seen


def nothing_left() -> bool:
    ours = [t for t in threading.enumerate() if t.name.startswith("ThreadPoolExecutor")]
    return not ours and not _answering and len(pdfs._waiting) <= pdfs.KEPT


def test_any_number_of_threads_reads_the_same(tmp_path: Path) -> None:
    bad_files(tmp_path / "bad")
    make_pdf(tmp_path / "a.pdf", ["tidal energy", "rotor blades", "1"])
    scan = canvas.Canvas(str(tmp_path / "scan.pdf"))
    for text in ("Harbour invoice", "", "Signed delivery", "Grid connection"):
        scan.drawImage(ImageReader(picture(text)), 50, 400, 500, 150)
        scan.showPage()
    scan.drawString(72, 720, "a text layer")
    scan.save()
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"one\ftwo\f{number}")
    found = find_documents([tmp_path])
    expected = outcomes(0, found)
    assert len(expected) == len(found)
    pages = {one[0].name: one[2] for one in expected if isinstance(one, tuple)}
    assert pages["scan.pdf"] == [True] * 4 + [False]
    for threads in COUNTS[1:]:
        assert outcomes(threads, found) == expected
        assert nothing_left()


def test_a_bounded_number_of_pages_is_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "PAGES_AHEAD", 10)
    found = [FoundDocument(f"{n}", tmp_path / f"{n}") for n in range(40)]
    begun: list[str] = []

    def read(
        document: FoundDocument, each: Callable[[bool], None], threads: OcrThreads | None
    ) -> str:
        begun.append(document.name)
        for _ in range(3):
            each(False)
        return document.name

    with Readers(2) as readers:
        for taken, one in enumerate(readers.documents(found, read)):
            # 4 documents have 12 pages; another may have been begun before their pages were counted
            time.sleep(0.005)
            assert len(begun) <= taken + 5
            assert one.result(lambda by_ocr, seconds: None) == f"{taken}"
    assert begun == [document.name for document in found]


@pytest.mark.parametrize("threads", COUNTS)
def test_an_error_comes_where_its_document_does(threads: int, tmp_path: Path) -> None:
    def read(
        document: FoundDocument, each: Callable[[bool], None], threads: OcrThreads | None
    ) -> str:
        if document.name == "2":
            raise ZeroDivisionError
        return document.name

    taken = list[str]()
    found = [FoundDocument(f"{n}", tmp_path) for n in range(6)]

    def run() -> None:
        with Readers(threads) as readers:
            for one in readers.documents(found, read):
                taken.extend([one.result(lambda by_ocr, seconds: None)])

    with pytest.raises(ZeroDivisionError):
        run()
    assert taken == ["0", "1"]
    assert nothing_left()


def test_a_process_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    """Not by the limits, which its document would reach; and it is not held against the document."""
    loop = b"/X Do " * 10
    path = raw_pdf(tmp_path / "slow.pdf", loop, *[loop] * 6, b"0 0 m 600 700 l S " * 20)
    make_pdf(tmp_path / "a.pdf", ["one"])
    found = find_documents([tmp_path])

    def read(
        document: FoundDocument, each: Callable[[bool], None], threads: OcrThreads | None
    ) -> object:
        with pdfs.open_document(document.path) as opened:
            if document.name == "slow.pdf":
                return opened.picture(1, 2000)
            while not any(process is not opened for process in list(_answering.values())):
                time.sleep(0.01)
            return opened.text(1)

    def run() -> None:
        with Readers(2) as readers:
            next(iter(readers.documents(found, read))).result(lambda by_ocr, seconds: None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert nothing_left()
    assert not pdfs.given_up(path)
    assert not pdfs._killed[pdfs._key(path, path.name)]


@pytest.mark.parametrize("threads", COUNTS)
def test_parts_are_made_in_order_and_one_ahead(threads: int) -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number * number

    def parts() -> Iterator[list[int]]:
        with Readers(threads) as readers:
            yield from readers.parts(range(10), 3, make)

    for at, part in enumerate(parts()):
        assert part == [n * n for n in range(3 * at, min(3 * at + 3, 10))]
        assert len(made) <= 3 * (at + 2)
    assert sorted(made) == list(range(10))
    with Readers(threads) as readers:
        assert list(readers.parts([], 3, make)) == []
