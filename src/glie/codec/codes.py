"""Codes: compressed pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from glie.codec.sizes import count_bytes, counts_of, norm_bytes, norms_of
from glie.kernels.quantize import BFLOAT16, Packed
from glie.renamed import renamed

Rows = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Blobs:
    """Byte strings end to end, one a page: that of page p is data[offsets[p] : offsets[p + 1]]."""

    data: npt.NDArray[np.uint8]  # (n,)
    offsets: npt.NDArray[np.int64]  # (P + 1,), from 0 to n

    @classmethod
    def of(cls, blobs: Sequence[bytes]) -> Blobs:
        lengths = np.array([len(blob) for blob in blobs], np.int64)
        return cls.by_lengths(np.frombuffer(b"".join(blobs), np.uint8), lengths)

    @classmethod
    def by_lengths(cls, data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> Blobs:
        return cls(data, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, page: int) -> npt.NDArray[np.uint8]:
        return self.data[self.offsets[page] : self.offsets[page + 1]]

    def __iter__(self) -> Iterator[npt.NDArray[np.uint8]]:
        return (self.data[start:end] for start, end in pairwise(self.offsets))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)

    def take(self, rows: Rows) -> Blobs:
        """The bytes of some of the pages."""
        starts, ends = self.offsets[:-1][rows], self.offsets[1:][rows]
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        mine = [self.data[start:end] for start, end in bounds]
        return Blobs.by_lengths(_end_to_end(mine), ends - starts)

    @staticmethod
    def joined(parts: Sequence[Blobs]) -> Blobs:
        """Several sets of pages end to end."""
        lengths = [part.lengths for part in parts]
        data = _end_to_end([part.data for part in parts])
        return Blobs.by_lengths(data, np.concatenate([np.empty(0, np.int64), *lengths]))


def _end_to_end(arrays: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    return np.concatenate([np.empty(0, np.uint8), *arrays])


@dataclasses.dataclass(frozen=True)
class Codes:
    """k vectors, norms and counts a page, clusters in order of size.

    A page with fewer than k distinct vectors has fewer clusters. The unused slots behind them hold
    zeros and have a count of 0.
    """

    vectors: npt.NDArray[np.float32]  # (P, k, D), on the unit sphere
    norms: npt.NDArray[np.float16]  # (P, k): length of the centroid before projection
    counts: npt.NDArray[np.uint16]  # (P, k): vectors of the cluster
    ids: Sequence[str]
    packed: Packed | None = None  # the bytes of `vectors`, once they are packed
    residual: Blobs | None = None  # what the read-out keeps beside the anchors

    evidence = renamed("evidence", "residual")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def k(self) -> int:
        return int(self.counts.shape[1])

    @property
    def dim(self) -> int:
        return self.vectors.shape[2] if self.packed is None else self.packed.dim

    @classmethod
    def read(
        cls,
        packed: Packed,
        norms: npt.NDArray[np.float16],
        counts: npt.NDArray[np.uint16],
        ids: Sequence[str],
        residual: Blobs | None = None,
    ) -> Codes:
        """Codes of stored bytes; their vectors are unpacked when they are asked for."""
        codes = cls.__new__(cls)
        fields = {"norms": norms, "counts": counts, "ids": ids, "packed": packed}
        codes.__dict__.update(fields, residual=residual)
        return codes

    def __getattr__(self, name: str) -> npt.NDArray[np.float32]:
        """The vectors of codes that were read, the first time."""
        if name != "vectors" or self.packed is None:
            raise AttributeError(name)
        vectors = self.packed.vectors()
        vectors[self.counts == 0] = 0  # a few bits cannot hold a zero vector
        self.__dict__["vectors"] = vectors
        return vectors

    @property
    def stored(self) -> Packed:
        """The vectors as bytes; in bfloat16 unless they were packed in another type."""
        return self.packed or Packed.of(self.vectors, BFLOAT16)

    def take(self, rows: Rows) -> Codes:
        """The codes of some of the pages."""
        ids = [self.ids[r] for r in rows]
        packed = None if self.packed is None else self.packed.take(rows)
        residual = None if self.residual is None else self.residual.take(rows)
        if packed is not None and "vectors" not in self.__dict__:
            return Codes.read(packed, self.norms[rows], self.counts[rows], ids, residual)
        some = self.vectors[rows], self.norms[rows], self.counts[rows]
        return Codes(*some, ids, packed, residual)


def stored_as(codes: Codes, dtype: str, *, exact: bool) -> Codes:
    """Codes to be stored in a type: rounded now to a few bits; to bfloat16 when written."""
    return codes if dtype == BFLOAT16 else quantised(codes, dtype, exact=exact)


def quantised(codes: Codes, dtype: str, *, exact: bool) -> Codes:
    """Codes rounded as storing each number in a few bits does. `exact` keeps norms and exact
    counts; else no norm is kept, and counts are rounded."""
    used = codes.counts > 0
    packed = Packed.of(codes.vectors, dtype)
    packed.rows[~used] = 0
    return Codes.read(
        packed,
        norms_of(norm_bytes(codes.norms)) if exact else used.astype(np.float16),
        codes.counts if exact else counts_of(count_bytes(codes.counts)),
        codes.ids,
        codes.residual,
    )


def used_rows(
    counts: npt.NDArray[np.unsignedinteger], pages: Rows | None = None
) -> tuple[Rows, Rows]:
    """First and last row of each page in the codes seen as one (P * k, D) array; `pages` selects
    some pages, ascending and distinct."""
    if pages is None:
        pages = np.arange(len(counts))
    elif len(pages) < len(counts):
        counts = counts[pages]
    starts = pages * counts.shape[1]
    ends = starts.copy()
    for slot in counts.T:  # all pages at once: numpy is slow along a short axis
        ends += slot != 0
    return starts, ends
