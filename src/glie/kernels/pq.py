"""PQ codes: ten bytes that stand in for a stored vector when pages are looked for.

A vector's PQ code is its list, whose centroid is near it, and a product code of what the centroid
leaves: that rest is cut into PARTS of equal width, and each part is the nearest of CODEWORDS codewords.
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
CODEWORDS = 256
LANES = 16  # query vectors that the compiled loop scores together
MOST_PRODUCT, MOST_LIST = 127, 16_000  # a list and PARTS products added up fit into 16 bits
PAGES_PER_CHUNK = 8192  # estimated by a thread at a time: a few tenths of a millisecond


class PQCodes(NamedTuple):
    """Of some pages. A slot that a page does not use repeats its first, which changes no maximum:
    nobody need ask how many it uses."""

    lists: npt.NDArray[np.uint16]  # (P, k)
    codes: npt.NDArray[np.uint8]  # (P, k, PARTS)

    @property
    def page_bytes(self) -> int:
        return int(self.lists.shape[1]) * (self.lists.itemsize + PARTS)


class PostingLists(NamedTuple):
    """Which pages have a vector in which list: pages[starts[c] : starts[c + 1]] in list c."""

    starts: Ints  # (C + 1,)
    pages: npt.NDArray[np.int32]


class Tables(NamedTuple):
    """The products of a query's vectors with all that a PQ code can say, in whole numbers of one
    small step. Vectors stand side by side in groups of LANES, the last filled with zeros."""

    by_token: Floats  # (T, C): the products with the centroids of the lists, as they are
    lists: npt.NDArray[np.int16]  # (G, C, LANES)
    products: npt.NDArray[np.int8]  # (G, PARTS, CODEWORDS, LANES)

    @classmethod
    def of(cls, tokens: Floats, centroids: Floats, rotated: Floats, codewords: Floats) -> Tables:
        """`rotated` (T, PARTS, width) are the tokens as the codewords (PARTS, CODEWORDS, width) meet
        them."""
        by_token = tokens @ centroids.T
        products = np.matmul(
            rotated.swapaxes(0, 1), codewords.swapaxes(1, 2)
        )  # (PARTS, T, CODEWORDS)
        products = products.swapaxes(0, 1).reshape(len(tokens), -1)
        step = max(_highest(products) / MOST_PRODUCT, _highest(by_token) / MOST_LIST)
        return cls(
            by_token,
            _groups(by_token / step).astype(np.int16),
            _groups(products / step).astype(np.int8).reshape(-1, PARTS, CODEWORDS, LANES),
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
def warm_up() -> None:
    """Have the compiled loops in memory, so that what is timed next is only the search."""
    lists, codes = np.zeros((1, 1), "<u2"), np.zeros((1, 1, PARTS), np.uint8)
    for array in (lists, codes):
        array.setflags(write=False)  # as a mapped file is
    stored, one = PQCodes(lists, codes), np.ones((1, 1), np.float32)
    codewords = np.zeros((PARTS, CODEWORDS, 1), np.float32)
    tables = Tables.of(one, one, np.zeros((1, PARTS, 1), np.float32), codewords)
    marked = pages_in_lists(posting_lists(stored, 1), np.zeros(1, np.int64), 1)
    estimates(tables, stored, np.flatnonzero(marked))


def estimates(tables: Tables, pq_codes: PQCodes, rows: Ints) -> npt.NDArray[np.int32]:
    """MaxSim of the pages at these rows, as their PQ codes tell it, in the steps of the
    tables."""
    from glie.kernels import _pq
    from glie.kernels.parallel import over_ranges

    out = np.empty(len(rows), np.int32)

    def run(first: int, last: int) -> None:
        _pq.estimates_range(tables.lists, tables.products, *pq_codes, rows, first, last, out)

    over_ranges(run, len(rows), chunk=PAGES_PER_CHUNK)
    return out


def estimates_reference(tables: Tables, pq_codes: PQCodes, rows: Ints) -> npt.NDArray[np.int32]:
    """The same in plain numpy."""
    lists, codes = pq_codes.lists[rows], pq_codes.codes[rows]
    scores = tables.lists[:, lists].astype(np.int32)  # (G, n, k, LANES)
    for part in range(PARTS):
        scores += tables.products[:, part][:, codes[..., part]]
    return np.asarray(scores.max(axis=2).sum(axis=(0, 2)), dtype=np.int32)


def pq_encode(x: Floats, codewords: Floats) -> npt.NDArray[np.uint8]:
    """The nearest of the codewords (PARTS, CODEWORDS, width) to each part of the rows (n, PARTS,
    width)."""
    from glie.kernels import _pq
    from glie.kernels.parallel import over_ranges

    codes = np.empty(x.shape[:2], np.uint8)
    across = np.ascontiguousarray(codewords.swapaxes(1, 2))
    half = (codewords**2).sum(axis=2) / 2

    def run(first: int, last: int) -> None:
        _pq.pq_encode_range(x, across, half, first, last, codes)

    over_ranges(run, len(x), chunk=1024)
    return codes


def pq_encode_reference(x: Floats, codewords: Floats) -> npt.NDArray[np.uint8]:
    """The same in plain numpy."""
    affinity = np.einsum("npd,pwd->npw", x, codewords) - (codewords**2).sum(axis=2) / 2
    return np.asarray(affinity.argmax(axis=2), dtype=np.uint8)


def posting_lists(pq_codes: PQCodes, count: int) -> PostingLists:
    """The pages of each of so many lists, each list's in ascending order."""
    from glie.kernels import _pq

    lists = PostingLists(np.zeros(count + 1, np.int64), np.empty(pq_codes.lists.size, np.int32))
    _pq.list_pages(pq_codes.lists, *lists)
    return lists


def pages_in_lists(lists: PostingLists, picked: Ints, pages: int) -> Mask:
    """Whether each of so many pages has a vector in one of the picked lists."""
    from glie.kernels import _pq

    marked = np.zeros(pages, bool)
    _pq.mark_pages(*lists, picked, marked)
    return marked
