"""Add and delete documents while the index is served.

A file is written under a temporary name, flushed to disk, renamed, then indexed. The server answers
after the index has committed. So an acknowledged upload is on disk, and any other can be sent
again. Until then a note beside the files names them, so that those of a killed upload are removed
by the next server or the next change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from glie.documents import FoundDocument, count_pages
from glie.documents.known import known_documents
from glie.documents.original import file_digest
from glie.errors import DocumentError, IndexFolderError, InputError, LockedError
from glie.index.index import Index
from glie.ingest import IngestProgress, ingest
from glie.progress import ignore
from glie.retriever import open_index
from glie.server.library import Library
from glie.server.names import numbered, safe_name
from glie.storage import flush_durably, make_durably, rename_durably, replace_file
from glie.wording import count

ARRIVING = ".arriving-"  # prefix of temporary names
UNFINISHED = ".unfinished.json"  # the names of files that are not indexed yet


class Sent(NamedTuple):
    """A file that a client sent."""

    name: str
    file: BinaryIO


@dataclasses.dataclass(frozen=True)
class Added:
    """The result of an upload."""

    documents: list[str]  # their names in the index
    pages: int  # added
    unchanged: list[str]  # documents that the index already had
    problems: list[str]


class Uploads:
    """Adds and deletes documents, one change at a time."""

    def __init__(self, library: Library, most_pages: int) -> None:
        self._library = library
        self._most_pages = most_pages
        self._lock = threading.Lock()

    def tidy(self) -> None:
        """Remove the files of a killed upload, unless another process is writing."""
        folder = self._library.folder
        if any(folder.glob(f"{ARRIVING}*")) or (folder / UNFINISHED).exists():
            with (
                contextlib.suppress(IndexFolderError),
                self._lock,
                _writing(self._library.path) as index,
            ):
                _remove_unfinished(index, folder)

    def add(
        self, files: Sequence[Sent], progress: Callable[[IngestProgress], None] = ignore
    ) -> Added:
        """Store and index these files, skipping unreadable ones. Raises DocumentError if none is
        left."""
        library = self._library
        if not files:
            raise InputError("no file was sent; expected at least one, in the field 'files'")
        encoder = library.encoder  # raises before anything is stored
        with self._lock, _writing(library.path) as index:
            try:
                make_durably(library.folder)
            except OSError as error:
                raise IndexFolderError(
                    f"{library.folder.name}: cannot be made: {error.strerror}"
                ) from None
            _remove_unfinished(index, library.folder)
            problems, kept, known = list[str](), list[Path](), known_documents(index)
            pages_added = 0
            before, room, same = set(known), self._most_pages, list[str]()
            places: dict[str, Path | str] = {
                document.digest: name for name, document in known.items() if not document.missing
            }
            try:
                for sent in files:
                    try:
                        path, room = self._keep(index, sent, room, kept, places)
                    except DocumentError as error:
                        problems.append(str(error))
                        continue
                    if isinstance(path, Path):
                        kept.append(path)
                    else:
                        same.append(path)
                if kept:
                    report = ingest(index, encoder, kept, progress=progress)
                    pages_added = report.pages_added
                    problems += report.problems
                    problems += [
                        f"{page}: no text was found on it" for page in report.pages_without_text
                    ]
            finally:
                library.refresh()
                names = {known.path: name for name, known in known_documents(index).items()}
                for path in kept:
                    if str(path) not in names:  # no page of it was indexed
                        path.unlink(missing_ok=True)
                (library.folder / UNFINISHED).unlink(missing_ok=True)
            stored = [*same, *(names[str(path)] for path in kept if str(path) in names)]
            stored = list(dict.fromkeys(stored))
            if not stored:
                raise DocumentError("; ".join(problems))
            return Added(
                [name for name in stored if name not in before],
                pages_added,
                [name for name in stored if name in before],
                problems,
            )

    def _keep(
        self,
        index: Index,
        sent: Sent,
        room: int,
        others: Sequence[Path],
        places: dict[str, Path | str],
    ) -> tuple[Path | str, int]:
        """Write a file of at most `room` pages into the index's folder, beside the `others` of
        this upload. `places` are the documents of the index by the digests of their bytes:
        one with the same bytes stays as it is, wherever its file is, and its name is returned."""
        name, folder = safe_name(sent.name), self._library.folder
        arriving = folder / f"{ARRIVING}{secrets.token_hex(8)}{Path(name).suffix}"
        try:
            with open(arriving, "xb") as file:
                shutil.copyfileobj(sent.file, file)
                flush_durably(file)
            if arriving.stat().st_size == 0:
                raise DocumentError(f"{name}: the file is empty")
            digest = file_digest(arriving)
            if digest in places:
                return places[digest], room
            pages = count_pages(FoundDocument(name, arriving))
            if pages > room:
                raise DocumentError(
                    f"{name}: {count(pages, 'page')}, which makes more than the "
                    f"{self._most_pages:,} that one upload may have"
                )
            path = _free_place(index, folder, name, digest)
            names = [other.name for other in (*others, path)]
            replace_file(folder / UNFINISHED, json.dumps(names).encode())
            rename_durably(arriving, path)
            places[digest] = path
            return path, room - pages
        except OSError as error:
            raise IndexFolderError(f"{name}: cannot be kept: {error.strerror or error}") from None
        finally:
            arriving.unlink(missing_ok=True)

    def delete(self, name: str) -> int:
        """Delete a document from the index and, if it was uploaded, its file; returns its number
        of pages."""
        library = self._library
        with self._lock, _writing(library.path) as index:
            library.refresh()
            document = library.document(name)
            path = Path(known_documents(index)[name].path)
            deleted = index.delete(document.ids)
            library.refresh()
            if library.is_own(path):
                path.unlink(missing_ok=True)
            return deleted


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[Index]:
    """The index, opened and locked for one change."""
    index = open_index(path)
    try:
        with index.writing():
            index.refresh()
            yield index
    except LockedError as error:
        raise LockedError(str(error).partition(": ")[2]) from None


def _remove_unfinished(index: Index, folder: Path) -> None:
    """Delete what a killed upload left and the index does not name. The caller holds the writer's
    lock. Other files stay: after a repair, one of them may be the only copy of a document."""
    note = folder / UNFINISHED
    with contextlib.suppress(OSError, ValueError):
        indexed = {Path(known.path).name for known in known_documents(index).values()}
        for name in json.loads(note.read_bytes()):
            if name not in indexed and Path(name).name == name:
                (folder / name).unlink(missing_ok=True)
    for path in (*folder.glob(f"{ARRIVING}*"), *folder.glob(f"{UNFINISHED}*")):
        with contextlib.suppress(OSError):
            path.unlink()


def _free_place(index: Index, folder: Path, name: str, digest: str) -> Path:
    """The path for a file of this name and content: where it already is, or a free one. A
    document of the index keeps its name."""
    known = known_documents(index)
    number, tried = 1, name
    while True:
        path = folder / tried
        if path.exists():
            if file_digest(path) == digest:
                return path
        elif tried not in known:
            return path
        number += 1
        tried = numbered(name, number)
