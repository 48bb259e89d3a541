"""Which indexes have a candidate index, and the PQ codes of their segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from glie.candidates.ivf_pq import Floats, IvfPq, sample_for
from glie.codec.codes import Rows
from glie.index.folder import CandidatesEntry, Folder, SegmentEntry
from glie.index.format import Segment, pq_bytes
from glie.kernels.pq import PQCodes
from glie.storage import checksum

CANDIDATE_PAGES = 20_000  # fewer are scanned in about ten milliseconds
REFIT = (
    4  # a candidate index is fitted anew when there are so many times the pages it was fitted for
)
VECTORS_PER_STEP = 65_536  # encoded_segments at a time: 34 MB at D = 128


def fit_ivf_pq(segments: Sequence[Segment], *, seed: int = 0) -> IvfPq:
    """A candidate index for the stored vectors of these segments, at least one, fitted on some of them."""
    vectors = sum(int(np.count_nonzero(segment.stored_counts)) for segment in segments)
    bounds = np.cumsum([0, *(segment.pages for segment in segments)])
    pages = min(int(bounds[-1]), -(-sample_for(vectors) * int(bounds[-1]) // vectors))
    chosen = np.sort(np.random.default_rng(seed).permutation(int(bounds[-1]))[:pages])
    sample = []
    for segment, first, last in zip(segments, bounds, bounds[1:], strict=False):
        rows = chosen[(chosen >= first) & (chosen < last)] - first
        used = segment.stored_counts[rows] > 0
        sample.append(segment.vectors.take(rows).vectors()[used])
    return IvfPq.fit(np.concatenate(sample), vectors, seed=seed)


def encode_segment(segment: Segment, ivf_pq: IvfPq) -> PQCodes:
    """The PQ codes of a segment, made of its codes as they are read back."""
    parts = [ivf_pq.encode(vectors) for vectors in _filled_up(segment)]
    shape = segment.pages, segment.k
    return PQCodes(
        np.concatenate([part.lists for part in parts]).reshape(shape),
        np.concatenate([part.codes for part in parts]).reshape(*shape, -1),
    )


def _filled_up(segment: Segment) -> Iterator[Floats]:
    """All slots, some pages at a time; one that is not used repeats the page's first."""
    step = max(1, VECTORS_PER_STEP // segment.k)
    for at in range(0, segment.pages, step):
        rows: Rows = np.arange(at, min(at + step, segment.pages))
        vectors = segment.vectors.take(rows).vectors()
        used = segment.stored_counts[rows] > 0
        yield np.where(used[..., None], vectors, vectors[:, :1]).reshape(-1, segment.dim)


def with_pq_codes(
    folder: Folder,
    entries: Sequence[SegmentEntry],
    had: CandidatesEntry | None,
    ivf_pq: IvfPq | None,
    take_number: Callable[[], int],
) -> tuple[CandidatesEntry | None, list[SegmentEntry]]:
    """The segments of an index, all with PQ codes if there are enough pages, and the candidate index that
    wrote these: the one it had, unless there is none that can be read or it is outgrown."""
    if ivf_pq is None:
        had, entries = None, [dataclasses.replace(entry, pq_codes=None) for entry in entries]
    live = sum(entry.pages - entry.deleted for entry in entries)
    if live < CANDIDATE_PAGES and all(entry.pq_codes is None for entry in entries):
        return None, list(entries)
    segments = [Segment(folder.file(entry.number, "seg")) for entry in entries]
    if had is None or ivf_pq is None or live >= REFIT * had.pages:
        ivf_pq = fit_ivf_pq(segments)
        data = ivf_pq.to_bytes()
        had = CandidatesEntry(take_number(), checksum(data), live)
        folder.write(had.number, "fnd", data)
        entries = [dataclasses.replace(entry, pq_codes=None) for entry in entries]
    encoded_segments = []
    for entry, segment in zip(entries, segments, strict=True):
        number = entry.pq_codes
        if number is None:
            number = take_number()
            data = pq_bytes(encode_segment(segment, ivf_pq), segment.checksum, had.checksum)
            folder.write(number, "sig", data)
        encoded_segments.append(dataclasses.replace(entry, pq_codes=number))
    return had, encoded_segments
