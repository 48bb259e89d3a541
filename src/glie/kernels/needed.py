"""The pairs that a page needs most, out of those found for its vectors.

A pair (anchor, codeword) stands for a unit vector. We repeatedly drop the pair whose removal hurts
the page least: the sum, over the vectors that it is nearest to, of the squared difference to their
second nearest. Products with pairs come from products with anchors and, in small integers, with
codewords (`nearest.py`), so a page's pairs depend on that page alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.nearest import TOP, Grouped, Rounded, empty_rows, round_rotated
from glie.kernels.quantize import rotate, rotation
from glie.kernels.small import in_numpy

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

TOGETHER = 16  # columns that the compiled loop compares at once
PRODUCTS_PER_ROW = 60_000  # the time of numpy to weigh the pairs of a vector, in products
PRODUCTS_PER_REMOVAL = 100_000  # ... and to drop a pair


class Beside(NamedTuple):
    """The vectors of pages beside their anchors."""

    near: Floats  # (N, k): products with the anchors of the page
    slots: Ints  # (N,): the nearest anchor
    whole: Rounded  # the vectors
    rest: Rounded  # ... less a share of the nearest anchor


def beside(vectors: Floats, offsets: Ints, anchors: Floats, used: Ints, share: float) -> Beside:
    """Vectors of pages beside the first used[p] of anchors (P, k, D)."""
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if in_numpy(vectors.size * (anchors.shape[1] + 1)):
        return _beside_in_numpy(vectors, offsets, anchors, used, share)
    from glie.kernels import _needed
    from glie.kernels.parallel import over_ranges

    count, dim = vectors.shape
    found = Beside(
        np.zeros((count, anchors.shape[1]), np.float32),
        np.zeros(count, np.int64),
        empty_rows(count, dim),
        empty_rows(count, dim),
    )
    how = np.ascontiguousarray(anchors), used, np.float32(share), *rotation(dim)

    def run(first: int, last: int) -> None:
        out = found.near, found.slots, *found.whole, *found.rest
        _needed.beside_range(vectors, offsets, *how, first, last, *out)

    over_ranges(run, len(used), chunk=8)
    return found


def needed_pairs(
    rows: Beside,
    offsets: Ints,
    anchors: Floats,
    used: Ints,
    found: Ints,
    weights: Floats,
    codewords: Grouped,
    shares: tuple[float, float],
    limit: int,
    unordered: int,
) -> tuple[Ints, Ints]:
    """Of the pairs found for the vectors of each page (N,), the `limit` that it needs most, the
    most needed first, the first `unordered` in any order: (P, limit), and how many there are.
    weights[i] says how much vector i counts."""
    if in_numpy(PRODUCTS_PER_ROW * len(found)):
        kept = np.zeros((len(used), limit), np.int64)
        counts = np.zeros(len(used), np.int64)
        for page, (first, last) in enumerate(pairwise(offsets)):
            mine = _rows(rows, slice(first, last))
            given = mine, anchors[page, : used[page]], found[first:last], weights[first:last]
            pairs = needed_in_numpy(*given, codewords, shares, limit, unordered)
            kept[page, : len(pairs)] = pairs
            counts[page] = len(pairs)
        return kept, counts
    from glie.kernels import _needed
    from glie.kernels.parallel import over_ranges

    kept = np.zeros((len(used), limit), np.int64)
    counts = np.zeros(len(used), np.int64)
    how = np.ascontiguousarray(anchors), used, found, weights, *rotation(anchors.shape[2])
    fours = codewords.levels.view(np.uint32)[..., 0]
    book = np.array(shares, np.float32), fours, *codewords[1:3], codewords.places

    def run(first: int, last: int) -> None:
        _needed.needed_range(
            rows.near, *rows.whole, offsets, *how, *book, unordered, first, last, kept, counts
        )

    over_ranges(run, len(used), chunk=4)
    return kept, counts


def _beside_in_numpy(
    vectors: Floats, offsets: Ints, anchors: Floats, used: Ints, share: float
) -> Beside:
    """`beside` without compiled loops."""
    near = np.zeros((len(vectors), anchors.shape[1]), np.float32)
    slots = np.zeros(len(vectors), np.int64)
    turned = rotate(vectors)
    rest = turned.copy()
    for page, (first, last) in enumerate(pairwise(offsets)):
        mine = anchors[page, : used[page]]
        near[first:last, : used[page]] = vectors[first:last] @ mine.T
        slots[first:last] = near[first:last, : used[page]].argmax(axis=1)
        rest[first:last] -= np.float32(share) * rotate(mine)[slots[first:last]]
    return Beside(near, slots, round_rotated(turned), round_rotated(rest))


def _rows(rows: Beside, some: slice) -> Beside:
    whole, rest = (
        Rounded(each.numbers[some], each.steps[some], each.sums[some])
        for each in (rows.whole, rows.rest)
    )
    return Beside(rows.near[some], rows.slots[some], whole, rest)


def needed_in_numpy(
    rows: Beside,
    anchors: Floats,
    found: Ints,
    weights: Floats,
    codewords: Grouped,
    shares: tuple[float, float],
    limit: int,
    unordered: int,
) -> Ints:
    """`needed_pairs` for one page without compiled loops: the same but for rounding."""
    pairs = np.unique(found)
    leave = len(pairs) - min(unordered, limit)
    if leave <= 0:
        return pairs
    slots, names = np.divmod(pairs, len(codewords.places))
    group, place = np.divmod(codewords.places[names], TOGETHER)
    levels = codewords.levels[group, :, place].reshape(len(pairs), -1).astype(np.float32)
    scales, halves = codewords.scales[group, place], codewords.halves[group, place]
    turned = rotate(anchors)
    own = _products(round_rotated(turned), levels)[slots, np.arange(len(pairs))] * scales
    one, two = np.float32(shares[0]), np.float32(shares[1])
    squares = one * one * (turned * turned).sum(axis=1)[slots]
    squares += 2 * two * two * halves + 2 * one * two * own
    inverse = 1 / np.sqrt(np.maximum(squares, np.float32(1e-12)))
    similarity = _products(rows.whole, levels) * (scales * two * inverse)
    similarity += rows.near[:, slots] * (one * inverse)
    near = rows.near[:, : len(anchors)]
    weighed = weights[:, None] * np.concatenate([near, similarity], axis=1)
    kept = most_needed(weighed, len(anchors), min(unordered, limit)) - len(anchors)
    return np.asarray(pairs[kept][:limit])


def _products(rows: Rounded, levels: Floats) -> Floats:
    """Products of rounded rows with codewords of levels (n, W), as if their scales were 1."""
    totals = rows.numbers.astype(np.float32) @ levels.T
    return np.asarray((2 * totals - np.float32(TOP) * rows.sums[:, None]) * rows.steps[:, None])


def needed_pairs_reference(
    rows: Floats,
    anchors: Floats,
    found: Ints,
    weights: Floats,
    codewords: Floats,
    shares: tuple[float, float],
    limit: int,
) -> Ints:
    """The same for one page in plain numpy, all in order."""
    pairs = np.unique(found)
    slots, names = np.divmod(pairs, len(codewords))
    members = shares[0] * anchors[slots] + shares[1] * codewords[names]
    members /= np.linalg.norm(members, axis=1, keepdims=True)
    similarity = weights[:, None] * (rows @ np.concatenate([anchors, members]).T)
    order = most_needed_reference(similarity, len(anchors))
    return np.asarray(pairs[order - len(anchors)][:limit])


def most_needed(similarity: Floats, permanent: int, unordered: int = 0) -> Ints:
    """The columns after the first `permanent`, the most needed first; the first `unordered` of them
    in any order. similarity[i, j] is the product of vector i of a page and member j of its set."""
    members = similarity.shape[1]
    if in_numpy(PRODUCTS_PER_REMOVAL * members):
        return _most_needed_in_numpy(similarity, permanent, unordered)
    from glie.kernels import _needed

    filling = -members % TOGETHER
    padded = np.pad(np.asarray(similarity, np.float32), [(0, 0), (0, filling)])
    dead = np.where(np.arange(members + filling) < members, 0, -np.inf).astype(np.float32)
    free = (np.arange(len(dead)) >= permanent) & (dead == 0)
    order = np.empty(max(members - permanent - unordered, 0), np.int64)
    if len(order):
        _needed.remove(padded, len(padded), dead, free, order)
    return np.concatenate([np.flatnonzero(free), order[::-1]])


def _most_needed_in_numpy(similarity: Floats, permanent: int, unordered: int) -> Ints:
    """`most_needed` without compiled loops: only the vectors that a member was nearest or second
    nearest to are compared again when it leaves."""
    left = np.array(similarity, np.float32)
    every = np.arange(len(left))
    members = left.shape[1]
    nearest, second = np.zeros(len(left), np.int64), np.zeros(len(left), np.int64)
    fall, cost = np.zeros(len(left)), np.zeros(members)
    free = np.arange(members) >= permanent

    def compare(rows: Ints) -> None:
        some, place = left[rows], np.arange(len(rows))
        nearest[rows] = some.argmax(axis=1)
        high = some[place, nearest[rows]]
        some[place, nearest[rows]] = -np.inf
        second[rows] = some.argmax(axis=1)
        fall[rows] = (high - some[place, second[rows]]) ** 2
        np.add.at(cost, nearest[rows], fall[rows])

    compare(every)
    order = []
    for _ in range(members - permanent - unordered):
        staying = np.flatnonzero(free)
        leaving = int(staying[cost[staying].argmin()])
        order.append(leaving)
        free[leaving] = False
        left[:, leaving] = -np.inf
        rows = every[(nearest == leaving) | (second == leaving)]
        others = rows[nearest[rows] != leaving]
        np.subtract.at(cost, nearest[others], fall[others])
        if free.any() or permanent:
            compare(rows)
    return np.concatenate([np.flatnonzero(free), np.array(order[::-1], np.int64)])


def most_needed_reference(similarity: Floats, permanent: int) -> Ints:
    """The same in plain numpy, all in order."""
    alive = list(range(similarity.shape[1]))
    gone: list[int] = []
    while len(alive) > permanent:

        def cost(j: int, alive: list[int] = alive) -> float:
            others = [i for i in alive if i != j]
            if not others:
                return 0.0
            before = similarity[:, alive].max(axis=1)
            return float(((before - similarity[:, others].max(axis=1)) ** 2).sum())

        leaving = min((j for j in alive if j >= permanent), key=cost)
        alive.remove(leaving)
        gone.append(leaving)
    return np.array(gone[::-1], np.int64)
