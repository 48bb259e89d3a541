"""Evidence: a set of codewords a page, which say where its vectors are around its anchors.

A pair is anchor * K + codeword and stands for the unit vector of anchor_share * anchor +
codeword_share * codeword. A page keeps the pairs that its vectors need most, at most so many. Pages of
any length keep as many: a set that grew with the page would give long pages more chances to score
by accident.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Blobs, Codes
from glie.codec.readout.codebook import Codebook, residuals
from glie.errors import CorruptIndexError
from glie.kernels.residual import (
    most_bytes,
    most_needed,
    pack_set,
    reconstruct,
    unpack_sets,
)
from glie.pages import Pages

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def residual_codes(
    pages: Pages, codes: Codes, book: Codebook, pairs: int, weights: Floats | None = None
) -> Blobs:
    """The residual of every page: at most `pairs` pairs. `weights`: how much each vector of the
    pages counts, if not all alike."""
    weights = np.ones(len(pages.vectors), np.float32) if weights is None else weights
    rest, slots = residuals(pages, codes, book.anchor_share)
    found = slots * len(book) + book.nearest(rest)
    blobs = []
    for page, rows in enumerate(pages):
        mine = slice(pages.offsets[page], pages.offsets[page + 1])
        anchors = codes.vectors[page, : np.count_nonzero(codes.counts[page])]
        blobs.append(_blob(rows, weights[mine], found[mine], anchors, book, pairs))
    return Blobs.of(blobs)


def _blob(
    rows: Floats, weights: Floats, found: Ints, anchors: Floats, book: Codebook, pairs: int
) -> bytes:
    distinct = np.unique(found)
    used = np.array([len(anchors)])
    bounds = np.array([0, len(distinct)])
    members, _ = reconstruct(anchors[None], used, book.codewords, book.shares, distinct, bounds)
    weighed: Floats = np.multiply(rows, weights[:, None])
    chosen = most_needed(weighed @ members.T, len(anchors))[:pairs] - len(anchors)
    return residual_blob(distinct[chosen], len(anchors) * len(book))


def residual_blob(pairs: Ints, universe: int) -> bytes:
    """A page's residual: its pairs, the most needed first."""
    return _count_bytes(len(pairs)) + pack_set(pairs, universe).tobytes()


def read_residual_codes(codes: Codes, book: Codebook) -> tuple[Ints, Ints]:
    """The pairs of all pages, end to end, and where those of each begin (P + 1,); raises
    CorruptIndexError unless the residual is that of `residual_codes`."""
    blobs = codes.residual
    assert blobs is not None
    counts, heads = _counts(blobs)
    used = np.count_nonzero(codes.counts, axis=1)
    pairs, bounds, taken = unpack_sets(
        blobs.data, blobs.offsets[:-1] + heads, blobs.offsets[1:], counts, used * len(book)
    )
    if (taken < 0).any() or (heads + taken != blobs.lengths).any():
        raise CorruptIndexError(
            "the residual of a page is not a set of codewords; verify the index"
        )
    return pairs, bounds


def reconstructed(codes: Codes, book: Codebook) -> Pages:
    """The set that is scored: the anchors of every page, then the vectors of its pairs."""
    used = np.count_nonzero(codes.counts, axis=1)
    members = read_residual_codes(codes, book)
    vectors, offsets = reconstruct(codes.vectors, used, book.codewords, book.shares, *members)
    return Pages.packed(vectors, offsets, codes.ids)


def _counts(blobs: Blobs) -> tuple[Ints, Ints]:
    """How many pairs each blob holds, and how many bytes say so."""
    if (blobs.lengths < 1).any():
        raise CorruptIndexError("a page has no residual; verify the index")
    first = blobs.data[blobs.offsets[:-1]].astype(np.int64)
    long = first >= 0x80
    second = np.append(blobs.data, 0)[blobs.offsets[:-1] + 1].astype(np.int64)
    return np.where(long, (first & 0x7F) << 8 | second, first), 1 + long.astype(np.int64)


def most_residual_bytes(k: int, codewords: int, pairs: int) -> int:
    """The bytes that a page's residual takes at worst."""
    return len(_count_bytes(pairs)) + most_bytes(pairs, k * codewords)


def _count_bytes(count: int) -> bytes:
    return bytes([count]) if count < 0x80 else bytes([0x80 | count >> 8, count & 0xFF])
