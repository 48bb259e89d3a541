"""Posting lists as bits, and BM25 over them. docs/format.md describes every bit.

A term is a fingerprint of FINGERPRINT bits; its postings are the rows of pages with their
frequencies. Gaps between fingerprints and between rows are Rice codes, other numbers are Elias
gamma codes. Both are some zeros, a one, and low bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.residual import low_bits
from glie.kernels.small import in_numpy

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]

FINGERPRINT = 32  # bits
TERMS_PER_BLOCK = 256
LONG = 64  # postings of a list that can be skipped without reading it
MOST_FREQUENT = 255  # a higher frequency counts as this one; BM25 saturates long before
WORD = 64  # bits
POSTINGS_PER_STEP = 1 << 20  # packed in one step: some 100 MB
PRODUCTS_PER_BIT = 1000  # the time to read one bit in Python, in products of numpy

NOTHING = np.zeros(0, np.int64), np.zeros(0, np.uint8)


class Lists(NamedTuple):
    """Posting lists, not packed. Fingerprints ascend, and rows in each list."""

    fingerprints: npt.NDArray[np.uint32]
    counts: Ints  # postings of each term
    rows: Ints  # of all lists, end to end
    frequencies: Bytes


class Packed(NamedTuple):
    """Packed posting lists. Block b has the bytes starts[b] to starts[b + 1] of the words, and its
    first fingerprint is firsts[b]."""

    firsts: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.uint64]
    words: Words
    terms: int
    pages: int

    @property
    def low(self) -> int:
        """The low bits of a gap between fingerprints."""
        return _low_of_fingerprints(self.terms)

    def block(self, number: int) -> tuple[int, int, int, int]:
        """The first bit of a block, the one behind it, its first fingerprint, and its terms."""
        start, end = (8 * int(at) for at in self.starts[number : number + 2])
        terms = min(TERMS_PER_BLOCK, self.terms - number * TERMS_PER_BLOCK)
        return start, end, int(self.firsts[number]), terms


def _low_of_fingerprints(terms: int) -> int:
    return low_bits(max(terms, 1), 1 << FINGERPRINT)


def pack(lists: Lists, pages: int) -> Packed:
    """Pack the posting lists of some pages."""
    terms = len(lists.fingerprints)
    ends = np.cumsum(lists.counts)
    starts, parts = [0], []
    first = done = 0
    for last in range(TERMS_PER_BLOCK, terms + TERMS_PER_BLOCK, TERMS_PER_BLOCK):
        last = min(last, terms)
        end = int(ends[last - 1])
        if last == terms or end - done >= POSTINGS_PER_STEP:
            some = Lists(
                lists.fingerprints[first:last],
                lists.counts[first:last],
                lists.rows[done:end],
                lists.frequencies[done:end],
            )
            part, sizes = _pack_blocks(some, pages, _low_of_fingerprints(terms))
            starts += (starts[-1] + np.cumsum(sizes)).tolist()
            parts.append(part)
            first, done = last, end
    data = b"".join(parts)
    data += bytes(-len(data) % (WORD // 8))
    return Packed(
        lists.fingerprints[::TERMS_PER_BLOCK].astype("<u8"),
        np.array(starts, "<u8"),
        np.frombuffer(data, "<u8"),
        terms,
        pages,
    )


def _pack_blocks(lists: Lists, pages: int, low: int) -> tuple[bytes, Ints]:
    """Some blocks as bytes, and how many each has."""
    terms, postings = len(lists.counts), len(lists.rows)
    is_long = lists.counts >= LONG
    begins_block = np.arange(terms) % TERMS_PER_BLOCK == 0
    list_starts = np.cumsum(lists.counts) - lists.counts
    # the codes of a term: its gap, how many postings, their size, then two for each posting
    before = 1 + ~begins_block + is_long
    each = before + 2 * lists.counts
    firsts = np.cumsum(each) - each
    codes = _Codes(int(each.sum()))
    list_of = np.repeat(np.arange(terms), lists.counts)
    at = (firsts + before - 2 * list_starts)[list_of] + 2 * np.arange(postings)
    gaps = np.diff(lists.rows, prepend=-1) - 1
    gaps[list_starts] = lists.rows[list_starts]
    codes.put_rice(at, gaps, _low_bits_each(lists.counts, pages)[list_of])
    codes.put_gamma(at + 1, lists.frequencies.astype(np.int64))
    sizes = np.add.reduceat(codes.sizes[at] + codes.sizes[at + 1], list_starts)
    codes.put_gamma((firsts + before - 1)[is_long], sizes[is_long])
    codes.put_gamma(firsts + ~begins_block, lists.counts)
    apart = np.diff(lists.fingerprints.astype(np.int64), prepend=0) - 1
    codes.put_rice(firsts[~begins_block], apart[~begins_block], np.int64(low))
    return codes.bytes(firsts[begins_block])


class _Codes:
    """Codes to be written one after the other."""

    def __init__(self, count: int) -> None:
        self._zeros, self._low = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._value = np.zeros(count, np.uint64)

    @property
    def sizes(self) -> Ints:
        """The bits of each."""
        return self._zeros + 1 + self._low

    def put_rice(self, at: Ints, gaps: Ints, low: Ints | np.int64) -> None:
        self._put(at, gaps >> low, gaps & ((1 << low) - 1), low)

    def put_gamma(self, at: Ints, numbers: Ints) -> None:
        low = np.frexp(numbers)[1].astype(np.int64) - 1
        self._put(at, low, numbers - (1 << low), low)

    def _put(self, at: Ints, zeros: Ints, value: Ints, low: Ints | np.int64) -> None:
        self._zeros[at], self._low[at] = zeros, low
        self._value[at] = (value.astype(np.uint64) << np.uint64(1)) | np.uint64(1)

    def bytes(self, firsts: Ints) -> tuple[bytes, Ints]:
        """All codes as bytes. A block begins with each of `firsts`; the bytes of the blocks."""
        ends = np.cumsum(self.sizes)
        bits = np.add.reduceat(self.sizes, firsts)
        sizes = -(-bits // 8)
        filling = np.cumsum(8 * sizes - bits) - (8 * sizes - bits)  # bits between earlier blocks
        codes_of = np.diff(np.append(firsts, len(ends)))
        at = ends - self._low - 1 + np.repeat(filling, codes_of)
        word, shift = at // WORD, (at % WORD).astype(np.uint64)
        words = np.zeros(-(-8 * int(sizes.sum()) // WORD) + 1, "<u8")
        # no two codes share a bit: to add is to write
        np.add.at(words, word, self._value << shift)
        # twice, since a shift by all 64 bits is undefined
        np.add.at(words, word + 1, self._value >> np.uint64(1) >> (np.uint64(WORD - 1) - shift))
        return words.tobytes()[: sizes.sum()], sizes


def _low_bits_each(members: Ints, universe: int) -> Ints:
    """`low_bits` of many sets."""
    bits = np.zeros(len(members), np.int64)
    for more in range(1, universe.bit_length() + 1):
        bits += (100 * members << more) <= 69 * universe
    return bits


class Place(NamedTuple):
    """Where the posting list of a term is."""

    size: int  # how many postings
    at: int  # its first bit, in a block that ends at bit `end`
    end: int
    found: tuple[Ints, Bytes] | None  # the list, if it has been read


def find(packed: Packed, fingerprint: int) -> tuple[Ints, Bytes] | None:
    """The rows and frequencies of a term; none if it has no postings. None if the bits are not
    posting lists."""
    place = locate(packed, fingerprint)
    return None if place is None else read(packed, place)


def locate(packed: Packed, fingerprint: int) -> Place | None:
    """Where the list of a term is, and how long. None if the bits are not posting lists."""
    number = int(np.searchsorted(packed.firsts, np.uint64(fingerprint), side="right")) - 1
    if number < 0:
        return Place(0, 0, 0, NOTHING)
    start, end, first, terms = packed.block(number)
    if in_numpy(PRODUCTS_PER_BIT * (end - start)):
        found = _find_in_python(packed, number, fingerprint)
        return None if found is None else Place(len(found[0]), start, end, found)
    from glie.kernels import _postings

    at, count = _postings.find_list(
        packed.words, start, end, first, terms, packed.low, fingerprint, packed.pages
    )
    return None if count < 0 else Place(count, at, end, None if count else NOTHING)


def read(packed: Packed, place: Place) -> tuple[Ints, Bytes] | None:
    """The rows and frequencies of a list; None if the bits are not one."""
    if place.found is not None:
        return place.found
    from glie.kernels import _postings

    rows, frequencies = np.empty(place.size, np.int64), np.empty(place.size, np.uint8)
    behind = _postings.read_list(packed.words, place.at, place.end, packed.pages, rows, frequencies)
    return None if behind < 0 else (rows, frequencies)


def unpack(packed: Packed, postings: int) -> Lists | None:
    """All posting lists; None if the bits are not lists with this many postings."""
    if in_numpy(PRODUCTS_PER_BIT * 8 * int(packed.starts[-1])):
        try:
            found = unpack_reference(packed)
        except ValueError:
            return None
        return found if len(found.rows) == postings else None
    from glie.kernels import _postings

    lists = Lists(
        np.empty(packed.terms, np.uint32),
        np.empty(packed.terms, np.int64),
        np.empty(postings, np.int64),
        np.empty(postings, np.uint8),
    )
    is_whole = _postings.read_all(
        packed.words, packed.firsts, packed.starts, packed.low, packed.pages, *lists
    )
    return lists if is_whole else None


class _Reader:
    """Reads codes in plain Python. Bits behind the end are zeros, and no code ends in them."""

    def __init__(self, words: Words, at: int, end: int) -> None:
        first = at // 8
        self._bits = words.view(np.uint8)[first : -(-end // 8)].tobytes()
        self._at, self._end = at - 8 * first, end - 8 * first

    def skip(self, bits: int) -> None:
        self._at += bits
        if self._at > self._end:
            raise ValueError("a list without an end")

    def rice(self, low: int) -> int:
        return self._zeros() << low | self._low(low)

    def gamma(self) -> int:
        zeros = self._zeros()
        return 1 << zeros | self._low(zeros)

    def _zeros(self) -> int:
        zeros = 0
        while self._at < self._end:
            ahead = self._peek()
            if ahead:
                found = (ahead & -ahead).bit_length() - 1
                self._at += found + 1
                return zeros + found
            zeros += WORD
            self._at += WORD
        raise ValueError("a code without an end")

    def _low(self, bits: int) -> int:
        if bits > FINGERPRINT or self._at + bits > self._end:
            raise ValueError("a code without an end")
        value = self._peek() & ((1 << bits) - 1)
        self._at += bits
        return value

    def _peek(self) -> int:
        """The next WORD bits."""
        first, shift = divmod(self._at, 8)
        ahead = int.from_bytes(self._bits[first : first + WORD // 8 + 1], "little") >> shift
        return ahead & ((1 << WORD) - 1)


def _lists_in_python(
    packed: Packed, number: int, wanted: int | None = None
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Fingerprint, rows and frequencies of the terms of a block. With `wanted`, those up to it, and
    the long lists of others are empty."""
    start, end, fingerprint, terms = packed.block(number)
    reader = _Reader(packed.words, start, end)
    for term in range(terms):
        if term:
            fingerprint += reader.rice(packed.low) + 1
        if fingerprint >> FINGERPRINT:
            raise ValueError("a fingerprint that cannot be")
        if wanted is not None and fingerprint > wanted:
            return
        count = reader.gamma()
        if count > packed.pages:
            raise ValueError("more postings than pages")
        size = reader.gamma() if count >= LONG else 0
        rows: list[int] = []
        frequencies: list[int] = []
        if size and wanted not in (None, fingerprint):
            reader.skip(size)
        else:
            low, row = low_bits(count, packed.pages), -1
            for _ in range(count):
                row += reader.rice(low) + 1
                rows.append(row)
                frequencies.append(reader.gamma())
            if row >= packed.pages or max(frequencies) > MOST_FREQUENT:
                raise ValueError("a row or a frequency that cannot be")
        yield fingerprint, rows, frequencies


