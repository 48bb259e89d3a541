"""PDF files, each read by a separate process with limited memory and time (pdf_process.py)."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glie.documents.find import FoundDocument
from glie.errors import DocumentError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

SECONDS = 20  # CPU time that a page may take
MEMORY = 2 << 30  # bytes of memory that reading a PDF may take
KEPT = 2  # idle processes kept for the next request, each with its PDF open
MOST_KILLED = 3  # pages that exceed a limit before the rest of the PDF is skipped
SIGNATURE, SIGNATURE_WITHIN = b"%PDF-", 1024  # the bytes of a PDF within which readers expect it
UNREADABLE_PAGES = 100  # in a row, before the rest of the PDF is skipped


class PageKilledError(DocumentError):
    """A page took more memory or time than allowed, so the process that read it was killed."""


class PdfProcess:
    """The process that reads PDFs: one, or counts the pages of any (`path` is "-")."""

    def __init__(self, path: str, name: str) -> None:
        script = str(Path(__file__).with_name("pdf_process.py"))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", script, path, str(SECONDS), str(MEMORY)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
            )
        except OSError as error:
            raise DocumentError(
                f"{name}: the process that reads PDFs cannot be started: {error.strerror}"
            ) from None

    def _asked(self, *request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # _answer reports it
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._gone()
        try:
            said: dict[str, Any] = json.loads(line)
            fault = said.get("fault")
        except (ValueError, AttributeError):
            self.end()
            raise DocumentError(
                f"the process that reads it answered {line[:40]!r}; expected JSON"
            ) from None
        if fault is not None:
            raise DocumentError(fault)
        return said

    def _gone(self) -> DocumentError:
        """Why the process stopped answering."""
        self._process.wait()
        code = self._process.returncode
        self.end()
        if code < 0:  # killed by the system, or by pdfium when memory ran out
            return PageKilledError("it takes more memory or time than any page should")
        return DocumentError(f"the process that reads it ended with exit code {code}")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Pdf(PdfProcess):
    """An open PDF; pages are counted from 1. A page that cannot be read raises a DocumentError
    that does not name the page."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(str(path.absolute()), name)
        try:
            self.pages = int(self._answer()["pages"])
        except DocumentError as error:
            self.end()
            raise DocumentError(f"{name}: {_why_not_opened(path, error)}") from None
        except BaseException:
            self.end()
            raise
        if not self.pages:
            self.end()
            raise DocumentError(f"{name}: it has no pages")

    def text(self, number: int) -> str:
        return str(self._asked("text", number - 1)["text"])

    def words(self, number: int) -> list[list[Any]]:
        """Every word with its left, top, right and bottom as fractions of the page."""
        words: list[list[Any]] = self._asked("words", number - 1)["words"]
        return words

    def picture(self, number: int, longest: int) -> Image:
        from PIL import Image

        width, height = self._asked("picture", number - 1, longest)["size"]
        assert self._process.stdout is not None
        pixels = self._process.stdout.read(3 * width * height)
        if len(pixels) < 3 * width * height:
            raise self._gone()
        return Image.frombytes("RGB", (width, height), pixels)


class PdfCounter:
    """Counts the pages of PDFs in one process, which is started again if a PDF kills it."""

    def __init__(self) -> None:
        self._process: PdfProcess | None = None

    def count(self, path: Path) -> tuple[int, int]:
        """The pages of a PDF, and about how many of them have no text."""
        if self._process is None or self._process.ended:
            self._process = PdfProcess("-", path.name)
        said = self._process._asked("count", str(path.absolute()))
        return int(said["pages"]), int(said["without_text"])

    def end(self) -> None:
        if self._process is not None:
            self._process.end()


def _why_not_opened(path: Path, error: DocumentError) -> str:
    if "password" in str(error).lower():
        return "encrypted; save a copy without a password"
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if SIGNATURE not in file.read(SIGNATURE_WITHIN):
            return "not a PDF, whatever its name says"
    return f"damaged ({error})"


_waiting: dict[object, Pdf] = {}
_killed: Counter[object] = Counter()  # pages of each PDF
_lock = threading.Lock()


@contextlib.contextmanager
def open_pdf(path: Path, name: str | None = None) -> Iterator[Pdf]:
    """Open a PDF for this thread alone. The process that reads it is kept for the next call."""
    if importlib.util.find_spec("pypdfium2") is None:
        raise MissingExtraError("reading PDF files", "documents")
    name = name or path.name
    key = _key(path, name)
    if given_up(path, name):
        raise DocumentError(f"{name}: given up: {MOST_KILLED} pages took too much memory or time")
    with _lock:
        pdf = _waiting.pop(key, None)
    if pdf is None or pdf.ended:
        pdf = Pdf(path, name)
    try:
        yield pdf
    except DocumentError as error:
        _killed[key] += isinstance(error, PageKilledError)
        _keep(key, pdf)
        raise
    except BaseException:  # perhaps in the middle of an answer
        pdf.end()
        raise
    _keep(key, pdf)


def pdf_texts(document: FoundDocument) -> Iterator[str | Exception]:
    """The text of each page; a page that cannot be read is an exception."""
    with open_pdf(document.path, document.name) as found:
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
            with open_pdf(document.path, document.name) as found:
                text = found.text(number)
            faults = 0
        except DocumentError as error:
            text = error
            faults += 1
        yield text


def given_up(path: Path, name: str | None = None) -> bool:
    """Whether too many pages of a PDF exceeded the limits to go on reading it."""
    return _killed[_key(path, name or path.name)] >= MOST_KILLED


def _key(path: Path, name: str) -> object:
    """Identify a version of a file, and the limits it is read with."""
    try:
        now = path.stat()
    except OSError as error:
        raise DocumentError(f"{name}: cannot be read: {error.strerror or error}") from None
    return os.getpid(), path.absolute(), now.st_mtime_ns, now.st_size, SECONDS, MEMORY


def _keep(key: object, pdf: Pdf) -> None:
    if pdf.ended:
        return
    with _lock:
        leaving = [_waiting.pop(key)] if key in _waiting else []
        _waiting[key] = pdf
        while len(_waiting) > KEPT:
            leaving.append(_waiting.pop(next(iter(_waiting))))
    for other in leaving:
        other.end()


@atexit.register
def _end_all() -> None:
    while _waiting:
        _waiting.popitem()[1].end()
