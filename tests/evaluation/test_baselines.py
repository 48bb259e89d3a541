"""The baselines against their definitions, and against public implementations of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

import glie
from glie.codec.anchors import anchor, merged
from glie.evaluation.baselines import (
    ResidualCode,
    cluster_merging,
    hierarchical_pooling,
    merge_labels,
    plaid,
    plaid_bytes,
    raw_kmeans,
    token_pooling,
    token_pooling_raw,
    ward_1bit,
    ward_1bit_bytes,
)
from tests.conftest import make_arrays, unit


@given(st.integers(0, 9999), st.integers(1, 8))
def test_the_clusters_are_those_of_scikit_learn(seed: int, k: int) -> None:
    (rows,) = make_arrays(1, seed=seed, low=8, high=60)
    labels = merge_labels(rows, k)
    oracle = AgglomerativeClustering(n_clusters=k, linkage="ward").fit_predict(rows)
    assert adjusted_rand_score(labels, oracle) == 1
    sizes = np.bincount(labels)
    assert len(sizes) == k
    assert (np.diff(sizes) <= 0).all()  # the largest first


def test_ward_on_cosine_distance() -> None:
    """The clusters that merge are those whose union raises the sum of cosine distances to the
    mean least: a greedy search in plain loops finds the same."""
    (rows,) = make_arrays(1, seed=3, low=20, high=20)

    def spread(members: list[int]) -> float:
        return float(len(members) - np.linalg.norm(rows[members].sum(axis=0)) ** 2 / len(members))

    clusters = [[row] for row in range(len(rows))]
    while len(clusters) > 5:
        pairs = [(i, j) for i in range(len(clusters)) for j in range(i)]
        i, j = min(
            pairs,
            key=lambda pair: (
                spread(clusters[pair[0]] + clusters[pair[1]])
                - spread(clusters[pair[0]])
                - spread(clusters[pair[1]])
            ),
        )
        clusters[j] += clusters.pop(i)
    labels = merge_labels(rows, 5)
    assert {frozenset(members) for members in clusters} == {
        frozenset(np.flatnonzero(labels == slot).tolist()) for slot in range(5)
    }


def test_the_codes_are_means() -> None:
    pages = glie.Pages(make_arrays(6))
    codes = cluster_merging(pages, 4)
    assert codes.vectors.shape == (6, 4, 16)
    for page, rows in enumerate(pages):
        labels = merge_labels(rows, 4)
        for slot in range(4):
            mean = rows[labels == slot].mean(axis=0)
            np.testing.assert_allclose(codes.vectors[page, slot], mean, atol=1e-6)
            assert codes.norms[page, slot] == pytest.approx(np.linalg.norm(mean), abs=1e-3)
            assert codes.counts[page, slot] == (labels == slot).sum()
    on_sphere = anchor(pages, merged(pages, 4))
    np.testing.assert_allclose(
        on_sphere.vectors,
        codes.vectors / np.linalg.norm(codes.vectors, axis=2, keepdims=True),
        atol=1e-6,
    )
    again = cluster_merging(pages, 4, seed=1)
    assert (again.vectors == codes.vectors).all()


def test_the_objective_is_that_of_k_means() -> None:
    pages = glie.Pages(make_arrays(5))
    clusters = merged(pages, 3)
    norms = np.linalg.norm(clusters.centroids, axis=2)
    np.testing.assert_allclose(
        clusters.objective, (clusters.counts * (1 - norms**2)).sum(axis=1), rtol=1e-4
    )


def test_fewer_vectors_than_clusters() -> None:
    rows = unit(np.random.default_rng(0).normal(size=(3, 8)))
    repeated = np.concatenate([rows[[0]], np.repeat(rows, [4, 1, 2], axis=0)])
    codes = cluster_merging(glie.Pages([repeated, rows[:1]]), 5)
    assert codes.counts.tolist() == [[5, 2, 1, 0, 0], [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(codes.vectors[0, :3], rows[[0, 2, 1]], atol=1e-6)
    assert not codes.vectors[0, 3:].any()
    assert not codes.vectors[1, 1:].any()


def test_vectors_equally_far_apart() -> None:
    """Ties of the merging distance still leave k clusters."""
    for k in range(1, 9):
        assert len(np.unique(merge_labels(np.eye(8, dtype=np.float32), k))) == k


def test_budgets_are_checked() -> None:
    pages = glie.Pages(make_arrays(1))
    with pytest.raises(glie.InputError, match="codec setting k: expected a whole number"):
        cluster_merging(pages, 0)
    wide = np.zeros((70_000, 2), np.float32)
    wide[:, 0] = 1
    with pytest.raises(glie.VectorError, match="70000 vectors, at most 65535 fit a code"):
        cluster_merging(glie.Pages([wide]), 2)


def test_raw_k_means_are_the_centroids_before_they_are_normalised() -> None:
    pages = glie.Pages(make_arrays(6))
    raw, free = raw_kmeans(pages, 3, seed=5), glie.Codec(3).with_seed(5)
    codes = free.compress(pages)
    np.testing.assert_allclose(raw.vectors, codes.vectors * codes.norms[..., None], atol=2e-3)
    np.testing.assert_array_equal(raw.counts, codes.counts)


@given(st.integers(1, 9), st.integers(1, 30))
def test_token_pooling_is_a_mean_over_windows(k: int, n: int) -> None:
    (rows,) = make_arrays(1, seed=n, low=n, high=n)
    codes, raw = (pool(glie.Pages([rows]), k) for pool in (token_pooling, token_pooling_raw))
    used = min(k, n)
    assert codes.counts[0].sum() == n
    assert np.ptp(codes.counts[0][:used]) <= 1  # windows are even
    ends = np.cumsum(codes.counts[0][:used].astype(int))
    for slot, (end, size) in enumerate(zip(ends, codes.counts[0], strict=False)):
        mean = rows[end - size : end].mean(axis=0)
        np.testing.assert_allclose(raw.vectors[0, slot], mean, atol=1e-6)
        np.testing.assert_allclose(codes.vectors[0, slot], unit(mean), atol=1e-5)
        assert codes.norms[0, slot] == pytest.approx(np.linalg.norm(mean), abs=1e-3)
    assert not codes.vectors[0, used:].any()


def test_a_window_that_cancels_out_stays_zero() -> None:
    rows = np.array([[1.0, 0], [-1.0, 0], [0, 1.0], [0.6, 0.8]])
    codes = token_pooling(glie.Pages([rows]), 2)
    expected = np.stack([np.zeros(2), unit(np.array([0.6, 1.8]))])
    np.testing.assert_allclose(codes.vectors[0], expected, atol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 16, 40])
def test_hierarchical_pooling_is_theirs_and_keeps_k(k: int) -> None:
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    pages = glie.Pages(make_arrays(8, low=5, high=31))
    codes = hierarchical_pooling(pages, k)
    for page, (vectors, counts) in enumerate(zip(codes.vectors, codes.counts, strict=True)):
        used = int(np.count_nonzero(counts))
        assert used == min(k, len(pages[page]))
        np.testing.assert_allclose(np.linalg.norm(vectors[:used], axis=1), 1, atol=1e-5)
        assert not vectors[used:].any()
    # where the factor is a whole number, it is what a user of theirs would give
    rows = unit(np.random.default_rng(0).normal(size=(24, 16))).astype(np.float32)
    if 24 % k == 0:
        theirs = HierarchicalTokenPooling(24 / k, num_protected_tokens=0)
        expected = theirs.pool_one(torch.from_numpy(rows)).numpy()
        ours = hierarchical_pooling(glie.Pages([rows]), k).vectors[0]
        np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_residuals_are_those_of_colbert() -> None:
    """ColBERTv2's one bit a number, from its buckets: cut at the median of what centroids leave of
    vectors held out, and read back as the medians of both halves."""
    vectors = glie.Pages(make_arrays(100)).vectors
    code = ResidualCode.fit(vectors)
    assert len(code.centroids) <= 2 ** int(np.log2(16 * len(vectors) ** 0.5))
    held = vectors[np.random.default_rng(0).permutation(len(vectors))[: len(vectors) // 20]]

    def left(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nearest = torch.from_numpy(code.centroids.codewords[code.centroids.nearest(rows.numpy())])
        return nearest, rows - nearest

    _, unseen = left(torch.from_numpy(held))
    cutoffs = unseen.quantile(torch.tensor([0.5]))
    weights = unseen.quantile(torch.tensor([0.25, 0.75]))
    nearest, residuals = left(torch.from_numpy(vectors))
    expected = nearest + weights[torch.bucketize(residuals, cutoffs)]
    expected = torch.nn.functional.normalize(expected, dim=-1)
    np.testing.assert_allclose(code.reconstruct_with(vectors), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("bytes_per_page", [6, 23, 100, 1000])
def test_plaid_keeps_what_fits(bytes_per_page: int) -> None:
    pages = glie.Pages(make_arrays(10))
    code = ResidualCode.fit(pages.vectors)
    codes = plaid(code, pages, bytes_per_page)
    fits = (bytes_per_page - 2) // (2 + 16 // 8)
    used = np.count_nonzero(codes.counts, axis=1)
    np.testing.assert_array_equal(used, np.minimum(fits, pages.lengths))
    assert plaid_bytes(codes) == 2 * len(pages) + 4 * used.sum() <= bytes_per_page * len(pages)
    means = anchor(pages, merged(pages, fits)).vectors
    for page, count in enumerate(used):
        expected = code.reconstruct_with(means[page, :count])
        np.testing.assert_allclose(codes.vectors[page, :count], expected, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)


def test_plaid_in_too_few_bytes() -> None:
    pages = glie.Pages(make_arrays(2))
    with pytest.raises(glie.InputError, match="k: expected a whole number from 1"):
        plaid(ResidualCode.fit(pages.vectors), pages, 5)


def test_ward_1bit_is_the_code_of_optivision() -> None:
    """The constants are optivision-rag 0.5.1's, for these vectors: the sorted rows of
    `pack_bits(HierarchicalMerge(ratio=6 / 30).reduce(page).vectors)`, in hexadecimal digits, and
    `maxsim_asymmetric(query, rows, 16)`, whose vectors have a length of 4."""
    pages = glie.Pages(make_arrays(2, seed=22, low=30, high=30))
    (query,) = make_arrays(1, seed=23, low=4, high=4)
    codes = ward_1bit(pages, 2 + 6 * 2)
    rows = np.packbits(codes.vectors > 0, axis=2)
    assert [sorted(row.tobytes().hex() for row in page) for page in rows] == [
        ["0a32", "0b3e", "0b3e", "d9df", "dc92", "fc13"],
        ["4d8c", "7e7c", "82be", "ce14", "df7c", "e718"],
    ]
    scores = [float((query @ page.T).max(axis=1).sum()) for page in codes.vectors]
    np.testing.assert_allclose(scores, [0.7373, 1.1298], atol=1e-4)


@pytest.mark.parametrize("bytes_per_page", [5, 21, 70, 1000])
def test_ward_1bit_keeps_what_fits(bytes_per_page: int) -> None:
    pages = glie.Pages(make_arrays(10, dim=20))
    codes = ward_1bit(pages, bytes_per_page)
    fits = (bytes_per_page - 2) // 3  # 20 signs are 3 bytes
    used = np.count_nonzero(codes.counts, axis=1)
    np.testing.assert_array_equal(used, np.minimum(fits, pages.lengths))
    assert ward_1bit_bytes(codes) == 2 * len(pages) + 3 * used.sum() <= bytes_per_page * len(pages)
    means = anchor(pages, merged(pages, fits)).vectors
    for page, count in enumerate(used):
        expected = np.where(means[page, :count] > 0, 1, -1) / np.sqrt(20)
        np.testing.assert_allclose(codes.vectors[page, :count], expected, atol=1e-6)


def test_ward_1bit_in_too_few_bytes() -> None:
    with pytest.raises(glie.InputError, match="k: expected a whole number from 1"):
        ward_1bit(glie.Pages(make_arrays(2)), 3)
