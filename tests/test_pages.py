"""Pages and Queries: what is accepted, what is refused, and how it is said."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glie
from tests.conftest import make_arrays, unit


def test_packs_ragged_arrays() -> None:
    arrays = make_arrays(5)
    pages = glie.Pages(arrays, ids=list("abcde"))
    assert len(pages) == 5
    assert pages.ids == list("abcde")
    assert pages.dim == 16
    assert pages.lengths.tolist() == [len(a) for a in arrays]
    for mine, given_array in zip(pages, arrays, strict=True):
        np.testing.assert_allclose(mine, given_array, atol=1e-6)
    np.testing.assert_array_equal(pages[-1], pages[4])
    with pytest.raises(IndexError):
        pages[5]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_takes_numpy_types(dtype: Any) -> None:
    pages = glie.Pages([a.astype(dtype) for a in make_arrays(3)])
    assert pages.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(pages.vectors, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_takes_torch_types(name: str) -> None:
    torch = pytest.importorskip("torch")
    arrays = make_arrays(3)
    tensors = [
        torch.tensor(a, requires_grad=name == "float32").to(getattr(torch, name)) for a in arrays
    ]
    pages = glie.Pages(tensors)
    np.testing.assert_allclose(np.linalg.norm(pages.vectors, axis=1), 1, atol=1e-6)
    for mine, given_array in zip(pages, arrays, strict=True):
        np.testing.assert_allclose(mine, given_array, atol=0.01)


def test_padded_pages_equal_listed_ones() -> None:
    arrays = make_arrays(4)
    width = max(map(len, arrays))
    padded = np.full((4, width, 16), np.nan, np.float32)
    mask = np.zeros((4, width), bool)
    for i, a in enumerate(arrays):
        padded[i, : len(a)] = a
        mask[i, : len(a)] = True
    expected = glie.Pages(arrays)
    for given_mask in (mask, mask.astype(np.int64)):
        found = glie.Pages.from_padded(padded, given_mask)
        np.testing.assert_array_equal(found.vectors, expected.vectors)
        np.testing.assert_array_equal(found.offsets, expected.offsets)


def test_a_left_padded_batch_is_read_by_its_mask() -> None:
    array = make_arrays(1)[0]
    padded = np.concatenate([np.zeros((3, 16), np.float32), array])[None]
    mask = np.array([[False] * 3 + [True] * len(array)])
    np.testing.assert_allclose(glie.Pages.from_padded(padded, mask)[0], array, atol=1e-6)


def good() -> list[Any]:
    return make_arrays(3, low=8)


def broken(row: int, value: Any) -> list[Any]:
    arrays = good()
    arrays[1] = arrays[1].copy()
    arrays[1][row] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (broken(5, np.nan), "page '1', row 5: not finite"),
        (broken(5, np.inf), "page '1', row 5: not finite"),
        (broken(3, 0.5), "page '1', row 3: norm 2, expected 1 within 1%; pass normalize=True"),
        (broken(3, 0.0), "page '1', row 3: norm 0"),
        ([*good(), np.zeros((0, 16))], r"page '3': no vectors \(shape \(0, 16\)\)"),
        ([*good(), np.zeros(16)], r"page '3': expected an \(n, D\) array, found shape \(16,\)"),
        ([*good(), unit(np.ones((2, 8)))], "page '3': its vectors have 8 numbers, those of page '0' have 16"),
        ([*good(), [["a"]]], "page '3': expected numbers, found"),
        ([*good(), [[1.0], [1.0, 2.0]]], "page '3': cannot be read as an array of numbers"),
        (None, r"expected a list of \(n, D\) arrays, found NoneType"),
        (np.float32(1), r"expected a list of \(n, D\) arrays, found float32"),
        ([np.ma.masked_equal([[1.0, 0.0]], 0)], "page '0': a masked array; pass its data and mask"),
        ("text", r"expected a list of \(n, D\) arrays, found str"),
    ],
)  # fmt: skip
def test_names_what_is_wrong(arrays: Any, message: str) -> None:
    with pytest.raises(glie.VectorError, match=message):
        glie.Pages(arrays)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "b", "a"], "'a' is given twice, the second time at page 2"),
        (["a", "b"], "found 2 ids for 3 page arrays"),
        (["a", "b", ""], "id of page 2: expected a non-empty string"),
        (["a", "b", 3], "id of page 2: expected a non-empty string, found 3"),
        (["a", "b", "\ud800"], "lone surrogate"),
        ("abc", "expected a list of strings, found 'abc'"),
        (5, "expected a list of strings, found 5"),
    ],
)
def test_ids_are_unique_strings(ids: Any, message: str) -> None:
    with pytest.raises(glie.IdError, match=re.escape(message)):
        glie.Pages(good(), ids=ids)


def test_real_bfloat16_rounding_is_accepted_and_removed() -> None:
    arrays = [a * s for a, s in zip(make_arrays(2), (0.996, 1.004), strict=True)]
    np.testing.assert_allclose(np.linalg.norm(glie.Pages(arrays).vectors, axis=1), 1, atol=1e-6)
    with pytest.raises(glie.VectorError, match=r"norm 1\.02"):
        glie.Pages([make_arrays(1)[0] * 1.02])


def test_normalize_accepts_vectors_off_the_sphere() -> None:
    arrays = make_arrays(3)
    pages = glie.Pages([a * 1e3 for a in arrays], normalize=True)
    for mine, given_array in zip(pages, arrays, strict=True):
        np.testing.assert_allclose(mine, given_array, atol=1e-6)
    with pytest.raises(glie.VectorError, match="page '1', row 3: a zero vector has no direction"):
        glie.Pages(broken(3, 0.0), normalize=True)


def test_a_huge_finite_vector_is_not_called_infinite() -> None:
    pages = glie.Pages([np.full((1, 16), 1e38, np.float32)], normalize=True)
    np.testing.assert_allclose(pages.vectors, 0.25, rtol=1e-6)


def test_bad_masks_are_refused() -> None:
    with pytest.raises(glie.VectorError, match=r"\(P, N, D\) array and a \(P, N\) mask"):
        glie.Pages.from_padded(np.zeros((2, 3, 4)), np.ones((2, 4)))
    with pytest.raises(glie.VectorError, match="padded array: cannot be read"):
        glie.Pages.from_padded([[[1.0]], [[1.0], [1.0]]], np.ones((2, 1)))
    with pytest.raises(glie.VectorError, match="booleans or 0 and 1"):
        glie.Pages.from_padded(np.zeros((2, 3, 4)), np.full((2, 3), 0.5))
    with pytest.raises(glie.VectorError, match="page '1': no vectors"):
        glie.Pages.from_padded(unit(np.ones((2, 3, 4))), np.array([[1, 1, 0], [0, 0, 0]]))


def test_queries_name_themselves() -> None:
    with pytest.raises(glie.VectorError, match="query '0', row 1: norm 2"):
        glie.Queries([np.array([[1.0, 0.0], [2.0, 0.0]])])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 20), st.integers(0, 99))
def test_round_trip_of_any_shape(lengths: list[int], dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [unit(rng.normal(size=(n, dim))) for n in lengths]
    pages = glie.Pages(arrays)
    assert [len(page) for page in pages] == lengths
    part = pages.slice(1, len(pages))
    assert part.ids == pages.ids[1:]
    for mine, given_array in zip(part, arrays[1:], strict=True):
        np.testing.assert_allclose(mine, given_array, atol=1e-6)


def test_no_pages_is_fine() -> None:
    assert len(glie.Pages([])) == 0
