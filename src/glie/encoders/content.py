"""The input of an encoder: the text or the picture of a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glie.documents import open_picture, read_image
from glie.errors import InputError
from glie.pages import is_unicode

if TYPE_CHECKING:
    from PIL.Image import Image


def text_of(page: Any, position: int) -> str:
    """The text of a page, which is a text, an image (read by OCR) or a glie.documents page."""
    if isinstance(page, str):
        return page
    if hasattr(page, "text"):
        if not page.text.strip():
            raise InputError(
                f"page {getattr(page, 'id', position)!r}: it has no text, and a text encoder "
                'cannot see; install "glie[ocr]" to read its picture'
            )
        return str(page.text)
    if hasattr(page, "convert"):  # a Pillow image
        return read_image(page.convert("RGB"))[0]
    raise InputError(
        f"page {position}: expected a text, an image or a page of glie.documents, found "
        f"{type(page).__name__}"
    )


def picture_of(page: Any, position: int) -> Image:
    """The RGB picture of a page, which is an image, the path of one, or a glie.documents page."""
    if isinstance(page, str | os.PathLike):
        return open_picture(Path(page), os.fspath(page))
    if hasattr(page, "convert"):  # a Pillow image
        return page.convert("RGB")  # type: ignore[no-any-return]
    if hasattr(page, "image"):
        return page.image()  # type: ignore[no-any-return]
    if hasattr(page, "open"):
        return page.open()  # type: ignore[no-any-return]
    raise InputError(
        f"page {position}: expected an image, the path of one or a page of glie.documents, found "
        f"{type(page).__name__}"
    )


def checked_texts(texts: Sequence[Any], kind: str) -> list[str]:
    """The texts; raises InputError if one is empty or not Unicode."""
    if isinstance(texts, str):
        raise InputError("encode_queries: expected a list of texts, found a single string")
    for i, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{kind} {i}: no text to encode (found {text!r:.40})")
        if not is_unicode(text):
            raise InputError(f"{kind} {i}: {text!r:.40} is not valid Unicode (a lone surrogate)")
    return list(texts)
