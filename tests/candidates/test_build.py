"""Which indexes generate candidates, and PQ codes from arrays of stored codes."""

from __future__ import annotations

import numpy as np
import pytest

from glie.candidates import build
from glie.candidates.build import StoredVectors, encode_pages, fit_ivf_pq
from glie.kernels.quantize import Packed
from tests.conftest import unit


def stored(pages: int, seed: int) -> StoredVectors:
    """Pages of 3 slots, the last unused in every other page."""
    vectors = unit(np.random.default_rng(seed).normal(size=(pages, 3, 8)))
    counts = np.ones((pages, 3), np.uint16)
    counts[::2, 2] = 0
    return StoredVectors(Packed.of(vectors, "bf16"), counts)


def test_when_candidates_pay_and_are_outgrown() -> None:
    assert not build.candidates_pay(build.CANDIDATE_PAGES - 1)
    assert build.candidates_pay(build.CANDIDATE_PAGES)
    assert not build.outgrown(4 * 25_000 - 1, 25_000)
    assert build.outgrown(4 * 25_000, 25_000)


def test_an_unused_slot_repeats_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    some = stored(60, 0)
    ivf_pq = fit_ivf_pq([some])
    whole = encode_pages(some, ivf_pq)
    assert whole.lists.shape == (60, 3)
    assert whole.codes.shape == (60, 3, 8)
    for array in whole:
        np.testing.assert_array_equal(array[::2, 2], array[::2, 0])
    alone = ivf_pq.encode(some.vectors.vectors()[1])
    np.testing.assert_array_equal(whole.lists[1], alone.lists)
    np.testing.assert_array_equal(whole.codes[1], alone.codes)
    monkeypatch.setattr(build, "VECTORS_PER_STEP", 10)
    for one, other in zip(whole, encode_pages(some, ivf_pq), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_fit_does_not_depend_on_the_parts() -> None:
    parts = [stored(40, 1), stored(25, 2)]
    joined = StoredVectors(
        parts[0].vectors._replace(rows=np.concatenate([part.vectors.rows for part in parts])),
        np.concatenate([part.counts for part in parts]),
    )
    assert fit_ivf_pq(parts).to_bytes() == fit_ivf_pq([joined]).to_bytes()
