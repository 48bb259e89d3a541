"""The pairs that a page needs most, out of those found for its vectors.

A pair (anchor, codeword) stands for a unit vector. We repeatedly drop the pair whose removal hurts
the page least: the sum, over the vectors that it is nearest to, of the squared difference to their
second nearest. Products with pairs come from products with anchors and, in small integers, with
codewords (`nearest.py`), so a page's pairs depend on that page alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.nearest import Grouped, Rounded, empty_rows
from glie.kernels.quantize import rotation

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

TOGETHER = 16  # columns that the compiled loop compares at once


class Beside(NamedTuple):
    """The vectors of pages beside their anchors."""

    near: Floats  # (N, k): products with the anchors of the page
    slots: Ints  # (N,): the nearest anchor
    whole: Rounded  # the vectors
    rest: Rounded  # ... less a share of the nearest anchor


def beside(vectors: Floats, offsets: Ints, anchors: Floats, used: Ints, share: float) -> Beside:
    """Vectors of pages beside the first used[p] of anchors (P, k, D)."""
    from glie.kernels import _needed
    from glie.kernels.parallel import over_ranges

    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
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
    from glie.kernels import _needed
    from glie.kernels.parallel import over_ranges

    kept = np.zeros((len(used), limit), np.int64)
    counts = np.zeros(len(used), np.int64)
    how = np.ascontiguousarray(anchors), used, found, weights, *rotation(anchors.shape[2])
    book = np.array(shares, np.float32), *codewords[:3], codewords.places

    def run(first: int, last: int) -> None:
        _needed.needed_range(
            rows.near, *rows.whole, offsets, *how, *book, unordered, first, last, kept, counts
        )

    over_ranges(run, len(used), chunk=4)
    return kept, counts


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
    from glie.kernels import _needed

    members = similarity.shape[1]
    filling = -members % TOGETHER
    padded = np.pad(np.asarray(similarity, np.float32), [(0, 0), (0, filling)])
    dead = np.where(np.arange(members + filling) < members, 0, -np.inf).astype(np.float32)
    free = (np.arange(len(dead)) >= permanent) & (dead == 0)
    order = np.empty(max(members - permanent - unordered, 0), np.int64)
    if len(order):
        _needed.remove(padded, dead, free, order)
    return np.concatenate([np.flatnonzero(free), order[::-1]])


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
