"""Read a document: its pages, their text, and how to draw them.

A page is a value. Its word positions and its picture are made on request, because a text encoder
needs neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from glie.documents import images
from glie.documents.find import KINDS, WHAT, FoundDocument, has_picture, kind_of
from glie.documents.images import (
    OCR_PIXELS,
    PAGE_PIXELS,
    Word,
    count_frames,
    open_picture,
    picture_text,
)
from glie.documents.ocr_languages import ENGLISH
from glie.documents.opened import document_texts, open_document
from glie.documents.text import has_text, text_pages
from glie.errors import DocumentError

if TYPE_CHECKING:
    from PIL.Image import Image

KEPT_PIXELS = 1000  # the longer side of a page picture kept in an index


@dataclasses.dataclass(frozen=True)
class DocumentPage:
    """One page of a document; pages are counted from 1."""

    document: str
    number: int
    path: Path
    text: str
    # from a text layer or file; by OCR; no text and OCR not tried; no text even by OCR
    origin: Literal["text", "ocr", "none", "blank"]
    ocr_lang: str = ENGLISH  # the language that OCR reads it in, as tesseract names it

    @property
    def id(self) -> str:
        return f"{self.document}#{self.number}"

    @property
    def _name(self) -> str:
        return f"{self.document}, page {self.number}"

    def image(self, longest: int = PAGE_PIXELS) -> Image:
        """Draw the page, its longer side `longest` pixels. Kinds without pictures raise
        DocumentError."""
        return _render(self.path, self.number, longest, self._name)

    def words(self) -> list[Word]:
        """The words with their positions: from the text layer, or by OCR where there is none."""
        if self.origin == "ocr":
            return images.read_image(self.image(OCR_PIXELS), self.ocr_lang)[1]
        if self.origin == "text" and KINDS.get(self.path.suffix.lower()) == "pdf":
            with open_document(self.path) as found, _page_errors(self._name, "read"):
                return [Word(*word) for word in found.words(self.number)]
        return []


class Later(Protocol):
    """A text that is perhaps still being read."""

    def done(self) -> bool: ...

    def result(self) -> str: ...


class OcrThreads(Protocol):
    """Reads texts off pictures at the same time (see ahead.py)."""

    def text(self, draw: Callable[[], Image], read: Callable[[Image], str]) -> Later: ...


class ReadDocument(NamedTuple):
    """The pages of a document, and what went wrong on single pages."""

    pages: list[DocumentPage]
    problems: list[str]


def read_document(
    document: FoundDocument,
    *,
    ocr: bool = True,
    ocr_lang: str = ENGLISH,
    each: Callable[[bool], None] = lambda by_ocr: None,
    threads: OcrThreads | None = None,
) -> ReadDocument:
    """Read all pages of one file; raise DocumentError when none can be read.

    With `ocr`, pages without text are read by OCR, in the language `ocr_lang`, if that extra is
    installed. `each` is called after every page: whether OCR looked at it. With `threads`, OCR
    reads several pages at a time.
    """
    try:
        document.name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(document.name).decode("utf-8", "replace")
        raise DocumentError(f"{shown}: its name is not valid UTF-8; rename it") from None
    try:
        if document.path.stat().st_size == 0:
            raise DocumentError(f"{document.name}: the file is empty")
        texts = _texts(document)
    except OSError as error:
        raise DocumentError(f"{document.name}: cannot be read: {error.strerror or error}") from None
    pages, problems = list[DocumentPage](), list[str]()
    blank = DocumentPage(document.name, 0, document.path, "", "text", ocr_lang)
    for page in _in_order(_started(blank, texts, ocr, threads)):
        found = page.found()
        if isinstance(found, str):
            problems.append(found)
        else:
            pages.append(found)
            each(page.later is not None)
    if not pages:
        raise DocumentError(problems[0] if problems else f"{document.name}: it has no pages")
    return ReadDocument(pages, problems)


def _texts(document: FoundDocument) -> Iterable[str | Exception]:
    """The text of each page, or why it cannot be read; "" for a page that is only a picture."""
    match kind_of(document.path):
        case "text":
            return text_pages(document)
        case "image":
            return [""] * count_frames(document)
        case _:
            return document_texts(document)


class _Started(NamedTuple):
    """A page, or why it cannot be read; OCR may be reading its text."""

    page: DocumentPage | str
    later: Later | None = None

    def found(self) -> DocumentPage | str:
        page, later = self
        if isinstance(page, str) or later is None:
            return page
        try:
            with _page_errors(page._name, "read by OCR"):
                text = later.result()
        except DocumentError as error:
            return str(error)
        return dataclasses.replace(page, text=text, origin="ocr" if text else "blank")


class _Now:
    """A text that is read when it is wanted."""

    def __init__(self, read: Callable[[], str]) -> None:
        self.result = read

    def done(self) -> bool:
        return True


def _started(
    blank: DocumentPage, texts: Iterable[str | Exception], ocr: bool, threads: OcrThreads | None
) -> Iterator[_Started]:
    """The pages with these texts; OCR begins to read those without."""
    pictured = has_picture(blank.path)
    for number, text in enumerate(texts, start=1):
        page = dataclasses.replace(blank, number=number)
        if isinstance(text, Exception):
            yield _Started(f"{page._name}: cannot be read: {text}")
        elif not pictured and not text.strip():
            yield _Started(_without_text(page, "blank"))
        elif not pictured or has_text(text):
            yield _Started(dataclasses.replace(page, text=text))
        elif not (ocr and images.ocr_available()):
            yield _Started(_without_text(page, "none"))
        else:
            try:
                yield _Started(page, _by_ocr(page, threads))
            except DocumentError as error:
                yield _Started(str(error))


def _by_ocr(page: DocumentPage, threads: OcrThreads | None) -> Later:
    draw, read = functools.partial(page.image, OCR_PIXELS), _ocr_in(page.ocr_lang)
    if threads is not None:
        return threads.text(draw, read)
    picture = draw()
    return _Now(lambda: read(picture))


def _ocr_in(lang: str) -> Callable[[Image], str]:
    return lambda picture: picture_text(picture, lang)


def _in_order(pages: Iterable[_Started]) -> Iterator[_Started]:
    """Pages in their order, each when its text is known. Those behind it are started first."""
    waiting = deque[_Started]()
    for page in pages:
        waiting.append(page)
        while waiting and (waiting[0].later is None or waiting[0].later.done()):
            yield waiting.popleft()
    yield from waiting


def _without_text(page: DocumentPage, origin: Literal["none", "blank"]) -> DocumentPage:
    return dataclasses.replace(page, text="", origin=origin)


def count_pages(document: FoundDocument) -> int:
    """Count the pages of a file; raise DocumentError when it cannot be read."""
    match kind_of(document.path):
        case "text":
            return len(text_pages(document))
        case "image":
            return count_frames(document)
        case _:
            with open_document(document.path, document.name) as found:
                return found.pages


def page_text(path: Path, number: int) -> str:
    """Read the text of one page again, without OCR: for snippets."""
    match KINDS.get(path.suffix.lower()):
        case "text":
            return text_pages(FoundDocument(path.name, path))[number - 1]
        case "image" | None:
            return ""
        case _:
            with open_document(path) as found, _page_errors(f"{path.name}, page {number}", "read"):
                return found.text(number)


def scanned_text(path: Path, number: int, lang: str = ENGLISH) -> str:
    """Read the text of one page again, by OCR, which is slow: the last 256 are cached."""
    return _scanned_text(path, number, lang, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _scanned_text(path: Path, number: int, lang: str, changed: int) -> str:
    return picture_text(_render(path, number, OCR_PIXELS, f"{path.name}, page {number}"), lang)


def small_picture(page: DocumentPage) -> bytes | None:
    """Draw the page as a small WebP to keep in an index; None where `has_picture` is false."""
    if not has_picture(page.path):
        return None
    buffer = io.BytesIO()
    page.image(KEPT_PIXELS).save(buffer, "WEBP", quality=60, method=4)
    return buffer.getvalue()


def _render(path: Path, number: int, longest: int, name: str) -> Image:
    match kind_of(path):
        case "pdf":
            with open_document(path) as found, _page_errors(name, "drawn"):
                return found.picture(number, longest)
        case "image":
            picture = open_picture(path, name, number)
            picture.thumbnail((longest, longest))
            return picture
        case kind:
            raise DocumentError(f"{path.name}: {WHAT[kind]} has no picture; make a PDF of it")


@contextlib.contextmanager
def _page_errors(name: str, done: str) -> Iterator[None]:
    """Put the page's name in front of a DocumentError."""
    try:
        yield
    except DocumentError as error:
        raise type(error)(f"{name}: cannot be {done}: {error}") from None
