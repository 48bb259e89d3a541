"""Pages and Queries: ragged sets of unit vectors, packed end to end, validated here, once.

Everything downstream may rely on it: float32, two-dimensional, one dimension D, finite, every
row of unit norm, no page without rows, ids unique.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from glie.errors import IdError, VectorError

Floats = npt.NDArray[np.float32]

# Real encoders write float16 or bfloat16, whose rounding leaves norms of 0.996 to 1.004.
NORM_TOLERANCE = 0.01
MAX_ID = 10_000  # characters: longer than any path, short enough for a message


def to_numpy(array: Any) -> npt.NDArray[Any]:
    """A numpy array of what numpy, torch (any device, bfloat16 included) or a list holds."""
    if hasattr(array, "detach"):  # a torch tensor, recognised without importing torch
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":  # numpy has no such type
            array = array.float()
        return np.asarray(array.numpy())
    return np.asarray(array)


class VectorSets:
    """Packed unit vectors: rows offsets[i]..offsets[i + 1] of `vectors` belong to item i."""

    kind: ClassVar[str] = "item"

    vectors: Floats
    offsets: npt.NDArray[np.int64]
    ids: list[str]

    def __init__(
        self,
        arrays: Iterable[Any],
        ids: Sequence[str] | None = None,
        *,
        normalize: bool = False,
    ) -> None:
        scalar = getattr(arrays, "ndim", None) == 0
        if isinstance(arrays, (str, bytes, dict)) or not isinstance(arrays, Iterable) or scalar:
            raise VectorError(
                f"{self.kind} vectors: expected a list of (n, D) arrays, found "
                f"{type(arrays).__name__}"
            )
        sources = list(arrays)
        self.ids = _checked_ids(ids, len(sources), self.kind)
        blocks = [
            checked_block(source, f"{self.kind} {name!r}")
            for source, name in zip(sources, self.ids, strict=True)
        ]
        for block, name in zip(blocks, self.ids, strict=True):
            if block.shape[1] != blocks[0].shape[1]:
                raise VectorError(
                    f"{self.kind} {name!r}: its vectors have {block.shape[1]} numbers, those of "
                    f"{self.kind} {self.ids[0]!r} have {blocks[0].shape[1]}; all must agree"
                )
        self.offsets = np.cumsum([0] + [len(block) for block in blocks], dtype=np.int64)
        dim = blocks[0].shape[1] if blocks else 0
        self.vectors = np.empty((int(self.offsets[-1]), dim), dtype=np.float32)
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite: see below
            for block, (start, stop) in zip(blocks, pairwise(self.offsets), strict=True):
                self.vectors[start:stop] = block
        self._put_on_sphere(normalize)

    @classmethod
    def from_padded(
        cls,
        array: Any,
        mask: Any,
        ids: Sequence[str] | None = None,
        *,
        normalize: bool = False,
    ) -> Self:
        """From a (P, N, D) array and a (P, N) mask that is true, or 1, on the real rows."""
        padded, keep = _converted(array, "padded array"), _converted(mask, "mask")
        if padded.ndim != 3 or keep.shape != padded.shape[:2]:
            raise VectorError(
                f"padded {cls.kind} vectors: expected a (P, N, D) array and a (P, N) mask, found "
                f"{padded.shape} and {keep.shape}"
            )
        if keep.dtype != np.bool_ and not np.isin(keep, (0, 1)).all():
            raise VectorError(f"mask: expected booleans or 0 and 1, found {keep.dtype} values")
        keep = keep.astype(bool)
        rows = (page[kept] for page, kept in zip(padded, keep, strict=True))
        return cls(rows, ids, normalize=normalize)

    def _put_on_sphere(self, normalize: bool) -> None:
        # Finite first: a norm of infinity or nan would be reported as the wrong fault. The sum
        # is taken in float64, so that the norm of a large but finite row does not overflow.
        norms = np.sqrt(np.einsum("ij,ij->i", self.vectors, self.vectors, dtype=np.float64))
        bad = np.flatnonzero(~np.isfinite(norms))
        if bad.size:
            raise VectorError(f"{self._place(bad[0])}: not finite (NaN or infinity)")
        if normalize:
            bad = np.flatnonzero(norms == 0)
            if bad.size:
                raise VectorError(f"{self._place(bad[0])}: a zero vector has no direction")
        else:
            bad = np.flatnonzero(np.abs(norms - 1) > NORM_TOLERANCE)
            if bad.size:
                raise VectorError(
                    f"{self._place(bad[0])}: norm {norms[bad[0]]:.4g}, expected 1 within "
                    f"{NORM_TOLERANCE:.0%}; pass normalize=True to project onto the unit sphere"
                )
        np.divide(self.vectors, norms[:, None], out=self.vectors, casting="same_kind")

    def _place(self, row: int) -> str:
        item = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return f"{self.kind} {self.ids[item]!r}, row {row - int(self.offsets[item])}"

    @property
    def dim(self) -> int:
        """D, the length of every vector (0 when there are no items)."""
        return int(self.vectors.shape[1])

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many vectors each item has."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Floats]:
        for start, stop in pairwise(self.offsets):
            yield self.vectors[start:stop]

    def __getitem__(self, item: int) -> Floats:
        size = len(self)
        if not -size <= item < size:
            raise IndexError(f"{self.kind} {item} of {size}")
        item %= size
        return self.vectors[self.offsets[item] : self.offsets[item + 1]]

    @classmethod
    def packed(cls, vectors: Floats, offsets: npt.NDArray[np.int64], ids: Sequence[str]) -> Self:
        """From arrays that are known to be right: they are taken as they are, unchecked."""
        sets = object.__new__(cls)
        sets.vectors, sets.offsets, sets.ids = vectors, offsets, list(ids)
        return sets

    @classmethod
    def restored(
        cls, vectors: npt.NDArray[Any], offsets: npt.NDArray[np.int64], ids: Sequence[str]
    ) -> Self:
        """From unit vectors that were stored in fewer bits: they are put back on the sphere."""
        sets = cls.packed(vectors.astype(np.float32), offsets, ids)
        sets._put_on_sphere(normalize=False)
        return sets

    def slice(self, first: int, last: int) -> Self:
        """The items first..last as a view, without validating again."""
        rows = self.offsets[first : last + 1]
        return self.packed(self.vectors[rows[0] : rows[-1]], rows - rows[0], self.ids[first:last])

    def take(self, rows: npt.NDArray[np.int64]) -> Self:
        """Some of the items, in this order, without validating again."""
        offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])])
        vectors = np.empty((int(offsets[-1]), self.dim), np.float32)
        for row, start, stop in zip(rows, offsets, offsets[1:], strict=False):
            vectors[start:stop] = self[int(row)]
        return self.packed(vectors, offsets, [self.ids[row] for row in rows])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {len(self.vectors)} x {self.dim} vectors)"


class Pages(VectorSets):
    """One (n_i, D) array of unit vectors a page, with ids: what an encoder gives for pages.

    >>> pages = Pages([[[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8]]], ids=["a.pdf#1", "a.pdf#2"])
    >>> len(pages), pages.dim, pages.lengths.tolist()
    (2, 2, [2, 1])
    """

    kind = "page"


class Queries(VectorSets):
    """One (m_i, D) array of unit vectors a query."""

    kind = "query"

    @classmethod
    def of(cls, queries: Any, *, normalize: bool = False) -> Queries:
        """Queries as they are, or made of a list of (m, D) arrays; one array is one query."""
        if isinstance(queries, Queries):
            return queries
        if getattr(queries, "ndim", None) == 2:
            queries = [queries]
        return cls(queries, normalize=normalize)

    def without_last(self) -> Queries:
        """The same with 0 in the last dimension. Where pages have 0 there, this changes no score;
        where they are stored in a few bits, it leaves out the rounding error of that dimension."""
        vectors = self.vectors.copy()
        vectors[:, -1] = 0
        return self.packed(vectors, self.offsets, self.ids)


def _checked_ids(ids: Sequence[str] | None, count: int, kind: str) -> list[str]:
    if ids is None:
        return [str(i) for i in range(count)]
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise IdError(f"ids: expected a list of strings, found {ids!r}")
    names = list(ids)
    if len(names) != count:
        raise IdError(f"ids: found {len(names)} ids for {count} {kind} arrays; expected one each")
    seen: set[str] = set()
    for i, name in enumerate(names):
        check_id(name, f"id of {kind} {i}")
        if name in seen:
            raise IdError(f"ids: {name!r} is given twice, the second time at {kind} {i}")
        seen.add(name)
    return names


def check_id(name: object, what: str) -> None:
    """An id is a string that has characters, not too many, and can be written as UTF-8."""
    if not isinstance(name, str) or not name:
        raise IdError(f"{what}: expected a non-empty string, found {name!r}")
    if len(name) > MAX_ID:
        raise IdError(
            f"{what}: {len(name):,} characters ({name!r:.40}...), at most {MAX_ID:,} are stored"
        )
    if not is_unicode(name):
        raise IdError(f"{what}: {name!r} is not valid Unicode (a lone surrogate)")


def is_unicode(text: str) -> bool:
    """Whether it can be written as UTF-8: half of a letter, a lone surrogate, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _converted(source: Any, what: str) -> npt.NDArray[Any]:
    """A numpy array of anything, or an error that names it: each library refuses in its own way
    (ragged lists, tensors that live nowhere, objects)."""
    if hasattr(source, "mask") and isinstance(source, np.ma.MaskedArray):  # np.ma loads slowly
        raise VectorError(f"{what}: a masked array; pass its data and mask to from_padded")
    try:
        return to_numpy(source)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise VectorError(f"{what}: cannot be read as an array of numbers: {reason}") from None


def checked_block(source: Any, what: str) -> npt.NDArray[Any]:
    """An (n, D) array of numbers with at least one row, of any type; or an error that names it."""
    block = _converted(source, what)
    if block.ndim != 2:
        raise VectorError(f"{what}: expected an (n, D) array, found shape {block.shape}")
    # ml_dtypes' bfloat16 and its kin register with kind "V", yet convert like any float
    if block.dtype.kind not in "fiu" and block.dtype.name != "bfloat16":
        raise VectorError(f"{what}: expected numbers, found {block.dtype}")
    if block.shape[0] == 0 or block.shape[1] == 0:
        raise VectorError(f"{what}: no vectors (shape {block.shape}); expected at least one")
    return block
