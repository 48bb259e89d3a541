"""EPUB books: a page break before each chapter (each file of the book's spine)."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from glie.documents.readers import web
from glie.documents.readers.blocks import PAGE_BREAK, Block, RefusedError, in_a_line, paginate
from glie.documents.readers.packed import open_packed

CONTAINER, ENCRYPTED = "META-INF/container.xml", "META-INF/encryption.xml"
# XHTML may close any element in its opening tag; HTML would leave it open
CLOSED = re.compile(r"<([A-Za-z][\w:-]*)((?:\s[^<>]*)?)/>")
VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr", re.IGNORECASE)


def pages(path: str) -> list[str]:
    with open_packed(path, "an EPUB book") as archive:
        return paginate(_blocks(archive))


def _blocks(archive: zipfile.ZipFile) -> Iterator[Block]:
    package = _attribute(_xml(archive, CONTAINER), "rootfile", "full-path")
    if package is None:
        raise RefusedError("damaged: its container names no book")
    tree = _xml(archive, package)
    files = {item.get("id"): item for item in tree.iter("{*}item")}
    chapters = [
        posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(item.get("href"))))
        for item in (files.get(ref.get("idref")) for ref in tree.iter("{*}itemref"))
        if item is not None and "html" in (item.get("media-type") or "")
    ]
    if set(chapters) & _locked(archive):
        raise RefusedError("encrypted (DRM); only its publisher's programs can read it")
    said = next(tree.iter("{http://purl.org/dc/elements/1.1/}title"), None)
    title = in_a_line(said.text or "") if said is not None else ""
    yield from [Block("heading", title)] if title else []
    for number, chapter in enumerate(chapters):
        if number:
            yield PAGE_BREAK
        html = CLOSED.sub(_opened, web.decoded(archive.read(chapter)))
        yield from web.blocks(html, title="")


def _opened(tag: re.Match[str]) -> str:
    name, rest = tag[1], tag[2]
    return tag[0] if VOID.fullmatch(name) else f"<{name}{rest}></{name}>"


def _locked(archive: zipfile.ZipFile) -> set[str]:
    """The files that are encrypted; often only the fonts."""
    if ENCRYPTED not in archive.namelist():
        return set()
    found = _xml(archive, ENCRYPTED).iter("{*}CipherReference")
    return {unquote(item.get("URI") or "") for item in found}


def _xml(archive: zipfile.ZipFile, name: str) -> Any:
    from lxml import etree

    try:
        data = archive.read(name)
    except KeyError:
        raise RefusedError(f"not an EPUB book: it has no {name}") from None
    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))


def _attribute(tree: Any, tag: str, name: str) -> str | None:
    found = next(tree.iter(f"{{*}}{tag}"), None)
    return None if found is None else found.get(name)
