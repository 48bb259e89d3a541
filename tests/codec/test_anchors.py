"""The training-free codec, and what the paper says of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glie
from glie.codec.anchors import anchor, cluster
from glie.kernels.kmeans import Clusters
from tests.conftest import Floats, unit


def test_shapes_and_types(pages: glie.Pages) -> None:
    codes = glie.Codec(k=4).compress(pages)
    assert codes.vectors.shape == (30, 4, 16)
    assert codes.norms.shape == codes.counts.shape == (30, 4)
    assert (codes.norms.dtype.name, codes.counts.dtype.name) == ("float16", "uint16")
    np.testing.assert_allclose(np.linalg.norm(codes.vectors, axis=2), 1, atol=1e-6)
    np.testing.assert_array_equal(codes.counts.sum(axis=1), pages.lengths)
    assert codes.ids == pages.ids
    assert (codes.k, codes.dim, len(codes)) == (4, 16, 30)


@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 999))
def test_raw_centroids_never_overstate_and_normalised_ones_can(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pages = glie.Pages([unit(rng.normal(size=(n, 6)))])
    clusters = cluster(pages, glie.CodecConfig(k=k))
    queries = unit(rng.normal(size=(20, 6)))
    real = clusters.counts[0] > 0
    raw = (queries @ clusters.centroids[0][real].T).max(axis=1)
    assert (raw <= (queries @ pages[0].T).max(axis=1) + 1e-6).all()


def test_a_normalised_centroid_can_exceed_the_best_true_vector() -> None:
    pages = glie.Pages([unit(np.array([[1.0, 1.0], [1.0, -1.0]]))])
    codes = glie.Codec(k=1).compress(pages)
    query = np.array([1.0, 0.0], np.float32)
    assert (query @ codes.vectors[0].T).max() == pytest.approx(1)
    assert (query @ pages[0].T).max() == pytest.approx(np.sqrt(0.5))


def test_the_norm_records_the_spread() -> None:
    codes = glie.Codec(k=1).compress(glie.Pages([unit(np.array([[1.0, 1.0], [1.0, -1.0]]))]))
    assert float(codes.norms[0, 0]) == pytest.approx(np.sqrt(0.5), abs=1e-3)


def test_fewer_distinct_vectors_than_k() -> None:
    rows = unit(np.eye(5))[[0, 1, 1, 2, 2, 2]]
    codes = glie.Codec(k=4).compress(glie.Pages([rows, unit(np.eye(5))[:1]]))
    assert codes.counts.tolist() == [[3, 2, 1, 0], [1, 0, 0, 0]]
    assert not codes.vectors[0, 3].any()
    assert not codes.vectors[1, 1:].any()
    np.testing.assert_array_equal(codes.norms[0], [1, 1, 1, 0])


def test_opposite_vectors_still_give_a_unit_vector() -> None:
    rows = unit(np.array([[1.0, 0, 0], [-1.0, 0, 0], [0, 0, 1.0]]))
    clusters = Clusters(
        np.array([[[0, 0, 0], [0, 0, 1], [0, 0, 0]]], np.float32),
        np.array([[2, 1, 0]]),
        np.zeros(1),
    )
    codes = anchor(glie.Pages([rows]), clusters)
    assert abs(codes.vectors[0, 0, 0]) == 1  # one of the two that cancelled out
    assert not codes.vectors[0, 2].any()


def test_a_page_gives_the_same_code_alone_and_in_a_batch(pages: glie.Pages) -> None:
    together = glie.Codec(k=3).compress(pages)
    for i in range(len(pages)):
        alone = glie.Codec(k=3).compress(pages.slice(i, i + 1))
        np.testing.assert_array_equal(together.vectors[i], alone.vectors[0])


def ndcg_at_5(codes: Floats, queries: Floats) -> float:
    """Of a query for each page, by MaxSim over the codes (pages, k, D)."""
    matches = np.einsum("qtd,pkd->qptk", queries, codes, optimize=True)
    scores = matches.max(axis=3).sum(axis=2)
    above = (scores > np.diag(scores)[:, None]).sum(axis=1)
    return float(np.where(above < 5, 1 / np.log2(2 + above), 0).mean())


def test_gain_of_normalising_shrinks_as_k_grows() -> None:
    """Pages have 2 to 12 topics, so that their clusters are not equally tight: raw centroids favour
    pages with few. As k grows, clusters of all pages become tight; with one for each vector,
    there is nothing to normalise."""
    rng = np.random.default_rng(0)
    arrays, asked = [], []
    for _ in range(200):
        topics = unit(rng.normal(size=(rng.integers(2, 13), 16)))
        rows = topics[rng.integers(len(topics), size=64)]
        arrays.append(unit(rows + 0.15 * rng.normal(size=rows.shape)))
        asked.append(arrays[-1][rng.integers(64, size=4)] + 0.25 * rng.normal(size=(4, 16)))
    pages, queries = glie.Pages(arrays), unit(np.array(asked))
    gains = []
    for k in (2, 4, 8, 64):
        raw = cluster(pages, glie.CodecConfig(k=k)).centroids
        normalised = glie.Codec(k=k).compress(pages).vectors
        gains.append(ndcg_at_5(normalised, queries) - ndcg_at_5(raw, queries))
    assert gains[0] > 0.1
    assert gains[0] > gains[1] > gains[2] > 0
    assert gains[3] == pytest.approx(0, abs=1e-6)


def test_too_many_vectors_for_the_stored_count() -> None:
    page = np.broadcast_to(np.array([[1.0, 0.0]], np.float32), (65_536, 2))
    with pytest.raises(glie.VectorError, match="page 'big': 65536 vectors, at most 65535"):
        glie.Codec(k=1).compress(glie.Pages([page], ids=["big"]))


def test_no_pages_compress_to_no_codes() -> None:
    assert len(glie.Codec(k=2).compress(glie.Pages([]))) == 0


def test_with_positions_a_cluster_is_of_neighbours() -> None:
    """A page that says two things by turns, and then two others: two clusters of directions mix the
    halves, two of neighbours do not."""
    first, second = unit(np.eye(8)[[0, 1, 2, 3]]), unit(np.eye(8)[[0, 1, 4, 5]])
    rows = np.concatenate([np.tile(first, (10, 1)), np.tile(second, (10, 1))])
    pages = glie.Pages([rows])
    placed = glie.Codec(config=glie.CodecConfig(k=2, position=10))
    codes = placed.compress(pages)
    assert codes.counts.tolist() == [[40, 40]]
    halves = sorted((half.mean(axis=0) for half in (first, second)), key=lambda mean: mean[2])
    found = sorted(codes.vectors[0], key=lambda vector: vector[2])
    np.testing.assert_allclose(found, unit(np.stack(halves)), atol=1e-6)
    assert glie.Codec(2).compress(pages).counts.tolist() != [[40, 40]]
    both = placed.compress(glie.Pages([rows[:7], rows]))  # its place on a page, not in a batch
    np.testing.assert_array_equal(both.vectors[1], codes.vectors[0])
    assert len(placed.compress(glie.Pages([]))) == 0
    assert glie.Codec(config=placed.config).same_as(placed)
    assert placed.config.to_dict()["position"] == 10
    assert "position" not in glie.CodecConfig(k=2).to_dict()
    with pytest.raises(glie.InputError, match="position: expected a whole number from 0"):
        glie.CodecConfig(position=-1)
