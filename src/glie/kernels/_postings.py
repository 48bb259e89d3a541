"""The compiled loops over packed posting lists: find, read and score.

No bits make them read or write outside their arrays, or loop for longer than there are bits: what
is not a posting list is refused.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glie.kernels._compiled import _compile, _inline
from glie.kernels._residual import low_bits
from glie.kernels.postings import FINGERPRINT, LONG, MOST_FREQUENT, TERMS_PER_BLOCK, WORD

LAST = np.uint64(1 << (WORD - 1))


@intrinsic
def _lowest_one(_context, bits):
    """The place of the lowest one of a word that has one."""

    def generate(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@_inline
def _peek(words, at):
    """The WORD bits at bit `at`; behind the last word they are zeros."""
    place = np.uint64(at) >> np.uint64(6)
    shift = np.uint64(at) & np.uint64(63)
    if place >= np.uint64(words.shape[0]):
        return np.uint64(0)
    bits = words[place] >> shift
    if shift and place + np.uint64(1) < np.uint64(words.shape[0]):
        bits |= words[place + np.uint64(1)] << (np.uint64(WORD) - shift)
    return bits


@_inline
def _zeros(words, at, end):
    """How many zeros are at bit `at`, before a one or the end."""
    start = at
    while at < end:
        bits = _peek(words, at)
        if bits:
            at += _lowest_one(bits)
            break
        at += WORD
    return min(at, end) - start


@_inline
def _low(words, at, bits):
    """The `bits` bits at bit `at`, at most FINGERPRINT."""
    return np.int64(_peek(words, at) & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)))


@_inline
def _rice(words, at, end, low, most):
    """A number and the bit behind it; -1 as the bit if the number is above `most`."""
    zeros = _zeros(words, at, end)
    at += zeros + 1
    if at + low > end or zeros > most >> low:
        return np.int64(0), np.int64(-1)
    number = zeros << low | _low(words, at, low)
    return number, np.int64(-1) if number > most else at + low


@_inline
def _gamma(words, at, end, most):
    """As `_rice`, for a number that is at least 1."""
    zeros = _zeros(words, at, end)
    at += zeros + 1
    if at + zeros > end or zeros > FINGERPRINT:
        return np.int64(0), np.int64(-1)
    number = np.int64(1) << zeros | _low(words, at, zeros)
    return number, np.int64(-1) if number > most else at + zeros


@_compile
def read_list(words, at, end, pages, rows, frequencies):
    """Fill rows and frequencies with the list at bit `at`; the bit behind it, or -1."""
    low = low_bits(rows.shape[0], pages)
    mask = (np.int64(1) << low) - 1
    row = np.int64(-1)
    for i in range(rows.shape[0]):
        bits = _peek(words, at)
        size = _lowest_one(bits | LAST) + 1 + low
        rest = bits >> np.uint64(size & 63)
        doubled = _lowest_one(rest | LAST)
        if size <= WORD // 2 and doubled <= 7:  # both codes are among the bits
            gap = (size - 1 - low) << low | np.int64(bits >> np.uint64(size - low)) & mask
            frequency = np.int64(1) << doubled
            frequency |= np.int64(rest >> np.uint64(doubled + 1)) & (frequency - 1)
            at += size + 2 * doubled + 1
        else:
            gap, at = _rice(words, at, end, low, pages - row - 2)
            if at < 0:
                return np.int64(-1)
            frequency, at = _gamma(words, at, end, MOST_FREQUENT)
        row += gap + 1
        if at < 0 or at > end or row >= pages:
            return np.int64(-1)
        rows[i] = row
        frequencies[i] = frequency
    return at


@_compile
def find_list(words, at, end, fingerprint, terms, low, wanted, pages):
    """The bit at which the list of a term begins, in the block at bit `at`, and how many postings
    it has: 0 if the term is not there, -1 if the bits are not a block."""
    rows = np.empty(LONG, np.int64)
    frequencies = np.empty(LONG, np.uint8)
    for term in range(terms):
        if term:
            gap, at = _rice(words, at, end, low, (1 << FINGERPRINT) - 2 - fingerprint)
            if at < 0:
                return at, np.int64(-1)
            fingerprint += gap + 1
        if fingerprint > wanted:
            break
        count, at = _gamma(words, at, end, pages)
        size = np.int64(0)
        if at >= 0 and count >= LONG:
            size, at = _gamma(words, at, end, end - at)
        if at < 0 or at + size > end:
            return at, np.int64(-1)
        if fingerprint == wanted:
            return at, count
        if size:
            at += size
        else:
            at = read_list(words, at, end, pages, rows[:count], frequencies[:count])
            if at < 0:
                return at, np.int64(-1)
    return at, np.int64(0)


@_compile
def read_all(words, firsts, starts, low, pages, fingerprints, counts, rows, frequencies):
    """Fill the arrays of Lists; False if the bits are not exactly these lists."""
    term = 0
    done = 0
    fingerprint = np.int64(-1)
    for block in range(firsts.shape[0]):
        at, end = 8 * np.int64(starts[block]), 8 * np.int64(starts[block + 1])
        if np.int64(firsts[block]) <= fingerprint:
            return False
        fingerprint = np.int64(firsts[block])
        last = min(term + TERMS_PER_BLOCK, fingerprints.shape[0])
        first = term
        while term < last:
            if term > first:
                gap, at = _rice(words, at, end, low, (1 << FINGERPRINT) - 2 - fingerprint)
                if at < 0:
                    return False
                fingerprint += gap + 1
            count, at = _gamma(words, at, end, min(pages, rows.shape[0] - done))
            size = np.int64(0)
            if at >= 0 and count >= LONG:
                size, at = _gamma(words, at, end, end - at)
            if at < 0:
                return False
            behind = read_list(
                words, at, end, pages, rows[done : done + count], frequencies[done : done + count]
            )
            if behind < 0 or (size and behind != at + size):
                return False
            fingerprints[term] = fingerprint
            counts[term] = count
            at = behind
            done += count
            term += 1
        if end - at > 7:
            return False
    return term == fingerprints.shape[0] and done == rows.shape[0]


@_compile
def add_bm25(rows, frequencies, weight, penalties, scores):
    """scores[row] += weight * f / (f + penalties[row]) for each row with frequency f."""
    for i in range(rows.shape[0]):
        frequency = np.float32(frequencies[i])
        scores[rows[i]] += weight * frequency / (frequency + penalties[rows[i]])
