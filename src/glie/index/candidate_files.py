"""The candidate files of an index: an IVF-PQ (.fnd), and PQ codes for each segment (.sig)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from glie.candidates import build
from glie.candidates.build import StoredVectors, encode_pages, fit_ivf_pq
from glie.candidates.ivf import IvfPq
from glie.errors import CorruptIndexError, IndexFolderError, InputError
from glie.index.folder import CandidatesEntry, Folder, Manifest, SegmentEntry
from glie.index.format import damaged, map_file
from glie.index.segment import Segment
from glie.index.side_files import PQFile, pq_bytes
from glie.kernels.pq import PostingLists, PQCodes, posting_lists
from glie.storage import checksum


class CandidateFiles:
    """The candidate files of one state of an index.

    They are mapped at once, because a writer may replace them later, and checked at first use.
    Everything in them is made from the codes, so damage is no error: `fault` says what is wrong,
    and the index is searched like one without candidates.
    """

    def __init__(
        self,
        folder: Folder,
        manifest: Manifest,
        segments: Sequence[Segment],
        before: CandidateFiles | None = None,
    ) -> None:
        """`before` are the files of an earlier state: what it has read and checked is reused."""
        self.fault: str | None = None
        self.pq_files: list[PQFile] = []
        self._entry, self._dim, self._segments = manifest.candidates, manifest.dim, segments
        if self._entry is None:
            return
        known = {} if before is None else {file.checksum: file for file in before.pq_files}
        self._path = folder.file(self._entry.number, "fnd")
        try:
            self._data = map_file(self._path)
            for segment, named in zip(segments, manifest.segments, strict=True):
                assert named.pq_codes is not None  # Manifest.check refuses others
                file = open_pq_file(folder.file(named.pq_codes, "sig"), segment, self._entry)
                self.pq_files.append(known.get(file.checksum, file))
        except FileNotFoundError as error:
            if Manifest.read(folder.path) != manifest:  # a writer has replaced the file
                raise
            self.fault = str(damaged(Path(str(error.filename)), "the file is missing"))
        except IndexFolderError as error:
            self.fault = str(error)
        if self.fault is not None:
            self.pq_files = []
        elif before is not None and before._entry == self._entry and before._is_checked:
            self._stored = before._stored

    @property
    def _is_checked(self) -> bool:
        """Whether the stored IVF-PQ has been read and found undamaged."""
        return vars(self).get("_stored") is not None

    @functools.cached_property
    def _stored(self) -> IvfPq | None:
        """The stored IVF-PQ, checked the first time; None if there is none or it is damaged."""
        if self._entry is None or self.fault is not None:
            return None
        try:
            return read_ivf_pq(self._path, self._data, self._entry, self._dim)
        except CorruptIndexError as error:
            self.fault = str(error)
            return None

    @functools.cached_property
    def _stored_codes(self) -> list[tuple[PQCodes, PostingLists]] | None:
        """The stored PQ codes and posting lists of each segment, checked the first time."""
        if self._stored is None:
            return None
        lists = self._stored.lists
        try:
            return [(file.pq_codes, file.posting_lists(lists)) for file in self.pq_files]
        except CorruptIndexError as error:
            self.fault = str(error)
            return None

    @property
    def stored_ivf_pq(self) -> IvfPq | None:
        """The stored IVF-PQ, unless one of the candidate files is known to be damaged."""
        return None if self.fault is not None else self._stored

    def complete(self) -> bool:
        """Whether all candidate files are there and undamaged. Reads all of them."""
        return self._stored_codes is not None

    @functools.cached_property
    def ivf_pq(self) -> IvfPq:
        """The stored IVF-PQ; in an index without candidates, one fitted now and kept in memory."""
        if self._stored_codes is not None:
            assert self._stored is not None
            return self._stored
        return fit_ivf_pq([stored_vectors(segment) for segment in self._segments])

    @functools.cached_property
    def encoded(self) -> list[tuple[PQCodes, PostingLists]]:
        """The PQ codes and posting lists of each segment by `ivf_pq`."""
        if self._stored_codes is not None:
            return self._stored_codes
        made = [encode_pages(stored_vectors(segment), self.ivf_pq) for segment in self._segments]
        return [(pq_codes, posting_lists(pq_codes, self.ivf_pq.lists)) for pq_codes in made]

    @property
    def bytes(self) -> int:
        """Size of the candidate files; 0 if they are damaged."""
        if self._entry is None or self.fault is not None:
            return 0
        return len(self._data) + sum(file.bytes for file in self.pq_files)


def stored_vectors(segment: Segment) -> StoredVectors:
    """The arrays of a segment that candidates are made from."""
    return StoredVectors(segment.vectors, segment.stored_counts)


def open_pq_file(path: Path, segment: Segment, candidates: CandidatesEntry) -> PQFile:
    """Open a file of PQ codes; refuse one of another segment or by another IVF-PQ."""
    file = PQFile(path)
    if (file.segment, file.candidates) != (segment.checksum, candidates.checksum):
        raise damaged(path, "it belongs to another segment or another candidate index")
    if (file.pages, file.k) != (segment.pages, segment.k):
        raise damaged(
            path,
            f"it has {file.k} PQ codes for each of {file.pages} pages, expected {segment.k} for "
            f"each of {segment.pages}",
        )
    return file


def read_ivf_pq(
    path: Path, data: npt.NDArray[np.uint8], entry: CandidatesEntry, dim: int | None
) -> IvfPq:
    """The IVF-PQ in a file; refuse another than the manifest names."""
    if checksum(data) != entry.checksum:
        raise damaged(path, "it is not the candidate index that the manifest names")
    try:
        ivf_pq = IvfPq.from_bytes(data.tobytes(), str(path))
    except InputError as error:
        raise damaged(path, str(error)) from None
    if ivf_pq.dim != dim:
        raise damaged(path, f"it is for vectors of {ivf_pq.dim} numbers, expected {dim}")
    return ivf_pq


def write_candidates(
    folder: Folder,
    entries: Sequence[SegmentEntry],
    had: CandidatesEntry | None,
    ivf_pq: IvfPq | None,
    take_number: Callable[[], int],
) -> tuple[CandidatesEntry | None, list[SegmentEntry]]:
    """Write the candidate files that these segments lack, if the index has enough pages or has
    candidates already. `had` and `ivf_pq` are the candidate index so far; it is fitted again if
    it is damaged (None) or outgrown. Returns what the manifest says of all."""
    if ivf_pq is None:
        had, entries = None, [dataclasses.replace(entry, pq_codes=None) for entry in entries]
    live = sum(entry.pages - entry.deleted for entry in entries)
    if not build.candidates_pay(live) and all(entry.pq_codes is None for entry in entries):
        return None, list(entries)
    segments = [Segment(folder.file(entry.number, "seg")) for entry in entries]
    if had is None or ivf_pq is None or build.outgrown(live, had.pages):
        ivf_pq = fit_ivf_pq([stored_vectors(segment) for segment in segments])
        data = ivf_pq.to_bytes()
        had = CandidatesEntry(take_number(), checksum(data), live)
        folder.write(had.number, "fnd", data)
        entries = [dataclasses.replace(entry, pq_codes=None) for entry in entries]
    encoded = []
    for entry, segment in zip(entries, segments, strict=True):
        number = entry.pq_codes
        if number is None:
            number = take_number()
            pq_codes = encode_pages(stored_vectors(segment), ivf_pq)
            folder.write(number, "sig", pq_bytes(pq_codes, segment.checksum, had.checksum))
        encoded.append(dataclasses.replace(entry, pq_codes=number))
    return had, encoded
