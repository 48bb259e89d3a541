"""The scan with rounded query vectors: what it says it is off by is never exceeded."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels.coarse import coarse_maxsim, rounded
from glie.kernels.maxsim import maxsim, maxsim_reference
from glie.kernels.quantize import BITS, DTYPES, Packed, scan_order, unpack
from tests.conftest import unit
from tests.kernels.test_maxsim import offsets, ragged, vectors

small = st.sampled_from(list(BITS))
any_dtype = st.sampled_from(DTYPES)


@given(ragged, ragged, st.integers(1, 80), st.integers(0, 99), any_dtype)
def test_within_its_bound(
    queries: list[int], pages: list[int], dim: int, seed: int, dtype: str
) -> None:
    tokens, q, p = vectors(queries, dim, seed), offsets(queries), offsets(pages)
    stored = Packed.of(vectors(pages, dim, seed + 1), dtype)
    coarse, bounds = coarse_maxsim(tokens, q, stored, p[:-1], p[1:])
    exact = maxsim_reference(tokens, q, stored, p[:-1], p[1:])
    assert (np.abs(coarse - exact) <= bounds[:, None]).all()
    assert (bounds <= 0.05 * np.diff(q)).all()  # and the bound says something


@given(ragged, st.integers(1, 80), st.integers(0, 99), small)
def test_equals_the_same_integers_in_plain_arrays(
    pages: list[int], dim: int, seed: int, dtype: str
) -> None:
    """Rounded query vectors are themselves vectors, of which the scores are exact."""
    tokens, q, p = vectors([9, 3], dim, seed), offsets([9, 3]), offsets(pages)
    stored = Packed.of(vectors(pages, dim, seed + 1), dtype)
    coarse, _ = coarse_maxsim(tokens, q, stored, p[:-1], p[1:])
    query = rounded(scan_order(tokens, dtype), (2 ** BITS[dtype] - 1) / 2)
    rows = scan_order(unpack(stored.rows, dtype, dim), dtype)
    products = (query.items.reshape(len(tokens), -1) * query.units[:, None]) @ rows.T
    for first, last in ((0, 9), (9, 12)):
        expected = [products[first:last, a:b].max(1).sum() for a, b in pairwise(p)]
        np.testing.assert_allclose(coarse[int(first > 0)], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 8, 9, 17, 25, 33, 260])
@pytest.mark.parametrize("dim", [1, 128, 136, 384])
def test_every_number_of_tokens(dim: int, tokens: int, dtype: str) -> None:
    pages = [1, 2, 3, 5, 8]
    q, p = offsets([tokens]), offsets(pages)
    queries = vectors([tokens], dim, 0)
    stored = Packed.of(vectors(pages, dim, 1), dtype)
    coarse, bounds = coarse_maxsim(queries, q, stored, p[:-1], p[1:])
    exact = maxsim_reference(queries, q, stored, p[:-1], p[1:])
    assert (np.abs(coarse - exact) <= bounds[:, None]).all()


def test_the_largest_levels_and_numbers_do_not_overflow() -> None:
    """All levels at the top, all query numbers at their largest: the sums are as large as can be."""
    for dtype in BITS:
        rows = np.full((3, 64 * BITS[dtype]), 255, np.uint8)  # 512 numbers
        stored = Packed(rows, dtype, 512)
        tokens = unpack(rows[:1], dtype, 512)  # every number of its rotation is the same
        case = (tokens, np.array([0, 1]), stored, np.array([0, 1]), np.array([1, 3]))
        coarse, bounds = coarse_maxsim(*case)
        assert (np.abs(coarse - maxsim_reference(*case)) <= bounds[:, None]).all()
        np.testing.assert_allclose(coarse, 1, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bf16", "int2"])
def test_no_pages_no_rows_no_tokens(dtype: str) -> None:
    stored = Packed.of(vectors([3], 16, 0), dtype)
    none = np.empty(0, np.int64)
    scores, bounds = coarse_maxsim(vectors([2], 16, 1), offsets([2]), stored, none, none)
    assert scores.shape == (1, 0)
    assert bounds.shape == (1,)
    empty = np.array([1])
    scores, _ = coarse_maxsim(vectors([2], 16, 1), offsets([2]), stored, empty, empty)
    assert scores[0, 0] == -np.inf
    scores, bounds = coarse_maxsim(
        np.empty((0, 16), np.float32), np.array([0, 0]), stored, np.array([0]), np.array([3])
    )
    assert scores.tolist() == [[0.0]]
    assert bounds.tolist() == [0.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_few_large_numbers(dtype: str) -> None:
    """Their length is a small difference of large sums."""
    rng = np.random.default_rng(0)
    rows = np.zeros((60, 3001), np.float32)  # an odd dimension is not mixed by the rotation
    for row in rows:
        row[rng.choice(3001, 3, replace=False)] = rng.normal(size=3)
    stored = Packed.of(unit(rows), dtype)
    p = np.arange(61)
    tokens = unit(rows[:5])
    coarse, bounds = coarse_maxsim(tokens, np.arange(6), stored, p[:-1], p[1:])
    exact = maxsim_reference(tokens, np.arange(6), stored, p[:-1], p[1:])
    assert (np.abs(coarse - exact) <= bounds[:, None]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_lie_apart(dtype: str) -> None:
    tokens, q, p = vectors([5], 128, 0), offsets([5]), offsets([4, 4])
    stored = Packed.of(vectors([16], 128, 1), dtype)
    apart = Packed(stored.rows[::2], dtype, 128)
    coarse, bounds = coarse_maxsim(tokens, q, apart, p[:-1], p[1:])
    exact = maxsim_reference(tokens, q, apart, p[:-1], p[1:])
    assert (np.abs(coarse - exact) <= bounds[:, None]).all()
    np.testing.assert_allclose(maxsim(tokens, q, apart, p[:-1], p[1:]), exact, rtol=1e-5)


@given(ragged, st.integers(2, 40), st.integers(0, 99), any_dtype)
def test_a_page_scores_the_same_alone_and_anywhere_in_a_batch(
    pages: list[int], dim: int, seed: int, dtype: str
) -> None:
    tokens, q, p = vectors([7, 3], dim, seed), offsets([7, 3]), offsets(pages)
    stored = Packed.of(vectors(pages, dim, seed + 1), dtype)
    together, _ = coarse_maxsim(tokens, q, stored, p[:-1], p[1:])
    for i in range(len(pages)):
        own = stored.take(np.arange(p[i], p[i + 1]))
        alone, _ = coarse_maxsim(tokens, q, own, np.array([0]), np.array([pages[i]]))
        np.testing.assert_array_equal(together[:, i], alone[:, 0])
