"""Repair an index: commit a state of all that a check found undamaged."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Container
from pathlib import Path

from glie.errors import CorruptIndexError, IndexFolderError
from glie.index.candidate_files import write_candidates
from glie.index.folder import (
    ASIDE,
    CODEC,
    MANIFEST,
    OWN_FILE,
    SEGMENTS,
    Folder,
    Manifest,
    SegmentEntry,
)
from glie.index.health import (
    Findings,
    Health,
    document_of,
    examine,
    findings,
    readable_manifest,
)
from glie.index.segment import record_line
from glie.index.side_files import Images
from glie.index.writer import SegmentWriter
from glie.lexical.postings import Selected
from glie.storage import make_durably, sync


@dataclasses.dataclass(frozen=True)
class Repair:
    """The result of a repair."""

    before: Health
    after: Health
    set_aside: tuple[str, ...]  # files, in the index folder


def repair(folder: Folder) -> Repair:
    """Commit a state of all that is undamaged. Pages whose codes and records can be read stay, with
    their order, metadata, images and words. Damaged files are kept in `damaged/`."""
    Manifest.read(folder.path, readable_manifest(folder)[0])  # raises if there is nothing to repair
    with folder.writing():
        found = findings(folder)
        before = found.health
        if before.whole:
            return Repair(before, before, ())
        for damage in before.damage:
            if damage.loss == "codec":
                raise CorruptIndexError(
                    f"{folder.path / CODEC}: damaged: {damage.what}; restore it from a backup: "
                    "the codes cannot be read without it",
                    damage.what,
                )
        try:
            (folder.path / SEGMENTS).mkdir(exist_ok=True)
            aside = _set_aside(folder, found)
            manifest = _mended(folder, found)
        except OSError as error:
            raise IndexFolderError(
                f"{folder.path}: cannot be repaired: {error.strerror}; it is as it was"
            ) from None
        folder.commit(manifest)
        folder.remove_strays(manifest)
        return Repair(before, examine(folder), aside)


def _mended(folder: Folder, found: Findings) -> Manifest:
    """Write the files of a repaired state, and return its manifest."""
    manifest, on_disk = found.manifest, (folder.path / SEGMENTS).glob("*")
    taken = [int(path.stem) for path in on_disk if OWN_FILE.fullmatch(path.name)]
    writer = SegmentWriter(folder, max([manifest.next_number, *(n + 1 for n in taken)]))
    entries: list[SegmentEntry] = []
    incomplete = {name for part in found.parts for name in part.incomplete}
    for part in found.parts:
        if not part.damage:
            unencoded = part.entry.number in found.unencoded
            entry = dataclasses.replace(part.entry, pq_codes=None) if unencoded else part.entry
            entries.append(entry)
            continue
        written = len(writer.entries)
        if part.segment is not None:
            lines = zip(part.segment.whole_lines(), part.keep.tolist(), strict=True)
            kept = (_marked(line, incomplete) for line, keep in lines if keep and line is not None)
            postings = None if part.postings is None else part.postings.all_postings()
            for rows in part.rows():
                records = list(itertools.islice(kept, len(rows)))
                pictures = [_picture(part.images, row) for row in rows.tolist()]
                words = None if postings is None else Selected(postings, rows)
                writer.add(part.segment.codes.take(rows), records, pictures, words)
        writer.flush()
        entries += writer.entries[written:]
    candidates, entries = write_candidates(
        folder, entries, manifest.candidates, found.ivf_pq, writer.take_number
    )
    return dataclasses.replace(
        manifest,
        generation=manifest.generation + 1,
        next_number=writer.next_number,
        segments=tuple(entries),
        candidates=candidates,
    )


def _marked(line: bytes, incomplete: Container[str]) -> bytes:
    """The record of a page. Where its document has lost pages, it says that some are missing:
    `glie index` then reads the document again."""
    page_id, metadata = json.loads(line)
    if document_of(metadata) is None or metadata["document"] not in incomplete:
        return line
    return record_line(page_id, {**metadata, "missing": metadata.get("missing") or 1})


def _picture(images: Images | None, row: int) -> bytes | None:
    try:
        return images.image(row) if images else None
    except CorruptIndexError:
        return None


def _set_aside(folder: Folder, found: Findings) -> tuple[str, ...]:
    """Link damaged files into `damaged/`, before anything is removed. A hard link neither reads nor
    writes their bytes. Images, words and tombstones of a damaged segment go with it. If the
    manifest is damaged, so do all files that its copy does not name."""
    damage = found.health.damage
    names = [d.file for d in damage if d.loss != "nothing" or d.file == MANIFEST]
    if MANIFEST in names:
        names += [f"{SEGMENTS}/{name}" for name in folder.strays(found.manifest)]
    for part in found.parts:
        if any(fault.loss == "pages" for fault in part.damage):
            entry = part.entry
            beside = ((entry.images, "img"), (entry.tombstones, "del"), (entry.postings, "lex"))
            paths = [folder.file(number, kind) for number, kind in beside if number is not None]
            names += [f"{SEGMENTS}/{path.name}" for path in paths]
    kept = []
    for name in dict.fromkeys(names):
        source, target = folder.path / name, folder.path / ASIDE / Path(name).name
        if not source.is_file():
            continue
        make_durably(target.parent)
        while target.exists() and not target.samefile(source):  # from an earlier repair
            target = target.with_name(target.name + "~")
        if not target.exists():
            try:
                target.hardlink_to(source)
            except OSError:  # a file system without hard links
                shutil.copyfile(source, target)
        kept.append(f"{ASIDE}/{target.name}")
    if kept:
        sync(folder.path / ASIDE)
    return tuple(kept)
