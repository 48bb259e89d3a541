"""A snapshot: one committed state of an index with its files mapped. It never changes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.candidates import build
from glie.candidates.ivf import EncodedBlock
from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.errors import CorruptIndexError, IdError
from glie.filters import Filter
from glie.filters.columns import AnyColumn, matching
from glie.index.candidate_files import CandidateFiles
from glie.index.column_file import LOOKUPS, ColumnFile, open_columns, stored_columns
from glie.index.folder import Folder, Manifest, SegmentEntry
from glie.index.format import damaged
from glie.index.lexical_file import LexicalFile, LostPostings, open_lexical
from glie.index.segment import Segment, StoredCodes
from glie.index.side_files import Images, LostImages, read_tombstones
from glie.index.words import AnyPostings, Words
from glie.kernels.quantize import BFLOAT16
from glie.pages import Queries
from glie.search.options import SearchOptions
from glie.search.page_cache import PageCache
from glie.search.results import Ranking
from glie.search.scan import CandidateBlock, CodeBlock, scan, scan_candidates

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OPEN_ATTEMPTS = 20  # a writer may replace files between reading the manifest and opening them


class Snapshot:
    """The files that a manifest names. Pages are numbered by position, in the order of insertion;
    deleted pages keep theirs."""

    def __init__(self, folder: Folder, manifest: Manifest, before: Snapshot | None = None) -> None:
        self.manifest = manifest
        # segments never change: reuse those that the state before has opened and checked
        known = {} if before is None else {s.checksum: s for s in before.segments}
        self.segments: list[Segment] = [
            open_segment(folder, manifest, entry, known.get(entry.checksum))
            for entry in manifest.segments
        ]
        self.images = [self._opened_images(folder, entry) for entry in manifest.segments]
        self.postings = [self._opened_postings(folder, entry) for entry in manifest.segments]
        known_columns = {} if before is None else {f.checksum: f for f in before.columns if f}
        self.columns: list[ColumnFile | None] = [
            self._opened_columns(folder, entry, known_columns) for entry in manifest.segments
        ]
        self.deleted = [read_deleted(folder, entry) for entry in manifest.segments]
        checked = None if before is None else before.candidates
        self.candidates: CandidateFiles = CandidateFiles(folder, manifest, self.segments, checked)
        self.bounds = np.cumsum([0] + [s.pages for s in self.segments], dtype=np.int64)
        self._cache: PageCache | None = None  # reconstructed pages, by position
        self._where: dict[Filter, Mask] = {}  # the pages that match the last filters

    def _opened_images(self, folder: Folder, entry: SegmentEntry) -> Images | LostImages | None:
        """The images of a segment. Damage is no error here: a search does not need images."""
        try:
            return open_images(folder, entry)
        except (FileNotFoundError, CorruptIndexError) as error:
            return LostImages(self._damage(folder, error))

    def _opened_postings(self, folder: Folder, entry: SegmentEntry) -> AnyPostings | None:
        """The postings of a segment. Damage is no error until words are searched."""
        try:
            return open_postings(folder, entry)
        except (FileNotFoundError, CorruptIndexError) as error:
            return LostPostings(self._damage(folder, error))

    def _opened_columns(
        self, folder: Folder, entry: SegmentEntry, known: Mapping[int, ColumnFile]
    ) -> ColumnFile | None:
        """The columns of a segment. Damage is no error: its records say the same."""
        try:
            file = open_column_file(folder, entry)
        except (FileNotFoundError, CorruptIndexError) as error:
            self._damage(folder, error)
            return None
        return None if file is None else known.get(file.checksum, file)

    def _damage(self, folder: Folder, error: Exception) -> CorruptIndexError:
        """What is wrong with a file that cannot be opened, unless a writer has replaced it."""
        if isinstance(error, CorruptIndexError):
            return error
        assert isinstance(error, FileNotFoundError)
        if Manifest.read(folder.path) != self.manifest:
            raise error
        return damaged(Path(error.filename), "the file is missing")

    @classmethod
    def latest(cls, folder: Folder, before: Snapshot | None = None) -> Snapshot:
        """The current state. Tries again if a writer replaces files while they are opened."""
        for attempt in range(OPEN_ATTEMPTS):
            manifest = Manifest.read(folder.path)
            try:
                return cls(folder, manifest, before)
            except FileNotFoundError as error:
                missing = Path(str(error.filename))
                if attempt and manifest == Manifest.read(folder.path):
                    raise damaged(missing, "the file is missing") from None
        raise damaged(folder.path, "its files change faster than they can be opened")

    def __len__(self) -> int:
        """The number of pages that are not deleted."""
        return sum(entry.pages - entry.deleted for entry in self.manifest.segments)

    def live(self, segment: int) -> Ints:
        """The rows of a segment that are not deleted."""
        return np.flatnonzero(~self.deleted[segment])

    def place(self, position: int) -> tuple[int, int]:
        """Segment and row of a position."""
        segment = int(np.searchsorted(self.bounds, position, side="right")) - 1
        return segment, position - int(self.bounds[segment])

    def record(self, position: int) -> tuple[str, dict[str, Any]]:
        """Id and metadata of the page at a position."""
        segment, row = self.place(position)
        return self.segments[segment].record(row)

    def records(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Position, id and metadata of every live page, in order."""
        for number, segment in enumerate(self.segments):
            first, dead = int(self.bounds[number]), self.deleted[number]
            for row, (page_id, metadata) in enumerate(segment.records()):
                if not dead[row]:
                    yield first + row, page_id, metadata

    @functools.cached_property
    def positions(self) -> dict[str, int]:
        """The position of each live id. The ids are read the first time."""
        return {
            segment.ids[row]: first + row
            for number, segment in enumerate(self.segments)
            for first in [int(self.bounds[number])]
            for row in self.live(number).tolist()
        }

    def position(self, page_id: str) -> int:
        """The position of a live page."""
        found = self._found(page_id)
        if found is None:
            raise IdError(f"page {page_id!r} is not in the index")
        return found

    def __contains__(self, page_id: object) -> bool:
        return self._found(page_id) is not None

    def _found(self, page_id: object) -> int | None:
        """The position of a live page; None: there is none. The last segments are the likeliest."""
        if isinstance(page_id, str):
            for number in reversed(range(len(self.segments))):
                for row in self._rows(number, page_id):
                    if not self.deleted[number][row]:
                        return int(self.bounds[number]) + row
        return None

    def _rows(self, number: int, page_id: str) -> list[int]:
        """The rows of a segment with an id. Few are looked up in its columns, many in a dict."""
        segment, file = self.segments[number], self.columns[number]
        if file is not None and file.lookups < LOOKUPS:
            with contextlib.suppress(CorruptIndexError):
                return [row for row in file.rows(page_id) if segment.record(row)[0] == page_id]
        return segment.rows.get(page_id, [])

    @functools.cached_property
    def _alive(self) -> Mask | None:
        """The positions of live pages; None: all positions."""
        if not any(entry.deleted for entry in self.manifest.segments):
            return None
        return np.asarray(~np.concatenate(self.deleted))

    @functools.cached_property
    def words(self) -> Words | None:
        """What is known of the text of the pages; None: no live page has text."""
        if self.manifest.text is None or all(file is None for file in self.postings):
            return None
        words = Words(self.manifest.text.language, self.postings, self.bounds, self._alive)
        return None if words.gone else words

    def select(
        self, options: SearchOptions, codec: Codec, allowed: Mask | None = None
    ) -> Selection:
        """The pages that a search with these options may find, or those of them that are
        `allowed`."""
        allowed = self.allowed(options.ids, options.filter) if allowed is None else allowed
        exact = options.exact
        if exact is None:
            pages = len(self) if allowed is None else int(np.count_nonzero(allowed))
            exact = not build.candidates_pay(pages) or not self.candidates.complete()
        if self._cache is None:
            self._cache = PageCache.of(codec)
        return Selection(self, allowed, exact or not self.segments, self._cache)

    def allowed(self, ids: Iterable[str] | None, where: Filter | None) -> Mask | None:
        """The positions of live pages with these ids and this metadata; None: all positions."""
        allowed = self._alive
        if ids is not None:
            allowed = np.zeros(int(self.bounds[-1]), bool)
            allowed[[self.position(page_id) for page_id in ids]] = True
        if where is not None:
            found = self._matching(where)
            allowed = found if allowed is None else allowed & found
        return allowed

    def blocks(self, allowed: Mask | None) -> Iterator[CodeBlock]:
        """The codes at the allowed positions, segment by segment."""
        for number, segment in enumerate(self.segments):
            first, last = int(self.bounds[number]), int(self.bounds[number + 1])
            rows = np.arange(last - first)
            if allowed is not None:
                rows = np.flatnonzero(allowed[first:last])
            if len(rows):
                yield CodeBlock(segment.vectors, segment.stored_counts, first, rows)

    def candidate_blocks(self, allowed: Mask | None) -> list[CandidateBlock]:
        """The codes of all segments with their PQ codes, for a search over candidates."""
        blocks = []
        for number, segment in enumerate(self.segments):
            first, last = int(self.bounds[number]), int(self.bounds[number + 1])
            mask = None if allowed is None else allowed[first:last]
            encoded = EncodedBlock(*self.candidates.encoded[number], mask)
            blocks.append(CandidateBlock(segment.vectors, segment.stored_counts, first, encoded))
        return blocks

    def codes_at(self, positions: Ints) -> Codes:
        """The codes at these positions, at least one, which ascend. Their ids are the positions."""
        parts = []
        numbers = np.searchsorted(self.bounds, positions, side="right") - 1
        for number in np.flatnonzero(np.bincount(numbers)):
            rows = positions[numbers == number] - self.bounds[number]
            parts.append(self.segments[number].codes.take(rows))
        return StoredCodes.joined(parts).read([str(position) for position in positions])

    def _matching(self, where: Filter) -> Mask:
        """The positions of pages whose metadata matches, deleted ones included."""
        known = self._where.get(where)  # another thread may clear the dict
        if known is not None:
            return known
        parts = [
            matching(where, self._columns(number, where.fields), segment.pages)
            for number, segment in enumerate(self.segments)
        ]
        found = np.concatenate([np.zeros(0, bool), *parts])
        if len(self._where) >= 16:
            self._where.clear()
        self._where[where] = found
        return found

    def _columns(self, number: int, names: Collection[str]) -> dict[str, AnyColumn]:
        """Some fields of a segment: from its columns, the others from its records."""
        stored = stored_columns(self.columns[number], names)
        others = [name for name in names if name not in stored]
        return {**stored, **self.segments[number].columns(others)}


