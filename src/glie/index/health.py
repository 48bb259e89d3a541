"""Check an index file by file; `repairing.py` repairs it.

Codes and records of a page are only in its segment, so a damaged segment loses pages. A damaged
image file loses images, a damaged file of postings the words of its pages, and damaged tombstones
bring deleted pages back. Candidate files are made from the codes, and columns from the
records: a repair makes them again. The manifest has a copy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from glie.candidates.ivf import IvfPq
from glie.errors import CorruptIndexError, IndexFolderError
from glie.index.candidate_files import open_pq_file, read_ivf_pq
from glie.index.folder import (
    CODEC,
    COPY,
    MANIFEST,
    SEGMENTS,
    Folder,
    Manifest,
    SegmentEntry,
)
from glie.index.format import OtherVersionError, damaged, map_file
from glie.index.lexical_file import LexicalFile
from glie.index.salvage import Salvage
from glie.index.side_files import Images
from glie.index.snapshot import (
    OPEN_ATTEMPTS,
    open_column_file,
    open_images,
    open_postings,
    open_segment,
    read_deleted,
)
from glie.index.writer import PAGES_PER_STEP

Mask = npt.NDArray[np.bool_]
Documents = dict[str, str]  # from a document's name to the path of its file

Loss = Literal["pages", "pictures", "words", "deletions", "codec", "nothing"]


@dataclasses.dataclass(frozen=True)
class Damage:
    """What is wrong with one file."""

    file: str  # its path in the index folder
    what: str
    loss: Loss  # what a repair cannot restore
    pages: tuple[str, ...] = ()  # the ids of the affected pages, if they can be read
    unnamed: int = 0  # affected pages whose ids cannot be read

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclasses.dataclass(frozen=True)
class Health:
    """The result of checking every file of an index."""

    files: int  # checked
    bytes: int
    pages: int  # undamaged and not deleted
    damage: tuple[Damage, ...]
    folders: tuple[str, ...] = ()  # with the documents of lost pages: `glie index` reads them again

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage

    @property
    def pages_lost(self) -> int:
        """Pages whose codes or records are damaged."""
        lost = [damage for damage in self.damage if damage.loss == "pages"]
        return sum(len(damage.pages) + damage.unnamed for damage in lost)


@dataclasses.dataclass
class Part:
    """The undamaged part of one segment and of the files beside it."""

    entry: SegmentEntry
    segment: Salvage | None
    keep: Mask  # the pages that are undamaged and not deleted
    images: Images | None
    postings: LexicalFile | None
    damage: list[Damage]
    documents: Documents = dataclasses.field(default_factory=dict)  # of all pages, and their paths
    incomplete: Documents = dataclasses.field(default_factory=dict)  # of those with lost pages

    def rows(self) -> Iterator[npt.NDArray[np.int64]]:
        """The rows to keep, in batches of PAGES_PER_STEP."""
        rows = np.flatnonzero(self.keep)
        yield from (rows[at : at + PAGES_PER_STEP] for at in range(0, len(rows), PAGES_PER_STEP))


@dataclasses.dataclass
class Findings:
    """Everything that a check found."""

    manifest: Manifest
    parts: list[Part]
    ivf_pq: IvfPq | None  # None if it is damaged
    unencoded: set[int]  # numbers of segments whose PQ codes are damaged
    health: Health


def examine(folder: Folder) -> Health:
    """Read every byte of an index and report what is damaged. Changes nothing."""
    return findings(folder).health


def readable_manifest(folder: Folder) -> tuple[str, list[Damage]]:
    """The name of the manifest or, if that is damaged, of its copy."""
    try:
        manifest = Manifest.read(folder.path)
    except OtherVersionError:
        raise
    except CorruptIndexError as error:
        try:
            copy = Manifest.read(folder.path, COPY)
        except IndexFolderError:
            raise CorruptIndexError(
                f"{folder.path / MANIFEST}: damaged: {error.fault}, and so is {COPY}; restore one "
                "of them from a backup",
                error.fault,
            ) from None
        what = f"{error.fault}; its copy is of commit {copy.generation}"
        later = [
            name
            for name in folder.strays(copy)
            if name.endswith(".seg") and int(name.removesuffix(".seg")) >= copy.next_number
        ]
        if later:  # a writer was killed before it committed or renewed the copy
            what += f", and later ones may have stored pages in {', '.join(later)}"
        return COPY, [Damage(MANIFEST, what, "pages" if later else "nothing")]
    try:
        if (folder.path / COPY).exists():  # older versions wrote no copy
            copy = Manifest.read(folder.path, COPY)
            if copy.generation == manifest.generation and copy != manifest:
                raise damaged(folder.path / COPY, f"it differs from {MANIFEST}")
    except CorruptIndexError as error:
        return MANIFEST, [Damage(COPY, error.fault, "nothing")]
    return MANIFEST, []


def findings(folder: Folder) -> Findings:
    """Check everything; start again if a writer has replaced files meanwhile."""
    for _ in range(OPEN_ATTEMPTS):
        name, damage = readable_manifest(folder)
        manifest = Manifest.read(folder.path, name)
        found = _checked(folder, manifest, damage)
        if found.health.whole or Manifest.read(folder.path, name) == manifest:
            return found
    raise damaged(folder.path, "its files change faster than they can be read")


def _checked(folder: Folder, manifest: Manifest, damage: list[Damage]) -> Findings:
    damage = list(damage)
    try:
        folder.codec(manifest)
    except OtherVersionError:
        raise
    except CorruptIndexError as error:
        damage.append(Damage(CODEC, error.fault, "codec"))
    seen: set[str] = set()
    # from the last to the first: of pages with the same id, the last counts
    parts = [_part(folder, manifest, entry, seen) for entry in reversed(manifest.segments)][::-1]
    for part in parts:
        damage += part.damage
    ivf_pq, unencoded, faults = _checked_ivf_pq(folder, manifest, parts)
    named = folder.named(manifest)
    paths = [folder.path / name for name in (MANIFEST, COPY)]
    paths += [path for path in (folder.path / CODEC).glob("*") if path.is_file()]
    paths += [folder.path / SEGMENTS / name for name in named]
    sizes = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    pages = sum(int(part.keep.sum()) for part in parts)
    health = Health(len(sizes), sum(sizes), pages, (*damage, *faults), _folders(parts))
    return Findings(manifest, parts, ivf_pq, unencoded, health)


def _part(folder: Folder, manifest: Manifest, entry: SegmentEntry, seen: set[str]) -> Part:
    """Check a segment. `seen` are the ids of later segments; its own are added."""
    name = f"{SEGMENTS}/{folder.file(entry.number, 'seg').name}"
    try:
        _read_through(folder.file(entry.number, "seg"))
        segment = Salvage(folder.file(entry.number, "seg"))
        open_segment(folder, manifest, entry, segment)  # raises if it is another file
    except OtherVersionError:
        raise
    except (CorruptIndexError, FileNotFoundError) as error:
        live = entry.pages - entry.deleted
        damage = [Damage(name, _fault(error), "pages", unnamed=live)]
        return Part(entry, None, np.zeros(0, bool), None, None, damage)
    damage = []
    lines = list(segment.whole_lines())
    records = [None if line is None else json.loads(line) for line in lines]
    ids = [None if record is None else str(record[0]) for record in records]
    named = [None if record is None else document_of(record[1]) for record in records]
    incomplete: Documents = {}
    whole = np.array([page_id is not None for page_id in ids])
    try:
        if entry.tombstones is not None:
            _read_through(folder.file(entry.tombstones, "del"))
        deleted = read_deleted(folder, entry)
    except (CorruptIndexError, FileNotFoundError) as error:
        assert entry.tombstones is not None
        file = f"{SEGMENTS}/{folder.file(entry.tombstones, 'del').name}"
        what = f"{_fault(error)}; it says which {entry.deleted} pages are deleted"
        known = tuple(page_id for page_id in ids if page_id is not None and page_id not in seen)
        unnamed = int(np.count_nonzero(~whole))
        damage.append(Damage(file, what, "deletions", known, unnamed))
        deleted = np.array(
            [page_id in seen for page_id in ids]
        )  # at least those that were replaced later
    faults = segment.faults
    if not whole.all() and not faults:
        faults = ["its records cannot be read"]
    if faults:
        gone = ~deleted & ~(whole & segment.sound)
        affected = tuple(ids[row] or "" for row in np.flatnonzero(gone & whole).tolist())
        unnamed = int(np.count_nonzero(gone & ~whole))
        damage.append(Damage(name, "; ".join(faults), "pages", affected, unnamed))
        whole &= segment.sound
        incomplete = _incomplete(named, ids, gone)
    keep = whole & ~deleted
    twice = []
    for row in np.flatnonzero(keep)[::-1].tolist():
        page_id = ids[row]
        assert page_id is not None
        if page_id in seen:
            keep[row] = False
            twice.append(page_id)
        seen.add(page_id)
    if twice:
        damage.append(Damage(name, "a later page has the same id", "nothing", tuple(twice)))
    images = _checked_images(folder, entry, ids, keep, damage)
    postings = _checked_postings(folder, entry, ids, keep, damage)
    _check_columns(folder, entry, damage)
    documents = dict(name for name in named if name is not None)
    return Part(entry, segment, keep, images, postings, damage, documents, incomplete)


def document_of(metadata: dict[str, Any]) -> tuple[str, str] | None:
    """The name and path of a page's document, as `glie index` wrote them."""
    name, path = metadata.get("document"), metadata.get("path")
    return (name, path) if isinstance(name, str) and isinstance(path, str) else None


