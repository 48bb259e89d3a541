"""Compiled loops of sets of pairs: pack, unpack and reconstruct."""

import sys

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glie.kernels import residual
from glie.kernels._compiled import _compile, _inline, address

LITTLE = sys.byteorder == "little"

low_bits = _compile(residual.low_bits)


@_compile
def _put(out, at, value, width):
    """Write the `width` low bits of value, the lowest first, at bit `at`."""
    for b in range(width):
        if (value >> b) & 1:
            out[(at + b) >> 3] |= np.uint8(1 << ((at + b) & 7))
    return at + width


@_compile
def write_layer(members, universe, out, at):
    """Rice code of an ascending set: of each gap the quotient in unary, then the low bits."""
    low = low_bits(len(members), universe)
    previous = -1
    for member in members:
        gap = member - previous - 1
        at += gap >> low  # zeros
        at = _put(out, at, 1, 1)
        at = _put(out, at, gap & ((1 << low) - 1), low)
        previous = member
    return at


@intrinsic
def _load_word(_context, _address):
    """The eight bytes at an address as a number."""

    def generate(_context, builder, _signature, arguments):
        word = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return types.uint64(types.intp), generate


@intrinsic
def _trailing_zeros(_context, _word):
    """The zeros below the lowest bit of a number that is not 0."""

    def generate(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@_inline
def _bits_at(data, start, at):
    """The bits from bit `at` on, the next one lowest, at least 57; zeros behind the end. `start` is
    the address of the data."""
    byte = at >> 3
    if LITTLE and byte + 8 <= data.shape[0]:
        return _load_word(start + byte) >> np.uint64(at & 7)
    word = np.uint64(0)
    for b in range(min(8, data.shape[0] - byte)):
        word |= np.uint64(data[byte + b]) << np.uint64(8 * b)
    return word >> np.uint64(at & 7)


@_compile
def _read_layer(data, at, universe, members):
    """Fill `members` with the set that write_layer wrote at bit `at`; returns the next bit, or -1
    if the bits are not such a set."""
    low = low_bits(len(members), universe)
    mask = np.uint64((1 << low) - 1)
    end = 8 * data.shape[0]
    start = address(data)
    previous = -1
    for i in range(members.shape[0]):
        word = np.uint64(0)
        zeros = 0
        while at < end and not word:
            word = _bits_at(data, start, at)
            skipped = _trailing_zeros(word) if word else min(64 - (at & 7), end - at)
            zeros += skipped
            at += skipped
        at += 1
        if at + low > end:
            return -1
        word = _bits_at(data, start, at)
        previous += 1 + (zeros << low | np.int64(word & mask))
        at += low
        if previous >= universe:
            return -1
        members[i] = previous
    return at


@_compile
def read_set(data, first_layer, universe, pairs):
    """Fill `pairs` layer by layer; returns how many bytes they took, or -1."""
    at = 0
    first = 0
    last = first_layer
    while first < pairs.shape[0]:
        at = _read_layer(data, at, universe, pairs[first : min(last, pairs.shape[0])])
        if at < 0:
            return -1
        first = last
        last *= 2
    return (at + 7) >> 3


@_compile
def read_sets(data, starts, ends, first_layer, universes, bounds, pairs, taken):
    """read_set for page p in bytes starts[p]..ends[p], into bounds[p]..bounds[p + 1]."""
    for page in range(starts.shape[0]):
        taken[page] = read_set(
            data[starts[page] : ends[page]],
            first_layer,
            universes[page],
            pairs[bounds[page] : bounds[page + 1]],
        )


@_compile
def reconstruct_range(
    anchors, used, codewords, anchor_share, codeword_share, pairs, bounds, offsets, first, last, out
):
    """Write the sets of the pages first..last from row offsets[page] on: the used anchors, then the
    unit vector of anchor_share * anchor + codeword_share * codeword for every pair."""
    count, dim = codewords.shape
    for page in range(first, last):
        at = offsets[page]
        for slot in range(used[page]):
            out[at] = anchors[page, slot]
            at += 1
        for i in range(bounds[page], bounds[page + 1]):
            slot = pairs[i] // count
            codeword = pairs[i] - slot * count
            square = np.float32(0)
            for d in range(dim):
                value = (
                    anchor_share * anchors[page, slot, d] + codeword_share * codewords[codeword, d]
                )
                out[at, d] = value
                square += value * value
            scale = np.float32(1) / max(np.sqrt(square), np.float32(1e-6))
            for d in range(dim):
                out[at, d] *= scale
            at += 1
