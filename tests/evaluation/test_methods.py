"""Methods by name."""

from __future__ import annotations

import numpy as np
import pytest

import glie
from glie.evaluation.methods import ADAPTED, NORM_POWER, SHIPPED, chosen_methods, glie_free, scaled
from tests.conftest import make_arrays
from tests.evaluation.topics import (
    ALL,
)


def test_methods_are_asked_for_by_name() -> None:
    assert chosen_methods(None) == ["raw-kmeans", "glie-free", "uncompressed"]
    assert chosen_methods(None, codec=True)[-2:] == ["glie", "uncompressed"]
    assert chosen_methods("all", fits=True) == ALL
    assert chosen_methods("all", codec=True) == [name for name in ALL if name != "plaid"]
    assert chosen_methods("codewords, codewords-adapted") == [SHIPPED, ADAPTED]
    assert not {"glie", "plaid"} & set(chosen_methods("all"))
    with pytest.raises(glie.InputError, match="'best' is unknown; expected all, or some of: raw"):
        chosen_methods("best")
    with pytest.raises(glie.InputError, match="glie need a fitted codec"):
        chosen_methods("glie")
    with pytest.raises(glie.InputError, match="plaid need sets to fit centroids on; give --fit"):
        chosen_methods("plaid", codec=True)


def test_scaled_vectors_are_longer_the_wider_their_cluster() -> None:
    pages = glie.Pages(make_arrays(5, low=1))
    free, found = glie_free(pages, 4), scaled(pages, 4)
    used = free.counts > 0
    lengths = np.linalg.norm(found.vectors[used], axis=1)
    np.testing.assert_allclose(lengths, free.norms[used].astype(float) ** NORM_POWER, rtol=1e-3)
    np.testing.assert_allclose(
        found.vectors[used] / lengths[:, None], free.vectors[used], atol=1e-6
    )
    assert lengths.max() > 1.01
    assert not found.vectors[~used].any()
