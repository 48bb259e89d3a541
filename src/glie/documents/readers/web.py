"""HTML, by selectolax (Lexbor, which parses as browsers do): blocks in reading order."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any

from glie.documents.readers.blocks import PAGE_BREAK, Block, RefusedError, in_a_line, paginate

HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
NOT_SHOWN = frozenset(
    {"head", "script", "style", "template", "noscript", "svg", "iframe", "object", "select"}
)
IN_LINE = re.compile(
    "a|abbr|b|bdi|bdo|big|br|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|nobr|q|rb|rp|rt|rtc|"
    "ruby|s|samp|small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
CELLS = frozenset({"td", "th"})
TURN = re.compile(r"break-(before|after)\s*:\s*(?:always|page)", re.IGNORECASE)
CHARSET = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
CHARSET_WITHIN = 2048  # bytes
BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def pages(path: str) -> list[str]:
    with open(path, "rb") as file:
        data = file.read()
    return paginate(blocks(decoded(data)))


def decoded(data: bytes) -> str:
    """The text of a file, by its byte order mark or the encoding that it names; else UTF-8 or, if
    it is not that, Windows-1252."""
    named = CHARSET.search(data[:CHARSET_WITHIN])
    marked = next((name for mark, name in BOMS.items() if data.startswith(mark)), None)
    if not marked and b"\0" in data[:CHARSET_WITHIN]:
        raise RefusedError("not HTML, whatever its name says")
    for encoding in (marked, named[1].decode("ascii", "replace") if named else None, "utf-8"):
        if encoding:
            try:
                return data.decode(encoding)
            except (LookupError, UnicodeError):
                continue
    return data.decode("cp1252", "replace")


def blocks(html: str, title: str | None = None) -> Iterator[Block]:
    """The title, if no heading says the same, and then what the page shows. `title` takes the
    place of its own; there is none if it is empty."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    if title is None:
        found = tree.css_first("title")
        title = in_a_line(found.text()) if found else ""
    first = tree.css_first("h1")
    if title and (first is None or in_a_line(first.text()) != title):
        yield Block("heading", title)
    if tree.body is not None:
        yield from _Reader().blocks(tree.body)


class _Reader:
    def __init__(self) -> None:
        self._text = ""
        self._cells: list[str] | None = None  # of the row being read
        self._verbatim = 0  # how deep in <pre>

    def blocks(self, body: Any) -> Iterator[Block]:
        stack = [(body, False)]
        while stack:  # not recursive: pages may be nested without end
            node, left = stack.pop()
            if node.tag == "-text":
                said = node.text_content or ""
                self._text += said if self._verbatim else re.sub(r"\s+", " ", said)
            elif left:
                yield from self._leave(node)
            elif node.is_element_node and not _hidden(node):
                yield from self._enter(node)
                stack.append((node, True))
                stack.extend((child, False) for child in reversed([*node.iter(include_text=True)]))
        yield from self._flush("text")

    def _enter(self, node: Any) -> Iterator[Block]:
        tag = node.tag
        if tag == "br":
            self._text += "\n"
        elif tag == "img":
            self._text += f" {node.attributes.get('alt') or ''} "
        elif not IN_LINE.fullmatch(tag):
            yield from self._flush("text")
        if tag == "tr" and node.css_first("table") is None:  # tables in cells are for layout
            self._cells = []
        self._verbatim += tag == "pre"
        self._text += "- " if tag == "li" else ""
        if _turns(node) == "before":
            yield from self._flush("text")
            yield PAGE_BREAK

    def _leave(self, node: Any) -> Iterator[Block]:
        tag = node.tag
        if tag in CELLS and self._cells is not None:
            self._cells.append(in_a_line(self._text))
            self._text = ""
        elif tag == "tr" and self._cells is not None:
            cells, self._cells, self._text = self._cells, None, ""
            yield Block("row" if len(cells) > 1 else "text", "\t".join(cells).rstrip())
        elif not IN_LINE.fullmatch(tag):
            yield from self._flush("heading" if tag in HEADINGS else "text")
        self._verbatim -= tag == "pre"
        if _turns(node) == "after":
            yield PAGE_BREAK

    def _flush(self, kind: Any) -> Iterator[Block]:
        if self._cells is not None:  # a paragraph of a cell
            self._text += " "
            return
        text, self._text = self._text.strip("\n"), ""
        if not self._verbatim:
            text = re.sub(r" *\n *", "\n", re.sub(r"[ \xa0]+", " ", text)).strip()
        if text.strip("- \n"):
            yield Block(kind, text)


def _hidden(node: Any) -> bool:
    return node.tag in NOT_SHOWN or "hidden" in node.attributes


def _turns(node: Any) -> str:
    """Whether a page break stands "before" or "after" an element, where it is printed."""
    found = TURN.search(node.attributes.get("style") or "")
    return found[1].lower() if found else ""
