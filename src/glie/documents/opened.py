"""Open documents, each read by a separate process with limited memory and time."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glie.documents.find import WHAT, FoundDocument, Kind, kind_of
from glie.documents.process import FaultError, KilledError, ReaderProcess
from glie.errors import DocumentError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

SECONDS = 20  # CPU time that a page may take
MEMORY = 2 << 30  # bytes of memory that reading a document may take
KEPT = 2  # idle processes kept for the next request, each with its document open
MOST_KILLED = 3  # pages that exceed a limit before the rest of the document is skipped
SIGNATURE, SIGNATURE_WITHIN = b"%PDF-", 1024  # the bytes of a PDF within which readers expect it
UNREADABLE_PAGES = 100  # in a row, before the rest of the document is skipped

# The packages that read a kind, and their extra.
NEEDS: dict[Kind, tuple[str, tuple[str, ...]]] = {
    "pdf": ("documents", ("pypdfium2",)),
    "docx": ("office", ("docx",)),
    "pptx": ("office", ("pptx",)),
    "xlsx": ("office", ("openpyxl",)),
    "html": ("office", ("selectolax",)),
    "epub": ("office", ("selectolax", "lxml")),
    "eml": ("office", ("selectolax",)),
}


class OpenDocument(ReaderProcess):
    """An open document; pages are counted from 1. A page that cannot be read raises a DocumentError
    that does not name the page. Only PDFs have words with places, and pictures."""

    def __init__(self, path: Path, name: str) -> None:
        kind = kind_of(path)
        super().__init__(kind, str(path.absolute()), name, SECONDS, MEMORY)
        try:
            self.pages = int(self.answer()["pages"])
        except DocumentError as error:
            self.end()
            raise _not_opened(path, kind, name, error) from None
        except BaseException:
            self.end()
            raise
        if not self.pages:
            self.end()
            empty = "it has no pages" if kind in ("pdf", "pptx") else "it holds no text"
            raise DocumentError(f"{name}: {empty}")

    def text(self, number: int) -> str:
        return str(self.asked("text", number - 1)["text"])

    def words(self, number: int) -> list[list[Any]]:
        """Every word with its left, top, right and bottom as fractions of the page."""
        words: list[list[Any]] = self.asked("words", number - 1)["words"]
        return words

    def picture(self, number: int, longest: int) -> Image:
        from PIL import Image

        width, height = self.asked("picture", number - 1, longest)["size"]
        return Image.frombytes("RGB", (width, height), self.read(3 * width * height))


class DocumentCounter:
    """Counts pages in one process, which is started again if a document kills it."""

    def __init__(self) -> None:
        self._process: ReaderProcess | None = None

    def count(self, path: Path) -> tuple[int, int]:
        """The pages of a document, and about how many of them have no text."""
        if self._process is None or self._process.ended:
            self._process = ReaderProcess("-", "-", path.name, SECONDS, MEMORY)
        said = self._process.asked("count", kind_of(path), str(path.absolute()))
        return int(said["pages"]), int(said["without_text"])

    def end(self) -> None:
        if self._process is not None:
            self._process.end()


def _not_opened(path: Path, kind: Kind, name: str, error: DocumentError) -> DocumentError:
    if isinstance(error, FaultError):
        return DocumentError(f"{name}: {_fault(path, kind, error)}")
    if isinstance(error, KilledError) and kind != "pdf":
        return KilledError(f"{name}: it takes more memory or time than any document should")
    return type(error)(f"{name}: damaged ({error})")


def _fault(path: Path, kind: Kind, error: FaultError) -> str:
    if error.refused:
        return str(error)
    if kind != "pdf":
        said = str(error).replace(str(path.absolute()), path.name)
        return f"damaged, or not {WHAT[kind]} ({' '.join(said.split())[:200]})"
    if "password" in str(error).lower():
        return "encrypted; save a copy without a password"
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if SIGNATURE not in file.read(SIGNATURE_WITHIN):
            return "not a PDF, whatever its name says"
    return f"damaged ({error})"


def check_extra(path: Path) -> None:
    """Raise MissingExtraError if what reads this kind of document is not installed."""
    kind = kind_of(path)
    extra, packages = NEEDS[kind]
    if any(importlib.util.find_spec(package) is None for package in packages):
        what = "PDF files" if kind == "pdf" else f"{path.suffix.lower()} files"
        raise MissingExtraError(f"reading {what}", extra)


_waiting: list[tuple[object, OpenDocument]] = []  # the one used last is last
_kept = KEPT
_killed: Counter[object] = Counter()  # pages of each document
_lock = threading.Lock()


@contextlib.contextmanager
def open_document(path: Path, name: str | None = None) -> Iterator[OpenDocument]:
    """Open a document for this thread alone. The process that reads it is kept for the next
    call."""
    check_extra(path)
    name = name or path.name
    key = _key(path, name)
    if given_up(path, name):
        raise DocumentError(f"{name}: given up: {MOST_KILLED} pages took too much memory or time")
    with _lock:
        at = next((i for i, (other, _) in enumerate(_waiting) if other == key), None)
        document = None if at is None else _waiting.pop(at)[1]
    if document is None or document.ended:
        try:
            document = OpenDocument(path, name)
        except KilledError:
            _killed[key] += 1
            raise
    try:
        yield document
    except DocumentError as error:
        _killed[key] += isinstance(error, KilledError)
        _keep(key, document)
        raise
    except BaseException:  # perhaps in the middle of an answer
        document.end()
        raise
    _keep(key, document)


def document_texts(document: FoundDocument) -> Iterator[str | Exception]:
    """The text of each page; a page that cannot be read is an exception."""
    with open_document(document.path, document.name) as found:
        return _each_text(document, found.pages)


def _each_text(document: FoundDocument, pages: int) -> Iterator[str | Exception]:
    faults = 0
    for number in range(1, pages + 1):
        # a damaged file may claim any number of pages
        if faults == UNREADABLE_PAGES or given_up(document.path):
            yield DocumentError(f"given up, like the {pages - number:,} pages behind it")
            return
        text: str | Exception
        try:
            with open_document(document.path, document.name) as found:
                text = found.text(number)
            faults = 0
        except DocumentError as error:
            text = error
            faults += 1
        yield text


def given_up(path: Path, name: str | None = None) -> bool:
    """Whether too many pages of a document exceeded the limits to go on reading it."""
    return _killed[_key(path, name or path.name)] >= MOST_KILLED


def _key(path: Path, name: str) -> object:
    """Identify a version of a file, and the limits it is read with."""
    try:
        now = path.stat()
    except OSError as error:
        raise DocumentError(f"{name}: cannot be read: {error.strerror or error}") from None
    return os.getpid(), path.absolute(), now.st_mtime_ns, now.st_size, SECONDS, MEMORY


def _keep(key: object, document: OpenDocument) -> None:
    if document.ended:
        return
    with _lock:
        _waiting.append((key, document))
    _end_beyond()


def _end_beyond() -> None:
    """End the idle processes that are too many."""
    while True:
        with _lock:
            if len(_waiting) <= _kept:
                return
            _, leaving = _waiting.pop(0)
        leaving.end()


@contextlib.contextmanager
def one_more_each(threads: int) -> Iterator[None]:
    """While so many threads read documents, the process of each is kept from page to page."""
    global _kept
    with _lock:
        _kept += threads
    try:
        yield
    finally:
        with _lock:
            _kept -= threads
        _end_beyond()


@atexit.register
def _end_all() -> None:
    while _waiting:
        _waiting.pop()[1].end()
