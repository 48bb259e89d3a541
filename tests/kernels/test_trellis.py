"""The trellis code: its search, its streams, and how near theory it comes."""

from __future__ import annotations

import hashlib
from importlib import resources

import numpy as np
import pytest

from glie.kernels import trellis
from glie.kernels._trellis import search


def gaussian(rows: int, columns: int, seed: int = 0) -> trellis.Floats:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def searched(
    numbers: trellis.Floats, weights: trellis.Floats, plan: trellis.Plan
) -> list[trellis.Bits]:
    given = (
        np.ascontiguousarray(numbers[:, plan.columns]),
        np.ascontiguousarray(weights[plan.columns]),
        plan.shifts,
        plan.widths,
        trellis._tables(plan),
    )
    found = []
    for way in (search, trellis.search_in_numpy):
        states = np.zeros((len(numbers), len(plan.shifts)), np.uint8)
        way(*given, 0, len(numbers), states)
        found.append(states)
    return found


@pytest.mark.parametrize("bits", [1, 2, 7, 40, 96, 300])
def test_compiled_search_equals_its_reference(bits: int) -> None:
    variances = np.linspace(3, 0.01, 61) ** 2
    plan = trellis.plan_for(variances, bits)
    compiled, reference = searched(gaussian(9, 61), variances.astype(np.float32), plan)
    np.testing.assert_array_equal(compiled, reference)


def test_the_search_finds_the_nearest_of_all_streams() -> None:
    variances = np.array([9.0, 2.0, 1.0, 1.0, 0.9])
    plan = trellis.plan_for(variances, 9)
    numbers, weights = gaussian(5, 5), variances.astype(np.float32)
    every = (np.arange(2**plan.bits)[:, None] >> np.arange(plan.bits) & 1).astype(np.uint8)
    stands_for = trellis.from_bits(every, plan, 5)
    found = trellis.from_bits(trellis.to_bits(numbers, weights, plan), plan, 5)
    for row, mine in zip(numbers, found, strict=True):
        errors = (weights * (row - stands_for) ** 2).sum(axis=1)
        assert (weights * (row - mine) ** 2).sum() == pytest.approx(errors.min(), rel=1e-5)


@pytest.mark.parametrize("place", range(1, len(trellis.COSTS)))
def test_errors_are_those_that_bits_are_given_by(place: int) -> None:
    count = 64
    bits = count * trellis.COSTS[place] // 2
    plan = trellis.plan_for(np.ones(count), bits)
    assert plan.bits == bits
    numbers = gaussian(800, count)
    found = trellis.from_bits(
        trellis.to_bits(numbers, np.ones(count, np.float32), plan), plan, count
    )
    # the register is empty at first, which costs the first numbers of a stream
    error = ((numbers - found)[:, plan.columns[16:]] ** 2).mean()
    assert error == pytest.approx(trellis.ERRORS[place], rel=0.05)
    rounding = (1, 0.68, 0.3634, 0.1175, 0.0345, 0.0095)[place]  # the best levels, one by one
    assert error < 0.85 * rounding


@pytest.mark.parametrize("bits", [0, 1, 3, 95, 96, 256, 10_000])
def test_plans_use_their_bits_where_numbers_vary(bits: int) -> None:
    variances = np.random.default_rng(0).permutation(np.linspace(0, 2, 97) ** 3)
    plan = trellis.plan_for(variances, bits)
    assert min(bits, 4 * 97) - 1 <= plan.bits <= bits
    assert len(plan.columns) == plan.widths.sum() == len(set(plan.columns.tolist()))
    left_out = np.setdiff1d(np.arange(97), plan.columns)
    if len(plan.columns) and len(left_out) > 1:
        assert np.sort(variances[left_out])[:-1].max() <= variances[plan.columns].min()


def test_no_bits_and_no_rows() -> None:
    none = trellis.plan_for(np.ones(3), 0)
    assert trellis.to_bits(gaussian(2, 3), np.ones(3, np.float32), none).shape == (2, 0)
    assert not trellis.from_bits(np.zeros((2, 0), np.uint8), none, 3).any()
    some = trellis.plan_for(np.ones(3), 5)
    streams = trellis.to_bits(gaussian(0, 3), np.ones(3, np.float32), some)
    assert streams.shape == (0, some.bits)
    assert trellis.from_bits(streams, some, 3).shape == (0, 3)


def test_numpy_and_loops_give_the_same_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, weights = trellis.plan_for(np.ones(20), 30), np.ones(20, np.float32)
    numbers = gaussian(700, 20)
    streams = []
    for choice in (True, False):
        monkeypatch.setattr(trellis, "in_numpy", lambda products, choice=choice: choice)
        streams.append(trellis.to_bits(numbers, weights, plan))
    np.testing.assert_array_equal(streams[0], streams[1])


def test_levels_never_change() -> None:
    """Stored codes refer to them."""
    data = (resources.files("glie.kernels") / trellis.LEVELS).read_bytes()
    assert (
        hashlib.sha256(data).hexdigest()
        == "1d0e0c1318f652d04954206d7792911a0fab72cdab710f7cb42060aed61606d1"
    )
