"""Sets of codewords: the nearest ones found, the most needed ones chosen, the set packed.

Pure functions of arrays. A row's result depends on that row (or its page) alone, bit for bit,
whatever else is in the batch.
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
    """The codeword nearest to each row, out of the PROBES lists nearest to it. Cell c holds codewords
    starts[c]..starts[c + 1]."""
    from glie.kernels import _residual
    from glie.kernels.parallel import over_ranges

    x = np.ascontiguousarray(x, dtype=np.float32)
    top = np.empty((len(x), min(PROBES, len(centroids))), np.int64)
    half_centroids = (centroids**2).sum(axis=1) / 2

    def find_centroids(first: int, last: int) -> None:
        _residual.top_centroids_range(x, centroids, half_centroids, first, last, top)

    over_ranges(find_centroids, len(x), chunk=256)
    # grouped by list, so that a list's codewords stay in the cache while its rows pass
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

    cell_of = np.repeat(np.arange(len(centroids)), np.diff(starts))
    top = np.argsort(-affinity(centroids), axis=1, kind="stable")[:, :PROBES]
    allowed = (cell_of[None, None] == top[..., None]).any(axis=1)
    return np.asarray(np.where(allowed, affinity(codewords), -np.inf).argmax(axis=1))


def layers(count: int) -> Iterator[tuple[int, int]]:
    """A set of `count`, the most needed first, is packed in layers 0..32, 32..64, 64..128 and so
    on: without the order inside a layer, which would cost bits, and with the order of layers, so
    that the first ones alone are a good smaller set."""
    first, last = 0, FIRST_LAYER
    while first < count:
        yield first, min(last, count)
        first, last = last, 2 * last


@functools.cache
def most_bytes(count: int, universe: int) -> int:
    """What pack_set takes at worst."""
    from glie.kernels import _residual

    bits = 0
    for first, last in layers(count):
        low = _residual.low_bits(last - first, universe)
        bits += (last - first) * (low + 1) + (universe >> low)
    return -(-bits // 8)


def pack_set(pairs: Ints, universe: int) -> Bytes:
    """Distinct numbers below `universe`, the most needed first, in as few bytes as they take."""
    from glie.kernels import _residual

    out = np.zeros(most_bytes(len(pairs), universe) + 1, np.uint8)
    at = 0
    for first, last in layers(len(pairs)):
        at = _residual.write_layer(np.sort(pairs[first:last]), universe, out, at)
    return out[: -(-at // 8)]


def unpack_set(data: Bytes, count: int, universe: int) -> tuple[Ints, int] | None:
    """The numbers of pack_set, ascending inside each layer, and how many bytes held them; None
    when these bytes are not the set of so many."""
    from glie.kernels import _residual

    pairs = np.empty(count, np.int64)
    taken = _residual.read_set(data, FIRST_LAYER, universe, pairs)
    return None if taken < 0 else (pairs, int(taken))


def unpack_sets(
    data: Bytes, starts: Ints, ends: Ints, counts: Ints, universes: Ints
) -> tuple[Ints, Ints, Ints]:
    """The sets of many pages, that of page p in bytes starts[p]..ends[p]: all their numbers, where
    each page's begin, and how many bytes held them, -1 where they did not."""
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
    """For every page its used anchors, then the unit vectors that its pairs stand for: all the
    rows, and where each page's begin. A pair is slot * K + codeword and stands for the shares of the
    anchor and of the codeword."""
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
    """The columns behind the `permanent` ones, the most needed first."""
    from glie.kernels import _residual

    return np.asarray(_residual.removal_order(similarity, permanent)[::-1])
