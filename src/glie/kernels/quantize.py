"""Scalar quantisation: each number of a stored vector in bfloat16, or in 8, 4, 2 or 1 bits.

Only this module knows the types; the rest of the code packs, unpacks and scans rows of bytes.

A unit vector is rotated first, so that its numbers are distributed like draws from a Gaussian for
any encoder. Then each number falls into one of 2^b intervals of equal width, numbered from 0, and
interval i stands for the odd integer 2i - (2^b - 1). To unpack, that row of odd integers is rotated
back and normalised. No scale is stored, so a writer may choose the width for each vector.

The mean squared error |x - unpack(pack(x))|^2 of unit Gaussian vectors at D = 128 is 0.40 in 1
bit, 0.12 in 2, 0.010 in 4 and 0.00005 in 8; that of bfloat16 is 0.000003. Packing an unpacked
vector may give other bytes: pack once, and keep the packed rows.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.kmeans import Draws

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

BFLOAT16 = "bf16"
BITS = {"int8": 8, "int4": 4, "int2": 2, "int1": 1}  # of a number
DTYPES = (BFLOAT16, *BITS)
# The best width of an interval for a Gaussian of variance 1 ...
WIDTHS = {8: 0.0308, 4: 0.3352, 2: 0.9957, 1: 1.0}
# ... and the shares of it tried for each vector: the error falls by 9% in 4 bits, a third in 8.
SHARES = (0.8, 0.9, 1.0, 1.12, 1.25)


class Packed(NamedTuple):
    """Stored vectors, with the type and D needed to unpack them."""

    rows: Bytes  # (..., B)
    dtype: str
    dim: int

    @classmethod
    def of(cls, vectors: Floats, dtype: str) -> Packed:
        return cls(pack(vectors, dtype), dtype, vectors.shape[-1])

    def take(self, rows: npt.NDArray[Any]) -> Packed:
        return self._replace(rows=self.rows[rows])

    def vectors(self) -> Floats:
        """The unpacked vectors, (..., D)."""
        return unpack(self.rows, self.dtype, self.dim)


def row_bytes(dim: int, dtype: str) -> int:
    """B, the bytes of a stored vector."""
    return 2 * dim if dtype == BFLOAT16 else -(-dim * BITS[dtype] // 8)


def pack(vectors: Floats, dtype: str) -> Bytes:
    """Vectors (..., D) as rows of bytes (..., B). All types but bfloat16 keep only the
    direction."""
    if dtype == BFLOAT16:
        bits = np.ascontiguousarray(vectors, dtype=np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
        return rounded.astype("<u2").view(np.uint8)
    bits_each = BITS[dtype]
    levels = _in_bytes(_levels(vectors, bits_each), bits_each)
    packed: Bytes = np.bitwise_or.reduce(levels << _shifts(bits_each), axis=-1)
    return packed


def unpack(packed: Bytes, dtype: str, dim: int) -> Floats:
    """The vectors (..., D) that rows of bytes (..., B) stand for."""
    if dtype == BFLOAT16:
        halves = np.ascontiguousarray(packed).view("<u2")
        return (halves.astype(np.uint32) << 16).view(np.float32)
    odd = odd_integers(packed, dtype, dim)
    return unrotate(odd / _length(odd))


def odd_integers(packed: Bytes, dtype: str, dim: int) -> Floats:
    """The odd integers (..., D) in rows of bytes (..., B): the stored directions, rotated."""
    numbers = np.take(_of_each_byte(BITS[dtype]), packed, axis=0)
    *shape, size, each = numbers.shape
    return np.asarray(numbers.reshape(*shape, size * each)[..., :dim])


def rotate(vectors: Floats) -> Floats:
    """A fixed rotation of (..., D) that mixes every number with all others.

    It changes fixed signs, then applies a Walsh-Hadamard transform to blocks of the largest power
    of two that divides D. Several blocks are interleaved and transformed again.
    """
    signs, block = _signs(vectors.shape[-1]), _block(vectors.shape[-1])
    mixed = _hadamard(vectors * signs, block)
    if block >= vectors.shape[-1]:
        return mixed
    apart = _in_blocks(mixed, block)
    return _hadamard(apart.swapaxes(-1, -2).reshape(vectors.shape) * signs, block)


def unrotate(rotated: Floats) -> Floats:
    """The inverse of `rotate`; the transform of a block is its own inverse."""
    signs, block = _signs(rotated.shape[-1]), _block(rotated.shape[-1])
    mixed = _hadamard(rotated, block) * signs
    if block >= rotated.shape[-1]:
        return mixed
    together = _in_blocks(mixed, rotated.shape[-1] // block)
    return _hadamard(together.swapaxes(-1, -2).reshape(rotated.shape), block) * signs


def rotation(dim: int) -> tuple[Floats, int]:
    """The signs (D,) and the size of a block of `rotate`."""
    return _signs(dim), _block(dim)


def scan_order(vectors: Floats, dtype: str) -> Floats:
    """Query vectors (n, D) prepared for a scan of packed rows: rotated, which changes no inner
    product, in the order in which the scan unpacks a row: first the lowest bits of every byte, then
    the next. The scan reads 16 bytes at a time; zeros stand for the numbers that pad a row."""
    numbers = _in_bytes(rotate(vectors), BITS[dtype], together=16)
    count, size, each = numbers.shape
    return np.ascontiguousarray(numbers.swapaxes(1, 2)).reshape(count, size * each)


def _levels(vectors: Floats, bits: int) -> Bytes:
    """The interval (..., D) of each number, at the width that keeps a vector's direction best."""
    scaled = rotate(vectors) * np.float32(math.sqrt(vectors.shape[-1]))
    top = 2**bits - 1
    best = np.full((*vectors.shape[:-1], 1), -np.inf, np.float32)
    kept = np.zeros(vectors.shape, np.uint8)
    for share in SHARES:
        levels = np.floor(scaled / np.float32(WIDTHS[bits] * share)) + 2 ** (bits - 1)
        levels = levels.clip(0, top)
        odd = 2 * levels - top
        nearness = (odd * scaled).sum(-1, keepdims=True) / _length(odd)
        better = nearness > best
        best = np.where(better, nearness, best)
        kept = np.where(better, levels.astype(np.uint8), kept)
    return kept


