"""Write pages into segment files of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from glie.errors import InputError
from glie.index import column_file
from glie.index.column_file import columns_bytes
from glie.index.folder import Folder, SegmentEntry
from glie.index.format import MAX_RECORD_BYTES
from glie.index.lexical_file import postings_bytes
from glie.index.segment import StoredCodes, record_line, segment_bytes, segment_checksum
from glie.index.side_files import images_bytes
from glie.index.snapshot import Snapshot
from glie.lexical.postings import Postings, Selected

SEGMENT_BYTES = 64 << 20  # a segment is written at this size; until then it is in memory
PAGES_PER_STEP = 512  # compressed or copied in one step
BYTES_A_POSTING = 8  # in memory, until a segment is written
MAX_NESTING = 64  # levels of metadata

# From the words and record lines of some pages to the words that are stored.
Fill = Callable[[Selected | None, Sequence[bytes]], Selected | None]


class SegmentWriter:
    """Collects pages and writes them as segments of bounded size."""

    def __init__(self, folder: Folder, next_number: int) -> None:
        self.folder = folder
        self.next_number = next_number
        self.entries: list[SegmentEntry] = []
        self._codes: list[StoredCodes] = []
        self._records: list[bytes] = []
        self._images: list[bytes | None] = []
        self._words: list[Selected] = []
        self._bytes = 0

    def add(
        self,
        codes: StoredCodes,
        records: Sequence[bytes],
        images: Sequence[bytes | None],
        words: Selected | None = None,
    ) -> None:
        """Add pages; write a segment if there are enough. `words`: their postings."""
        self._codes.append(codes)
        self._records.extend(records)
        self._images.extend(images)
        words = words or Selected.all(Postings.of([{}] * len(records)))
        self._words.append(words)
        self._bytes += codes.bytes + sum(map(len, records))
        self._bytes += sum(len(image or b"") for image in images)
        self._bytes += BYTES_A_POSTING * words.size
        if self._bytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected pages as a segment."""
        if not self._records:
            return
        number = self.take_number()
        data = segment_bytes(StoredCodes.joined(self._codes), self._records)
        self.folder.write(number, "seg", data)
        has_images, mark = any(self._images), segment_checksum(data)
        if has_images:
            self.folder.write(number, "img", images_bytes(self._images, mark))
        words = Postings.merged(self._words)
        has_words = bool(words.lengths.any())
        if has_words:
            self.folder.write(number, "lex", postings_bytes(words, mark))
        has_columns = len(self._records) >= column_file.FEWEST_PAGES
        if has_columns:
            self.folder.write(number, "col", columns_bytes(self._records, mark))
        entry = SegmentEntry(
            number,
            pages=len(self._records),
            checksum=mark,
            images=number if has_images else None,
            postings=number if has_words else None,
            columns=number if has_columns else None,
        )
        self.entries.append(entry)
        self._codes, self._records, self._images, self._words = [], [], [], []
        self._bytes = 0

    def copy(
        self,
        state: Snapshot,
        number: int,
        gone: Container[int] = (),
        *,
        change: Callable[[StoredCodes], StoredCodes] = lambda codes: codes,
        fill: Fill = lambda words, records: words,
        step: int = PAGES_PER_STEP,
    ) -> None:
        """Add the live pages of a stored segment, except those at the positions `gone`. `change`
        may replace their codes, and `fill` their words. Pages go in steps of `step`."""
        segment, images = state.segments[number], state.images[number]
        stored, first = state.postings[number], int(state.bounds[number])
        rows = [row for row in state.live(number).tolist() if first + row not in gone]
        postings = None if stored is None else stored.all_postings()
        if postings is not None and len(rows) < segment.pages:
            # what is not copied is not kept in memory until the next segment is written
            postings = Postings.merged([Selected(postings, np.array(rows, np.int64))])
        for at in range(0, len(rows), step):
            part = rows[at : at + step]
            lines = [segment.line(row) for row in part]
            places = np.arange(at, at + len(part))
            words = None if postings is None else Selected(postings, places)
            self.add(
                change(segment.codes.take(np.array(part))),
                lines,
                [images.image(row) if images else None for row in part],
                fill(words, lines),
            )

    def take_number(self) -> int:
        """The number for a new file."""
        self.next_number += 1
        return self.next_number - 1


