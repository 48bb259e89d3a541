"""Text and Markdown files as pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glie.documents.find import FoundDocument
from glie.errors import DocumentError

TEXT_PAGE_CHARACTERS = 3000  # text files have no pages; a printed page holds about this much


def text_pages(document: FoundDocument) -> list[str]:
    """Split a text file into pages: at form feeds, then by paragraphs of up to 3,000 characters."""
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
            for piece in pieces(paragraph):
                if current and len(current) + len(piece) > TEXT_PAGE_CHARACTERS:
                    pages.append(current)
                    current = ""
                current += piece + "\n\n"
        if current.strip() or "\f" in text:
            pages.append(current)
    return pages


def pieces(paragraph: str, longest: int = TEXT_PAGE_CHARACTERS) -> Iterator[str]:
    """Cut a paragraph that is longer than a page at spaces."""
    start = 0
    while len(paragraph) - start > longest:
        cut = paragraph.rfind(" ", start + 1, start + longest)
        cut = cut if cut > 0 else start + longest
        yield paragraph[start:cut]
        start = cut
    yield paragraph[start:]


def has_text(text: str) -> bool:
    """Whether a page has text; one or two stray letters from a scanner do not count."""
    return len(re.findall(r"\w", text)) >= 3
