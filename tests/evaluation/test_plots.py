"""Plots of the geometry of pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glie
from glie.evaluation.plots import check_plot, plot_geometry
from glie.geometry import (
    measure,
)
from tests.test_geometry import three_corpora


def test_the_plot(tmp_path: Path) -> None:
    corpora = measure(three_corpora())
    plot_geometry(corpora, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    plot_geometry(corpora, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    for text in ("flat", "4 pages", "uniform noise", "D = 16", f"{corpora[0].twonn.median:.1f}"):
        assert f"<!-- {text} -->" in drawn
    assert drawn.count("<use") > 3 * 10  # a dot a page, and one for each of its controls


def test_the_plot_of_what_is_odd(tmp_path: Path) -> None:
    """Nothing to estimate, a name with a formula and letters that the font lacks."""
    points = np.random.default_rng(0).normal(size=(30, 4))
    corpora = measure({"$x_{": [("p", points[:3])], "資料" * 40: [("p", points[:, :1])]})
    plot_geometry(corpora, tmp_path / "plot.svg")
    assert "1 page" in (tmp_path / "plot.svg").read_text()


def test_where_no_plot_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(glie.InputError, match=r"expected a name that ends in \.png, \.svg, \.pdf"):
        check_plot(tmp_path / "plot.txt")
    with pytest.raises(glie.InputError, match=r"there is no folder .*none; make it first"):
        check_plot(tmp_path / "none" / "plot.png")