class Selection(NamedTuple):
    """The pages of a state that one search may find; `search.two_stage` reads it."""

    state: Snapshot
    allowed: Mask | None  # None: all positions
    exact: bool  # scan all of them, not only candidates
    cache: PageCache | None

    def rank(self, queries: Queries, count: int) -> Ranking:
        """The `count` best pages of each query by their codes."""
        if self.exact:
            return scan(queries, self.state.blocks(self.allowed), count)
        blocks = self.state.candidate_blocks(self.allowed)
        return scan_candidates(queries, blocks, self.state.candidates.ivf_pq, count)

    def codes_at(self, positions: Ints) -> Codes:
        """The codes at these positions, which ascend."""
        return self.state.codes_at(positions)


def open_segment(
    folder: Folder, manifest: Manifest, entry: SegmentEntry, known: Segment | None = None
) -> Segment:
    """Open a segment, unless `known` is it; refuse another file than the manifest names."""
    segment = known or Segment(folder.file(entry.number, "seg"))
    if (segment.pages, segment.checksum) != (entry.pages, entry.checksum):
        raise damaged(segment.path, "it is not the file that the manifest names")
    if (segment.k, segment.dim) != (manifest.codec.get("k"), manifest.dim):
        expected = f"{manifest.codec.get('k')} x {manifest.dim}"
        raise damaged(segment.path, f"its codes are {segment.k} x {segment.dim}, not {expected}")
    dtype = manifest.codec.get("dtype", BFLOAT16)
    if segment.dtype != dtype:
        raise damaged(segment.path, f"its codes are stored in {segment.dtype}, not {dtype}")
    return segment


