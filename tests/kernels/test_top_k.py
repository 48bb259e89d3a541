"""top_k, against a full stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from glie.kernels.top_k import among_top, top_k


@pytest.mark.parametrize("k", [0, 1, 2, 7, 40, 41])
def test_the_first_of_a_stable_sort(k: int) -> None:
    rng = np.random.default_rng(k)
    for scores in (rng.normal(size=40).astype(np.float32), rng.integers(4, size=40)):
        expected = np.argsort(-scores, kind="stable")[:k]
        assert top_k(scores, k).tolist() == expected.tolist()
        assert np.flatnonzero(among_top(scores, k)).tolist() == sorted(expected.tolist())


def test_no_scores() -> None:
    assert top_k(np.empty(0, np.float32), 3).tolist() == []
