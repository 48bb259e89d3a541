"""The file behind an indexed page: its text, its picture, and whether it has changed since.

A page's metadata names the file (`path`, `page`, `digest`, `origin`), as `glie index` wrote it.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from glie.documents.find import KINDS
from glie.documents.images import ocr_available, picture_kind
from glie.documents.ocr_languages import ENGLISH
from glie.documents.read import DocumentPage, page_text, scanned_text, small_picture
from glie.errors import GlieError, MissingExtraError


class ImageFile(NamedTuple):
    """The bytes of an image file and its media type, such as image/webp."""

    data: bytes
    kind: str


def file_digest(path: Path) -> str:
    """The first 64 bits of a file's SHA-256: they tell versions of one file apart."""
    with open(path, "rb") as file:
        return _digest_of(file)


def _digest_of(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()[:16]


class OriginalFile(NamedTuple):
    """An open file that an index names; whoever takes it closes it."""

    file: BufferedReader
    name: str
    size: int


def open_original(metadata: Mapping[str, Any]) -> OriginalFile | None:
    """The file of a page, open, if its bytes are those that were indexed; None otherwise, and for
    what is no document. The bytes of the open file are checked, not those that its path has by
    then."""
    try:
        path = Path(metadata["path"])
        if path.suffix.lower() not in KINDS or not path.is_file():  # a pipe would wait for ever
            return None
        file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    except (KeyError, TypeError, ValueError, OSError):
        return None
    try:
        if _digest_of(file) == str(metadata.get("digest")):
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            return OriginalFile(file, path.name, size)
    except OSError:
        pass
    file.close()
    return None


def page_address(path: str | os.PathLike[str], page: object) -> str:
    """The address of a file for a browser, which opens a PDF at that page."""
    address = Path(path).absolute().as_uri()
    is_pdf = KINDS.get(Path(path).suffix.lower()) == "pdf"
    return f"{address}#page={page}" if is_pdf and isinstance(page, int) else address


def unchanged(metadata: Mapping[str, Any]) -> bool:
    """Whether a page's file is, byte for byte, the one that was indexed.

    If it is not, only its path is known, and whoever made the index chose that.
    """
    try:
        path = Path(metadata["path"])
        at = path.stat()
        return _digest(path, at.st_mtime_ns, at.st_size) == str(metadata["digest"])
    except (KeyError, TypeError, ValueError, OSError):
        return False


@functools.lru_cache(maxsize=1024)
def _digest(path: Path, changed: int, size: int) -> str:
    """The digest of a file; computed again when its time or size changes."""
    return file_digest(path)


def original_text(metadata: Mapping[str, Any], *, ocr: bool = False) -> str:
    """The text of a page, read from its file; empty if the file is gone or is a picture.

    With `ocr`, a page that was indexed by OCR is read by OCR again, if that extra is installed.
    """
    try:
        path, number = Path(metadata["path"]), metadata["page"]
        if ocr and metadata.get("origin") == "ocr" and ocr_available():
            return scanned_text(path, number, metadata.get("ocr_lang", ENGLISH))
        return page_text(path, number)
    except MissingExtraError:
        raise
    except (KeyError, TypeError, IndexError, OSError, GlieError):
        return ""


def why_no_text(metadata: Mapping[str, Any]) -> str:
    """The note that stands in place of a page's text."""
    if metadata.get("origin") == "ocr":
        return "a scanned page, read by OCR"
    path = metadata.get("path")
    return f"its file is gone: {path}" if path and not Path(path).exists() else "no text"


def original_picture(
    metadata: Mapping[str, Any], kept: bytes | None, *, draw: bool = True
) -> ImageFile | None:
    """A page as a small picture: the one `kept` in the index or, with `draw`, one drawn from its
    file. None if there is neither."""
    data = kept
    try:
        if data is None and draw:
            path = Path(metadata["path"])
            data = small_picture(DocumentPage(path.name, metadata["page"], path, "", "none"))
        return None if data is None else ImageFile(data, picture_kind(data, "the page"))
    except MissingExtraError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OSError, GlieError):
        return None
