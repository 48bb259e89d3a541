"""The next state of an index: write tombstones and candidate files, and make the manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from glie.codec.codec import Codec
from glie.index.candidate_files import write_candidates
from glie.index.folder import Folder, Manifest, SegmentEntry, TextEntry
from glie.index.side_files import tombstone_bytes
from glie.index.snapshot import Snapshot
from glie.index.writer import SegmentWriter


def next_manifest(
    folder: Folder,
    state: Snapshot,
    writer: SegmentWriter,
    kept: Iterable[int],
    gone: set[int],
    dim: int | None,
    codec: Codec | None,
    text: TextEntry | None,
) -> Manifest:
    """Write what a new state still lacks, and return its manifest. The state has the segments
    `kept` of the old one, without the pages at the positions `gone`, and those of `writer`. `codec`
    is written if the codec has changed; None keeps the old one. `text` says how postings were made,
    if there are any."""
    entries = _with_tombstones(folder, state, writer, kept, gone) + writer.entries
    candidates = state.manifest.candidates if entries else None
    if writer.entries:
        candidates, entries = write_candidates(
            folder, entries, candidates, state.candidates.stored_ivf_pq, writer.take_number
        )
    return dataclasses.replace(
        state.manifest,
        codec=state.manifest.codec if codec is None else folder.keep(codec),
        dim=dim,
        generation=state.manifest.generation + 1,
        next_number=writer.next_number,
        segments=tuple(entries),
        candidates=candidates,
        text=text if any(entry.postings is not None for entry in entries) else state.manifest.text,
    )


def _with_tombstones(
    folder: Folder, state: Snapshot, writer: SegmentWriter, kept: Iterable[int], gone: set[int]
) -> list[SegmentEntry]:
    """The entries of old segments; one without a live page is left out."""
    by_segment: dict[int, list[int]] = {}
    for position in gone:
        segment, row = state.place(position)
        by_segment.setdefault(segment, []).append(row)
    entries = []
    for number in kept:
        entry = state.manifest.segments[number]
        if number in by_segment:
            deleted = state.deleted[number].copy()
            deleted[by_segment[number]] = True
            total = int(deleted.sum())
            if total == entry.pages:
                continue
            tombstones = writer.take_number()
            folder.write(tombstones, "del", tombstone_bytes(deleted, entry.checksum))
            entry = dataclasses.replace(entry, tombstones=tombstones, deleted=total)
        entries.append(entry)
    return entries
