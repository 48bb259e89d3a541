"""Sets of codewords: found, chosen and packed, each against a plain statement of what it does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels.residual import (
    FIRST_LAYER,
    layers,
    most_bytes,
    most_needed,
    nearest_codewords,
    nearest_codewords_reference,
    pack_set,
    unpack_set,
)


def book(rng: np.random.Generator, centroids: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Words in lists of unequal size, and where the lists start."""
    sizes = rng.integers(1, 9, centroids)
    return rng.normal(size=(sizes.sum(), dim)).astype(np.float32), np.cumsum([0, *sizes])


@pytest.mark.parametrize(
    ("rows", "centroids", "dim"), [(1, 1, 1), (3, 2, 5), (50, 9, 16), (257, 30, 7)]
)
def test_nearest_codewords_are_those_of_the_reference(rows: int, centroids: int, dim: int) -> None:
    rng = np.random.default_rng(rows)
    codewords, starts = book(rng, centroids, dim)
    centres = np.stack([codewords[a:b].mean(axis=0) for a, b in pairwise(starts)])
    x = rng.normal(size=(rows, dim)).astype(np.float32)
    found = nearest_codewords(x, centres, starts, codewords)
    np.testing.assert_array_equal(found, nearest_codewords_reference(x, centres, starts, codewords))


def test_a_row_finds_the_same_codeword_alone_and_in_company() -> None:
    rng = np.random.default_rng(0)
    codewords, starts = book(rng, 12, 24)
    centres = np.stack([codewords[a:b].mean(axis=0) for a, b in pairwise(starts)])
    x = rng.normal(size=(40, 24)).astype(np.float32)
    together = nearest_codewords(x, centres, starts, codewords)
    alone = [nearest_codewords(row[None], centres, starts, codewords)[0] for row in x]
    np.testing.assert_array_equal(together, alone)


@given(st.data())
def test_a_packed_set_comes_back_layer_by_layer(data: st.DataObject) -> None:
    universe = data.draw(st.integers(1, 300_000))
    count = data.draw(st.integers(0, min(universe, 200)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    pairs = rng.choice(universe, count, replace=False)
    packed = pack_set(pairs, universe)
    assert len(packed) <= most_bytes(count, universe)
    behind = np.frombuffer(packed.tobytes() + b"\xff\xff", np.uint8)
    found = unpack_set(behind, count, universe)
    assert found is not None
    assert found[1] == len(packed)
    for first, last in layers(count):
        np.testing.assert_array_equal(found[0][first:last], np.sort(pairs[first:last]))


def test_a_set_takes_little_more_than_its_information() -> None:
    universe, count = 4 * 65_536, FIRST_LAYER
    rng = np.random.default_rng(0)
    sizes = [
        len(pack_set(rng.choice(universe, count, replace=False), universe)) for _ in range(200)
    ]
    choices = sum(np.log2((universe - i) / (i + 1)) for i in range(count))
    assert choices / 8 < np.mean(sizes) < 1.03 * choices / 8 + 0.5


@given(st.binary(max_size=60), st.integers(0, 70), st.integers(1, 100_000))
def test_no_bytes_read_outside_the_universe(data: bytes, count: int, universe: int) -> None:
    found = unpack_set(np.frombuffer(data, np.uint8), count, universe)
    if found is not None:
        pairs, used = found
        assert used <= len(data)
        assert ((pairs >= 0) & (pairs < universe)).all()
        for first, last in layers(count):
            assert (np.diff(pairs[first:last]) > 0).all()


def sparing(similarity: np.ndarray, permanent: int) -> list[int]:
    """What most_needed does, said plainly."""
    alive = list(range(similarity.shape[1]))
    gone = []
    while len(alive) > permanent:

        def cost(j: int) -> float:
            others = [i for i in alive if i != j]
            before = similarity[:, alive].max(axis=1)
            if not others:
                return 0.0
            return float(((before - similarity[:, others].max(axis=1)) ** 2).sum())

        leaving = min((j for j in alive if j >= permanent), key=cost)
        alive.remove(leaving)
        gone.append(leaving)
    return gone[::-1]


@pytest.mark.parametrize(
    ("rows", "members", "permanent"), [(1, 3, 1), (20, 9, 2), (40, 30, 4), (9, 5, 5), (12, 6, 0)]
)
def test_the_most_needed_are_those_whose_going_costs_most(
    rows: int, members: int, permanent: int
) -> None:
    rng = np.random.default_rng(members)
    similarity = rng.normal(size=(rows, members)).astype(np.float64).astype(np.float32)
    chosen = most_needed(similarity, permanent)
    assert chosen.tolist() == sparing(similarity.astype(np.float64), permanent)
