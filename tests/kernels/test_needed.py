"""The pairs that a page needs most, against plain statements of what is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels.nearest import grouped, rounded
from glie.kernels.needed import (
    beside,
    most_needed,
    most_needed_reference,
    needed_pairs,
    needed_pairs_reference,
)
from glie.kernels.quantize import pack, unpack, unrotate

SHARES = 0.5, 0.6


@pytest.mark.parametrize(
    ("rows", "members", "permanent"),
    [(1, 3, 1), (20, 9, 2), (40, 30, 4), (9, 5, 5), (12, 6, 0), (7, 50, 20)],
)
def test_the_most_needed_are_those_whose_going_costs_most(
    rows: int, members: int, permanent: int
) -> None:
    rng = np.random.default_rng(members)
    similarity = rng.normal(size=(rows, members)).astype(np.float32)
    chosen = most_needed(similarity, permanent)
    expected = most_needed_reference(similarity.astype(np.float64), permanent)
    assert chosen.tolist() == expected.tolist()


@given(st.integers(1, 20), st.integers(1, 40), st.integers(0, 3), st.integers(0, 2**32))
def test_equal_similarities_are_taken_in_order(
    rows: int, members: int, permanent: int, seed: int
) -> None:
    """Whole numbers: all sums are exact, and many are equal."""
    similarity = np.random.default_rng(seed).integers(0, 4, (rows, members)).astype(np.float32)
    expected = most_needed_reference(similarity, min(permanent, members))
    assert most_needed(similarity, min(permanent, members)).tolist() == expected.tolist()


@given(st.integers(0, 30), st.integers(0, 2**32))
def test_the_first_ones_may_come_unordered(unordered: int, seed: int) -> None:
    similarity = np.random.default_rng(seed).normal(size=(25, 24)).astype(np.float32)
    ordered, some = most_needed(similarity, 2), most_needed(similarity, 2, unordered)
    assert some[:unordered].tolist() == sorted(ordered[:unordered].tolist())
    assert some[unordered:].tolist() == ordered[unordered:].tolist()


class Example:
    """Two pages of random vectors, their anchors, and pairs that were found for the vectors."""

    def __init__(self, dim: int, used: tuple[int, int], lengths: tuple[int, int]) -> None:
        rng = np.random.default_rng(dim)
        self.used = np.array(used)
        self.offsets = np.array([0, lengths[0], sum(lengths)])
        self.vectors = exact(rng.normal(size=(sum(lengths), dim)))
        anchors = exact(rng.normal(size=(2 * max(used), dim)))
        self.anchors = anchors.reshape(2, max(used), dim)
        packed = pack(rng.normal(size=(30, dim)).astype(np.float32), "int4")
        sizes = rng.uniform(0.3, 0.8, 30).astype(np.float32)
        self.codewords = unpack(packed, "int4", dim) * sizes[:, None]
        self.grouped = grouped(packed, sizes, dim, np.array([0, 7, 30]))
        self.rows = beside(self.vectors, self.offsets, self.anchors, self.used, SHARES[0])
        self.found = self.rows.slots * 30 + rng.integers(0, 30, sum(lengths))
        self.weights = rng.uniform(0.5, 1, sum(lengths)).astype(np.float32)

    def chosen(self, limit: int, unordered: int) -> list[list[int]]:
        kept, counts = needed_pairs(
            self.rows,
            self.offsets,
            self.anchors,
            self.used,
            self.found,
            self.weights,
            self.grouped,
            SHARES,
            limit,
            unordered,
        )
        return [mine[:count].tolist() for mine, count in zip(kept, counts, strict=True)]

    def expected(self, page: int, limit: int) -> Any:
        mine = slice(self.offsets[page], self.offsets[page + 1])
        return needed_pairs_reference(
            self.vectors[mine],
            self.anchors[page, : self.used[page]],
            self.found[mine],
            self.weights[mine],
            self.codewords,
            SHARES,
            limit,
        ).tolist()


def exact(vectors: np.ndarray) -> np.ndarray:
    """Vectors of about unit length that rounding leaves as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return unrotate(rounded(vectors / lengths).rows(vectors.shape[1]))


def test_vectors_beside_their_anchors() -> None:
    example = Example(24, (3, 1), (11, 5))
    rows = example.rows
    for page, used in enumerate(example.used):
        mine = slice(example.offsets[page], example.offsets[page + 1])
        vectors, anchors = example.vectors[mine], example.anchors[page, :used]
        products = vectors @ anchors.T
        np.testing.assert_allclose(rows.near[mine, :used], products, atol=1e-6)
        np.testing.assert_array_equal(rows.slots[mine], products.argmax(axis=1))
        rest = vectors - np.float32(SHARES[0]) * anchors[rows.slots[mine]]
        np.testing.assert_allclose(unrotate(rows.whole.rows(24))[mine], vectors, atol=0.02)
        np.testing.assert_allclose(unrotate(rows.rest.rows(24))[mine], rest, atol=0.02)


@pytest.mark.parametrize(
    ("dim", "used", "lengths"),
    [(16, (3, 1), (60, 40)), (5, (2, 2), (9, 1)), (48, (20, 17), (90, 70))],
)
def test_the_pairs_are_those_of_the_reference(
    dim: int, used: tuple[int, int], lengths: tuple[int, int]
) -> None:
    example = Example(dim, used, lengths)
    for limit, unordered in ((12, 0), (12, 4), (12, 99), (0, 5), (500, 8)):
        for page, mine in enumerate(example.chosen(limit, unordered)):
            expected = example.expected(page, limit)
            assert sorted(mine[:unordered]) == sorted(expected[:unordered])
            assert mine[unordered:] == expected[unordered:]
