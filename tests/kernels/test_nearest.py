"""The search for codewords in small integers, against plain statements of what it does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from glie.kernels.nearest import (
    PROBES,
    Grouped,
    Rounded,
    grouped,
    nearest,
    nearest_centroids,
    nearest_reference,
    round_rotated,
    rounded,
)
from glie.kernels.quantize import pack, rotate, unpack

SHAPES = [(1, 1, 1), (3, 2, 5), (50, 9, 16), (257, 30, 7), (90, 5, 48), (33, 12, 128), (5, 3, 384)]


def book(rng: np.random.Generator, centroids: int, dim: int) -> tuple[Grouped, Grouped]:
    """The centroids of lists of unequal size, and the codewords in these."""
    starts = np.cumsum([0, *rng.integers(1, 40, centroids)])
    codewords = rng.normal(size=(starts[-1], dim)).astype(np.float32)
    means = np.stack([codewords[a:b].mean(axis=0) for a, b in pairwise(starts)])
    return in_groups(means, np.array([0, centroids])), in_groups(codewords, starts)


def in_groups(vectors: np.ndarray, starts: np.ndarray) -> Grouped:
    lengths = np.linalg.norm(vectors, axis=1)
    return grouped(pack(vectors, "int4"), lengths, vectors.shape[1], starts)


@pytest.mark.parametrize(("rows", "centroids", "dim"), SHAPES)
def test_rows_are_rounded_like_the_reference(rows: int, centroids: int, dim: int) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, dim)).astype(np.float32)
    x[0] = 0
    fast, plain = rounded(x), round_rotated(rotate(x))
    # a number in the middle between two may go either way
    assert np.abs(fast.numbers.astype(int) - plain.numbers).max() <= 1
    assert (fast.numbers != plain.numbers).mean() < 0.001
    np.testing.assert_allclose(fast.steps, plain.steps, rtol=1e-5)
    np.testing.assert_array_equal(fast.sums, fast.numbers.sum(axis=1, dtype=np.int32))
    assert np.abs(fast.rows(dim) - rotate(x)).max() <= fast.steps.max() * 0.501


@pytest.mark.parametrize(("rows", "centroids", "dim"), SHAPES)
def test_nearest_codewords_are_those_of_the_reference(rows: int, centroids: int, dim: int) -> None:
    rng = np.random.default_rng(rows)
    lists, codewords = book(rng, centroids, dim)
    x = rounded(rng.normal(size=(rows, dim)).astype(np.float32))
    found = nearest(x, lists, codewords)
    assert (found == nearest_reference(x, lists, codewords, dim)).mean() > 0.99


def test_a_row_finds_the_same_codeword_alone_and_in_company() -> None:
    rng = np.random.default_rng(0)
    lists, codewords = book(rng, 12, 24)
    x = rounded(rng.normal(size=(40, 24)).astype(np.float32))
    alone = [
        nearest(Rounded(x.numbers[i], x.steps[i], x.sums[i]), lists, codewords)[0]
        for i in np.arange(40)[:, None]
    ]
    np.testing.assert_array_equal(nearest(x, lists, codewords), alone)


def test_it_finds_the_nearest_of_all_or_one_as_near() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(300, 128)).astype(np.float32)
    packed, lengths = pack(vectors, "int4"), np.linalg.norm(vectors, axis=1)
    stored = unpack(packed, "int4", 128) * lengths[:, None]
    codewords = grouped(packed, lengths, 128, np.arange(PROBES + 1) * 75)
    lists = in_groups(vectors[:PROBES], np.array([0, PROBES]))
    x = (stored[:200] + rng.normal(size=(200, 128))).astype(np.float32)
    found = nearest(rounded(x), lists, codewords)
    distances = ((x[:, None] - stored[None]) ** 2).sum(axis=2)
    chosen = distances[np.arange(200), found]
    assert (chosen <= 1.01 * distances.min(axis=1)).all()
    assert (found == distances.argmin(axis=1)).mean() > 0.97


def test_of_equal_codewords_the_first_is_found() -> None:
    vectors = np.tile(np.random.default_rng(2).normal(size=(1, 8)).astype(np.float32), (40, 1))
    codewords = in_groups(vectors, np.array([0, 40]))
    lists = in_groups(vectors[:1], np.array([0, 1]))
    assert nearest(rounded(vectors[:3]), lists, codewords).tolist() == [0, 0, 0]


def test_nearest_centroids() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 9)).astype(np.float32)
    centroids = rng.normal(size=(20, 9)).astype(np.float32)
    distances = ((x[:, None] - centroids[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(nearest_centroids(x, centroids), distances.argmin(axis=1))
