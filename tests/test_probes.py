"""Made-up questions are as far from their pages as real ones are."""

from __future__ import annotations

import numpy as np

import glie
from glie.probes import probes
from tests.conftest import make_arrays


def test_probes_lie_between_their_page_and_others() -> None:
    pages = glie.Pages(make_arrays(40, dim=64, low=20, high=40))
    asked = probes(pages, 80, np.random.default_rng(0))
    assert len(asked) == 80
    best = [max((rows @ page.T).max(axis=1).mean() for page in pages) for rows in asked]
    assert 0.5 < np.mean(best) < 0.85
    again = probes(pages, 80, np.random.default_rng(0))
    np.testing.assert_array_equal(asked.vectors, again.vectors)


def test_pages_of_one_vector_and_opposite_ones() -> None:
    pages = glie.Pages([np.eye(1, 2), -np.eye(1, 2)])
    assert np.isfinite(probes(pages, 10, np.random.default_rng(0)).vectors).all()
