"""Evidence: a set of codewords a page, which say where its vectors are around its anchors.

A symbol is anchor * K + word and stands for the unit vector of anchor_share * anchor +
word_share * word. A page keeps the symbols that its vectors need most, at most so many, and for
the first of them also the direction in which the true vectors lie from there, one bit a number.
Pages of any length keep as many: a set that grew with the page would give long pages more
chances to score by accident.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codebook import Codebook, leftovers
from glie.codec.codes import Blobs, Codes
from glie.errors import CorruptIndexError
from glie.kernels.evidence import (
    most_bytes,
    most_needed,
    pack_set,
    rebuild,
    unpack_set,
    unpack_sets,
)
from glie.kernels.quantize import pack, row_bytes, unpack
from glie.pages import Pages

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

DISPLACEMENT_TYPE = "int1"
DISPLACEMENT = np.float32(0.5)  # how far a displaced vector moves before it is projected back


def evidence_of(
    pages: Pages,
    codes: Codes,
    book: Codebook,
    symbols: int,
    displaced: int,
    weights: Floats | None = None,
) -> Blobs:
    """The evidence of every page: at most `symbols` symbols, of which the first `displaced` have
    a displacement. `weights`: how much each vector of the pages counts, if not all alike."""
    weights = np.ones(len(pages.vectors), np.float32) if weights is None else weights
    rest, slots = leftovers(pages, codes, book.anchor_share)
    found = slots * len(book) + book.nearest(rest)
    blobs = []
    for page, rows in enumerate(pages):
        mine = slice(pages.offsets[page], pages.offsets[page + 1])
        anchors = codes.vectors[page, : np.count_nonzero(codes.counts[page])]
        blobs.append(_blob(rows, weights[mine], found[mine], anchors, book, symbols, displaced))
    return Blobs.of(blobs)


def _blob(
    rows: Floats,
    weights: Floats,
    found: Ints,
    anchors: Floats,
    book: Codebook,
    symbols: int,
    displaced: int,
) -> bytes:
    distinct, owner = np.unique(found, return_inverse=True)
    used = np.array([len(anchors)])
    bounds = np.array([0, len(distinct)])
    members, _ = rebuild(anchors[None], used, book.words, book.shares, distinct, bounds)
    weighed: Floats = np.multiply(rows, weights[:, None])
    chosen = most_needed(weighed @ members.T, len(anchors))[:symbols] - len(anchors)
    universe = len(anchors) * len(book)
    data = pack_set(distinct[chosen], universe)
    unpacked = unpack_set(data, len(chosen), universe)
    assert unpacked is not None
    kept = np.searchsorted(distinct, unpacked[0][:displaced])
    sums = np.zeros((len(distinct), rows.shape[1]), np.float32)
    np.add.at(sums, owner, weighed)
    away = _unit(sums[kept]) - members[len(anchors) + kept]
    return blob_of(len(chosen), data, pack(_unit(away), DISPLACEMENT_TYPE))


def blob_of(count: int, symbols: Bytes, directions: Bytes) -> bytes:
    """A page's evidence, of so many symbols: the packed set, and the directions of the first."""
    return _count_bytes(count) + symbols.tobytes() + directions.tobytes()


class Evidence(NamedTuple):
    """The evidence of some pages as it is stored, taken apart."""

    symbols: Ints  # of all pages, end to end
    bounds: Ints  # (P + 1,): where those of each page begin
    moved: Ints  # (P,): how many of these, the first, have a direction
    directions: Bytes  # of all pages, end to end, a row each


def read_evidence(codes: Codes, book: Codebook, displaced: int) -> Evidence:
    """The reverse of `evidence_of`; raises CorruptIndexError unless it can be."""
    blobs = codes.evidence
    assert blobs is not None
    counts, heads = _counts(blobs)
    used = np.count_nonzero(codes.counts, axis=1)
    symbols, bounds, taken = unpack_sets(
        blobs.data, blobs.offsets[:-1] + heads, blobs.offsets[1:], counts, used * len(book)
    )
    width = row_bytes(codes.dim, DISPLACEMENT_TYPE)
    moved = np.minimum(displaced, counts)
    if (taken < 0).any() or (heads + taken + moved * width != blobs.lengths).any():
        raise CorruptIndexError(
            "the evidence of a page is not a set of codewords; verify the index"
        )
    at = _ranges(blobs.offsets[:-1] + heads + taken, moved * width)
    return Evidence(symbols, bounds, moved, blobs.data[at].reshape(-1, width))


def rebuilt(codes: Codes, book: Codebook, displaced: int) -> Pages:
    """The set that is scored: the anchors of every page, then the vectors of its symbols."""
    symbols, bounds, moved, directions = read_evidence(codes, book, displaced)
    used = np.count_nonzero(codes.counts, axis=1)
    vectors, offsets = rebuild(codes.vectors, used, book.words, book.shares, symbols, bounds)
    if len(directions):
        away = unpack(directions, DISPLACEMENT_TYPE, codes.dim)
        rows = _ranges(offsets[:-1] + used, moved)
        vectors[rows] = _unit(vectors[rows] + DISPLACEMENT * away)
    return Pages.packed(vectors, offsets, codes.ids)


def _counts(blobs: Blobs) -> tuple[Ints, Ints]:
    """How many symbols each blob holds, and how many bytes say so."""
    if (blobs.lengths < 1).any():
        raise CorruptIndexError("a page has no evidence; verify the index")
    first = blobs.data[blobs.offsets[:-1]].astype(np.int64)
    long = first >= 0x80
    second = np.append(blobs.data, 0)[blobs.offsets[:-1] + 1].astype(np.int64)
    return np.where(long, (first & 0x7F) << 8 | second, first), 1 + long.astype(np.int64)


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """starts[0], starts[0] + 1, ... and so on for each, end to end."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def most_evidence(k: int, words: int, dim: int, symbols: int, displaced: int) -> int:
    """The bytes that a page's evidence takes at worst."""
    count = len(_count_bytes(symbols)) + most_bytes(symbols, k * words)
    return count + min(displaced, symbols) * row_bytes(dim, DISPLACEMENT_TYPE)


def _count_bytes(count: int) -> bytes:
    return bytes([count]) if count < 0x80 else bytes([0x80 | count >> 8, count & 0xFF])


def _unit(rows: Floats) -> Floats:
    lengths: Floats = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.divide(rows, np.maximum(lengths, np.float32(1e-6)))
