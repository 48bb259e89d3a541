"""A page's residual as bytes: a set of pairs (anchor, codeword), the most needed first.

A pair is numbered anchor * K + codeword, for K codewords. The bytes are the number of pairs (one
byte below 128, else two) and then the packed set (`kernels.residual.pack_set`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Blobs, Codes
from glie.errors import CorruptIndexError
from glie.kernels.residual import ONE_LAYER, most_bytes, pack_set, unpack_sets

Ints = npt.NDArray[np.int64]


def residual_blob(pairs: Ints, universe: int, first_layer: int) -> bytes:
    """The bytes of a page's pairs, numbers below `universe`."""
    return count_bytes(len(pairs)) + pack_set(pairs, universe, first_layer).tobytes()


class PackedSets(NamedTuple):
    """The packed sets of all pages."""

    data: npt.NDArray[np.uint8]
    starts: Ints  # (P,): where the set of each page starts, behind its count
    ends: Ints
    counts: Ints
    first_layer: int


def packed_sets(codes: Codes, first_layer: int) -> PackedSets:
    """The residuals of all pages."""
    blobs = codes.residual
    assert blobs is not None
    counts, heads = counts_of_blobs(blobs)
    starts = blobs.offsets[:-1] + heads
    return PackedSets(blobs.data, starts, blobs.offsets[1:], counts, first_layer)


def read_pairs(codes: Codes, codewords: int, first_layer: int) -> tuple[Ints, Ints]:
    """The pairs of all pages end to end, and the bounds of each page (P + 1,).

    Raises CorruptIndexError where the bytes are not those of `residual_blob`.
    """
    sets = packed_sets(codes, first_layer)
    universes = np.count_nonzero(codes.counts, axis=1) * codewords
    places = sets.data, sets.starts, sets.ends, sets.counts
    pairs, bounds, taken = unpack_sets(*places, universes, first_layer)
    check_sets(sets, taken)
    return pairs, bounds


def check_sets(sets: PackedSets, taken: Ints) -> None:
    """Raise CorruptIndexError unless each set took all its bytes, and is one (-1: it is not)."""
    if (taken != sets.ends - sets.starts).any():
        raise CorruptIndexError(
            "the residual of a page is not a set of codewords; verify the index"
        )


def most_residual_bytes(k: int, codewords: int, pairs: int, first_layer: int = ONE_LAYER) -> int:
    """The most bytes that `pairs` pairs of k anchors and a codebook of `codewords` take."""
    return len(count_bytes(pairs)) + most_bytes(pairs, k * codewords, first_layer)


def counts_of_blobs(blobs: Blobs) -> tuple[Ints, Ints]:
    """The number at the head of each page's bytes, and how many bytes it takes."""
    if (blobs.lengths < 1).any():
        raise CorruptIndexError("a page has no residual; verify the index")
    first = blobs.data[blobs.offsets[:-1]].astype(np.int64)
    long = first >= 0x80
    second = np.append(blobs.data, 0)[blobs.offsets[:-1] + 1].astype(np.int64)
    return np.where(long, (first & 0x7F) << 8 | second, first), 1 + long.astype(np.int64)


def count_bytes(count: int) -> bytes:
    """A number at the head of a page's bytes."""
    return bytes([count]) if count < 0x80 else bytes([0x80 | count >> 8, count & 0xFF])
