"""Signatures: ten bytes that stand in for a stored vector when pages are looked for.

A vector's signature is its cell, whose centre is near it, and a product code of what the centre
leaves: that rest is cut into PARTS of equal width, and each part is the nearest of WORDS words.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PARTS = 8
WORDS = 256
LANES = 16  # query vectors that the compiled loop scores together
MOST_PRODUCT, MOST_CELL = 127, 16_000  # a cell and PARTS products added up fit into 16 bits
PAGES_PER_CHUNK = 8192  # estimated by a thread at a time: a few tenths of a millisecond


class Signatures(NamedTuple):
    """Of some pages. A slot that a page does not use repeats its first, which changes no maximum:
    nobody need ask how many it uses."""

    cells: npt.NDArray[np.uint16]  # (P, k)
    codes: npt.NDArray[np.uint8]  # (P, k, PARTS)

    @property
    def page_bytes(self) -> int:
        return int(self.cells.shape[1]) * (self.cells.itemsize + PARTS)


class Lists(NamedTuple):
    """Which pages have a vector in which cell: pages[starts[c] : starts[c + 1]] in cell c."""

    starts: Ints  # (C + 1,)
    pages: npt.NDArray[np.int32]


class Tables(NamedTuple):
    """The products of a query's vectors with all that a signature can say, in whole numbers of one
    small step. Vectors stand side by side in groups of LANES, the last filled with zeros."""

    by_token: Floats  # (T, C): the products with the centres of the cells, as they are
    cells: npt.NDArray[np.int16]  # (G, C, LANES)
    products: npt.NDArray[np.int8]  # (G, PARTS, WORDS, LANES)

    @classmethod
    def of(cls, tokens: Floats, cells: Floats, turned: Floats, words: Floats) -> Tables:
        """`turned` (T, PARTS, width) are the tokens as the words (PARTS, WORDS, width) meet
        them."""
        by_token = tokens @ cells.T
        products = np.matmul(turned.swapaxes(0, 1), words.swapaxes(1, 2))  # (PARTS, T, WORDS)
        products = products.swapaxes(0, 1).reshape(len(tokens), -1)
        step = max(_highest(products) / MOST_PRODUCT, _highest(by_token) / MOST_CELL)
        return cls(
            by_token,
            _groups(by_token / step).astype(np.int16),
            _groups(products / step).astype(np.int8).reshape(-1, PARTS, WORDS, LANES),
        )


def _highest(numbers: Floats) -> np.float32:
    """The highest absolute value; at least some, to divide by."""
    highest: np.float32 = np.abs(numbers).max(initial=np.float32(1e-6))
    return highest


def _groups(by_token: Floats) -> Floats:
    """(T, n) rounded, as (G, n, LANES)."""
    tokens, count = by_token.shape
    groups = -(-tokens // LANES)
    filled = np.zeros((groups * LANES, count), np.float32)
    filled[:tokens] = np.rint(by_token)
    return np.ascontiguousarray(filled.reshape(groups, LANES, count).swapaxes(1, 2))


@functools.cache
def prepare() -> None:
    """Have the compiled loops in memory, so that what is timed next is only the search."""
    cells, codes = np.zeros((1, 1), "<u2"), np.zeros((1, 1, PARTS), np.uint8)
    for array in (cells, codes):
        array.setflags(write=False)  # as a mapped file is
    stored, one = Signatures(cells, codes), np.ones((1, 1), np.float32)
    words = np.zeros((PARTS, WORDS, 1), np.float32)
    tables = Tables.of(one, one, np.zeros((1, PARTS, 1), np.float32), words)
    marked = marked_pages(lists_of(stored, 1), np.zeros(1, np.int64), 1)
    estimates(tables, stored, np.flatnonzero(marked))


def estimates(tables: Tables, signatures: Signatures, rows: Ints) -> npt.NDArray[np.int32]:
    """MaxSim of the pages at these rows, as their signatures tell it, in the steps of the
    tables."""
    from glie.kernels import _signatures
    from glie.kernels.parallel import over_ranges

    out = np.empty(len(rows), np.int32)

    def run(first: int, last: int) -> None:
        _signatures.estimates_range(
            tables.cells, tables.products, *signatures, rows, first, last, out
        )

    over_ranges(run, len(rows), chunk=PAGES_PER_CHUNK)
    return out


def estimates_reference(
    tables: Tables, signatures: Signatures, rows: Ints
) -> npt.NDArray[np.int32]:
    """The same in plain numpy."""
    cells, codes = signatures.cells[rows], signatures.codes[rows]
    scores = tables.cells[:, cells].astype(np.int32)  # (G, n, k, LANES)
    for part in range(PARTS):
        scores += tables.products[:, part][:, codes[..., part]]
    return np.asarray(scores.max(axis=2).sum(axis=(0, 2)), dtype=np.int32)


def product_words(x: Floats, words: Floats) -> npt.NDArray[np.uint8]:
    """The nearest of the words (PARTS, WORDS, width) to each part of the rows (n, PARTS,
    width)."""
    from glie.kernels import _signatures
    from glie.kernels.parallel import over_ranges

    codes = np.empty(x.shape[:2], np.uint8)
    across = np.ascontiguousarray(words.swapaxes(1, 2))
    half = (words**2).sum(axis=2) / 2

    def run(first: int, last: int) -> None:
        _signatures.product_words_range(x, across, half, first, last, codes)

    over_ranges(run, len(x), chunk=1024)
    return codes


def product_words_reference(x: Floats, words: Floats) -> npt.NDArray[np.uint8]:
    """The same in plain numpy."""
    affinity = np.einsum("npd,pwd->npw", x, words) - (words**2).sum(axis=2) / 2
    return np.asarray(affinity.argmax(axis=2), dtype=np.uint8)


def lists_of(signatures: Signatures, cells: int) -> Lists:
    """The pages of each of so many cells, each cell's in ascending order."""
    from glie.kernels import _signatures

    lists = Lists(np.zeros(cells + 1, np.int64), np.empty(signatures.cells.size, np.int32))
    _signatures.list_pages(signatures.cells, *lists)
    return lists


def marked_pages(lists: Lists, picked: Ints, pages: int) -> Mask:
    """Whether each of so many pages has a vector in one of the picked cells."""
    from glie.kernels import _signatures

    marked = np.zeros(pages, bool)
    _signatures.mark_pages(*lists, picked, marked)
    return marked
