"""Blocks of a document (headings, paragraphs, rows of tables) to pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from glie.documents.text import TEXT_PAGE_CHARACTERS, pieces

FULL = 2 / 3  # of a page: from there on a heading starts the next one
MOST_REPEATED = 300  # characters of a heading or of a table's first row


class Block(NamedTuple):
    """A piece of a document. "page" is a page break, and has no text."""

    kind: Literal["text", "heading", "row", "page"]
    text: str = ""


PAGE_BREAK = Block("page")


class RefusedError(Exception):
    """A file that is sound but cannot be read; the message says why and what to do."""


def paginate(blocks: Iterable[Block], longest: int = TEXT_PAGE_CHARACTERS) -> list[str]:
    """The text of each page. Pages end at page breaks, and where they would be longer than
    `longest`, if possible before a heading. A page that goes on from the one before repeats its
    heading and the first row of its table. Blank pages at the end are dropped."""
    writer = _Writer(longest)
    for block in blocks:
        writer.add(block)
    pages = [*writer.pages, writer.page]
    while pages and not pages[-1].strip():
        pages.pop()
    return pages


class _Writer:
    def __init__(self, longest: int) -> None:
        self._longest = longest
        self.pages: list[str] = []
        self.page = ""
        self._repeated = ""  # the page up to here only repeats what the one before says
        self._heading = self._header = self._last = ""

    def add(self, block: Block) -> None:
        if block.kind == "page":
            self._turn()
            self._heading = self._header = self._last = ""
            return
        if not block.text.strip():
            return
        if block.kind == "heading":
            if len(self.page) > FULL * self._longest:
                self._turn()
            self._heading = block.text if len(block.text) <= MOST_REPEATED else ""
        if block.kind != "row":
            self._header = ""
        for piece in pieces(block.text, self._longest):
            self._write(block.kind, piece)
        named = "\t" in block.text and len(block.text) <= MOST_REPEATED
        if block.kind == "row" and not self._header and named:
            self._header = block.text
        self._last = block.kind

    def _write(self, kind: str, text: str) -> None:
        started = len(self.page) > len(self._repeated)
        if started and len(self.page) + len(text) > self._longest:
            self._turn()
            repeated = [self._heading] if kind != "heading" else []
            repeated += [self._header] if kind == "row" else []
            self.page = self._repeated = "".join(f"{line}\n" for line in repeated if line)
        elif self.page:
            self.page += "\n" if kind == self._last == "row" else "\n\n"
        self.page += text

    def _turn(self) -> None:
        self.pages.append(self.page)
        self.page = self._repeated = ""


def in_a_line(text: str) -> str:
    """Without the white space around it, and with one space for that inside."""
    return " ".join(text.split())
