"""Filters over columns find what they find page by page."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glie.filters import And, Filter, from_json
from glie.filters.columns import columns_of, matching

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([1.0, 0.5, float("nan")]),
    st.sampled_from(["", "a", "ab", "2020-01-01", "2020-01-01T00:00:00Z"]),
    st.lists(st.integers(0, 2), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=1),
)
PAGES = st.lists(st.dictionaries(st.sampled_from(["x", "y"]), VALUES), max_size=12)
FILTERS: list[dict[str, Any]] = [
    {},
    {"x": 1},
    {"x": True},
    {"x": [None, 0, "a"]},
    {"x": {"=": {"a": 1}}},
    {"x": {">=": 0, "<": 2}},
    {"x": {">": "2019-12-31"}},
    {"x": {"exists": False}},
    {"x": {"prefix": "a"}, "y": {"exists": True}},
    {"not": {"x": 1}},
    {"or": [{"x": 1}, {"y": {"!=": "a"}}]},
    {"or": []},
]


@given(PAGES, st.sampled_from(FILTERS))
def test_columns_agree_with_single_pages(pages: list[dict[str, Any]], asked: Any) -> None:
    where: Filter = from_json(asked)
    found = matching(where, columns_of(pages, where.fields), len(pages))
    assert found.dtype == bool
    assert found.tolist() == [where.matches(page) for page in pages]


def test_a_filter_without_conditions_needs_no_column() -> None:
    np.testing.assert_array_equal(matching(And(()), {}, 3), [True] * 3)
