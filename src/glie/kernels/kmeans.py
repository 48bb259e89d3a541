"""k-means of each page's vectors, many pages at once."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.small import in_numpy

SEED_TRIALS = 4

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Clusters(NamedTuple):
    """Of each page: k centroids, their sizes (largest first, 0 for an unused slot), objective."""

    centroids: Floats  # (P, k, D)
    counts: Ints  # (P, k)
    objective: npt.NDArray[np.float64]  # (P,): sum of |x_i - c|^2


def kmeans(
    vectors: Floats, offsets: Ints, k: int, *, restarts: int, iterations: int, seed: int
) -> Clusters:
    """Greedy k-means++ and Lloyd's iterations on rows offsets[p]..offsets[p + 1] of each page p.

    Deterministic: a page's clusters depend on its vectors and the seed alone. A page with fewer
    than k distinct vectors gets one cluster for each of them.
    """
    pages, dim = len(offsets) - 1, vectors.shape[1]
    clusters = Clusters(
        np.empty((pages, k, dim), np.float32), np.empty((pages, k), np.int64), np.empty(pages)
    )
    distances = restarts * k * (SEED_TRIALS + iterations)
    if in_numpy(vectors.size * distances):
        for page, (first, last) in enumerate(pairwise(offsets)):
            how = {"restarts": restarts, "iterations": iterations, "seed": seed}
            found = kmeans_in_numpy(vectors[first:last], k, **how)
            clusters.centroids[page], clusters.counts[page] = found.centroids[0], found.counts[0]
            clusters.objective[page] = found.objective[0]
        return clusters
    from glie.kernels import _compiled
    from glie.kernels.parallel import over_ranges

    def run(first: int, last: int) -> None:
        _compiled.kmeans_range(
            vectors, offsets, k, restarts, iterations, np.uint64(seed), first, last, *clusters
        )

    over_ranges(run, pages, chunk=4)
    return clusters


def kmeans_in_numpy(x: Floats, k: int, *, restarts: int, iterations: int, seed: int) -> Clusters:
    """The same for one page without compiled loops, with the same random numbers.

    Members are added up in the same order, so the same clusters have the same centroids, bit for
    bit."""
    draws = Draws(seed)
    best = Clusters(
        np.zeros((1, k, x.shape[1]), np.float32), np.zeros((1, k), np.int64), np.full(1, np.inf)
    )
    for _ in range(restarts):
        centroids = _seeds(x, k, draws)
        labels = np.full(len(x), -1)
        for _ in range(iterations):
            new = _assign(x, centroids)
            if np.array_equal(new, labels):
                break
            labels = new
            counts = np.bincount(labels, minlength=len(centroids))
            sums = np.stack([x[labels == j].sum(axis=0) for j in range(len(centroids))])
            centroids = sums * (1 / counts)[:, None].astype(np.float32)
        objective = ((x - centroids[labels]) ** 2).sum(axis=1).sum(dtype=np.float64)
        if objective < best.objective[0]:
            order = np.argsort(-counts, kind="stable")
            for slots, found in ((best.centroids, centroids), (best.counts, counts)):
                slots[0] = 0
                slots[0, : len(order)] = found[order]
            best.objective[0] = objective
    return best


class Draws:
    """The random generator of the compiled loops: 64-bit linear congruential, top 53 bits."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def uniform(self) -> float:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 11) / 2**53


def _seeds(x: Floats, k: int, draws: Draws) -> Floats:
    """Greedy k-means++: each seed is the best of SEED_TRIALS rows drawn by squared distance."""
    chosen = [min(int(draws.uniform() * len(x)), len(x) - 1)]
    nearest = ((x - x[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < k and nearest.sum() > 0:
        cumulative = np.cumsum(nearest, dtype=np.float64)
        rows = [
            min(
                int(np.searchsorted(cumulative, draws.uniform() * cumulative[-1], side="right")),
                int(np.flatnonzero(nearest)[-1]),
            )
            for _ in range(SEED_TRIALS)
        ]
        trials = [np.minimum(nearest, ((x - x[row]) ** 2).sum(axis=1)) for row in rows]
        best = int(np.argmin([trial.sum(dtype=np.float64) for trial in trials]))
        chosen.append(rows[best])
        nearest = trials[best]
    return x[chosen].copy()


def _assign(x: Floats, centroids: Floats) -> Ints:
    """The nearest centroid of each row; an empty cluster takes the row with the worst match."""
    similarity = x @ centroids.T - (centroids**2).sum(axis=1) / 2
    labels: Ints = similarity.argmax(axis=1)
    best = similarity.max(axis=1)
    for j in range(len(centroids)):
        counts = np.bincount(labels, minlength=len(centroids))
        if counts[j] == 0:
            worst = int(np.where(counts[labels] > 1, best, np.inf).argmin())
            labels[worst] = j
            best[worst] = np.inf
    return labels
