"""The documents that an index holds, compared with the files that are found."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from glie.documents.find import FoundDocument
from glie.errors import IdError


class Records(Protocol):
    """Pages with metadata: an index, or a collection in an engine."""

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]: ...


class Indexed(Records, Protocol):
    """Records in a place of their own: an index, or a collection in an engine."""

    @property
    def path(self) -> Path | str: ...

    def __contains__(self, page_id: object) -> bool: ...


@dataclasses.dataclass
class KnownDocument:
    """A document that the index holds."""

    path: str
    digest: str
    missing: int  # pages that could not be read when it was indexed, or were lost since
    ids: list[str]
    ocr_lang: str | None = None  # the language that OCR was told, if any
    scanned: bool = False  # whether pages were read by OCR


def known_documents(pages: Records) -> dict[str, KnownDocument]:
    """The documents that the pages belong to, by name."""
    known: dict[str, KnownDocument] = {}
    for page_id, metadata in pages.records():
        name = metadata.get("document")
        if isinstance(name, str):
            # pages added in Python may lack the other keys
            path, digest = (str(metadata.get(key, "")) for key in ("path", "digest"))
            lang = metadata.get("ocr_lang")
            document = known.setdefault(name, KnownDocument(path, digest, 0, [], lang))
            document.ids.append(page_id)
            document.scanned |= metadata.get("origin") == "ocr"
            missing = metadata.get("missing")
            document.missing = max(document.missing, missing if isinstance(missing, int) else 0)
    return known


def last_ocr_lang(known: Mapping[str, KnownDocument]) -> str | None:
    """The language that OCR was told for the last document for which it was told any."""
    told = [document.ocr_lang for document in known.values() if document.ocr_lang]
    return told[-1] if told else None


def pages_of(index: Indexed, names: Iterable[str]) -> list[str]:
    """The page ids that names stand for: a page id, the name of a document or folder, or a path."""
    known = known_documents(index)
    by_path = {document.path: document for document in known.values() if document.path}
    ids = [page_id for name in names for page_id in _pages_of(index, name, known, by_path)]
    return list(dict.fromkeys(ids))


def _pages_of(
    index: Indexed,
    name: str,
    known: Mapping[str, KnownDocument],
    by_path: Mapping[str, KnownDocument],
) -> list[str]:
    if not name:  # as a path it would be the current folder and all below it
        raise IdError("expected the name of a document or of a page, found ''")
    path = str(Path(name).resolve())
    named, at_path = known.get(name), by_path.get(path)
    if named is not None and at_path is not None and named is not at_path:
        raise IdError(
            f"{name}: stands for two documents, the one of this name ({named.path}) and the one at "
            f"this path ({at_path.path}); give the full path of the one you mean"
        )
    document = named or at_path
    if document is not None:
        return document.ids
    if name in index:
        return [name]
    below = [
        page_id
        for known_name, document in known.items()
        if known_name.startswith(name.rstrip("/") + "/") or document.path.startswith(path + os.sep)
        for page_id in document.ids
    ]
    if not below:
        close = _close_names(name, known)
        hint = (
            f"did you mean {' or '.join(close)}?"
            if close
            else "`glie info --documents` lists those of an index"
        )
        raise IdError(f"{name}: neither a document nor a page in {index.path}; {hint}")
    return below


def _close_names(name: str, known: Iterable[str]) -> list[str]:
    """At most three documents with the same file name, else with a similar name."""
    names, file = list(known), PurePosixPath(name).name
    same = [known_name for known_name in names if PurePosixPath(known_name).name == file]
    return same[:3] or difflib.get_close_matches(name, names)


def named_apart(
    found: Sequence[FoundDocument], known: Mapping[str, KnownDocument]
) -> list[FoundDocument]:
    """Give found files the names that the index has for them. A new file whose name another file
    in the index has gets the folders above it as well; if that other file is gone, the new file is
    taken for the same one, moved."""
    by_path = {document.path: name for name, document in known.items() if document.path}
    taken = set(known) | {document.name for document in found}
    named = []
    for document in found:
        name, path = document.name, document.path
        moved = name in known and not Path(known[name].path).exists()
        if str(path) in by_path:
            name = by_path[str(path)]
        elif name in known and not moved:
            for depth in range(name.count("/") + 2, len(path.parts) + 1):
                name = "/".join(path.parts[-depth:])
                if name not in taken:
                    break
            taken.add(name)
        named.append(FoundDocument(name, path))
    return named


def gone_documents(
    paths: Sequence[str | os.PathLike[str]],
    known: Mapping[str, KnownDocument],
    found: Sequence[FoundDocument],
) -> list[str]:
    """Documents of the index whose files were below these folders and no longer exist."""
    folders = [str(Path(path).resolve()) + os.sep for path in paths]
    names = {document.name for document in found}
    return [
        name
        for name, document in known.items()
        if name not in names
        and any(document.path.startswith(folder) for folder in folders)
        and not Path(document.path).exists()
    ]
