"""Stored vectors: what is lost in each type, and that nothing else changes them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels.quantize import (
    BITS,
    DTYPES,
    Packed,
    pack,
    rotate,
    row_bytes,
    scan_order,
    unpack,
    unrotate,
)
from tests.conftest import unit

Floats = npt.NDArray[np.float32]


def gaussian(count: int, dim: int, seed: int = 0) -> Floats:
    return unit(np.random.default_rng(seed).normal(size=(count, dim)))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bf16", 2.7e-6), ("int8", 5.3e-5), ("int4", 0.0101), ("int2", 0.1195), ("int1", 0.4007)],
)
def test_the_error_is_as_stated(dtype: str, expected: float) -> None:
    """That of unit Gaussians; vectors that a rotation has to spread first lose no more."""

    def lost(vectors: Floats) -> float:
        return float(((vectors - Packed.of(vectors, dtype).vectors()) ** 2).sum(axis=1).mean())

    plain = gaussian(4000, 128)
    assert lost(plain) == pytest.approx(expected, rel=0.02)
    assert lost(unit(plain * np.exp(np.random.default_rng(1).normal(size=128)))) < 1.04 * expected


@given(st.integers(1, 70), st.integers(0, 99), st.sampled_from(DTYPES))
def test_rows_of_any_dimension(dim: int, seed: int, dtype: str) -> None:
    vectors = gaussian(7, dim, seed)
    packed = pack(vectors, dtype)
    assert packed.shape == (7, row_bytes(dim, dtype))
    assert packed.dtype == np.uint8
    back = unpack(packed, dtype, dim)
    np.testing.assert_allclose(
        np.linalg.norm(back, axis=1), 1, atol=1e-6 if dtype != "bf16" else 4e-3
    )
    # a vector's bytes are its own affair, and so is what they stand for
    for row in range(7):
        assert pack(vectors[row], dtype).tobytes() == packed[row].tobytes()
        assert unpack(packed[row : row + 1], dtype, dim).tobytes() == back[row].tobytes()
    shaped = pack(vectors.reshape(7, 1, dim), dtype)
    np.testing.assert_array_equal(shaped[:, 0], packed)


@given(st.integers(1, 400), st.integers(0, 99))
def test_rotation_keeps_every_inner_product_and_turns_back(dim: int, seed: int) -> None:
    vectors = gaussian(5, dim, seed)
    rotated = rotate(vectors)
    np.testing.assert_allclose(rotated @ rotated.T, vectors @ vectors.T, atol=2e-6)
    np.testing.assert_allclose(unrotate(rotated), vectors, atol=1e-6)


@pytest.mark.parametrize("dim", [64, 96, 128, 384, 768])
def test_rotation_spreads_a_single_number_over_all(dim: int) -> None:
    rotated = rotate(np.eye(dim, dtype=np.float32))
    assert np.abs(rotated).max() < 8 / math.sqrt(dim)


def test_the_rotation_as_the_format_describes_it() -> None:
    """By matrices, at a D of three blocks of four."""
    state, signs = 0, []
    for _ in range(12):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        signs.append(-1.0 if state >> 63 else 1.0)
    two = np.array([[1, 1], [1, -1]]) / math.sqrt(2)
    step = np.kron(np.eye(3), np.kron(two, two)) @ np.diag(signs)
    interleave = np.eye(12)[[block * 4 + i for i in range(4) for block in range(3)]]
    vectors = gaussian(6, 12)
    np.testing.assert_allclose(rotate(vectors), vectors @ (step @ interleave @ step).T, atol=1e-6)
    vectors = gaussian(6, 4)
    one = np.kron(two, two) @ np.diag(signs[:4])
    np.testing.assert_allclose(rotate(vectors), vectors @ one.T, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "row", "odd"),
    [
        ("int8", [0x83, 0x82, 0x81, 0x80, 0x7F], [7, 5, 3, 1, -1]),
        ("int4", [0x10, 0x32, 0x0F], [-15, -13, -11, -9, 15]),
        ("int2", [0b11100100, 0b10], [-3, -1, 1, 3, 1]),
        ("int1", [0b00010], [-1, 1, -1, -1, -1]),
    ],
)
def test_the_bytes_of_a_row(dtype: str, row: list[int], odd: list[int]) -> None:
    """Lowest bits first; the numbers that they stand for, before they are turned back."""
    read = unpack(np.array(row, np.uint8), dtype, 5)
    np.testing.assert_allclose(rotate(read), unit(np.array(odd)), atol=1e-6)


@given(st.integers(1, 40), st.integers(0, 99), st.sampled_from(list(BITS)))
def test_the_order_of_the_scan_changes_no_inner_product(dim: int, seed: int, dtype: str) -> None:
    vectors = gaussian(4, dim, seed)
    order = scan_order(vectors, dtype)
    steps = -(-row_bytes(dim, dtype) // 16)  # it is read by 16 bytes
    assert order.shape[1] == steps * 128 // BITS[dtype]
    np.testing.assert_allclose(order @ order.T, vectors @ vectors.T, atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_vectors(dtype: str) -> None:
    for shape in ((0, 3, 12), (2, 0, 7), (0, 2, 0)):
        assert Packed.of(np.zeros(shape, np.float32), dtype).vectors().shape == shape


def test_zero_vectors_are_stored_as_some_direction() -> None:
    """Their count says that they are not part of the page; nothing divides by zero."""
    for dtype in BITS:
        assert np.isfinite(Packed.of(np.zeros((2, 6), np.float32), dtype).vectors()).all()


def test_bfloat16_rounds_to_nearest_even() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    x[:4] = [1.00390625, 1.01171875, 0.0, -0.0]  # two ties
    expected = torch.tensor(x).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(Packed.of(x, "bf16").vectors(), expected)
