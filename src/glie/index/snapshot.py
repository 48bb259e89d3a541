"""One committed state of an index with its files mapped: what a reader sees, whatever happens."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.candidates.ivf_pq import IvfPq
from glie.codec.codes import Codes
from glie.errors import CorruptIndexError, IdError, IndexFolderError, InputError
from glie.filters import Wanted, canonical, wanted
from glie.index.candidate_files import encode_segment, fit_ivf_pq
from glie.index.folder import CandidatesEntry, Folder, Manifest, SegmentEntry
from glie.index.format import (
    Images,
    LostImages,
    PQFile,
    Segment,
    StoredCodes,
    damaged,
    map_file,
    read_tombstones,
)
from glie.kernels.pq import PostingLists, PQCodes, posting_lists
from glie.kernels.quantize import BFLOAT16
from glie.search.page_cache import PageCache
from glie.search.two_stage import CandidateBlock, CodeBlock
from glie.storage import checksum

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OPEN_ATTEMPTS = 20  # a writer may replace files between reading the manifest and opening them


class Snapshot:
    """The segments that a manifest names. A position counts pages, deleted ones included, in the
    order of insertion."""

    def __init__(self, folder: Folder, manifest: Manifest, before: Snapshot | None = None) -> None:
        self.manifest = manifest
        # a segment never changes, so what the state before has opened and checked is taken over
        known = {} if before is None else {s.checksum: s for s in before.segments}
        self.segments: list[Segment] = [
            open_segment(folder, manifest, entry, known.get(entry.checksum))
            for entry in manifest.segments
        ]
        self.images = [self._opened_images(folder, entry) for entry in manifest.segments]
        self.deleted = [read_deleted(folder, entry) for entry in manifest.segments]
        self._open_candidates(folder, before)
        self.bounds = np.cumsum([0] + [s.pages for s in self.segments], dtype=np.int64)
        self.hot: PageCache | None = None  # regenerated pages, by their positions here
        self._where: dict[
            Wanted, Mask
        ] = {}  # the last restrictions by metadata that were asked for

    def _opened_images(self, folder: Folder, entry: SegmentEntry) -> Images | LostImages | None:
        """A search needs no pictures, so damaged ones do not stand in its way."""
        try:
            return open_images(folder, entry)
        except FileNotFoundError as error:
            if Manifest.read(folder.path) != self.manifest:  # a writer was faster
                raise
            return LostImages(damaged(Path(error.filename), "the file is missing"))
        except CorruptIndexError as error:
            return LostImages(error)

    def _open_candidates(self, folder: Folder, before: Snapshot | None) -> None:
        """Map its file and the PQ codes: a writer may replace them later. Both are made of the
        codes, so an index with damaged ones is read like one without."""
        entry, self.pq_files = self.manifest.candidates, list[PQFile]()
        self.candidates_fault: str | None = None
        if entry is None:
            return
        known = {} if before is None else {file.checksum: file for file in before.pq_files}
        try:
            self.ivf_pq_path = folder.file(entry.number, "fnd")
            self._ivf_pq_data = map_file(self.ivf_pq_path)
            for segment, named in zip(self.segments, self.manifest.segments, strict=True):
                assert named.pq_codes is not None  # or the manifest was refused
                file = open_pq_codes(folder.file(named.pq_codes, "sig"), segment, entry)
                self.pq_files.append(known.get(file.checksum, file))
        except FileNotFoundError as error:
            if Manifest.read(folder.path) != self.manifest:  # a writer was faster
                raise
            self.candidates_fault = str(damaged(Path(str(error.filename)), "the file is missing"))
        except IndexFolderError as error:
            self.candidates_fault = str(error)
        if self.candidates_fault is not None:
            self.pq_files = []
        elif (
            before is not None
            and before.manifest.candidates == entry
            and vars(before).get("_ivf_pq")
        ):
            self._ivf_pq = before._ivf_pq  # read and checked already

    @functools.cached_property
    def _ivf_pq(self) -> IvfPq | None:
        """The stored one, checked the first time; None where there is none to trust."""
        entry = self.manifest.candidates
        if entry is None or self.candidates_fault is not None:
            return None
        try:
            return read_ivf_pq(self.ivf_pq_path, self._ivf_pq_data, entry, self.manifest.dim)
        except CorruptIndexError as error:
            self.candidates_fault = str(error)
            return None

    @functools.cached_property
    def _encoded_segments(self) -> list[tuple[PQCodes, PostingLists]] | None:
        """The stored PQ codes of each segment and its pages by list, likewise."""
        if self._ivf_pq is None:
            return None
        lists = len(self._ivf_pq.coarse)
        try:
            return [(file.pq_codes, file.posting_lists(lists)) for file in self.pq_files]
        except CorruptIndexError as error:
            self.candidates_fault = str(error)
            return None

    @property
    def stored_ivf_pq(self) -> IvfPq | None:
        """The candidate index on disk, unless some file of it is known to be damaged."""
        return None if self.candidates_fault is not None else self._ivf_pq

    def has_candidates(self) -> bool:
        """Whether the candidate index and all PQ codes are on disk and whole; reads them all."""
        return self._encoded_segments is not None

    @functools.cached_property
    def ivf_pq(self) -> IvfPq:
        """The one that is stored or, in an index without, one made now and kept in memory."""
        if self._encoded_segments is not None:
            assert self._ivf_pq is not None
            return self._ivf_pq
        return fit_ivf_pq(self.segments)

    @functools.cached_property
    def encoded_segments(self) -> list[tuple[PQCodes, PostingLists]]:
        """The PQ codes of each segment and its pages by list."""
        if self._encoded_segments is not None:
            return self._encoded_segments
        lists = len(self.ivf_pq.coarse)
        made = [encode_segment(segment, self.ivf_pq) for segment in self.segments]
        return [(pq_codes, posting_lists(pq_codes, lists)) for pq_codes in made]

    @property
    def candidate_bytes(self) -> int:
        """What the candidate index and the PQ codes take on disk."""
        if self.manifest.candidates is None or self.candidates_fault is not None:
            return 0
        sizes = [file.bytes for file in self.pq_files]
        return len(self._ivf_pq_data) + sum(sizes)

    @classmethod
    def latest(cls, folder: Folder, before: Snapshot | None = None) -> Snapshot:
        """The current state. Tries again when a writer replaced files while they were opened."""
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
        """Pages that are not deleted."""
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
        """Where each live id is; read when first asked for."""
        return {
            segment.ids[row]: first + row
            for number, segment in enumerate(self.segments)
            for first in [int(self.bounds[number])]
            for row in self.live(number).tolist()
        }

    def position(self, page_id: str) -> int:
        try:
            return self.positions[page_id]
        except KeyError:
            raise IdError(f"page {page_id!r} is not in the index") from None

    @functools.cached_property
    def _alive(self) -> Mask | None:
        """The positions that are not deleted; None when all are."""
        if not any(entry.deleted for entry in self.manifest.segments):
            return None
        return np.asarray(~np.concatenate(self.deleted))

    def allowed(self, ids: Iterable[str] | None, where: Mapping[str, Any] | None) -> Mask | None:
        """The positions that a search goes through, restricted to ids and metadata; None: all."""
        allowed = self._alive
        if ids is not None:
            allowed = np.zeros(int(self.bounds[-1]), bool)
            allowed[[self.position(page_id) for page_id in distinct(ids)]] = True
        if where:
            matching = self._matching(wanted(where))
            allowed = matching if allowed is None else allowed & matching
        return allowed

    def blocks(self, allowed: Mask | None) -> Iterator[CodeBlock]:
        """The codes at these positions."""
        for number, segment in enumerate(self.segments):
            first, last = int(self.bounds[number]), int(self.bounds[number + 1])
            rows = np.arange(last - first)
            if allowed is not None:
                rows = np.flatnonzero(allowed[first:last])
            if len(rows):
                yield CodeBlock(segment.vectors, segment.stored_counts, first, rows)

    def candidate_blocks(self, allowed: Mask | None) -> list[CandidateBlock]:
        """The same with PQ codes, for the candidate index."""
        blocks = []
        for number, (segment, encoded_segments) in enumerate(
            zip(self.segments, self.encoded_segments, strict=True)
        ):
            first, last = int(self.bounds[number]), int(self.bounds[number + 1])
            mask = None if allowed is None else allowed[first:last]
            codes = segment.vectors, segment.stored_counts
            blocks.append(CandidateBlock(*codes, first, *encoded_segments, mask))
        return blocks

    def codes_at(self, positions: Ints) -> Codes:
        """The stored codes of some pages, at least one, in ascending order of position."""
        parts = []
        numbers = np.searchsorted(self.bounds, positions, side="right") - 1
        for number in np.unique(numbers):
            rows = positions[numbers == number] - self.bounds[number]
            parts.append(self.segments[number].codes.take(rows))
        return StoredCodes.joined(parts).read([str(position) for position in positions])

    def _matching(self, where: Wanted) -> Mask:
        """The positions whose metadata has one of the wanted values for every key."""
        known = self._where.get(where)  # another thread may clear them at any moment
        if known is not None:
            return known
        values_of = {key: set(values) for key, values in where}
        matching = np.zeros(int(self.bounds[-1]), bool)
        for position, _, metadata in self.records():
            matching[position] = all(
                key in metadata and canonical(metadata[key]) in values
                for key, values in values_of.items()
            )
        if len(self._where) >= 16:
            self._where.clear()
        self._where[where] = matching
        return matching


def open_segment(
    folder: Folder, manifest: Manifest, entry: SegmentEntry, known: Segment | None = None
) -> Segment:
    """The segment that the manifest names, perhaps open already; another file is refused."""
    segment = known or Segment(folder.file(entry.number, "seg"))
    if (segment.pages, segment.checksum) != (entry.pages, entry.checksum):
        raise damaged(segment.path, "it is not the file that the manifest names")
    if (segment.k, segment.dim) != (manifest.codec.get("k"), manifest.dim):
        raise damaged(segment.path, f"its codes are {segment.k} x {segment.dim}")
    if segment.dtype != manifest.codec.get("dtype", BFLOAT16):
        raise damaged(segment.path, f"its codes are stored in {segment.dtype}")
    return segment


def open_images(folder: Folder, entry: SegmentEntry) -> Images | None:
    """The pictures of a segment's pages, if there are any."""
    if entry.images is None:
        return None
    images = Images(folder.file(entry.images, "img"), entry.checksum)
    if images.pages != entry.pages:
        raise damaged(images.path, f"it is of {images.pages} pages, expected {entry.pages}")
    return images


