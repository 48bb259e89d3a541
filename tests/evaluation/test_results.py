"""Means, errors, margins and intervals against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from glie.evaluation.results import (
    Estimate,
    Results,
    margin,
)
from glie.evaluation.store import Result, Setting
from glie.measures import MEASURES

METHODS = {
    "raw-kmeans": 0.2,
    "token-pooling": 0.3,
    "glie-free": 0.4,
    "glie-stage1": 0.5,
    "glie": 0.6,
}


def make(dataset: str, method: str, k: int | None, seed: int, each: list[float]) -> Result:
    measures = dict.fromkeys(MEASURES, float(np.mean(each)))
    shortlist = 20 if method in ("glie", "oracle") else None
    setting = Setting(dataset, method, k, seed, shortlist)
    return Result(setting, 100.0 * (k or 10), 1.0, measures, tuple(each))


def made(questions: int = 50) -> list[Result]:
    rng = np.random.default_rng(0)
    found = []
    for dataset, shift in (("a", 0.0), ("b", 0.1)):
        for method, level in METHODS.items():
            for k in (2, 4):
                for seed in (0, 1) if method.startswith("glie") else (0,):
                    each = level + shift + 0.01 * k + 0.02 * seed + rng.normal(0, 0.05, questions)
                    found.append(make(dataset, method, k, seed, each.tolist()))
        found.append(make(dataset, "uncompressed", None, 0, [0.9] * questions))
    return found


def test_means_weigh_sets_alike_and_errors_are_over_seeds() -> None:
    results = Results([*made(), make("a", "glie", 4, 2, [0.0] * 50)])
    columns = [
        next(r.ndcg for r in results.all if r.setting[:4] == (data, "glie", 2, seed))
        for seed in (0, 1)
        for data in "ab"
    ]
    by_seed = [np.mean(columns[:2]), np.mean(columns[2:])]
    found = results.macro("glie", 2)
    assert found.mean == pytest.approx(np.mean(by_seed))
    assert found.error == pytest.approx(np.std(by_seed, ddof=1) / 2**0.5)
    assert np.isnan(results.macro("raw-kmeans", 2).error)
    assert str(Estimate(0.5)) == "0.500"
    assert str(Estimate(0.5, 0.0123)) == "0.500 ± 0.012"


def test_the_rival_is_the_strongest_baseline_of_each_set() -> None:
    found = [
        make("a", "raw-kmeans", 2, 0, [0.1, 0.5]),
        make("a", "token-pooling", 2, 0, [0.4, 0.4]),
        make("b", "raw-kmeans", 2, 0, [0.7, 0.9]),
        make("b", "token-pooling", 2, 0, [0.1, 0.1]),
        make("a", "glie", 2, 0, [0.5, 0.7]),
        make("b", "glie", 2, 0, [0.7, 0.8]),
    ]
    results = Results(found)
    assert [results.strongest(data, 2) for data in "ab"] == ["token-pooling", "raw-kmeans"]
    gained = margin(results, "glie", 2)
    assert gained is not None
    assert gained.mean == pytest.approx((0.2 - 0.05) / 2)
    assert (gained.wins, gained.sets) == (1, 2)
    assert gained.low <= gained.mean <= gained.high


def test_normalised_k_means_is_a_rival_of_all_but_itself() -> None:
    """A raw control and a method in bytes, however good, are rivals of none."""
    scores = {"raw-kmeans": 0.1, "token-pooling": 0.3, "glie-free": 0.5, "glie": 0.6}
    scores |= {"token-pooling-raw": 0.9, "quantised": 0.9, "plaid": 0.9, "ward-1bit": 0.9}
    results = Results([make("a", method, 2, 0, [score]) for method, score in scores.items()])
    assert results.strongest("a", 2) == "glie-free"
    gains = {method: margin(results, method, 2) for method in ("glie-stage1", "glie", "glie-free")}
    assert gains["glie-stage1"] is None
    assert gains["glie"] is not None
    assert gains["glie"].mean == pytest.approx(0.6 - 0.5)
    assert gains["glie-free"] is not None
    assert gains["glie-free"].mean == pytest.approx(0.5 - 0.3)


def test_the_interval_covers_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many samples with a known margin, about 95 in 100 intervals contain it, and they are as
    narrow as that allows. The sets are of unequal size, margin and noise, so that each question
    must be drawn in its own set; and what is hard for one method is hard for the other, so that
    questions must be drawn in pairs."""
    monkeypatch.setattr("glie.evaluation.results.RESAMPLES", 500)
    rng = np.random.default_rng(0)
    sets = {"a": (30, 0.02, 0.1), "b": (120, 0.08, 0.2)}  # questions, margin, noise of the gain
    truth = float(np.mean([gain for _, gain, _ in sets.values()]))
    error = sum(noise**2 / size for size, _, noise in sets.values()) ** 0.5 / len(sets)
    covered, widths = 0, []
    for _ in range(120):
        found = []
        for dataset, (size, gain, noise) in sets.items():
            rival = rng.normal(0.5, 0.3, size)
            ours = rival + rng.normal(gain, noise, size)
            found.append(make(dataset, "raw-kmeans", 2, 0, rival.tolist()))
            found.append(make(dataset, "glie", 2, 0, ours.tolist()))
        gained = margin(Results(found), "glie", 2)
        assert gained is not None
        covered += gained.low <= truth <= gained.high
        widths.append(gained.high - gained.low)
    assert 108 <= covered <= 119
    assert np.mean(widths) == pytest.approx(2 * 1.96 * error, rel=0.05)
