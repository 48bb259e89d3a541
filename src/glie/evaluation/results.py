"""Aggregate results: means over sets and seeds, and margins over the strongest baseline.

A macro-average gives every set the same weight. Errors are standard errors over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.evaluation.methods import BASELINES, BY_BYTES, NAMES, UNCOMPRESSED
from glie.evaluation.store import Result

RESAMPLES = 2000  # of the bootstrap


class Estimate(NamedTuple):
    """A mean over seeds and its standard error; NaN for one seed."""

    mean: float
    error: float = math.nan

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        if len(values) < 2:
            return cls(float(np.mean(values)))
        return cls(float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if math.isnan(self.error) else f" ± {self.error:.3f}")


class Results:
    """The results of a run, by set, method and budget."""

    def __init__(self, results: Iterable[Result]) -> None:
        self.all = list(results)
        self._main: dict[tuple[str, str, int | None], list[Result]] = {}
        for result in self.all:
            setting = result.setting
            if not setting.variant:
                key = setting.dataset, setting.method, setting.budget
                self._main.setdefault(key, []).append(result)

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(result.setting.dataset for result in self.all))

    @property
    def budgets(self) -> list[int]:
        """Vectors a page, or bytes a page if the budgets were given in bytes."""
        return sorted({budget for _, _, budget in self._main if budget is not None})

    @property
    def in_bytes(self) -> bool:
        return any(result.setting.bytes is not None for result in self.all)

    @property
    def columns(self) -> list[str]:
        """The heading of each budget."""
        return self.headings(self.methods)

    def headings(self, methods: Collection[str]) -> list[str]:
        """The heading of each budget, for rows of these methods. Of some of them a budget is in
        bytes: those of k vectors."""
        if self.in_bytes:
            return [f"{budget:,} bytes" for budget in self.budgets]
        if not set(methods) & set(BY_BYTES):
            return [f"k = {k}" for k in self.budgets]
        return [f"k = {k}, {self._bytes_of(k)}" for k in self.budgets]

    def _bytes_of(self, k: int) -> str:
        stored = [method for method in self.methods if method not in BY_BYTES]
        found = [self.of(data, method, k) for data in self.datasets for method in stored]
        sizes = {round(result.bytes_per_page) for each in found for result in each}
        return f"{sizes.pop():,} bytes" if len(sizes) == 1 else "or its bytes"

    @property
    def methods(self) -> list[str]:
        """Methods with a result on every set at every budget, in the usual order."""
        return [
            method
            for method in NAMES
            if method != UNCOMPRESSED
            and self.budgets
            and all(self.of(data, method, k) for data in self.datasets for k in self.budgets)
        ]

    def of(self, dataset: str, method: str, k: int | None) -> list[Result]:
        """The results of a method on a set at a budget, one for each seed."""
        return self._main.get((dataset, method, k), [])

    def ndcg(self, dataset: str, method: str, k: int | None) -> Estimate:
        return Estimate.of([result.ndcg for result in self.of(dataset, method, k)])

    def macro(
        self, method: str, k: int | None, value: Callable[[Result], float] = lambda r: r.ndcg
    ) -> Estimate:
        """The mean over sets, with its error over seeds."""
        columns = [[value(r) for r in self.of(data, method, k)] for data in self.datasets]
        seeds = min(map(len, columns))
        return Estimate.of([float(np.mean([c[seed] for c in columns])) for seed in range(seeds)])

    def each(self, dataset: str, method: str, k: int | None) -> npt.NDArray[np.float64]:
        """nDCG@5 of every question; means over seeds."""
        scores = np.array([result.each for result in self.of(dataset, method, k)])
        return np.asarray(scores.mean(axis=0), np.float64)

    @property
    def ceiling(self) -> float | None:
        """nDCG@5 of uncompressed vectors, if it was measured."""
        known = all(self.of(dataset, UNCOMPRESSED, None) for dataset in self.datasets)
        return self.macro(UNCOMPRESSED, None).mean if known and self.datasets else None

    def strongest(self, dataset: str, k: int, besides: str = "") -> str | None:
        """The best training-free method on a set at a budget, besides one."""
        known = [name for name in BASELINES if name != besides and self.of(dataset, name, k)]
        return max(known, key=lambda name: self.ndcg(dataset, name, k).mean, default=None)


class Margin(NamedTuple):
    """The gain of a method over the strongest other, with a 95% interval over questions."""

    mean: float
    low: float
    high: float
    wins: int  # sets on which it is above
    sets: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def margin(results: Results, method: str, k: int) -> Margin | None:
    """The margin over the strongest training-free method of each set at this budget; that of
    normalised k-means, which is one of them, is over the strongest of the others.

    The interval is a paired bootstrap: it resamples the questions of each set and averages the
    means of the sets.
    """
    gains = []
    for dataset in results.datasets:
        rival = results.strongest(dataset, k, besides=method)
        if rival is None or not results.of(dataset, method, k):
            return None
        gains.append(results.each(dataset, method, k) - results.each(dataset, rival, k))
    if not gains:
        return None
    rng = np.random.default_rng(0)
    drawn = np.zeros(RESAMPLES)
    for gain in gains:
        shares = rng.multinomial(len(gain), np.full(len(gain), 1 / len(gain)), RESAMPLES)
        drawn += shares @ gain / len(gain) / len(gains)
    low, high = np.percentile(drawn, [2.5, 97.5])
    means = [float(gain.mean()) for gain in gains]
    wins = sum(mean > 0 for mean in means)
    return Margin(float(np.mean(means)), float(low), float(high), wins, len(gains))


def margins(results: Results, method: str) -> list[Margin]:
    """The margins of a method at all budgets; empty if there is nothing to compare it with."""
    found = [margin(results, method, k) for k in results.budgets]
    known = [gain for gain in found if gain is not None]
    return known if len(known) == len(found) else []
