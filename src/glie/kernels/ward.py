"""Ward's clustering of the vectors of each page: merge, again and again, the two clusters whose
merging adds least to the sum of squared distances to their means.

The merges come from the nearest-neighbour chain (Murtagh, 1983), which finds the same tree without
looking at all pairs each time. Distances are squared, and updated by Lance and Williams' formula.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from glie.kernels.small import in_numpy

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

Merge = Callable[[Floats, Ints, Floats], object]

EQUAL = 1e-6  # vectors this near are equal, up to the rounding of float32: always merged
PRODUCTS_PER_ROW = 100_000  # the time of a row of the chain in Python, in products of numpy


def ward_groups(vectors: Floats, offsets: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """The group of every vector, numbered from 0 within its page in order of appearance, and the
    number of groups of each page: at most `wanted` (P,), fewer where vectors are equal."""
    from glie.kernels.parallel import over_ranges

    groups, counts = np.empty(len(vectors), np.int64), np.empty(len(wanted), np.int64)
    lengths = np.diff(offsets)
    products = int((lengths**2).sum()) * vectors.shape[1] + PRODUCTS_PER_ROW * len(vectors)
    merge: Merge = merge_nearest_in_numpy
    if not in_numpy(products):
        from glie.kernels._ward import merge_nearest as merge

    def run(first: int, last: int) -> None:
        for page in range(first, last):
            mine = slice(offsets[page], offsets[page + 1])
            groups[mine] = _groups_of(vectors[mine], int(wanted[page]), merge)
            counts[page] = groups[mine].max(initial=-1) + 1

    over_ranges(run, len(wanted), chunk=8)
    return groups, counts


def _groups_of(rows: Floats, wanted: int, merge: Merge) -> Ints:
    count = len(rows)
    merges, heights = (
        np.empty((max(count - 1, 0), 2), np.int64),
        np.empty(max(count - 1, 0), np.float32),
    )
    merge(_distances(rows), merges, heights)
    order = np.argsort(heights, kind="stable")
    needed = max(count - wanted, int(np.count_nonzero(heights <= EQUAL)))
    # a merge joins two clusters, each named by its first vector
    first = np.arange(count)
    for one, other in merges[order[:needed]].tolist():
        first[other] = one
    while True:
        above = first[first]
        if (above == first).all():
            return np.unique(first, return_inverse=True)[1].ravel()
        first = above


def _distances(rows: Floats) -> Floats:
    """Squared distances of all pairs; infinite from a row to itself."""
    products = rows @ rows.T
    lengths = np.diagonal(products).copy()
    products *= -2
    products += lengths
    products += lengths[:, None]
    np.maximum(products, 0, out=products)
    np.fill_diagonal(products, np.inf)
    return products


def merge_nearest_in_numpy(distance: Floats, merges: Ints, heights: Floats) -> None:
    """The same as the compiled loop, for small work and as its reference."""
    left = len(distance)
    size, name = np.ones(left, np.float32), np.arange(left)
    chain: list[int] = []
    for step in range(len(heights)):
        chain = chain or [0]
        while True:
            row = distance[chain[-1], :left]
            nearest = int(row.argmin())
            if len(chain) > 1 and row[chain[-2]] <= row[nearest]:
                break
            chain.append(nearest)
        gone, keep = sorted((chain.pop(), chain.pop()), reverse=True)
        height = distance[keep, gone]
        merges[step], heights[step] = sorted((name[keep], name[gone])), height
        a, b, others = distance[keep, :left], distance[gone, :left], size[:left]
        a *= size[keep] + others
        a += (size[gone] + others) * b - others * height
        a /= size[keep] + size[gone] + others
        size[keep] += size[gone]
        name[keep] = min(name[keep], name[gone])
        left -= 1
        if gone != left:
            a[gone] = a[left]
            b[:left] = distance[left, :left]
            b[keep], b[gone] = a[gone], np.inf
            distance[:left, gone] = b[:left]
            size[gone], name[gone] = size[left], name[left]
            chain = [gone if place == left else place for place in chain]
        a[keep] = np.inf
        distance[:left, keep] = a[:left]