def open_images(folder: Folder, entry: SegmentEntry) -> Images | None:
    """Open the images of a segment, if it has any."""
    if entry.images is None:
        return None
    images = Images(folder.file(entry.images, "img"), entry.checksum)
    if images.pages != entry.pages:
        raise damaged(images.path, f"it has {images.pages} pages, expected {entry.pages}")
    return images


def open_postings(folder: Folder, entry: SegmentEntry) -> LexicalFile | None:
    """Open the postings of a segment, if it has any."""
    if entry.postings is None:
        return None
    return open_lexical(folder.file(entry.postings, "lex"), entry.pages, entry.checksum)


def open_column_file(folder: Folder, entry: SegmentEntry) -> ColumnFile | None:
    """Open the columns of a segment, if it has any."""
    if entry.columns is None:
        return None
    return open_columns(folder.file(entry.columns, "col"), entry.pages, entry.checksum)


def read_deleted(folder: Folder, entry: SegmentEntry) -> Mask:
    """Which pages of a segment are deleted."""
    deleted = np.zeros(entry.pages, bool)
    if entry.tombstones is not None:
        path = folder.file(entry.tombstones, "del")
        deleted = read_tombstones(path, entry.checksum)
        if (len(deleted), int(deleted.sum())) != (entry.pages, entry.deleted):
            raise damaged(path, "it is not the file that the manifest names")
    return deleted