def _incomplete(
    named: Sequence[tuple[str, str] | None], ids: Sequence[str | None], gone: Mask
) -> Documents:
    """The documents that have lost pages. The pages of a document are stored in a row: lost ones
    whose records cannot be read may be of the documents beside them."""
    rows = set[int]()
    for row in np.flatnonzero(gone).tolist():
        beside = [row] if ids[row] is not None else [row - 1, row + 1]
        rows.update(at for at in beside if 0 <= at < len(ids))
    return dict(name for row in rows if (name := named[row]) is not None)


def _folders(parts: Sequence[Part]) -> tuple[str, ...]:
    """The folders that documents with lost pages were indexed from, if they are still there."""
    lost = [damage for part in parts for damage in part.damage if damage.loss == "pages"]
    unknown = any(damage.unnamed for damage in lost)
    concerned = [part.documents if unknown else part.incomplete for part in parts]
    folders = set[str]()
    for documents in concerned:
        for name, path in documents.items():
            below = Path(path).as_posix().removesuffix(f"/{name}")
            folder = Path(below) if below != Path(path).as_posix() else Path(path).parent
            folders |= {str(folder)} if folder.is_dir() else set()
    return tuple(sorted(folders))


def _checked_images(
    folder: Folder, entry: SegmentEntry, ids: list[str | None], keep: Mask, damage: list[Damage]
) -> Images | None:
    """Check the images of a segment; what is wrong is added to `damage`."""
    if entry.images is None:
        return None
    images, lost, what = (
        None,
        np.flatnonzero(keep).tolist(),
        "some images do not match their checksum",
    )
    try:
        _read_through(folder.file(entry.images, "img"))
        images = open_images(folder, entry)
        assert images is not None
        lost = [row for row in range(images.pages) if not images.is_whole(row)]
    except (CorruptIndexError, FileNotFoundError) as error:
        what = _fault(error)
    if lost or images is None:
        affected = tuple(page_id for row in lost if keep[row] and (page_id := ids[row]) is not None)
        file = f"{SEGMENTS}/{folder.file(entry.images, 'img').name}"
        damage.append(Damage(file, what, "pictures", affected))
    return images


