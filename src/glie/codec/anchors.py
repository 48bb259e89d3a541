"""Anchors: the centroids of a page's clusters, normalised.

A mean of unit vectors is shorter than 1, so it understates every inner product. Normalising removes
that. The norm is kept beside the anchor: it says how spread the cluster was (the k-means objective
is the sum of n_j (1 - |c_j|^2)).
"""

from __future__ import annotations

import numpy as np

from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.errors import VectorError
from glie.kernels.kmeans import Clusters, Ints, kmeans
from glie.kernels.ward import ward_groups
from glie.pages import Pages

MAX_VECTORS = np.iinfo(np.uint16).max  # a count is stored in 16 bits
SMALLEST_NORM = 1e-4  # below it, the direction of a mean of float32 vectors is rounding noise


def cluster(pages: Pages, config: CodecConfig) -> Clusters:
    """The clusters of every page by k-means, or by Ward's linkage; centroids not normalised."""
    if config.ward:
        return merged(pages, config.k)
    check_lengths(pages)
    if not config.position:
        return clusters_of(pages, config)
    # neighbours share a subject, so clusters of neighbours say what a long page is about
    places = np.arange(len(pages.vectors)) - np.repeat(pages.offsets[:-1], pages.lengths)
    numbers = (places / config.position).astype(np.float32)
    placed = Pages.packed(np.column_stack([pages.vectors, numbers]), pages.offsets, pages.ids)
    clusters = clusters_of(placed, config)
    centroids = np.ascontiguousarray(clusters.centroids[..., :-1])
    return clusters._replace(centroids=centroids)


def clusters_of(pages: Pages, config: CodecConfig) -> Clusters:
    """The same without the limit on the number of vectors, and for vectors of any norm."""
    return kmeans(
        pages.vectors,
        pages.offsets,
        config.k,
        restarts=config.restarts,
        iterations=config.iterations,
        seed=config.seed,
    )


def merged(pages: Pages, k: int) -> Clusters:
    """At most k clusters of every page by Ward's linkage, the largest first. Equal vectors share a
    cluster."""
    check_lengths(pages)
    groups, used = ward_groups(pages.vectors, pages.offsets, np.full(len(pages), k))
    clusters = Clusters(
        np.zeros((len(pages), k, pages.dim), np.float32),
        np.zeros((len(pages), k), np.int64),
        np.zeros(len(pages)),
    )
    for page, rows in enumerate(pages):
        labels = by_size(groups[pages.offsets[page] : pages.offsets[page + 1]])
        counts = np.bincount(labels, minlength=k)
        order = np.argsort(labels, kind="stable")
        starts = np.cumsum(counts) - counts
        means = np.add.reduceat(rows[order], starts[: used[page]], axis=0)
        means /= counts[: used[page], None].astype(np.float32)
        clusters.centroids[page, : used[page]] = means
        clusters.counts[page] = counts
        clusters.objective[page] = ((rows - means[labels]) ** 2).sum()
    return clusters


def by_size(groups: Ints) -> Ints:
    """The groups of some vectors, numbered by size, the largest first."""
    return np.argsort(np.argsort(-np.bincount(groups), kind="stable"))[groups]


def check_lengths(pages: Pages) -> None:
    """Raise VectorError if a page has more vectors than a count can hold."""
    if len(pages):
        longest = int(pages.lengths.argmax())
        check_length(int(pages.lengths[longest]), f"page {pages.ids[longest]!r}")


def check_length(vectors: int, what: str) -> None:
    """Raise VectorError if a page has more vectors than a count can hold."""
    if vectors > MAX_VECTORS:
        raise VectorError(
            f"{what}: {vectors} vectors, at most {MAX_VECTORS} fit a code; split the page"
        )


def anchor(pages: Pages, clusters: Clusters) -> Codes:
    """The normalised centroids, with the norm and the count of each cluster."""
    norms = np.linalg.norm(clusters.centroids, axis=2)
    real = clusters.counts > 0
    lengths = np.where(norms > SMALLEST_NORM, norms, 1)[..., None]
    vectors = np.divide(clusters.centroids, lengths, dtype=np.float32)
    # Opposite vectors can cancel out: the mean has no direction. Use a member of the cluster.
    for page, slot in np.argwhere(real & (norms <= SMALLEST_NORM)):
        rows, centroids = pages[int(page)], clusters.centroids[page][real[page]]
        nearest = (rows @ centroids.T - (centroids**2).sum(axis=1) / 2).argmax(axis=1)
        vectors[page, slot] = rows[int((nearest == slot).argmax())]
    return Codes(
        vectors, norms.astype(np.float16), clusters.counts.astype(np.uint16), list(pages.ids)
    )