def read_deleted(folder: Folder, entry: SegmentEntry) -> Mask:
    """Which pages of a segment are deleted: as many as the manifest says."""
    deleted = np.zeros(entry.pages, bool)
    if entry.tombstones is not None:
        path = folder.file(entry.tombstones, "del")
        deleted = read_tombstones(path, entry.checksum)
        if (len(deleted), int(deleted.sum())) != (entry.pages, entry.deleted):
            raise damaged(path, "it is not the file that the manifest names")
    return deleted


def open_pq_codes(path: Path, segment: Segment, candidates: CandidatesEntry) -> PQFile:
    """The PQ codes of this segment by this candidate index; others are refused."""
    file = PQFile(path)
    if (file.segment, file.candidates) != (segment.checksum, candidates.checksum):
        raise damaged(path, "it is not of the segment and the candidate index it is named with")
    if (file.pages, file.k) != (segment.pages, segment.k):
        raise damaged(path, f"it is of {file.pages} pages, expected {segment.pages}")
    return file


def read_ivf_pq(
    path: Path, data: npt.NDArray[np.uint8], entry: CandidatesEntry, dim: int | None
) -> IvfPq:
    """The candidate index in a file, if it is the one that the manifest names."""
    if checksum(data) != entry.checksum:
        raise damaged(path, "it is not the candidate index that the manifest names")
    try:
        ivf_pq = IvfPq.from_bytes(data.tobytes(), str(path))
    except InputError as error:
        raise damaged(path, str(error)) from None
    if ivf_pq.dim != dim:
        raise damaged(path, f"it is for vectors of {ivf_pq.dim} numbers")
    return ivf_pq


def distinct(ids: Iterable[str]) -> list[str]:
    """Ids without repetitions; a single string is a mistake."""
    if isinstance(ids, str):
        raise IdError(f"ids: expected a list of ids, found the single string {ids!r}")
    try:
        return list(dict.fromkeys(ids))
    except TypeError as error:
        raise IdError(f"ids: expected a list of strings: {error}") from None
