"""The nearest codeword of each row, by products of small integers.

Codewords are stored in 4 bits a number, rotated. So rows are rotated too, which changes no product,
and rounded to 8 bits: the error of a product is about 0.05% of the lengths of both vectors, and the
codeword that is found is as near as the nearest, but for that. Integer sums are exact, so a row's
codeword depends on that row alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.quantize import odd_integers, rotate, rotation
from glie.kernels.small import in_numpy

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

PROBES = 4  # lists searched for a row's codeword: 8 lower the error by 1%, 2 raise it by 3%
LARGEST = 127  # of a rounded number
TOP = 15  # level l of a stored number stands for 2 l - TOP
LEVELS = "int4"
TOGETHER = 16  # codewords side by side in a group
PER_STEP = 4  # numbers of one codeword side by side
PADDING = 32  # rows are filled up to a multiple of these


class Rounded(NamedTuple):
    """Rows in 8 bits, rotated: number * step, filled up with zeros."""

    numbers: npt.NDArray[np.int8]  # (n, W)
    steps: Floats  # (n,)
    sums: npt.NDArray[np.int32]  # (n,), of the numbers

    def rows(self, dim: int) -> Floats:
        """The rows they stand for, still rotated."""
        return np.multiply(self.numbers[:, :dim], self.steps[:, None], dtype=np.float32)


class Grouped(NamedTuple):
    """Codewords in groups of 16 that no two lists share: scale * (2 level - TOP), rotated."""

    levels: Bytes  # (G, W / 4, 16, 4)
    scales: Floats  # (G, 16)
    halves: Floats  # (G, 16): half of the squared length, infinite where a group is not full
    names: Ints  # (G, 16): the number of each codeword
    starts: Ints  # (C + 1,): list c has the groups starts[c]..starts[c + 1]
    places: Ints  # (K,): group * 16 + place in the group, of each codeword


def grouped(packed: Bytes, lengths: Floats, dim: int, starts: Ints) -> Grouped:
    """Codewords whose directions are packed in 4 bits. List c is starts[c]..starts[c + 1]."""
    sizes = np.diff(starts)
    groups = np.concatenate([[0], np.cumsum(-(-sizes // TOGETHER))]).astype(np.int64)
    count = len(lengths)
    inside = np.arange(count) - np.repeat(starts[:-1], sizes)
    places = np.repeat(groups[:-1] * TOGETHER, sizes) + inside
    odd = odd_integers(packed, LEVELS, dim)
    levels = np.zeros((groups[-1] * TOGETHER, _width(dim)), np.uint8)
    levels[places, :dim] = (odd + TOP) / 2
    scales = np.zeros(len(levels), np.float32)
    scales[places] = lengths / np.sqrt((odd * odd).sum(axis=1))
    halves = np.full(len(levels), np.inf, np.float32)
    halves[places] = lengths * lengths / 2
    names = np.zeros(len(levels), np.int64)
    names[places] = np.arange(count)
    apart = levels.reshape(groups[-1], TOGETHER, -1, PER_STEP).swapaxes(1, 2)
    return Grouped(
        np.ascontiguousarray(apart),
        scales.reshape(-1, TOGETHER),
        halves.reshape(-1, TOGETHER),
        names.reshape(-1, TOGETHER),
        groups,
        places,
    )


def rounded(x: Floats) -> Rounded:
    """Rows (n, D), rotated and rounded."""
    if in_numpy(x.size):
        return round_rotated(rotate(np.asarray(x, np.float32)))
    from glie.kernels import _nearest
    from glie.kernels.parallel import over_ranges

    x = np.ascontiguousarray(x, dtype=np.float32)
    rows = empty_rows(*x.shape)
    signs, block = rotation(x.shape[1])

    def run(first: int, last: int) -> None:
        _nearest.round_range(x, signs, block, first, last, *rows)

    over_ranges(run, len(x), chunk=1024)
    return rows


def empty_rows(count: int, dim: int) -> Rounded:
    """Room for rounded rows."""
    numbers = np.zeros((count, _width(dim)), np.int8)
    return Rounded(numbers, np.empty(count, np.float32), np.empty(count, np.int32))


def _width(dim: int) -> int:
    return -(-dim // PADDING) * PADDING


def round_rotated(turned: Floats) -> Rounded:
    """Rows that are rotated already, rounded in numpy."""
    rows = empty_rows(*turned.shape)
    rows.steps[:] = np.abs(turned).max(axis=1) / np.float32(LARGEST)
    inverse = np.divide(1, rows.steps, where=rows.steps > 0, out=np.zeros_like(rows.steps))
    rows.numbers[:, : turned.shape[1]] = np.rint(turned * inverse[:, None])
    rows.sums[:] = rows.numbers.sum(axis=1, dtype=np.int32)
    return rows


def nearest_centroids(x: Floats, centroids: Floats) -> Ints:
    """The nearest centroid of each row, where both are plain floats."""
    from glie.kernels import _nearest
    from glie.kernels.parallel import over_ranges

    x = np.ascontiguousarray(x, dtype=np.float32)
    found = np.zeros(len(x), np.int64)
    half = (centroids**2).sum(axis=1) / 2

    def run(first: int, last: int) -> None:
        _nearest.centroids_range(x, centroids, half, first, last, found)

    over_ranges(run, len(x), chunk=256)
    return found


def nearest(rows: Rounded, centroids: Grouped, codewords: Grouped) -> Ints:
    """The nearest codeword of each row, out of the PROBES lists whose centroids are nearest."""
    lists = len(codewords.starts) - 1
    compared = centroids.names.size + min(PROBES, lists) * codewords.names.size // max(lists, 1)
    if in_numpy(compared * rows.numbers.size):
        return nearest_in_numpy(rows, centroids, codewords)
    from glie.kernels import _nearest
    from glie.kernels.parallel import over_ranges

    count = len(rows.numbers)
    top = np.empty((count, min(PROBES, lists)), np.int64)

    def find_lists(first: int, last: int) -> None:
        _nearest.probes_range(*rows, *centroids[:3], first, last, top)

    over_ranges(find_lists, count, chunk=256)
    # grouped by list: its codewords stay in the cache while all its rows are scored
    wanted = top.ravel()
    order = np.argsort(wanted.astype(np.uint16) if lists <= 1 << 16 else wanted, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(wanted, minlength=lists))])
    score, codeword = np.empty(len(order), np.float32), np.empty(len(order), np.int64)
    asking = order // top.shape[1]

    def find_codewords(first: int, last: int) -> None:
        _nearest.best_range(*rows, *codewords[:5], asking, bounds, first, last, score, codeword)

    over_ranges(find_codewords, lists, chunk=4)
    scores, found = np.empty_like(score), np.empty_like(codeword)
    scores[order], found[order] = score, codeword
    best = scores.reshape(top.shape).argmax(axis=1)
    return np.asarray(found.reshape(top.shape)[np.arange(count), best])


def nearest_in_numpy(rows: Rounded, centroids: Grouped, codewords: Grouped) -> Ints:
    """The same without compiled loops. Integer sums are exact in float32, so it finds the same."""
    lists = len(codewords.starts) - 1
    closeness = scores_in_numpy(rows, slice(None), centroids, slice(None))
    top = np.argsort(-closeness, axis=1, kind="stable")[:, : min(PROBES, lists)]
    scores = np.empty(top.shape, np.float32)
    found = np.empty(top.shape, np.int64)
    for group in range(lists):
        asking, probe = np.nonzero(top == group)
        if len(asking):
            mine = slice(codewords.starts[group], codewords.starts[group + 1])
            products = scores_in_numpy(rows, asking, codewords, mine)
            best = products.argmax(axis=1)
            scores[asking, probe] = products[np.arange(len(asking)), best]
            found[asking, probe] = codewords.names[mine].ravel()[best]
    return np.asarray(found[np.arange(len(found)), scores.argmax(axis=1)])


def scores_in_numpy(
    rows: Rounded, some: Ints | slice, codewords: Grouped, groups: Ints | slice
) -> Floats:
    """Some rows with the codewords of some groups: product less half of the squared length."""
    numbers = rows.numbers[some].astype(np.float32)
    levels = codewords.levels[groups].swapaxes(1, 2).astype(np.float32)
    totals = numbers @ levels.reshape(-1, numbers.shape[1]).T
    products = (2 * totals - np.float32(TOP) * rows.sums[some, None]) * rows.steps[some, None]
    products *= codewords.scales[groups].ravel()
    return np.asarray(products - codewords.halves[groups].ravel(), np.float32)


def nearest_reference(rows: Rounded, centroids: Grouped, codewords: Grouped, dim: int) -> Ints:
    """The same in plain numpy."""
    lists = len(codewords.starts) - 1
    list_of = np.repeat(np.arange(lists), np.diff(codewords.starts) * TOGETHER)

    def affinity(to: Grouped) -> Floats:
        levels = to.levels.swapaxes(1, 2).reshape(len(to.levels) * TOGETHER, -1)[:, :dim]
        vectors = to.scales.reshape(-1, 1) * (2 * levels.astype(np.float32) - TOP)
        return np.asarray(rows.rows(dim) @ vectors.T - to.halves.ravel())

    top = np.argsort(-affinity(centroids), axis=1, kind="stable")[:, : min(PROBES, lists)]
    allowed = (list_of[None, None] == top[..., None]).any(axis=1)
    places = np.where(allowed, affinity(codewords), -np.inf).argmax(axis=1)
    return np.asarray(codewords.names.ravel()[places])