def _checked_postings(
    folder: Folder, entry: SegmentEntry, ids: list[str | None], keep: Mask, damage: list[Damage]
) -> LexicalFile | None:
    """Check the postings of a segment; what is wrong is added to `damage`."""
    if entry.postings is None:
        return None
    path = folder.file(entry.postings, "lex")
    try:
        _read_through(path)
        file = open_postings(folder, entry)
        assert file is not None
        file.all_postings()  # which decodes them all, and is not kept
    except (CorruptIndexError, FileNotFoundError) as error:
        affected = tuple(
            page_id for page_id, kept in zip(ids, keep, strict=True) if kept and page_id
        )
        damage.append(Damage(f"{SEGMENTS}/{path.name}", _fault(error), "words", affected))
        return None
    return file


def _check_columns(folder: Folder, entry: SegmentEntry, damage: list[Damage]) -> None:
    """Check the columns of a segment; what is wrong is added to `damage`. The records have it all,
    so nothing is lost."""
    if entry.columns is None:
        return
    path = folder.file(entry.columns, "col")
    try:
        _read_through(path)
        file = open_column_file(folder, entry)
        assert file is not None
        file.read_all()
    except (CorruptIndexError, FileNotFoundError) as error:
        damage.append(Damage(f"{SEGMENTS}/{path.name}", _fault(error), "nothing"))


def _checked_ivf_pq(
    folder: Folder, manifest: Manifest, parts: list[Part]
) -> tuple[IvfPq | None, set[int], list[Damage]]:
    """The IVF-PQ if it is undamaged, segments with damaged PQ codes, and what is wrong."""
    entry, damage, unencoded = manifest.candidates, list[Damage](), set[int]()
    ivf_pq: IvfPq | None = None
    if entry is None:
        return None, unencoded, damage
    path = folder.file(entry.number, "fnd")
    try:
        _read_through(path)
        ivf_pq = read_ivf_pq(path, map_file(path), entry, manifest.dim)
    except (CorruptIndexError, FileNotFoundError) as error:
        damage.append(Damage(f"{SEGMENTS}/{path.name}", _fault(error), "nothing"))
    for part in parts:
        if part.segment is None or part.entry.pq_codes is None:
            continue
        path = folder.file(part.entry.pq_codes, "sig")
        try:
            _read_through(path)
            file = open_pq_file(path, part.segment, entry)
            _ = file.pq_codes if ivf_pq is None else file.posting_lists(ivf_pq.lists)
        except (CorruptIndexError, FileNotFoundError) as error:
            damage.append(Damage(f"{SEGMENTS}/{path.name}", _fault(error), "nothing"))
            unencoded.add(part.entry.number)
    return ivf_pq, unencoded, damage


def _read_through(path: Path) -> None:
    """Read a file once: a read error is damage, and in a mapped file it would kill the process.
    Other errors of the system, such as missing permission, say nothing about the file."""
    try:
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.EIO, errno.EISDIR):
            raise damaged(path, f"it cannot be read: {error.strerror}") from None
        raise IndexFolderError(f"{path}: cannot be read: {error.strerror}") from None


def _fault(error: CorruptIndexError | FileNotFoundError) -> str:
    return error.fault if isinstance(error, CorruptIndexError) else "the file is missing"