def _length(vectors: Floats) -> Floats:
    lengths: Floats = np.sqrt((vectors * vectors).sum(-1, keepdims=True))
    return lengths


def _in_bytes(numbers: npt.NDArray[Any], bits: int, together: int = 1) -> npt.NDArray[Any]:
    """Numbers (..., D) grouped by the byte that holds them, (..., B, 8 / bits), padded with 0 to a
    multiple of `together` bytes."""
    each = 8 // bits
    filling = -numbers.shape[-1] % (each * together)
    filled = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, filling)])
    return _in_blocks(filled, each)


def _in_blocks(numbers: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """(..., D) as (..., D / size, size); also for empty arrays."""
    return numbers.reshape(*numbers.shape[:-1], numbers.shape[-1] // size, size)


def _shifts(bits: int) -> Bytes:
    """The first bit of each number in a byte, the first number lowest."""
    return np.arange(0, 8, bits, dtype=np.uint8)


@functools.cache
def _of_each_byte(bits: int) -> Floats:
    """The odd integers in each of the 256 bytes, (256, 8 / bits)."""
    top = 2**bits - 1
    levels = (np.arange(256, dtype=np.uint8)[:, None] >> _shifts(bits)) & np.uint8(top)
    odd: Floats = 2 * levels.astype(np.float32) - top
    return odd


def _block(dim: int) -> int:
    """The largest power of two that divides D."""
    return max(dim & -dim, 1)


@functools.cache
def _signs(dim: int) -> Floats:
    draws = Draws(0)
    return np.array([1 if draws.uniform() < 0.5 else -1 for _ in range(dim)], np.float32)


def _hadamard(vectors: Floats, block: int) -> Floats:
    """The orthonormal Walsh-Hadamard transform of each block of (..., D)."""
    mixed = _in_blocks(vectors, block)
    half = block // 2
    for _ in range(block.bit_length() - 1):
        # sums and differences over the highest bit of the position, which becomes the lowest:
        # after one pass for each bit, every bit is back in its place
        last = mixed
        mixed = np.empty_like(last)
        np.add(last[..., :half], last[..., half:], out=mixed[..., 0::2])
        np.subtract(last[..., :half], last[..., half:], out=mixed[..., 1::2])
    return (mixed * np.float32(block**-0.5)).reshape(vectors.shape)
