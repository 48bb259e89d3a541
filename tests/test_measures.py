"""nDCG and recall against plain arithmetic and pytrec_eval."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from glie.evaluation.datasets import Dataset
from glie.measures import each_measure, ndcg_at_5


def test_ndcg_by_hand() -> None:
    dataset = Dataset(
        "hand",
        dict.fromkeys("abcdefg", ""),
        {"q": "", "r": ""},
        {"q": {"c": 1}, "r": {"a": 3, "b": 1}},
    )
    found = [np.array([0, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 0])]
    first = 1 / np.log2(4)  # third place
    ideal = 3 + 1 / np.log2(3)
    second = (1 + 3 / np.log2(6)) / ideal  # b first, a fifth
    assert ndcg_at_5(dataset, found) == pytest.approx((first + second) / 2)


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
