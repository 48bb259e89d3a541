"""Tables: means, errors, margins and intervals against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from glie.evaluation.methods import ADAPTED, SHIPPED
from glie.evaluation.store import Result, Setting
from glie.evaluation.tables import (
    Estimate,
    Results,
    improved,
    ladder,
    main_sweep,
    margin,
    per_set,
    projected,
    rows,
)
from glie.measures import MEASURES, each_measure

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


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Of many samples with a known margin, about 95 in 100 intervals contain it, and they are as
    narrow as that allows. The sets are of unequal size, margin and noise, so that each question
    must be drawn in its own set; and what is hard for one method is hard for the other, so that
    questions must be drawn in pairs."""
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


def test_without_a_baseline_there_is_no_margin() -> None:
    results = Results([make("a", "glie-free", 2, 0, [0.5])])
    assert margin(results, "glie-free", 2) is None
    assert improved(results) is None
    assert ladder(results) is None
    assert main_sweep(results).rows == [["normalised k-means", "0.500"]]


def test_the_ladder_adds_up() -> None:
    results = Results(made())
    table = ladder(results)
    assert table is not None
    assert [row[0] for row in table.rows] == [
        *("raw k-means", "normalised k-means", "refined, one stage", "full")
    ]
    for column in (1, 2):
        first, *rest = [row[column].split() for row in table.rows]
        total = float(first[0])
        for score, gain in rest:
            total += float(gain.strip("()"))
            assert total == pytest.approx(float(score), abs=0.003)


def test_budgets_in_bytes() -> None:
    """Two of them may hold as many vectors; a codebook is shared by more pages than were there."""
    results = []
    for dataset, pages in (("a", 100), ("b", 400)):
        for budget in (520, 600):
            codec = {"codebook_bytes": 10_000, "pages": pages}
            for method, k, extra in (("glie-free", 2, None), (ADAPTED, None, codec)):
                setting = Setting(dataset, method, k, bytes=budget)
                size = 500 + (10_000 / pages if extra else 0)
                measures = dict.fromkeys(MEASURES, budget / 1000)
                results.append(Result(setting, size, 1.0, measures, (budget / 1000,), extra))
    found = Results(results)
    assert main_sweep(found).header == ["method", "520 bytes", "600 bytes"]
    assert main_sweep(found).rows[0] == ["normalised k-means", "0.520", "0.600"]
    assert [row[0] for row in per_set(found)[0].rows] == ["normalised k-means", "words, adapted"]
    table = projected(found)
    assert table is not None
    assert [row[:2] for row in table.rows] == [
        ["codebook", "10,000"],
        ["code of a page", "500"],
        ["a page, as measured", "562"],  # of 600 and 525
        ["a page of 10,000", "501"],
        ["a page of 1,000,000", "500"],
    ]
    assert projected(Results(made())) is None


def test_what_is_kept_is_said_of_each_of_our_methods() -> None:
    results = [make("a", method, 2, 0, [score]) for method, score in METHODS.items()]
    (table,) = per_set(Results([*results, make("a", "uncompressed", None, 0, [0.8])]))
    assert table.rows[0] == ["raw k-means, bytes a page", "200"]
    assert table.rows[-3:] == [
        ["normalised k-means, kept", "50%"],
        ["refined, one stage, kept", "62%"],
        ["full, kept", "75%"],
    ]
    in_bytes = [
        Result(Setting("a", method, bytes=520), 500, 1.0, dict.fromkeys(MEASURES, score), (score,))
        for method, score in ((SHIPPED, 0.6), (ADAPTED, 0.7))
    ]
    (table,) = per_set(Results([*in_bytes, make("a", "uncompressed", None, 0, [0.8])]))
    assert table.rows[-2:] == [["words, kept", "75%"], ["words, adapted, kept", "87%"]]


def test_rows_for_programs() -> None:
    found = rows(Results(made()))
    assert [row["method"] for row in found if row["dataset"] == "b"] == [*METHODS, *METHODS, "uncompressed"]  # fmt: skip
    first = found[0]
    assert (first["dataset"], first["k"], first["seeds"]) == ("a", 2, 1)
    assert first["standard_error"] is None
    assert found[4]["standard_error"] > 0


@given(st.integers(0, 9999))
def test_measures_agree_with_pytrec_eval(seed: int) -> None:
    """Random grades and rankings, some of pages that nobody judged, some shorter than the cut."""
    rng = np.random.default_rng(seed)
    pages = [f"p{i}" for i in range(30)]
    relevant, rankings = {}, {}
    for query in ("q1", "q2", "q3"):
        judged = rng.choice(30, rng.integers(1, 12), replace=False)
        relevant[query] = {pages[i]: int(rng.integers(0, 4)) for i in judged} | {"p0": 1}
        rankings[query] = [pages[i] for i in rng.permutation(30)[: rng.integers(1, 30)]]
    ours = each_measure(relevant, rankings)
    run = {
        query: {page: float(len(pages) - rank) for rank, page in enumerate(ranking)}
        for query, ranking in rankings.items()
    }
    names = {"ndcg_cut_5", "ndcg_cut_10", "recall_5", "recall_10", "recall_100"}
    theirs = pytrec_eval.RelevanceEvaluator(relevant, names).evaluate(run)
    mine = ("ndcg_at_5", "ndcg_at_10", "recall_at_5", "recall_at_10", "recall_at_100")
    for name, other in zip(
        mine, sorted(names, key=lambda n: (n[0], int(n.split("_")[-1]))), strict=True
    ):
        expected = [theirs[query][other] for query in rankings]
        np.testing.assert_allclose(ours[name], expected, atol=1e-6)


def test_ties_are_judged_in_the_order_of_the_ranking() -> None:
    """pytrec_eval breaks ties by name; ranks leave it none to break."""
    relevant = {"q": {"a": 1}}
    assert each_measure(relevant, {"q": ["z", "a"]})["ndcg_at_5"][0] == pytest.approx(
        1 / np.log2(3)
    )
    assert each_measure(relevant, {"q": ["a", "z"]})["ndcg_at_5"][0] == 1
    assert each_measure(relevant, {"q": []})["ndcg_at_5"][0] == 0
