"""Sets of pairs: pack and unpack them, and reconstruct the vectors that they stand for.

A page's result depends on that page alone, bit for bit, in any batch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from glie.kernels.small import in_numpy

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

FIRST_LAYER = 32
ONE_LAYER = 1 << 15  # a first layer that holds any set
PRODUCTS_PER_MEMBER = 3000  # the time to unpack one member in Python, in products of numpy
PRODUCTS_PER_NUMBER = 20  # ... and that to reconstruct one number
PAIRS_PER_BLOCK = 512  # in numpy: 256 KB at D = 128


def layers(count: int, first_layer: int = FIRST_LAYER) -> Iterator[tuple[int, int]]:
    """The layers 0..32, 32..64, 64..128, ... of a set of `count` members, the most needed first.

    Members are sorted inside a layer, since their order would cost bits. Layers keep their order:
    the first ones alone are a good smaller set. One layer for all takes 2 bits a member less.
    """
    first, last = 0, first_layer
    while first < count:
        yield first, min(last, count)
        first, last = last, 2 * last


def low_bits(members: int, universe: int) -> int:
    """The parameter of the Rice code: the largest b with 2^b <= 0.69 universe / members."""
    bits = 0
    while 100 * members << (bits + 1) <= 69 * universe:
        bits += 1
    return bits


@functools.cache
def most_bytes(count: int, universe: int, first_layer: int = FIRST_LAYER) -> int:
    """The most bytes that pack_set returns."""
    bits = 0
    for first, last in layers(count, first_layer):
        low = low_bits(last - first, universe)
        bits += (last - first) * (low + 1) + (universe >> low)
    return -(-bits // 8)


def pack_set(pairs: Ints, universe: int, first_layer: int = FIRST_LAYER) -> Bytes:
    """Pack distinct numbers below `universe`, the most needed first (Rice code, layer by layer)."""
    if in_numpy(PRODUCTS_PER_MEMBER * len(pairs)):
        return _pack_in_python(pairs, universe, first_layer)
    from glie.kernels import _residual

    out = np.zeros(most_bytes(len(pairs), universe, first_layer) + 1, np.uint8)
    at = 0
    for first, last in layers(len(pairs), first_layer):
        at = _residual.write_layer(np.sort(pairs[first:last]), universe, out, at)
    return out[: -(-at // 8)]


def _pack_in_python(pairs: Ints, universe: int, first_layer: int) -> Bytes:
    bits, at = 0, 0
    for first, last in layers(len(pairs), first_layer):
        low = low_bits(last - first, universe)
        previous = -1
        for member in sorted(pairs[first:last].tolist()):
            gap = member - previous - 1
            at += gap >> low  # zeros, then a one
            bits |= (1 | (gap & ((1 << low) - 1)) << 1) << at
            at += 1 + low
            previous = member
    return np.frombuffer(bits.to_bytes(-(-at // 8), "little"), np.uint8)


def unpack_set(
    data: Bytes, count: int, universe: int, first_layer: int = FIRST_LAYER
) -> tuple[Ints, int] | None:
    """The numbers that pack_set packed, ascending inside each layer, and how many bytes they took;
    None if the bytes are not a set of `count` numbers."""
    from glie.kernels import _residual

    pairs = np.empty(count, np.int64)
    taken = _residual.read_set(data, first_layer, universe, pairs)
    return None if taken < 0 else (pairs, int(taken))


def unpack_sets(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    counts: Ints,
    universes: Ints,
    first_layer: int = FIRST_LAYER,
) -> tuple[Ints, Ints, Ints]:
    """unpack_set for many pages, page p in bytes starts[p]..ends[p]: all numbers end to end, the
    bounds of each page, and the bytes each took (-1 where they are not a set)."""
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    pairs, taken = np.empty(bounds[-1], np.int64), np.empty(len(starts), np.int64)
    if in_numpy(PRODUCTS_PER_MEMBER * len(pairs)):
        for page, (start, end) in enumerate(zip(starts, ends, strict=True)):
            mine = pairs[bounds[page] : bounds[page + 1]]
            universe = int(universes[page])
            taken[page] = read_set_in_python(data[start:end], universe, mine, first_layer)
        return pairs, bounds, taken
    from glie.kernels import _residual

    _residual.read_sets(data, starts, ends, first_layer, universes, bounds, pairs, taken)
    return pairs, bounds, taken


def read_set_in_python(
    data: Bytes, universe: int, members: Ints, first_layer: int = FIRST_LAYER
) -> int:
    """Fill `members` with the set that pack_set packed; returns how many bytes it took, or -1."""
    ahead, left = int.from_bytes(data.tobytes(), "little"), 8 * len(data)  # bits, the next lowest
    for first, last in layers(len(members), first_layer):
        low = low_bits(last - first, universe)
        previous = -1
        for i in range(first, last):
            zeros = (ahead & -ahead).bit_length() - 1  # -1 where no bit is set
            left -= zeros + 1 + low
            if zeros < 0 or left < 0:
                return -1
            ahead >>= zeros + 1
            previous += 1 + (zeros << low | ahead & ((1 << low) - 1))
            ahead >>= low
            if previous >= universe:
                return -1
            members[i] = previous
    return len(data) - left // 8


def reconstruct(
    anchors: Floats,
    used: Ints,
    codewords: Floats,
    shares: tuple[float, float],
    pairs: Ints,
    bounds: Ints,
) -> tuple[Floats, Ints]:
    """The used anchors of every page, then the unit vector of each of its pairs: all rows, and the
    offsets of each page. Pair slot * K + codeword stands for shares[0] * anchor + shares[1] *
    codeword."""
    offsets = np.concatenate([[0], np.cumsum(used + np.diff(bounds))]).astype(np.int64)
    out = np.empty((offsets[-1], codewords.shape[1]), np.float32)
    both = np.float32(shares[0]), np.float32(shares[1])
    if in_numpy(PRODUCTS_PER_NUMBER * out.size):
        reconstruct_in_numpy(anchors, used, codewords, *both, pairs, bounds, offsets, out)
        return out, offsets
    from glie.kernels import _residual
    from glie.kernels.parallel import over_ranges

    def run(first: int, last: int) -> None:
        _residual.reconstruct_range(
            anchors, used, codewords, *both, pairs, bounds, offsets, first, last, out
        )

    over_ranges(run, len(used), chunk=32)
    return out, offsets


def reconstruct_in_numpy(
    anchors: Floats,
    used: Ints,
    codewords: Floats,
    anchor_share: np.float32,
    codeword_share: np.float32,
    pairs: Ints,
    bounds: Ints,
    offsets: Ints,
    out: Floats,
) -> None:
    """Fill `out` with the rows of `reconstruct`; page p begins at row offsets[p]."""
    page, slot = np.nonzero(np.arange(anchors.shape[1]) < used[:, None])
    out[offsets[page] + slot] = anchors[page, slot]
    page = np.repeat(np.arange(len(used)), np.diff(bounds))
    rows = np.arange(len(pairs)) + (offsets[:-1] + used - bounds[:-1])[page]
    slot, codeword = np.divmod(pairs, len(codewords))
    for first in range(0, len(pairs), PAIRS_PER_BLOCK):
        some = slice(first, first + PAIRS_PER_BLOCK)
        made = anchor_share * anchors[page[some], slot[some]]
        made += codeword_share * codewords[codeword[some]]
        lengths = np.sqrt((made * made).sum(axis=1, keepdims=True))
        out[rows[some]] = made / np.maximum(lengths, np.float32(1e-6))
