"""Word documents (.docx), by python-docx: pages as Word last showed them, if the file says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from glie.documents.readers.blocks import PAGE_BREAK, Block, in_a_line, paginate
from glie.documents.readers.packed import check_packed
from glie.documents.text import TEXT_PAGE_CHARACTERS

LONGEST_SHOWN = 20_000  # characters of a page as Word showed it
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MATHS = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
TEXT = frozenset({W + "t", MATHS})
# what is not shown, or is there a second time for older versions
LEFT_OUT = frozenset({W + "del", W + "moveFrom", W + "pPr", W + "rPr", FALLBACK})
PARAGRAPH, TABLE, ROW, CELL = W + "p", W + "tbl", W + "tr", W + "tc"
SHOWN_BREAK = W + "lastRenderedPageBreak"
OFF = frozenset({"0", "false", "off"})


class _Style(NamedTuple):
    heading: bool
    breaks: bool  # a page starts before its paragraphs


def pages(path: str) -> list[str]:
    import docx

    check_packed(path, "a Word document", ".docx")
    document = docx.Document(path)
    body = document.element.body
    shown = next(body.iter(SHOWN_BREAK), None) is not None
    longest = LONGEST_SHOWN if shown else TEXT_PAGE_CHARACTERS
    return paginate(_Reader(document).blocks(body), longest)


class _Reader:
    """What a document says, in order."""

    def __init__(self, document: Any) -> None:
        self._styles = {style.style_id: _style(style) for style in document.styles}
        self._footnotes = _footnotes(document)
        self._fresh = True  # nothing is on the page yet
        self._begun = False  # nor on any before

    def blocks(self, parent: Any) -> Iterator[Block]:
        for element in parent:
            if element.tag == PARAGRAPH:
                yield from self._paragraph(element)
            elif element.tag == TABLE:
                yield from self._table(element)
            elif element.tag not in LEFT_OUT:
                yield from self.blocks(element)

    def _paragraph(self, paragraph: Any) -> Iterator[Block]:
        settings = paragraph.find(W + "pPr")
        style = self._style_of(settings)
        own = None if settings is None else settings.find(W + "pageBreakBefore")
        if self._begun and (style.breaks if own is None else own.get(W + "val") not in OFF):
            yield from self._turn(asked=True)
        kind = "heading" if style.heading else "text"
        text, notes = "", list[str]()
        for part in self._parts(paragraph, notes):
            if isinstance(part, Block):
                yield from self._said(kind, text)
                yield from self._turn(asked=part.text == "asked")
                text = ""
            else:
                text += part
        yield from self._said(kind, text)
        for note in notes:
            yield from self._said("text", note)
        section = None if settings is None else settings.find(W + "sectPr")
        if section is not None:
            kind_of_break = section.find(W + "type")
            if kind_of_break is None or kind_of_break.get(W + "val") != "continuous":
                yield from self._turn(asked=True)

    def _said(self, kind: Any, text: str) -> Iterator[Block]:
        if text.strip():
            self._fresh, self._begun = False, True
            yield Block(kind, text.strip())

    def _turn(self, *, asked: bool) -> Iterator[Block]:
        """A page break. Where the author asked for one, Word notes that it showed one as well."""
        if asked or not self._fresh:
            self._fresh = self._begun = True
            yield PAGE_BREAK

    def _parts(self, element: Any, notes: list[str]) -> Iterator[str | Block]:
        """The text of a paragraph, and its page breaks; `notes` gets its footnotes."""
        for child in element:
            tag = child.tag
            if tag in TEXT:
                yield child.text or ""
            elif tag == W + "br" and child.get(W + "type") == "page":
                yield Block("page", "asked")
            elif tag == SHOWN_BREAK:
                yield PAGE_BREAK
            elif tag in (W + "br", W + "cr"):
                yield "\n"
            elif tag == W + "tab":
                yield "\t"
            elif tag == W + "noBreakHyphen":
                yield "-"
            elif tag == W + "footnoteReference":
                notes.append(self._footnotes.get(child.get(W + "id"), ""))
            elif tag not in LEFT_OUT:
                yield from self._parts(child, notes)
                if tag == PARAGRAPH:  # of a text box
                    yield "\n"

    def _table(self, table: Any) -> Iterator[Block]:
        for row in _inside(table, ROW, TABLE):
            if next(row.iter(SHOWN_BREAK), None) is not None:
                yield from self._turn(asked=False)
            cells, notes = list[str](), list[str]()
            for cell in _inside(row, CELL, TABLE):
                said = [
                    "".join(part for part in self._parts(each, notes) if isinstance(part, str))
                    for each in cell.iter(PARAGRAPH)
                ]
                cells.append(in_a_line(" ".join(said)))
            yield from self._said("row", "\t".join(cells))
            for note in notes:
                yield from self._said("text", note)

    def _style_of(self, settings: Any) -> _Style:
        named = None if settings is None else settings.find(W + "pStyle")
        plain = _Style(False, False)
        return plain if named is None else self._styles.get(named.get(W + "val"), plain)


def _inside(element: Any, tag: str, stop: str) -> Iterator[Any]:
    """The nearest descendants with this tag, not those behind a `stop`."""
    for child in element:
        if child.tag == tag:
            yield child
        elif child.tag not in LEFT_OUT and child.tag != stop:
            yield from _inside(child, tag, stop)


def _style(style: Any) -> _Style:
    name, breaks = (style.name or "").lower(), None
    seen = style
    for _ in range(10):  # styles are based on others
        found = seen.element.find(f"{W}pPr/{W}pageBreakBefore")
        if breaks is None and found is not None:
            breaks = found.get(W + "val") not in OFF
        seen = getattr(seen, "base_style", None)
        if seen is None:
            break
    return _Style(name.startswith("heading") or name in ("title", "subtitle"), bool(breaks))


def _footnotes(document: Any) -> dict[str, str]:
    from docx.oxml import parse_xml

    found: dict[str, str] = {}
    for relation in document.part.rels.values():
        if relation.reltype.endswith("/footnotes") and not relation.is_external:
            for note in parse_xml(relation.target_part.blob).iter(W + "footnote"):
                said = "".join(text.text or "" for text in note.iter(W + "t"))
                found[note.get(W + "id")] = in_a_line(said)
    return found
