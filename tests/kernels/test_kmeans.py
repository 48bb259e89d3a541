"""k-means a page: as good as scikit-learn's, deterministic, and sound on odd pages."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from glie.kernels.kmeans import Clusters, kmeans, kmeans_in_numpy
from glie.pages import Floats
from tests.conftest import make_arrays, unit


def run(
    *pages: Floats, k: int = 4, restarts: int = 2, iterations: int = 20, seed: int = 0
) -> Clusters:
    offsets = np.cumsum([0] + [len(page) for page in pages], dtype=np.int64)
    return kmeans(
        np.concatenate(pages), offsets, k, restarts=restarts, iterations=iterations, seed=seed
    )


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 20), st.integers(0, 999))
def test_fast_equals_reference(n: int, k: int, dim: int, seed: int) -> None:
    x = unit(np.random.default_rng(seed).normal(size=(n, dim)))
    x[n // 2 :] = x[: n - n // 2]  # half of the rows are doubles
    fast = run(x, k=k, seed=seed)
    plain = kmeans_in_numpy(x, k, restarts=2, iterations=20, seed=seed)
    np.testing.assert_allclose(fast.objective, plain.objective, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(fast.counts, plain.counts)
    np.testing.assert_allclose(fast.centroids, plain.centroids, atol=1e-5)


@pytest.mark.parametrize("k", [2, 8, 24])
def test_objective_is_no_worse_than_scikit_learns(k: int) -> None:
    pages = make_arrays(40, dim=32, low=120, high=160, seed=k)
    mine = run(*pages, k=k).objective
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = [KMeans(k, n_init=2, random_state=0).fit(page).inertia_ for page in pages]
    assert np.mean(mine / np.array(theirs)) < 1.01


@given(st.integers(1, 25), st.integers(1, 8), st.integers(0, 999))
def test_clusters_are_means_of_a_partition(n: int, k: int, seed: int) -> None:
    x = unit(np.random.default_rng(seed).normal(size=(n, 6)))
    clusters = run(x, k=k)
    counts, centroids = clusters.counts[0], clusters.centroids[0]
    assert counts.sum() == n
    assert (counts[:-1] >= counts[1:]).all()
    assert np.count_nonzero(counts) == min(k, n)
    np.testing.assert_allclose((counts[:, None] * centroids).sum(0), x.sum(0), atol=1e-4)
    # Proposition 1: the objective equals the sum of n_j (1 - |c_j|^2)
    norms = (centroids.astype(np.float64) ** 2).sum(axis=1)
    assert clusters.objective[0] == pytest.approx((counts * (1 - norms)).sum(), abs=1e-4)


def test_a_page_clusters_the_same_alone_and_in_a_batch() -> None:
    pages = make_arrays(20)
    together = run(*pages)
    for i, page in enumerate(pages):
        alone = run(page)
        np.testing.assert_array_equal(together.centroids[i], alone.centroids[0])
        np.testing.assert_array_equal(together.counts[i], alone.counts[0])


def test_the_seed_decides() -> None:
    page = unit(np.random.default_rng(0).normal(size=(60, 8)))
    np.testing.assert_array_equal(run(page, seed=3).centroids, run(page, seed=3).centroids)
    assert not np.array_equal(run(page, seed=3).centroids, run(page, seed=4).centroids)


@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 99))
def test_identical_vectors_make_one_cluster(distinct: int, repeats: int, seed: int) -> None:
    rows = unit(np.random.default_rng(seed).normal(size=(distinct, 7)))
    clusters = run(np.repeat(rows, repeats, axis=0), k=4)
    assert np.count_nonzero(clusters.counts[0]) == min(distinct, 4)
    assert clusters.counts[0].sum() == distinct * repeats
    assert not clusters.centroids[0, min(distinct, 4) :].any()
    if distinct <= 4:
        assert clusters.objective[0] == pytest.approx(0, abs=1e-5)


def test_an_emptied_cluster_is_filled_again() -> None:
    """Lloyd's iterations empty clusters now and then; no run may end with fewer than it began."""
    rng = np.random.default_rng(1)
    for seed in range(200):
        x = unit(rng.normal(size=(12, 3)))
        assert np.count_nonzero(run(x, k=8, restarts=1, seed=seed).counts[0]) == 8
