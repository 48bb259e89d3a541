"""Which indexes have a finder, and the signatures of their segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from glie.codec.codes import Rows
from glie.finder import Finder, Floats, sample_for
from glie.index.folder import FinderEntry, Folder, SegmentEntry
from glie.index.format import Segment, checksum, signature_bytes
from glie.kernels.signatures import Signatures

FINDER_PAGES = 20_000  # fewer are scanned in about ten milliseconds
REFIT = 4  # a finder is fitted anew when there are so many times the pages it was fitted for
VECTORS_PER_STEP = 65_536  # signed at a time: 34 MB at D = 128


def fit_finder(segments: Sequence[Segment], *, seed: int = 0) -> Finder:
    """A finder for the stored vectors of these segments, at least one, fitted on some of them."""
    vectors = sum(int(np.count_nonzero(segment.stored_counts)) for segment in segments)
    bounds = np.cumsum([0, *(segment.pages for segment in segments)])
    pages = min(int(bounds[-1]), -(-sample_for(vectors) * int(bounds[-1]) // vectors))
    chosen = np.sort(np.random.default_rng(seed).permutation(int(bounds[-1]))[:pages])
    sample = []
    for segment, first, last in zip(segments, bounds, bounds[1:], strict=False):
        rows = chosen[(chosen >= first) & (chosen < last)] - first
        used = segment.stored_counts[rows] > 0
        sample.append(segment.vectors.take(rows).vectors()[used])
    return Finder.fit(np.concatenate(sample), vectors, seed=seed)


def sign(segment: Segment, finder: Finder) -> Signatures:
    """The signatures of a segment, made of its codes as they are read back."""
    parts = [finder.sign(vectors) for vectors in _filled_up(segment)]
    shape = segment.pages, segment.k
    return Signatures(
        np.concatenate([part.cells for part in parts]).reshape(shape),
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


def with_signatures(
    folder: Folder,
    entries: Sequence[SegmentEntry],
    had: FinderEntry | None,
    finder: Finder | None,
    take_number: Callable[[], int],
) -> tuple[FinderEntry | None, list[SegmentEntry]]:
    """The segments of an index, all with signatures if there are enough pages, and the finder that
    wrote these: the one it had, unless there is none that can be read or it is outgrown."""
    if finder is None:
        had, entries = None, [dataclasses.replace(entry, signatures=None) for entry in entries]
    live = sum(entry.pages - entry.deleted for entry in entries)
    if live < FINDER_PAGES and all(entry.signatures is None for entry in entries):
        return None, list(entries)
    segments = [Segment(folder.file(entry.number, "seg")) for entry in entries]
    if had is None or finder is None or live >= REFIT * had.pages:
        finder = fit_finder(segments)
        data = finder.to_bytes()
        had = FinderEntry(take_number(), checksum(data), live)
        folder.write(had.number, "fnd", data)
        entries = [dataclasses.replace(entry, signatures=None) for entry in entries]
    signed = []
    for entry, segment in zip(entries, segments, strict=True):
        number = entry.signatures
        if number is None:
            number = take_number()
            data = signature_bytes(sign(segment, finder), segment.checksum, had.checksum)
            folder.write(number, "sig", data)
        signed.append(dataclasses.replace(entry, signatures=number))
    return had, signed
