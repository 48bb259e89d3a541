"""PDFs, read by processes of their own, whose memory and time are bounded (pdf_process.py)."""

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

from glie.errors import DocumentError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

SECONDS = 20  # of a processor's time that a page may take
MEMORY = 2 << 30  # bytes that reading a PDF may take
KEPT = 2  # processes that wait to be asked again, each for its PDF
MOST_KILLED = 3  # pages of a PDF, after which it is not read on


class PageKilledError(DocumentError):
    """A page took more memory or time than it may, and the process that read it is gone."""


class Pdf:
    """An open PDF; pages are counted from 1. What is wrong with a page is a DocumentError that
    says so without naming it."""

    def __init__(self, path: Path, name: str) -> None:
        script = str(Path(__file__).with_name("pdf_process.py"))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", script, str(path.absolute()), str(SECONDS), str(MEMORY)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
            )
        except OSError as error:
            raise DocumentError(
                f"{name}: no process can be started to read it: {error.strerror}"
            ) from None
        try:
            self.pages = int(self._answer()["pages"])
        except DocumentError as error:
            self.end()
            encrypted = "password" in str(error).lower()
            reason = (
                "encrypted; save a copy without a password" if encrypted else f"damaged ({error})"
            )
            raise DocumentError(f"{name}: {reason}") from None
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

    def _asked(self, *request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer will say so
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
            raise DocumentError(f"what reads it says {line[:40]!r}, expected JSON") from None
        if fault is not None:
            raise DocumentError(fault)
        return said

    def _gone(self) -> DocumentError:
        """Why there is no answer any more."""
        self._process.wait()
        code = self._process.returncode
        self.end()
        if code < 0:  # by the system, or by pdfium, which ends itself when memory does
            return PageKilledError("it takes more memory or time than any page should")
        return DocumentError(f"what reads it has ended by itself (exit code {code})")

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


_waiting: dict[object, Pdf] = {}
_killed: Counter[object] = Counter()  # pages of each PDF
_lock = threading.Lock()


@contextlib.contextmanager
def open_pdf(path: Path, name: str | None = None) -> Iterator[Pdf]:
    """An open PDF, for this thread alone; the process that reads it is kept for the next time."""
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
    except BaseException:  # in the midst of an answer, perhaps
        pdf.end()
        raise
    _keep(key, pdf)


def given_up(path: Path, name: str | None = None) -> bool:
    """Whether so many pages of a PDF took too much that it is not read on."""
    return _killed[_key(path, name or path.name)] >= MOST_KILLED


def _key(path: Path, name: str) -> object:
    """A file as it is now, to this process."""
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
