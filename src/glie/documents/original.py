"""The file behind an indexed page: its text, its picture, and whether it has changed since.

A page's metadata names the file (`path`, `page`, `digest`, `origin`), as `glie index` wrote it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


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
