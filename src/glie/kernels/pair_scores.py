"""MaxSim of pages that are stored as pairs, without writing their vectors down.

A pair stands for the unit vector along share * anchor + share * codeword. So its product with a
query vector is a sum of two products, over a length. Those with codewords are the same on all
pages: they are computed once a search, for the codewords that occur. Scores are those of
`reconstruct` and `maxsim`, up to the rounding of float32.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.maxsim import in_lanes
from glie.kernels.quantize import BITS, Packed, odd_integers, rotation, scan_order

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

TOGETHER = 16  # the numbers of a row are filled up to twice a multiple of so many
MOST_TOKENS = 64  # of a query, whose products with codewords are held: 16 MB for 65,536
PAGES_PER_CHUNK, WORDS_PER_CHUNK = 32, 1024  # a part of a millisecond, in one thread


class Unpackable(NamedTuple):
    """Codewords of 4 bits a number, in the layout of the loop."""

    directions: Bytes  # (K, B), filled up to a multiple of 16 bytes
    factors: Floats  # (K,): share * length / that of the odd integers
    squares: Floats  # (K,): (share * length) ** 2
    shares: Floats  # of anchor and codeword


def unpackable(packed: Bytes, lengths: Floats, dim: int, shares: tuple[float, float]) -> Unpackable:
    """Codewords whose directions are packed in 4 bits."""
    filled = np.pad(packed, [(0, 0), (0, -packed.shape[1] % TOGETHER)])
    odd = odd_integers(packed, "int4", dim)
    scaled = np.float32(shares[1]) * lengths
    factors = scaled / np.sqrt(np.einsum("kd,kd->k", odd, odd))
    return Unpackable(filled, factors, scaled**2, np.array(shares, np.float32))


def pair_scores(
    tokens: Floats,
    token_offsets: Ints,
    sets: tuple[Bytes, Ints, Ints, Ints, int],
    anchors: Floats | Packed,
    used: Ints,
    book: Unpackable,
    longer: Floats,
) -> tuple[Floats, Ints]:
    """Scores (Q, P) of the first used[p] of anchors (P, k, D), or of packed ones, and the pairs of
    a packed set, all longer[p] times as long; and the bytes that each set took, -1 where one is not
    a set: then the scores are nothing. `sets` are the bytes, where each page starts and ends, its
    count, and the first layer."""
    from glie.kernels import _pair_scores
    from glie.kernels.parallel import over_ranges

    scores = np.zeros((len(token_offsets) - 1, len(used)), np.float32)
    taken = np.empty(len(used), np.int64)
    bounds = np.concatenate([[0], np.cumsum(sets[3])])
    slots, words = np.empty(bounds[-1], np.uint16), np.empty(bounds[-1], np.int32)

    def read(first: int, last: int) -> None:
        where = used, len(book.factors), bounds, first, last
        _pair_scores.read_pairs_range(*sets, *where, slots, words, taken)

    over_ranges(read, len(used), chunk=PAGES_PER_CHUNK)
    if taken.min(initial=0) < 0:
        return scores, taken
    occurs = np.zeros(len(book.factors), bool)
    occurs[words] = True
    pairs, which = (bounds, slots, words), np.flatnonzero(occurs)
    ordered = scan_order(np.asarray(tokens, np.float32), "int4")
    stored = _stored(anchors)
    for query, (start, end) in enumerate(pairwise(token_offsets.tolist())):
        for at in range(start, end, MOST_TOKENS):
            some = ordered[at : min(at + MOST_TOKENS, end)]
            _add_scores(some, stored, used, pairs, which, book, longer, scores[query])
    return scores, taken


def _add_scores(
    tokens: Floats,
    anchors: tuple[Bytes, int, int],
    used: Ints,
    pairs: tuple[Any, ...],
    which: Ints,
    book: Unpackable,
    longer: Floats,
    scores: Floats,
) -> None:
    """Add what some tokens of one query score on each page."""
    from glie.kernels import _pair_scores
    from glie.kernels._tiles import LANES, TILE_COLUMNS
    from glie.kernels.parallel import over_ranges

    mine = in_lanes(tokens, LANES if len(tokens) <= LANES else TILE_COLUMNS)
    products = np.empty((len(which), mine.shape[0] * mine.shape[2]), np.float32)
    places = np.zeros(len(book.factors), np.int64)
    places[which] = np.arange(len(which))
    *stored, dim = anchors

    def multiply(first: int, last: int) -> None:
        of_book = book.directions, book.factors, which
        _pair_scores.codeword_products_range(mine, *of_book, first, last, products)

    def score(first: int, last: int) -> None:
        how = mine, len(tokens), *stored, used, *pairs, places, products, *book, *rotation(dim)
        _pair_scores.pair_scores_range(*how, longer, first, last, scores)

    over_ranges(multiply, len(which), chunk=WORDS_PER_CHUNK)
    over_ranges(score, len(used), chunk=PAGES_PER_CHUNK)


def _stored(anchors: Floats | Packed) -> tuple[Bytes, int, int]:
    """The rows of bytes of anchors, the bits of a number, and D."""
    if not isinstance(anchors, Packed):
        return np.ascontiguousarray(anchors, np.float32).view(np.uint8), 32, anchors.shape[2]
    return np.ascontiguousarray(anchors.rows), BITS.get(anchors.dtype, 16), anchors.dim
