"""Count the pages of documents without reading them, to say how long reading them will take."""

from __future__ import annotations

from typing import NamedTuple

from glie.documents.find import FoundDocument, kind_of
from glie.documents.images import frames_claimed
from glie.documents.opened import DocumentCounter
from glie.documents.text import text_pages
from glie.errors import GlieError


class PageCount(NamedTuple):
    """The pages of a document, and how many of them seem to have no text of their own."""

    pages: int
    scans: int


class PageCounter:
    """Counts pages. One process looks at all documents; it is started when the first is met."""

    def __enter__(self) -> PageCounter:
        self._documents = DocumentCounter()
        return self

    def __exit__(self, *error: object) -> None:
        self._documents.end()

    def count(self, document: FoundDocument) -> PageCount:
        """The pages of a document; none if it cannot be read."""
        try:
            match kind_of(document.path):
                case "text":
                    return PageCount(len(text_pages(document)), 0)
                case "image":
                    frames = frames_claimed(document)
                    return PageCount(frames, frames)
                case _:
                    return PageCount(*self._documents.count(document.path))
        except (GlieError, OSError):
            return PageCount(0, 0)
