"""The plots of a report."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from glie.errors import InputError, MissingExtraError
from glie.evaluation.methods import ADAPTED, ORACLE, OURS, PLAID, SHIPPED, UNCOMPRESSED
from glie.evaluation.results import Results, margin, margins
from glie.geometry import CorpusGeometry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
INK, FAINT = "#222222", "#d9d9d9"
BLANK = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # the background of a label


class _Series(NamedTuple):
    name: str  # a field of PageGeometry
    label: str
    colour: str
    rise: int  # height of the label in points, so that neighbours do not overlap


SERIES = (
    _Series("twonn", "the page's vectors", "#0b6e99", 4),
    _Series("gaussian", "a Gaussian with the page's covariance", "#c8641b", 18),
    _Series("uniform", "uniform noise", "#7a7a7a", 4),
)


def check_plot(path: str | os.PathLike[str]) -> None:
    """Raise unless a plot can be written to this path: checked before anything is measured."""
    picture = Path(path)
    if picture.suffix.lower() not in FORMATS:
        raise InputError(f"{picture}: expected a name that ends in {', '.join(FORMATS)}")
    if not picture.parent.is_dir():
        raise InputError(f"{picture}: there is no folder {picture.parent}; make it first")
    check_plotting()


def check_plotting() -> None:
    """Raise unless matplotlib is installed."""
    _figure(1, 1)


def plot_geometry(corpora: Sequence[CorpusGeometry], path: str | os.PathLike[str]) -> None:
    """Plot intrinsic dimensions of pages and controls: a dot for each page, a row a corpus."""
    check_plot(path)
    figure = _figure(8, 1.6 + 0.62 * len(corpora))
    axes = figure.subplots()
    for row, corpus in enumerate(corpora):
        for series in SERIES:
            values = [getattr(page, series.name) for page in corpus.pages]
            # jitter by the golden ratio: even and reproducible
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
    with warnings.catch_warnings():  # a letter missing in the font is drawn as a box
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(path, dpi=160)


# the ladder has one hue, from light to dark; other methods have their own
COLOURS = {
    "raw-kmeans": "#9a9a9a",
    "token-pooling": "#b07aa1",
    "token-pooling-raw": "#d7bdd0",
    "cluster-merging": "#c8641b",
    "hierarchical-pooling": "#8a6d3b",
    "glie-free": "#7fb8d4",
    "glie-free-scaled": "#a9c7a0",
    "glie-stage1": "#3d94bd",
    "glie": "#0b4f6e",
    "quantised": "#5a9e6f",
    "ward-1bit": "#e0a030",
    PLAID: "#d1495b",
    SHIPPED: "#6a3d9a",
    ADAPTED: "#b294cf",
    ORACLE: "#3a8f5c",
}


def plot_quality(results: Results, path: str | os.PathLike[str]) -> None:
    """Plot nDCG@5 against bytes a page, a line for each method."""
    check_plot(path)
    figure = _figure(8, 5)
    axes = figure.subplots()
    ends: list[tuple[float, float, str, str]] = []
    drawn: list[float] = []
    for method in results.methods:
        if method == ORACLE:
            continue  # it stores what `glie` does, and reads vectors that are not stored
        points = [
            (
                results.macro(method, k, lambda result: result.bytes_per_page).mean,
                results.macro(method, k).mean,
            )
            for k in results.budgets
        ]
        sizes, scores = zip(*points, strict=True)
        thick = 2.2 if method in ("glie", SHIPPED) else 1.4
        axes.plot(sizes, scores, marker="o", markersize=4, linewidth=thick, color=COLOURS[method])
        ends.append((sizes[-1], scores[-1], method, COLOURS[method]))
        drawn += sizes
    axes.set_xscale("log", base=2)
    first = results.methods[0]
    ticks = [
        k if results.in_bytes else results.macro(first, k, lambda r: r.bytes_per_page).mean
        for k in results.budgets
    ]
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.set_xticks([], minor=True)
    drawn += ticks
    axes.set_xlim(min(drawn) / 1.1, max(drawn) * (2.6 if len(ticks) > 1 else 4))
    ceiling = results.ceiling
    if ceiling is not None:
        size = results.macro(UNCOMPRESSED, None, lambda result: result.bytes_per_page).mean
        reach = [min(drawn), max(drawn)]
        axes.plot(reach, [ceiling] * 2, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        ends.append((reach[1], ceiling, f"{UNCOMPRESSED}: {size:,.0f} bytes", INK))
    _label_ends(axes, ends)
    axes.set_xlabel("bytes a page", color=INK)
    axes.set_ylabel("nDCG@5, mean over sets", color=INK)
    _plain(axes)
    figure.savefig(path, dpi=160)


def plot_margin(results: Results, path: str | os.PathLike[str]) -> None:
    """Plot the margin of our methods over the strongest training-free method."""
    check_plot(path)
    figure = _figure(8, 4.4)
    axes = figure.subplots()
    places = range(len(results.budgets))
    ends: list[tuple[float, float, str, str]] = []
    for method in OURS:
        gains = margins(results, method)
        if not gains:
            continue
        means = [gain.mean for gain in gains]
        if method == "glie" or "glie" not in results.methods:
            lows, highs = [gain.low for gain in gains], [gain.high for gain in gains]
            axes.fill_between(places, lows, highs, color=COLOURS[method], alpha=0.12, linewidth=0)
        axes.plot(places, means, marker="o", markersize=5, color=COLOURS[method])
        ends.append((places[-1], means[-1], method, COLOURS[method]))
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xticks(places, results.columns)
    axes.set_xlim(-0.2, len(results.budgets) - 1 + 0.34 * max(1, len(results.budgets) - 1))
    _label_ends(axes, ends)
    axes.set_ylabel("nDCG@5 above the strongest training-free method", color=INK)
    _plain(axes)
    figure.savefig(path, dpi=160)


def plot_headroom(results: Results, path: str | os.PathLike[str]) -> None:
    """Plot the gap to uncompressed at each budget: the part that a better decoder could win back,
    and the part that only a longer shortlist could."""
    check_plot(path)
    figure = _figure(8, 4.4)
    axes = figure.subplots()
    ceiling = results.ceiling or 0.0
    places = list(range(len(results.budgets)))
    full = [results.macro("glie", k).mean for k in results.budgets]
    oracle = [results.macro(ORACLE, k).mean for k in results.budgets]
    fidelity = [max(0.0, best - now) for best, now in zip(oracle, full, strict=True)]
    recall = [max(0.0, ceiling - max(best, now)) for best, now in zip(oracle, full, strict=True)]
    parts = (
        (full, [0.0] * len(full), COLOURS["glie"], "kept"),
        (fidelity, full, "#6fb48b", "lost in decoding"),
        (
            recall,
            [a + b for a, b in zip(full, fidelity, strict=True)],
            "#d8a25e",
            "lost in the shortlist",
        ),
    )
    for heights, bottoms, colour, label in parts:
        axes.bar(places, heights, 0.62, bottoms, color=colour, label=label)
        for place, height, bottom in zip(places, heights, bottoms, strict=True):
            if height >= 0.004:
                inside = (
                    bottom + height / 2 if bottom else height - 0.002
                )  # the axis cuts off its foot
                axes.annotate(
                    f"{height:.3f}", (place, inside), ha="center", fontsize=8.5,
                    va="center" if bottom else "top",
                    color=INK if bottom else "white",
                    bbox={**BLANK, "facecolor": colour},  # the line of uncompressed is behind it
                )  # fmt: skip
    axes.axhline(ceiling, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    low = min(full) - 0.25 * max(0.02, max(ceiling, *oracle) - min(full))
    axes.set_ylim(max(0.0, low), max(ceiling, *oracle) + 0.01)
    axes.set_xticks(places, results.headings(["glie"]))
    axes.set_ylabel(f"nDCG@5; the line is uncompressed, {ceiling:.3f}", color=INK)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.1), ncols=3, frameon=False, fontsize=9)
    _plain(axes)
    figure.savefig(path, dpi=160)


def plots(results: Results, folder: Path) -> dict[str, str]:
    """Make the plots for which there are results; captions, by file name."""
    made = {}
    if results.methods:
        plot_quality(results, folder / "quality.png")
        made["quality.png"] = "Quality against bytes a page, a line for each method."
    ours = [method for method in OURS if method in results.methods]
    if len(results.budgets) > 1 and any(margin(results, m, results.budgets[0]) for m in ours):
        plot_margin(results, folder / "margin.png")
        made["margin.png"] = (
            "nDCG@5 above the strongest training-free method of each set and budget, normalised "
            "k-means included; the band is a 95% interval over questions."
        )
    if {"glie", ORACLE} <= set(results.methods) and results.ceiling is not None:
        plot_headroom(results, folder / "headroom.png")
        made["headroom.png"] = (
            "The gap to uncompressed: the part that perfect decoding of the same shortlist would "
            "win back, and the part that only a longer shortlist would."
        )
    return made


def _label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Label the end of each line, in a column right of all of them. Labels are spread so that none
    overlaps another or leaves the plot, and a thin line leads to each. Set the limits before."""
    low, high = axes.get_ylim()
    apart = 0.05 * (high - low)
    low -= max(0.0, apart * len(ends) - (high - low))  # room for all
    axes.set_ylim(low, high)
    ends = sorted(ends, key=lambda end: end[1])
    groups: list[list[float]] = []
    for _, y, *_ in ends:
        groups.append([y])
        while (
            len(groups) > 1
            and _spread(groups[-1], apart)[0] - _spread(groups[-2], apart)[-1] < apart
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [place for group in groups for place in _spread(group, apart)]
    for i in range(len(places)):
        places[i] = max(places[i], low + apart / 2 if i == 0 else places[i - 1] + apart)
    for i in reversed(range(len(places))):
        above = high - apart / 2 if i + 1 == len(places) else places[i + 1] - apart
        places[i] = min(places[i], above)
    right = axes.transData.transform((max(x for x, *_ in ends), low))
    column = axes.transAxes.inverted().transform(right)[0] + 0.03
    for (x, y, text, colour), place in zip(ends, places, strict=True):
        axes.annotate(
            text, (x, y), xytext=(column, place), textcoords=("axes fraction", "data"),
            va="center", fontsize=9, color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "relpos": (0, 0.5)},
        )  # fmt: skip


def _spread(group: list[float], apart: float) -> list[float]:
    """Heights of the labels of a group, around their mean, from the lowest up."""
    middle = sum(group) / len(group)
    return [middle + apart * (place - (len(group) - 1) / 2) for place in range(len(group))]


def _plain(axes: Axes) -> None:
    axes.tick_params(length=0, colors=INK)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


def _figure(width: float, height: float) -> Figure:
    """A new figure, without a window or state shared with other plots."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("plotting", "evaluate") from None
    return Figure(figsize=(width, height), layout="constrained")


def _name(corpus: CorpusGeometry) -> str:
    name, pages = corpus.name, len(corpus.pages)
    if len(name) > 32:
        name = f"{name[:15]}…{name[-16:]}"
    name = name.replace("$", r"\$")  # it would begin a formula
    return f"{name}\n{pages:,} page{'' if pages == 1 else 's'}"
