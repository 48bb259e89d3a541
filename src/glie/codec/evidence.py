"""Evidence: a set of codewords a page, which say where its vectors are around its anchors.

A symbol is anchor * K + word and stands for the unit vector of anchor_share * anchor +
word_share * word. A page keeps the symbols that its vectors need most, at most so many, and for
the first of them also the direction in which the true vectors lie from there, one bit a number.
Pages of any length keep as many: a set that grew with the page would give long pages more
chances to score by accident.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from glie.codec.codebook import Codebook, leftovers
from glie.codec.codes import Blobs, Codes
from glie.errors import CorruptIndexError
from glie.kernels.evidence import most_bytes, most_needed, pack_set, unpack_set
from glie.kernels.quantize import pack, row_bytes, unpack
from glie.pages import Pages

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

DISPLACEMENT_TYPE = "int1"
DISPLACEMENT = np.float32(0.5)  # how far a displaced vector moves before it is projected back


def evidence_of(pages: Pages, codes: Codes, book: Codebook, symbols: int, displaced: int) -> Blobs:
    """The evidence of every page: at most `symbols` symbols, of which the first `displaced` have
    a displacement."""
    rest, slots = leftovers(pages, codes, book.anchor_share)
    found = slots * len(book) + book.nearest(rest)
    blobs = []
    for page, rows in enumerate(pages):
        mine = found[pages.offsets[page] : pages.offsets[page + 1]]
        anchors = codes.vectors[page, : np.count_nonzero(codes.counts[page])]
        blobs.append(_blob(rows, mine, anchors, book, symbols, displaced))
    return Blobs.of(blobs)


def _blob(
    rows: Floats, found: Ints, anchors: Floats, book: Codebook, symbols: int, displaced: int
) -> bytes:
    distinct, owner = np.unique(found, return_inverse=True)
    places = vectors_of(distinct, anchors, book)
    members = np.concatenate([anchors, places])
    chosen = most_needed(rows @ members.T, len(anchors))[:symbols] - len(anchors)
    universe = len(anchors) * len(book)
    data = pack_set(distinct[chosen], universe)
    parts = [_count_bytes(len(chosen)), data.tobytes()]
    if displaced:
        unpacked = unpack_set(data, len(chosen), universe)
        assert unpacked is not None
        kept = np.searchsorted(distinct, unpacked[0][:displaced])
        sums = np.zeros((len(distinct), rows.shape[1]), np.float32)
        np.add.at(sums, owner, rows)
        away = _unit(sums[kept]) - places[kept]
        parts.append(pack(_unit(away), DISPLACEMENT_TYPE).tobytes())
    return b"".join(parts)


def vectors_of(symbols: Ints, anchors: Floats, book: Codebook) -> Floats:
    """The unit vectors that symbols stand for."""
    slots, words = np.divmod(symbols, len(book))
    return _unit(
        np.float32(book.anchor_share) * anchors[slots]
        + np.float32(book.word_share) * book.words[words]
    )


def symbols_of(blob: npt.NDArray[np.uint8], used: int, book: Codebook) -> tuple[Ints, int]:
    """The symbols of a blob of a page with so many anchors, and how many bytes held them."""
    count, head = _counted(blob)
    found = unpack_set(blob[head:], count, used * len(book))
    if found is None:
        raise CorruptIndexError("a page's evidence is not a set of codewords")
    return found[0], head + found[1]


def rebuilt(codes: Codes, book: Codebook, displaced: int) -> Pages:
    """The set that is scored: the anchors of every page, then the vectors of its symbols."""
    assert codes.evidence is not None
    rows, lengths = [], []
    width = row_bytes(codes.dim, DISPLACEMENT_TYPE)
    for page in range(len(codes)):
        anchors = codes.vectors[page, : np.count_nonzero(codes.counts[page])]
        blob = codes.evidence[page]
        symbols, at = symbols_of(blob, len(anchors), book)
        vectors = vectors_of(symbols, anchors, book)
        first = min(displaced, len(symbols))
        if len(blob) != at + first * width:
            raise CorruptIndexError("a page's evidence has the wrong length")
        if first:
            away = unpack(blob[at:].reshape(first, width), DISPLACEMENT_TYPE, codes.dim)
            vectors[:first] = _unit(vectors[:first] + DISPLACEMENT * away)
        rows += [anchors, vectors]
        lengths.append(len(anchors) + len(vectors))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Pages.packed(np.concatenate(rows), offsets, codes.ids)


def most_evidence(k: int, words: int, dim: int, symbols: int, displaced: int) -> int:
    """The bytes that a page's evidence takes at worst."""
    count = len(_count_bytes(symbols)) + most_bytes(symbols, k * words)
    return count + min(displaced, symbols) * row_bytes(dim, DISPLACEMENT_TYPE)


def _count_bytes(count: int) -> bytes:
    return bytes([count]) if count < 0x80 else bytes([0x80 | count >> 8, count & 0xFF])


def _counted(blob: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """How many symbols a blob holds, and where they begin."""
    if len(blob) and blob[0] < 0x80:
        return int(blob[0]), 1
    if len(blob) > 1:
        return (int(blob[0]) & 0x7F) << 8 | int(blob[1]), 2
    raise CorruptIndexError("a page's evidence is cut off")


def _unit(rows: Floats) -> Floats:
    return rows / np.maximum(np.sqrt((rows * rows).sum(axis=1, keepdims=True)), np.float32(1e-6))
