"""A table of coordinates: in which directions the vectors of an encoder differ, and by how much.

A vector is written as a share of its nearest anchor and, along each direction, a number in few
bits. Directions are the principal ones; the most varied get the most bits. This is transform
coding: where vectors do not recur from page to page, so that no codeword fits them, it still knows
which differences matter. The numbers of a vector are coded together, by a trellis
(`kernels/trellis.py`). The table is small: half a byte a number.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.codec.readout import scalar
from glie.codec.readout.tables import has_form, table_bytes, table_of
from glie.identity import EncoderId
from glie.kernels import trellis
from glie.kernels.quantize import pack, row_bytes, unpack
from glie.storage import digest

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]

DIRECTION_TYPE = "int4"  # of a stored direction
MOST_DIRECTIONS = 192
MAX_DIM = 1 << 16
# In the first format coordinates are rounded one by one (`scalar.py`), in the second by a trellis.
FORMATS = {False: "glie-coordinates-1", True: "glie-coordinates-2"}
TENSORS = ("directions", "spreads", "gains", "centres")
# Bits a vector, by format: the first, or more where all vectors of a page fit.
RATES = {False: (96, 128, 192, 256), True: (64, 96, 128, 192, 256)}


@dataclasses.dataclass(frozen=True, eq=False)
class Coordinates:
    """vector = normalise(share * anchor + sum of coordinate i * direction i), where coordinate i =
    centre i + gain i * <anchor, direction i> + what is stored."""

    directions: Bits  # (R, ...) of unit length, packed as DIRECTION_TYPE
    spreads: npt.NDArray[np.float16]  # (R,), the standard deviation of what is stored
    gains: npt.NDArray[np.float16]  # (R,)
    centres: npt.NDArray[np.float16]  # (R,)
    dim: int
    share: float
    by_trellis: bool = True  # False: of the first format
    encoder: EncoderId | None = None
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for people to read
    _plans: dict[int, trellis.Plan] = dataclasses.field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.spreads)

    @property
    def rates(self) -> tuple[int, ...]:
        """The bits that a vector may have."""
        return RATES[self.by_trellis]

    @functools.cached_property
    def basis(self) -> Floats:
        """The directions (R, D), at right angles again: few bits tilt them a little."""
        rows = unpack(self.directions, DIRECTION_TYPE, self.dim).astype(np.float64)
        q, r = np.linalg.qr(rows.T)
        return np.ascontiguousarray((q * np.where(np.diagonal(r) < 0, -1, 1)).T, dtype=np.float32)

    @classmethod
    def fit(
        cls, vectors: Floats, anchors: Floats, most: int, rate: int, **settings: Any
    ) -> Coordinates:
        """Fit at most `most` directions to vectors, each with its anchor; only those that get a bit
        at `rate` bits a vector."""
        share = float((vectors * anchors).sum() / (anchors * anchors).sum())
        centred = vectors - vectors.mean(axis=0)
        variances, columns = np.linalg.eigh((centred.T @ centred).astype(np.float64))
        best = np.argsort(-variances, kind="stable")[:most]
        table = cls._of(columns[:, best].T, vectors, anchors, share, settings)
        useful = np.sort(table._plan(rate).columns)
        return cls._of(columns[:, best[useful]].T, vectors, anchors, share, settings)

    @classmethod
    def _of(
        cls,
        rows: npt.NDArray[np.float64],
        vectors: Floats,
        anchors: Floats,
        share: float,
        settings: Mapping[str, Any],
    ) -> Coordinates:
        none = np.zeros(len(rows), np.float16)
        packed = pack(rows.astype(np.float32), DIRECTION_TYPE)
        table = cls(packed, none, none, none, vectors.shape[1], share, **settings)
        at = anchors @ table.basis.T
        missing = vectors @ table.basis.T - np.float32(share) * at
        centred = at - at.mean(axis=0)
        gains = (missing * centred).sum(axis=0) / np.maximum((centred**2).sum(axis=0), 1e-9)
        left = missing - gains * at
        return dataclasses.replace(
            table,
            spreads=left.std(axis=0).astype(np.float16),
            gains=gains.astype(np.float16),
            centres=left.mean(axis=0).astype(np.float16),
        )

    @functools.cached_property
    def _variances(self) -> npt.NDArray[np.float64]:
        return self.spreads.astype(np.float64) ** 2

    @functools.cached_property
    def _scales(self) -> Floats:
        return np.maximum(self.spreads.astype(np.float32), np.float32(1e-6))

    def _plan(self, rate: int) -> trellis.Plan:
        if rate not in self._plans:
            self._plans[rate] = trellis.plan_for(self._variances, rate)
        return self._plans[rate]

    def to_bits(self, vectors: Floats, anchors: Floats, rate: int) -> Bits:
        """The stored bits of vectors (n, D), each with its anchor: (n, width), one bit a byte."""
        # in float64, where the order of sums, which depends on the batch, hardly ever shows
        at = vectors.astype(np.float64) @ self.basis.T.astype(np.float64)
        numbers = ((at - self._foreseen(anchors)) / self._scales).astype(np.float32)
        if not self.by_trellis:
            return scalar.to_bits(numbers, scalar.bits_for(self._variances, rate))
        return trellis.to_bits(numbers, self._variances.astype(np.float32), self._plan(rate))

    def from_bits(self, stored: Bits, anchors: Floats, rate: int) -> Floats:
        """The unit vectors that such bits and anchors stand for."""
        if self.by_trellis:
            numbers = trellis.from_bits(stored, self._plan(rate), len(self))
        else:
            numbers = scalar.from_bits(stored, scalar.bits_for(self._variances, rate))
        at = anchors @ self.basis.T
        found = self.gains.astype(np.float32) * at + self.centres.astype(np.float32)
        found += numbers * self.spreads.astype(np.float32)
        made = np.float32(self.share) * anchors + found @ self.basis
        lengths: Floats = np.linalg.norm(made, axis=1, keepdims=True)
        return np.divide(made, np.maximum(lengths, np.float32(1e-6)))

    def width(self, rate: int) -> int:
        """The bits of a vector at a rate."""
        if self.by_trellis:
            return self._plan(rate).bits
        return int(scalar.bits_for(self._variances, rate).sum())

    def _foreseen(self, anchors: Floats) -> npt.NDArray[np.float64]:
        """The coordinates that the anchors let expect."""
        at = anchors.astype(np.float64) @ self.basis.T.astype(np.float64)
        return (self.share + self.gains) * at + self.centres

    def fits(self, vectors: Floats, anchors: Floats) -> bool:
        """Whether vectors, each with its anchor, are spread about as those that it was fitted
        to."""
        stored = vectors @ self.basis.T - self._foreseen(anchors)
        expected = float((self.spreads.astype(np.float64) ** 2).sum())
        return 0.5 < float((stored.astype(np.float64) ** 2).sum(axis=1).mean()) / expected < 2

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the content, by which settings name the table."""
        return digest(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The file of the table."""
        settings = {name: getattr(self, name) for name in ("dim", "share", "encoder")}
        tensors = {name: getattr(self, name) for name in TENSORS}
        return table_bytes(
            FORMATS[self.by_trellis], tensors, {**settings, "notes": dict(self.notes)}
        )

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> Coordinates:
        """The table of such a file; `place` is what an error names."""

        by_trellis = not has_form(data, FORMATS[False])

        def made(tensors: Mapping[str, Any], settings: dict[str, Any]) -> Coordinates:
            table = cls(**tensors, **settings, by_trellis=by_trellis)
            table._check()
            return table

        return table_of(data, FORMATS[by_trellis], "a table of coordinates", place, made)

    def _check(self) -> None:
        """Raise ValueError unless all parts fit together."""
        count, dim = len(self.spreads), self.dim
        if type(dim) is not int or not 0 < dim <= MAX_DIM:
            raise ValueError(f"dim {dim!r}")
        if type(self.share) is not float or not 0 <= self.share <= 2:
            raise ValueError(f"share {self.share!r}")
        if not 0 < count <= min(dim, MOST_DIRECTIONS):
            raise ValueError(f"{count} directions of {dim} numbers")
        for name in TENSORS:
            array = getattr(self, name)
            packed = name == "directions"
            kind: np.dtype[Any] = np.dtype(np.uint8 if packed else np.float16)
            shape = (count, row_bytes(dim, DIRECTION_TYPE)) if packed else (count,)
            if array.dtype != kind or array.shape != shape:
                raise ValueError(f"{name}: {array.dtype} {array.shape}, expected {kind} {shape}")
            if not packed and not np.isfinite(array).all():
                raise ValueError(f"{name}: not finite")
