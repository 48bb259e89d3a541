"""Baselines: other ways to store a page at the same budget."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from glie.codec.anchors import SMALLEST_NORM, anchor, by_size, check_lengths, cluster, merged
from glie.codec.codes import Codes
from glie.codec.config import MAX_K, CodecConfig
from glie.codec.readout.codebook import Codebook, fit_codebook
from glie.errors import MissingExtraError
from glie.kernels.quantize import row_bytes
from glie.kernels.ward import ward_groups
from glie.pages import Floats, Pages

Ints = npt.NDArray[np.int64]

HELD_OUT = 0.05
MOST_CENTROIDS = 1 << 14  # their ids fit in 2 bytes
ID_BYTES = LENGTH_BYTES = 2  # of a vector's centroid, and of the number of vectors of a page


def raw_kmeans(pages: Pages, k: int, seed: int = 0) -> Codes:
    """Per-page k-means centroids, not normalised."""
    clusters = cluster(pages, CodecConfig(k=k, seed=seed))
    return dataclasses.replace(anchor(pages, clusters), vectors=clusters.centroids)


def token_pooling(pages: Pages, k: int, seed: int = 0) -> Codes:
    """The means of k consecutive windows of nearly equal length, normalised (after Clavié et al.,
    2024). A mean of zero has no direction, and stays zero."""
    codes = token_pooling_raw(pages, k)
    lengths = np.linalg.norm(codes.vectors, axis=2, keepdims=True)
    np.divide(codes.vectors, lengths, out=codes.vectors, where=lengths > SMALLEST_NORM)
    return codes


def token_pooling_raw(pages: Pages, k: int, seed: int = 0) -> Codes:
    """The same means as they are: a control of what normalising gains."""
    check_lengths(pages)
    codes = _no_codes(pages, k)
    for page, rows in enumerate(pages):
        for slot, window in enumerate(np.array_split(rows, min(k, len(rows)))):
            codes.vectors[page, slot] = window.mean(axis=0)
            codes.counts[page, slot] = len(window)
    codes.norms[:] = np.linalg.norm(codes.vectors, axis=2)
    return codes


def hierarchical_pooling(pages: Pages, k: int, seed: int = 0) -> Codes:
    """Normalised means of Ward clusters on cosine distance, by sentence-transformers.

    It does not return cluster sizes: each cluster has a count of 1.
    """
    try:
        import torch
        from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling
    except ImportError:
        raise MissingExtraError("hierarchical pooling", "baselines") from None
    codes = _no_codes(pages, k)
    for page, rows in enumerate(pages):
        # it keeps len(rows) / factor vectors, rounded down: k + 0.5 gives k
        part = HierarchicalTokenPooling(max(1.0, len(rows) / (k + 0.5)), num_protected_tokens=0)
        pooled = part.pool_one(torch.from_numpy(rows)).numpy()
        codes.vectors[page, : len(pooled)] = pooled
        codes.norms[page, : len(pooled)] = 1
        codes.counts[page, : len(pooled)] = 1
    return codes


def _no_codes(pages: Pages, k: int) -> Codes:
    size = len(pages), CodecConfig(k=k).k
    return Codes(
        np.zeros((*size, pages.dim), np.float32),
        np.zeros(size, np.float16),
        np.zeros(size, np.uint16),
        list(pages.ids),
    )


def cluster_merging(pages: Pages, k: int, seed: int = 0) -> Codes:
    """Light-ColPali's merge without its fine-tuning: the means of k hierarchical clusters.

    The means are not normalised, like those of raw k-means: the paper's table has this row below
    raw k-means, which normalised means would not be. `seed` is not used.
    """
    clusters = merged(pages, CodecConfig(k=k, seed=seed).k)
    return dataclasses.replace(anchor(pages, clusters), vectors=clusters.centroids)


def merge_labels(vectors: Floats, k: int) -> Ints:
    """The cluster of each of a page's unit vectors (n, D), at most k, numbered by size.

    Clusters are hierarchical, by Ward's linkage on cosine distance (after Clavié et al., 2024):
    the squared distance of unit vectors is twice their cosine distance. Equal vectors share a
    cluster, so a page with few distinct vectors has fewer than k.
    """
    groups, _ = ward_groups(vectors, np.array([0, len(vectors)]), np.array([k]))
    return by_size(groups)


@dataclasses.dataclass(frozen=True)
class ResidualCode:
    """ColBERTv2's code of a vector: the id of its nearest centroid, and 1 bit for each number of
    the residual, above or below the median (Santhanam et al., 2022). A number is reconstructed as
    the median of its half."""

    centroids: Codebook
    quartiles: tuple[float, float, float]  # of the numbers of residuals

    @classmethod
    def fit(cls, vectors: Floats, seed: int = 0) -> ResidualCode:
        """Fit as many centroids as ColBERTv2 uses for this number of vectors.

        Quartiles are taken from held-out vectors: residuals of vectors that the centroids were
        fitted on are too small.
        """
        order = np.random.default_rng(seed).permutation(len(vectors))
        held = max(1, int(HELD_OUT * len(vectors)))
        wanted = 2 ** int(math.log2(16 * math.sqrt(len(vectors))))
        book = fit_codebook(vectors[order[held:]], min(wanted, MOST_CENTROIDS), seed=seed)
        unseen = vectors[order[:held]]
        left = unseen - book.codewords[book.nearest(unseen)]
        low, middle, high = np.quantile(left, (0.25, 0.5, 0.75))
        return cls(book, (float(low), float(middle), float(high)))

    def reconstruct_with(self, vectors: Floats) -> Floats:
        """The unit vectors reconstructed from the codes of these vectors (n, D)."""
        low, middle, high = self.quartiles
        nearest = self.centroids.codewords[self.centroids.nearest(vectors)]
        found = nearest + np.where(vectors - nearest > middle, high, low).astype(np.float32)
        lengths: Floats = np.linalg.norm(found, axis=1, keepdims=True)
        return np.divide(found, lengths)


def pooled(pages: Pages, bytes_per_page: int) -> Codes:
    """Normalised means of hierarchical clusters, as many as fit the budget as residual codes."""
    return _merged(pages, bytes_per_page, _residual_bytes(pages.dim))


def _merged(pages: Pages, bytes_per_page: int, vector_bytes: int) -> Codes:
    k = (bytes_per_page - LENGTH_BYTES) // vector_bytes
    return anchor(pages, merged(pages, CodecConfig(k=min(MAX_K, k)).k))


def plaid(code: ResidualCode, pages: Pages, bytes_per_page: int, seed: int = 0) -> Codes:
    """The same means, each as a centroid and a residual of 1 bit a number.

    All pages are scored with their reconstructed vectors; PLAID's pruning approximates that.
    """
    codes = pooled(pages, bytes_per_page)
    used = codes.counts > 0
    codes.vectors[used] = code.reconstruct_with(codes.vectors[used])
    return codes


def plaid_bytes(codes: Codes) -> int:
    """Bytes that PLAID stores of all pages: codes, and the number of vectors of each page."""
    return _bytes(codes, _residual_bytes(codes.dim))


def ward_1bit(pages: Pages, bytes_per_page: int, seed: int = 0) -> Codes:
    """Normalised means of hierarchical clusters, as many as fit at 1 bit a number: its sign, and a
    zero counts as negative. Nothing else is stored, and vectors are not rotated. `seed` is not
    used."""
    codes = _merged(pages, bytes_per_page, row_bytes(pages.dim, "int1"))
    used = codes.counts > 0
    sign = np.float32(1 / math.sqrt(pages.dim))
    codes.vectors[used] = np.where(codes.vectors[used] > 0, sign, -sign)
    return codes


def ward_1bit_bytes(codes: Codes) -> int:
    """Bytes of the signs, and of the number of vectors of each page."""
    return _bytes(codes, row_bytes(codes.dim, "int1"))


def _bytes(codes: Codes, vector_bytes: int) -> int:
    return int(np.count_nonzero(codes.counts)) * vector_bytes + LENGTH_BYTES * len(codes)


def _residual_bytes(dim: int) -> int:
    return ID_BYTES + row_bytes(dim, "int1")
