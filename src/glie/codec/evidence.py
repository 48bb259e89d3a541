"""Evidence: a set of codewords a page, which say where its vectors are around its anchors.

A symbol is anchor * K + word and stands for the unit vector of anchor_share * anchor +
word_share * word. A page keeps the symbols that its vectors need most, at most so many. Pages of
any length keep as many: a set that grew with the page would give long pages more chances to score
by accident.
"""

from __future__ import annotations

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
    unpack_sets,
)
from glie.pages import Pages

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def evidence_of(
    pages: Pages, codes: Codes, book: Codebook, symbols: int, weights: Floats | None = None
) -> Blobs:
    """The evidence of every page: at most `symbols` symbols. `weights`: how much each vector of the
    pages counts, if not all alike."""
    weights = np.ones(len(pages.vectors), np.float32) if weights is None else weights
    rest, slots = leftovers(pages, codes, book.anchor_share)
    found = slots * len(book) + book.nearest(rest)
    blobs = []
    for page, rows in enumerate(pages):
        mine = slice(pages.offsets[page], pages.offsets[page + 1])
        anchors = codes.vectors[page, : np.count_nonzero(codes.counts[page])]
        blobs.append(_blob(rows, weights[mine], found[mine], anchors, book, symbols))
    return Blobs.of(blobs)


def _blob(
    rows: Floats, weights: Floats, found: Ints, anchors: Floats, book: Codebook, symbols: int
) -> bytes:
    distinct = np.unique(found)
    used = np.array([len(anchors)])
    bounds = np.array([0, len(distinct)])
    members, _ = rebuild(anchors[None], used, book.words, book.shares, distinct, bounds)
    weighed: Floats = np.multiply(rows, weights[:, None])
    chosen = most_needed(weighed @ members.T, len(anchors))[:symbols] - len(anchors)
    return blob_of(distinct[chosen], len(anchors) * len(book))


def blob_of(symbols: Ints, universe: int) -> bytes:
    """A page's evidence: its symbols, the most needed first."""
    return _count_bytes(len(symbols)) + pack_set(symbols, universe).tobytes()


def read_evidence(codes: Codes, book: Codebook) -> tuple[Ints, Ints]:
    """The symbols of all pages, end to end, and where those of each begin (P + 1,); raises
    CorruptIndexError unless the evidence is that of `evidence_of`."""
    blobs = codes.evidence
    assert blobs is not None
    counts, heads = _counts(blobs)
    used = np.count_nonzero(codes.counts, axis=1)
    symbols, bounds, taken = unpack_sets(
        blobs.data, blobs.offsets[:-1] + heads, blobs.offsets[1:], counts, used * len(book)
    )
    if (taken < 0).any() or (heads + taken != blobs.lengths).any():
        raise CorruptIndexError(
            "the evidence of a page is not a set of codewords; verify the index"
        )
    return symbols, bounds


def rebuilt(codes: Codes, book: Codebook) -> Pages:
    """The set that is scored: the anchors of every page, then the vectors of its symbols."""
    used = np.count_nonzero(codes.counts, axis=1)
    members = read_evidence(codes, book)
    vectors, offsets = rebuild(codes.vectors, used, book.words, book.shares, *members)
    return Pages.packed(vectors, offsets, codes.ids)


def _counts(blobs: Blobs) -> tuple[Ints, Ints]:
    """How many symbols each blob holds, and how many bytes say so."""
    if (blobs.lengths < 1).any():
        raise CorruptIndexError("a page has no evidence; verify the index")
    first = blobs.data[blobs.offsets[:-1]].astype(np.int64)
    long = first >= 0x80
    second = np.append(blobs.data, 0)[blobs.offsets[:-1] + 1].astype(np.int64)
    return np.where(long, (first & 0x7F) << 8 | second, first), 1 + long.astype(np.int64)


def most_evidence(k: int, words: int, symbols: int) -> int:
    """The bytes that a page's evidence takes at worst."""
    return len(_count_bytes(symbols)) + most_bytes(symbols, k * words)


def _count_bytes(count: int) -> bytes:
    return bytes([count]) if count < 0x80 else bytes([0x80 | count >> 8, count & 0xFF])
