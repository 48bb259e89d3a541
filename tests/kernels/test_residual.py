"""Packed sets, against plain statements of what they hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels.residual import (
    FIRST_LAYER,
    layers,
    most_bytes,
    pack_set,
    unpack_set,
)


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
