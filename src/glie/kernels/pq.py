"""PQ codes: ten bytes per stored vector, from which MaxSim is estimated.

The first two bytes are the number of the posting list with the nearest coarse centroid. The other
eight encode the residual: it is cut into PARTS of equal width, and each part is replaced by the
nearest of its CODEWORDS codewords.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.columns import Columns

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PARTS = 8
CODEWORDS = 256
CODE_BYTES = 2 + PARTS
LANES = 16  # query vectors that the compiled loop scores together
MOST_PRODUCT, MOST_LIST = 127, 16_000  # one list score plus PARTS products fit into 16 bits
PAGES_PER_CHUNK = 8192  # per thread and step: a few tenths of a millisecond


class PQCodes(NamedTuple):
    """PQ codes of some pages. An unused slot repeats the page's first, which changes no maximum, so
    that the loops need no counts."""

    lists: npt.NDArray[np.uint16]  # (P, k)
    codes: npt.NDArray[np.uint8]  # (P, k, PARTS)

    @property
    def page_bytes(self) -> int:
        """Bytes per page."""
        return int(self.lists.shape[1]) * (self.lists.itemsize + PARTS)


class PostingLists(NamedTuple):
    """The pages with a vector in each list: pages[starts[c] : starts[c + 1]] for list c."""

    starts: Ints  # (C + 1,)
    pages: npt.NDArray[np.int32]


class Tables(NamedTuple):
    """Score tables of one query (asymmetric distance computation): its inner products with all
    centroids and codewords, as integer multiples of one step. Query vectors lie side by side in
    groups of LANES; the last group is filled with zeros."""

    by_token: Floats  # (T, C): the products with the coarse centroids, not rounded
    lists: npt.NDArray[np.int16]  # (G, C, LANES)
    products: npt.NDArray[np.int8]  # (G, PARTS, CODEWORDS, LANES)

    @classmethod
    def of(cls, tokens: Floats, centroids: Floats, rotated: Floats, codewords: Floats) -> Tables:
        """`rotated` (T, PARTS, width) are the query vectors, rotated and cut into parts, for the
        codewords (PARTS, CODEWORDS, width)."""
        by_token = np.ascontiguousarray((centroids @ Columns(tokens.T)).T)
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
    """The highest absolute value, at least 1e-6: it becomes a divisor."""
    highest: np.float32 = np.abs(numbers).max(initial=np.float32(1e-6))
    return highest


def _groups(by_token: Floats) -> Floats:
    """Round (T, n) to integers and group them as (G, n, LANES)."""
    tokens, count = by_token.shape
    groups = -(-tokens // LANES)
    filled = np.zeros((groups * LANES, count), np.float32)
    filled[:tokens] = np.rint(by_token)
    return np.ascontiguousarray(filled.reshape(groups, LANES, count).swapaxes(1, 2))


@functools.cache
def warm_up() -> None:
    """Load the compiled loops, so that the seconds of a search do not include it."""
    lists, codes = np.zeros((1, 1), "<u2"), np.zeros((1, 1, PARTS), np.uint8)
    for array in (lists, codes):
        array.setflags(write=False)  # as a mapped file is
    stored, one = PQCodes(lists, codes), np.ones((1, 1), np.float32)
    codewords = np.zeros((PARTS, CODEWORDS, 1), np.float32)
    tables = Tables.of(one, one, np.zeros((1, PARTS, 1), np.float32), codewords)
    marked = pages_in_lists(posting_lists(stored, 1), np.zeros(1, np.int64), 1)
    estimates(tables, stored, np.flatnonzero(marked))


def estimates(tables: Tables, pq_codes: PQCodes, rows: Ints) -> npt.NDArray[np.int32]:
    """MaxSim of the pages at these rows, estimated from their PQ codes, in steps of the tables."""
    from glie.kernels import _pq
    from glie.kernels.parallel import over_ranges

    out = np.empty(len(rows), np.int32)

    def run(first: int, last: int) -> None:
        _pq.estimates_range(tables.lists, tables.products, *pq_codes, rows, first, last, out)

    over_ranges(run, len(rows), chunk=PAGES_PER_CHUNK)
    return out


def estimates_reference(tables: Tables, pq_codes: PQCodes, rows: Ints) -> npt.NDArray[np.int32]:
    """`estimates` in plain numpy."""
    lists, codes = pq_codes.lists[rows], pq_codes.codes[rows]
    scores = tables.lists[:, lists].astype(np.int32)  # (G, n, k, LANES)
    for part in range(PARTS):
        scores += tables.products[:, part][:, codes[..., part]]
    return np.asarray(scores.max(axis=2).sum(axis=(0, 2)), dtype=np.int32)


def pq_encode(x: Floats, codewords: Floats) -> npt.NDArray[np.uint8]:
    """Codes (n, PARTS): the number of the nearest codeword, of (PARTS, CODEWORDS, width), to each
    part of the rows (n, PARTS, width)."""
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
    """`pq_encode` in plain numpy."""
    affinity = np.einsum("npd,pwd->npw", x, codewords) - (codewords**2).sum(axis=2) / 2
    return np.asarray(affinity.argmax(axis=2), dtype=np.uint8)


def posting_lists(pq_codes: PQCodes, count: int) -> PostingLists:
    """The pages in each of `count` lists, in ascending order."""
    from glie.kernels import _pq

    lists = PostingLists(np.zeros(count + 1, np.int64), np.empty(pq_codes.lists.size, np.int32))
    _pq.list_pages(pq_codes.lists, *lists)
    return lists


def pages_in_lists(lists: PostingLists, picked: Ints, pages: int) -> Mask:
    """Whether each of the first `pages` pages has a vector in one of the picked lists."""
    from glie.kernels import _pq

    marked = np.zeros(pages, bool)
    _pq.mark_pages(*lists, picked, marked)
    return marked
