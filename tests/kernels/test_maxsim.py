"""MaxSim: the fast version equals the reference, and a page's score is its own affair."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels.maxsim import maxsim, maxsim_reference
from glie.kernels.quantize import DTYPES, Packed
from tests.conftest import unit

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def offsets(lengths: list[int]) -> Ints:
    return np.cumsum([0, *lengths], dtype=np.int64)


def vectors(lengths: list[int], dim: int, seed: int) -> Floats:
    return unit(np.random.default_rng(seed).normal(size=(sum(lengths), dim)))


ragged = st.lists(st.integers(1, 11), min_size=1, max_size=9)


def stored(lengths: list[int], dim: int, seed: int, dtype: str | None) -> Floats | Packed:
    """As they are, or packed."""
    plain = vectors(lengths, dim, seed)
    return plain if dtype is None else Packed.of(plain, dtype)


dtypes = st.sampled_from([None, *DTYPES])


@given(ragged, ragged, st.integers(1, 40), st.integers(0, 99), dtypes)
def test_fast_equals_reference(
    queries: list[int], pages: list[int], dim: int, seed: int, dtype: str | None
) -> None:
    tokens, q = vectors(queries, dim, seed), offsets(queries)
    rows, p = stored(pages, dim, seed + 1, dtype), offsets(pages)
    fast = maxsim(tokens, q, rows, p[:-1], p[1:])
    plain = maxsim_reference(tokens, q, rows, p[:-1], p[1:])
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [1, 7, 12, 128, 384])
def test_fast_equals_reference_on_one_page_and_one_token(dtype: str, dim: int) -> None:
    one = np.array([0, 1])
    for seed in range(5):
        case = (vectors([1], dim, seed), one, stored([1], dim, seed + 9, dtype), one[:1], one[1:])
        np.testing.assert_allclose(maxsim(*case), maxsim_reference(*case), rtol=1e-5, atol=1e-6)


@given(ragged, st.integers(2, 33), st.integers(0, 99), dtypes)
def test_a_page_scores_the_same_alone_and_anywhere_in_a_batch(
    pages: list[int], dim: int, seed: int, dtype: str | None
) -> None:
    tokens, q = vectors([7, 3], dim, seed), offsets([7, 3])
    rows, p = stored(pages, dim, seed + 1, dtype), offsets(pages)
    together = maxsim(tokens, q, rows, p[:-1], p[1:])
    for i in range(len(pages)):
        mine = np.arange(p[i], p[i + 1])
        own = rows.take(mine) if isinstance(rows, Packed) else rows[mine]
        alone = maxsim(tokens, q, own, np.array([0]), np.array([len(mine)]))
        np.testing.assert_array_equal(together[:, i], alone[:, 0])


@pytest.mark.parametrize("dtype", [None, *DTYPES])
@pytest.mark.parametrize("tokens", [1, 8, 9, 16, 17, 24, 25, 32, 33, 40, 49, 260])
def test_fast_equals_reference_at_every_number_of_tokens(tokens: int, dtype: str | None) -> None:
    pages = [1, 2, 3, 4, 5, 7, 8, 13]
    q, p = offsets([tokens]), offsets(pages)
    case = (vectors([tokens], 128, 0), q, stored(pages, 128, 1, dtype), p[:-1], p[1:])
    np.testing.assert_allclose(maxsim(*case), maxsim_reference(*case), rtol=1e-5)


def test_a_query_scores_the_same_alone_and_in_a_batch() -> None:
    lengths = [5, 300, 1, 40, 255, 2]
    tokens, q = vectors(lengths, 24, 0), offsets(lengths)
    stored, p = vectors([9] * 50, 24, 1), offsets([9] * 50)
    together = maxsim(tokens, q, stored, p[:-1], p[1:])
    for i in range(len(lengths)):
        own = tokens[q[i] : q[i + 1]]
        alone = maxsim(own, offsets([len(own)]), stored, p[:-1], p[1:])
        np.testing.assert_array_equal(together[i], alone[0])


def test_padding_never_wins() -> None:
    """A slot of zeros would score 0, more than this page's true -1."""
    stored = np.zeros((4, 3), np.float32)
    stored[0] = [-1, 0, 0]
    token = np.array([[1, 0, 0]], np.float32)
    score = maxsim(token, offsets([1]), stored, np.array([0]), np.array([1]))
    assert score[0, 0] == -1


def test_a_page_without_rows_scores_minus_infinity() -> None:
    token = np.array([[1, 0, 0]], np.float32)
    stored = np.ones((1, 3), np.float32)
    for function in (maxsim, maxsim_reference):
        assert function(token, offsets([1]), stored, np.array([0]), np.array([0]))[0, 0] == -np.inf


def test_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    tokens, q = vectors([8], 32, 0), offsets([8])
    pages = [6, 13, 1]
    stored, p = vectors(pages, 32, 1), offsets(pages)
    expected = [
        float((torch.tensor(tokens) @ torch.tensor(stored[a:b]).T).max(dim=1).values.sum())
        for a, b in pairwise(p)
    ]
    np.testing.assert_allclose(maxsim(tokens, q, stored, p[:-1], p[1:])[0], expected, rtol=1e-5)
