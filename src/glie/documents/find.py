"""Find the documents among files and folders, and give each a name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from glie.errors import DocumentError

Kind = Literal["pdf", "image", "text", "docx", "pptx", "xlsx", "html", "epub", "eml"]
WHAT: dict[Kind, str] = {  # in messages
    "pdf": "a PDF",
    "image": "an image",
    "text": "a text file",
    "docx": "a Word document",
    "pptx": "a PowerPoint file",
    "xlsx": "an Excel workbook",
    "html": "an HTML file",
    "epub": "an EPUB book",
    "eml": "an e-mail",
}
PICTURED: set[Kind] = {"pdf", "image"}  # kinds whose pages can be drawn
KINDS: dict[str, Kind] = {
    ".pdf": "pdf",
    ".png": "image",
    ".jpg": "image",
    ".jpeg": "image",
    ".tif": "image",
    ".tiff": "image",
    ".webp": "image",
    ".txt": "text",
    ".md": "text",
    ".markdown": "text",
    ".docx": "docx",
    ".pptx": "pptx",
    ".xlsx": "xlsx",
    ".html": "html",
    ".htm": "html",
    ".epub": "epub",
    ".eml": "eml",
}
SUFFIXES = frozenset(KINDS)


class FoundDocument(NamedTuple):
    """A file to read, and the name that its pages carry."""

    name: str
    path: Path


def kind_of(path: Path) -> Kind:
    """How a file is read, by its suffix; raise DocumentError for an unknown one."""
    try:
        return KINDS[path.suffix.lower()]
    except KeyError:
        raise DocumentError(
            f"{path}: not a kind of document that can be read; expected one of "
            f"{' '.join(sorted(KINDS))}"
        ) from None


def has_picture(path: str | os.PathLike[str]) -> bool:
    """Whether pages of this file can be drawn; not for text files and unknown suffixes."""
    return KINDS.get(Path(path).suffix.lower()) in PICTURED


def find_documents(paths: Iterable[str | os.PathLike[str]]) -> list[FoundDocument]:
    """List the readable files among the paths and below the folders, in a stable order.

    A file below a folder is named by its path from that folder, a file given directly by its file
    name. Files that would share a name also get the folders above them. Inside folders, hidden
    files and files of other kinds are skipped; given directly, other kinds are an error.
    """
    found: dict[Path, tuple[str, ...]] = {}  # the parts of each name
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
        else:
            kind_of(given)
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
