"""Residual coding: find the nearest codewords, choose the most needed, pack and unpack the set.

A row's result depends on that row (or its page) alone, bit for bit, in any batch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

PROBES = 4  # lists searched for a row's codeword: 8 lower the error by 1%, 2 raise it by 3%
FIRST_LAYER = 32


def nearest_codewords(x: Floats, centroids: Floats, starts: Ints, codewords: Floats) -> Ints:
    """The nearest codeword of each row, out of the PROBES lists whose centroids are nearest to it.
    List c holds codewords starts[c]..starts[c + 1]."""
    from glie.kernels import _residual
    from glie.kernels.parallel import over_ranges

    x = np.ascontiguousarray(x, dtype=np.float32)
    top = np.empty((len(x), min(PROBES, len(centroids))), np.int64)
    half_centroids = (centroids**2).sum(axis=1) / 2

    def find_centroids(first: int, last: int) -> None:
        _residual.top_centroids_range(x, centroids, half_centroids, first, last, top)

    over_ranges(find_centroids, len(x), chunk=256)
    # grouped by list: its codewords stay in the cache while all its rows are scored
    wanted = top.ravel()
    order = np.argsort(wanted, kind="stable")
    bounds = np.searchsorted(wanted[order], np.arange(len(centroids) + 1))
    score, codeword = np.empty(len(order), np.float32), np.empty(len(order), np.int64)
    half_codewords = (codewords**2).sum(axis=1) / 2

    def find_codewords(first: int, last: int) -> None:
        _residual.best_codewords_range(
            x,
            order // top.shape[1],
            bounds,
            starts,
            codewords,
            half_codewords,
            first,
            last,
            score,
            codeword,
        )

    over_ranges(find_codewords, len(centroids), chunk=4)
    scores, found = np.empty_like(score), np.empty_like(codeword)
    scores[order], found[order] = score, codeword
    best = scores.reshape(top.shape).argmax(axis=1)
    return np.asarray(found.reshape(top.shape)[np.arange(len(x)), best])


def nearest_codewords_reference(
    x: Floats, centroids: Floats, starts: Ints, codewords: Floats
) -> Ints:
    """The same in plain numpy."""

    def affinity(to: Floats) -> Floats:
        return np.asarray(x @ to.T - (to**2).sum(axis=1) / 2)

    list_of = np.repeat(np.arange(len(centroids)), np.diff(starts))
    top = np.argsort(-affinity(centroids), axis=1, kind="stable")[:, :PROBES]
    allowed = (list_of[None, None] == top[..., None]).any(axis=1)
    return np.asarray(np.where(allowed, affinity(codewords), -np.inf).argmax(axis=1))


def layers(count: int) -> Iterator[tuple[int, int]]:
    """The layers 0..32, 32..64, 64..128, ... of a set of `count` members, the most needed first.

    Members are sorted inside a layer, since their order would cost bits. Layers keep their order:
    the first ones alone are a good smaller set.
    """
    first, last = 0, FIRST_LAYER
    while first < count:
        yield first, min(last, count)
        first, last = last, 2 * last


@functools.cache
def most_bytes(count: int, universe: int) -> int:
    """The most bytes that pack_set returns."""
    from glie.kernels import _residual

    bits = 0
    for first, last in layers(count):
        low = _residual.low_bits(last - first, universe)
        bits += (last - first) * (low + 1) + (universe >> low)
    return -(-bits // 8)


def pack_set(pairs: Ints, universe: int) -> Bytes:
    """Pack distinct numbers below `universe`, the most needed first (Rice code, layer by layer)."""
    from glie.kernels import _residual

    out = np.zeros(most_bytes(len(pairs), universe) + 1, np.uint8)
    at = 0
    for first, last in layers(len(pairs)):
        at = _residual.write_layer(np.sort(pairs[first:last]), universe, out, at)
    return out[: -(-at // 8)]


def unpack_set(data: Bytes, count: int, universe: int) -> tuple[Ints, int] | None:
    """The numbers that pack_set packed, ascending inside each layer, and how many bytes they took;
    None if the bytes are not a set of `count` numbers."""
    from glie.kernels import _residual

    pairs = np.empty(count, np.int64)
    taken = _residual.read_set(data, FIRST_LAYER, universe, pairs)
    return None if taken < 0 else (pairs, int(taken))


def unpack_sets(
    data: Bytes, starts: Ints, ends: Ints, counts: Ints, universes: Ints
) -> tuple[Ints, Ints, Ints]:
    """unpack_set for many pages, page p in bytes starts[p]..ends[p]: all numbers end to end, the
    bounds of each page, and the bytes each took (-1 where they are not a set)."""
    from glie.kernels import _residual

    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    pairs, taken = np.empty(bounds[-1], np.int64), np.empty(len(starts), np.int64)
    _residual.read_sets(data, starts, ends, FIRST_LAYER, universes, bounds, pairs, taken)
    return pairs, bounds, taken


def reconstruct(
    anchors: Floats,
    used: Ints,
    codewords: Floats,
    shares: tuple[float, float],
    pairs: Ints,
    bounds: Ints,
) -> tuple[Floats, Ints]:
    """The used anchors of every page, then the unit vector of each of its pairs: all rows, and the
    offsets of each page. Pair slot * K + codeword stands for shares[0] * anchor + shares[1] *
    codeword."""
    from glie.kernels import _residual
    from glie.kernels.parallel import over_ranges

    offsets = np.concatenate([[0], np.cumsum(used + np.diff(bounds))]).astype(np.int64)
    out = np.empty((offsets[-1], codewords.shape[1]), np.float32)
    both = np.float32(shares[0]), np.float32(shares[1])

    def run(first: int, last: int) -> None:
        _residual.reconstruct_range(
            anchors, used, codewords, *both, pairs, bounds, offsets, first, last, out
        )

    over_ranges(run, len(used), chunk=32)
    return out, offsets


def most_needed(similarity: Floats, permanent: int) -> Ints:
    """The columns after the first `permanent`, the most needed first (see removal_order)."""
    from glie.kernels import _residual

    return np.asarray(_residual.removal_order(similarity, permanent)[::-1])
