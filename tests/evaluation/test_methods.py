"""Methods by name."""

from __future__ import annotations

import pytest

import glie
from glie.evaluation.methods import ADAPTED, SHIPPED, chosen_methods
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
