"""A budget in bytes a page: it is kept, and a larger one never keeps less."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec.budget import OVERHEAD, POSITION, config_for, least_bytes, vector_bytes
from glie.codec.readout.codebook import fit_codebook
from glie.codec.readout.pairs import most_residual_bytes
from tests.conftest import make_arrays


def test_a_codec_with_the_shipped_codebook_costs_an_index_nothing(tmp_path: Path) -> None:
    codec = glie.Codec(bytes_per_page=260)
    index = glie.Index.create(tmp_path / "i", codec)
    assert index.info().codec_bytes == 0
    assert glie.Index.open(tmp_path / "i").codec.same_as(codec)


@pytest.mark.parametrize("budget", [80, 130, 260, 520, 1040, 2080, 4160])
def test_pages_fit_their_budget_on_disk(budget: int, tmp_path: Path) -> None:
    pages = glie.Pages(make_arrays(300, dim=128, low=1, high=300 if budget == 520 else 60))
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=budget))
    index.add(pages, [{"page": i, "document": f"reports/{i // 9}.pdf"} for i in range(300)])
    assert index.info().bytes <= budget * len(pages)


def test_a_budget_that_is_too_small_says_what_is_needed() -> None:
    least = least_bytes(128, 65_536)
    assert config_for(least, 128, 65_536).codewords == 1
    with pytest.raises(glie.InputError, match=f"at least {least}"):
        config_for(least - 1, 128, 65_536)
    assert least > OVERHEAD
    for wrong in (2.5, "520", True):
        with pytest.raises(glie.InputError, match="whole number"):
            glie.Codec(bytes_per_page=wrong)  # type: ignore[arg-type]
    for few in (0, -5):
        for adapts in (None, True):
            with pytest.raises(glie.InputError, match=f"found {few}"):
                glie.Codec(bytes_per_page=few, adapt=adapts)
    with pytest.raises(TypeError, match="give it without them"):
        glie.Codec(4, bytes_per_page=520)


def test_a_larger_budget_never_keeps_less() -> None:
    found = [config_for(budget, 128, 65_536) for budget in range(70, 5000, 37)]
    for smaller, larger in pairwise(found):
        assert larger.k >= smaller.k


def test_every_budget_from_the_least_on_is_met() -> None:
    for dim in (1, 2, 16, 128):
        for codewords in (1, 64, 65_536):
            least = least_bytes(dim, codewords)
            for budget in range(least, least + 120):
                config = config_for(budget, dim, codewords)
                residual = most_residual_bytes(config.k, codewords, config.codewords)
                vectors = config.k * vector_bytes(dim, config.dtype)
                assert OVERHEAD + vectors + 2 + residual <= budget


def test_few_anchors_of_a_text_are_of_neighbours() -> None:
    for budget, position in ((260, POSITION), (520, POSITION), (2080, 0)):
        assert glie.Codec(bytes_per_page=budget).config.position == position
        assert config_for(budget, 128, 65_536).position == 0
    pictures = fit_codebook(np.ones((4, 128), np.float32), 2)
    assert glie.Codec.with_codebook(pictures, 260).config.position == 0
    some = glie.Pages(make_arrays(9, dim=16, low=1))
    assert glie.Codec(bytes_per_page=260, adapt=True).adapted(some).config.position == 0