def _find_in_python(packed: Packed, number: int, wanted: int) -> tuple[Ints, Bytes] | None:
    try:
        for fingerprint, rows, frequencies in _lists_in_python(packed, number, wanted):
            if fingerprint == wanted:
                return np.array(rows, np.int64), np.array(frequencies, np.uint8)
    except ValueError:
        return None
    return NOTHING


def unpack_reference(packed: Packed) -> Lists:
    """`unpack` in plain Python."""
    blocks = range(len(packed.firsts))
    found = [entry for number in blocks for entry in _lists_in_python(packed, number)]
    return Lists(
        np.array([fingerprint for fingerprint, _, _ in found], np.uint32),
        np.array([len(rows) for _, rows, _ in found], np.int64),
        np.array([row for _, rows, _ in found for row in rows], np.int64),
        np.array([often for _, _, frequencies in found for often in frequencies], np.uint8),
    )


def add_bm25(
    rows: Ints, frequencies: Bytes, weight: float, penalties: Floats, scores: Floats
) -> None:
    """Add the score of one term: weight * f / (f + penalty) for a page with frequency f."""
    if in_numpy(len(rows)):
        frequency = frequencies.astype(np.float32)
        scores[rows] += np.float32(weight) * frequency / (frequency + penalties[rows])
        return
    from glie.kernels import _postings

    _postings.add_bm25(rows, frequencies, np.float32(weight), penalties, scores)
