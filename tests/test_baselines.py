"""Cluster merging against the definition, and against scikit-learn's clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

import glie
from glie.baselines import cluster_merging, merge, merge_labels
from glie.codec.anchors import anchor
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
    on_sphere = anchor(pages, merge(pages, 4))
    np.testing.assert_allclose(
        on_sphere.vectors,
        codes.vectors / np.linalg.norm(codes.vectors, axis=2, keepdims=True),
        atol=1e-6,
    )
    again = cluster_merging(pages, 4, seed=1)
    assert (again.vectors == codes.vectors).all()


def test_the_objective_is_that_of_k_means() -> None:
    pages = glie.Pages(make_arrays(5))
    clusters = merge(pages, 3)
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
