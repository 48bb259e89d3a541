"""Pictures of what was measured."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from glie.errors import InputError, MissingExtraError
from glie.geometry import CorpusGeometry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
INK, FAINT = "#222222", "#d9d9d9"


class _Series(NamedTuple):
    name: str  # of the value of a page
    label: str
    colour: str
    rise: int  # of the label, in points: those of neighbours stand on different lines


SERIES = (
    _Series("twonn", "the page's vectors", "#0b6e99", 4),
    _Series("gaussian", "a Gaussian with the page's covariance", "#c8641b", 18),
    _Series("uniform", "uniform noise", "#7a7a7a", 4),
)


def check_plot(path: str | os.PathLike[str]) -> None:
    """Whether a plot can be made there, found out before what it shows is measured."""
    picture = Path(path)
    if picture.suffix.lower() not in FORMATS:
        raise InputError(f"{picture}: expected a name that ends in {', '.join(FORMATS)}")
    if not picture.parent.is_dir():
        raise InputError(f"{picture}: there is no folder {picture.parent}; make it first")
    _figure(1, 1)


def plot_geometry(corpora: Sequence[CorpusGeometry], path: str | os.PathLike[str]) -> None:
    """A dot a page: its intrinsic dimension and that of its controls, a row a corpus."""
    check_plot(path)
    figure = _figure(8, 1.6 + 0.62 * len(corpora))
    axes = figure.subplots()
    for row, corpus in enumerate(corpora):
        for series in SERIES:
            values = [getattr(page, series.name) for page in corpus.pages]
            # spread by the golden ratio: even, and the same every time
            heights = [row + 0.4 * ((0.618034 * i + 0.5) % 1 - 0.5) for i in range(len(values))]
            axes.scatter(values, heights, s=20, color=series.colour, alpha=0.5, linewidths=0)
            median = getattr(corpus, series.name).median
            if math.isnan(median):
                continue
            axes.plot([median] * 2, [row - 0.3, row + 0.3], color=series.colour, linewidth=1.5)
            axes.annotate(
                f"{median:.1f}", (median, row - 0.32), ha="center", va="bottom",
                fontsize=8.5, color=series.colour,
            )  # fmt: skip
    dims = {dim for corpus in corpora for dim in corpus.dims}
    for dim in dims:
        axes.axvline(dim, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            f"D = {dim:,}", (dim, 1), xycoords=("data", "axes fraction"), xytext=(0, 4),
            textcoords="offset points", ha="center", va="bottom", fontsize=9, color=INK,
        )  # fmt: skip
    for series in SERIES:
        medians = [getattr(corpus, series.name).median for corpus in corpora]
        known = sorted(median for median in medians if not math.isnan(median))
        if known:
            axes.annotate(
                series.label, (known[len(known) // 2], 1), xycoords=("data", "axes fraction"),
                xytext=(0, series.rise), textcoords="offset points", ha="center", va="bottom",
                fontsize=9, color=series.colour, fontweight="bold",
            )  # fmt: skip
    axes.set_xscale("log")
    ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    lows = [corpus.twonn.low for corpus in corpora if corpus.twonn.low < 2.5]
    axes.set_xlim(min(lows, default=2.5) * 0.8, 1.3 * max(dims, default=128))
    axes.set_ylim(len(corpora) - 0.45, -0.6)  # the first corpus on top
    axes.set_yticks(range(len(corpora)), [_name(corpus) for corpus in corpora], fontsize=9)
    axes.tick_params(length=0, colors=INK)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("intrinsic dimension by TwoNN: a dot a page, a line the median", color=INK)
    with warnings.catch_warnings():  # a letter that the font lacks is drawn as a box
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(path, dpi=160)


def _figure(width: float, height: float) -> Figure:
    """A figure of its own: no window, and no state shared with other plots."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("plotting", "evaluate") from None
    return Figure(figsize=(width, height), layout="constrained")


def _name(corpus: CorpusGeometry) -> str:
    name, pages = corpus.name, len(corpus.pages)
    if len(name) > 32:
        name = f"{name[:15]}…{name[-16:]}"
    name = name.replace("$", r"\$")  # which would begin a formula
    return f"{name}\n{pages:,} page{'' if pages == 1 else 's'}"
