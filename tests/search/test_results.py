"""Hits: three columns that can be read row by row."""

from __future__ import annotations

import numpy as np

import glie
from glie.search.results import Ranking, hits_of
from tests.conftest import make_arrays


def test_hits_are_columns_and_rows(index: glie.Index) -> None:
    (hits,) = index.search(make_arrays(1, seed=4), top=5)
    rows = list(hits)
    assert len(rows) == len(hits) == 5
    assert all(isinstance(hit, glie.Hit) for hit in rows)
    assert [hit.id for hit in rows] == hits.ids
    assert [hit.score for hit in rows] == hits.scores
    assert [hit.metadata for hit in rows] == hits.metadata
    assert list(hits) == rows  # they can be read again
    for page_id, score, metadata in hits:
        assert metadata == index.metadata(page_id)
        assert isinstance(score, float)


def test_hits_of_a_ranking() -> None:
    cost = glie.Cost(3, 0, 10, 0.5)
    ranking = Ranking(
        [np.array([2, 0]), np.array([], np.int64)],
        [np.array([0.5, 0.25], np.float32), np.array([], np.float32)],
        cost,
    )
    two, none = hits_of(ranking, lambda position: (f"p{position}", {"at": position}))
    assert list(two) == [("p2", 0.5, {"at": 2}), ("p0", 0.25, {"at": 0})]
    assert (list(none), len(none), none.cost) == ([], 0, cost)