def merge_tail(state: Snapshot, writer: SegmentWriter, gone: set[int], arriving: int) -> list[int]:
    """Copy small segments at the end into the new one, so that many small additions leave few
    files. A segment is merged if it is no larger than what it joins. Returns those that stay."""
    kept, joined = len(state.segments), arriving
    sizes = [s.bytes for s in state.segments]
    for number, (images, words) in enumerate(zip(state.images, state.postings, strict=True)):
        sizes[number] += (images.bytes if images else 0) + (words.bytes if words else 0)
    page_bytes = max((b // s.pages for b, s in zip(sizes, state.segments, strict=True)), default=0)
    while kept and joined * page_bytes < SEGMENT_BYTES // 2:
        entry = state.manifest.segments[kept - 1]
        if entry.pages > joined:
            break
        joined += entry.pages
        kept -= 1
    for number in range(kept, len(state.segments)):
        writer.copy(state, number, gone)
    return list(range(kept))


def record_lines(ids: Sequence[str], metadata: Sequence[Mapping[str, Any]] | None) -> list[bytes]:
    """The record lines of some pages, with their metadata checked."""
    values = _one_each("metadata", ids, metadata, {})
    lines = []
    for page_id, value in zip(ids, values, strict=True):
        if not isinstance(value, Mapping):
            raise InputError(f"metadata of page {page_id!r}: expected a dict, found {value!r:.80}")
        try:
            _check_json(value, MAX_NESTING)
            line = record_line(page_id, dict(value))
        except (TypeError, ValueError) as error:
            raise InputError(f"metadata of page {page_id!r}: not JSON: {error}") from None
        if len(line) >= MAX_RECORD_BYTES:
            raise InputError(
                f"metadata of page {page_id!r}: {len(line)} bytes of JSON, at most "
                f"{MAX_RECORD_BYTES} are stored"
            )
        lines.append(line)
    return lines


def checked_images(
    ids: Sequence[str], images: Sequence[bytes | None] | None
) -> Sequence[bytes | None]:
    """One image or None for each page."""
    blobs: list[bytes | None] = _one_each("images", ids, images, None)
    for page_id, image in zip(ids, blobs, strict=True):
        if image is not None and not isinstance(image, bytes):
            raise InputError(f"image of page {page_id!r}: expected bytes or None")
    return blobs


def checked_texts(ids: Sequence[str], texts: Sequence[str | None] | None) -> list[str | None]:
    """One text or None for each page."""
    found: list[str | None] = _one_each("texts", ids, texts, None)
    for page_id, text in zip(ids, found, strict=True):
        if text is not None and not isinstance(text, str):
            raise InputError(f"text of page {page_id!r}: expected a string or None")
    return found


def _one_each(what: str, ids: Sequence[str], given: Any, default: Any) -> list[Any]:
    """An argument as a list with one item for each page."""
    if given is None:
        return [default] * len(ids)
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InputError(
            f"{what}: expected a list with one for each page, found {type(given).__name__}"
        )
    items = list(given)
    if len(items) != len(ids):
        raise InputError(f"{what}: found {len(items)} for {len(ids)} pages; expected one each")
    return items


def _check_json(value: Any, depth: int) -> None:
    """Refuse keys that JSON would change, and nesting too deep to read again."""
    if depth == 0:
        raise ValueError(f"nested more than {MAX_NESTING} deep")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"expected string keys, found {key!r}")
            _check_json(item, depth - 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_json(item, depth - 1)
