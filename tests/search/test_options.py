"""SearchOptions: the same checks for every search."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.search.options import SearchOptions
from tests.conftest import make_arrays


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top: expected a whole number of at least 1, found 0"),
        ({"top": 2.0}, "top: expected a whole number"),
        ({"top": True}, "top: expected a whole number"),
        ({"shortlist": -1}, "shortlist: expected a whole number of at least 0, found -1"),
        ({"shortlist": 2.5}, "shortlist: expected a whole number"),
        ({"shortlist": True}, "shortlist: expected a whole number"),
        ({"shortlist": "20"}, "shortlist: expected a whole number"),
        ({"exact": "yes"}, "exact: expected None, True or False, found 'yes'"),
        ({"exact": 0.5}, "exact: expected None, True or False"),
        ({"exact": 2}, "exact: expected None, True or False"),
        ({"where": ["a"]}, "where: expected a dict"),
        ({"where": {"a": object()}}, "where: .* is not a JSON value"),
        ({"ids": "a"}, "ids: expected a list of ids, found the single string 'a'"),
        ({"ids": 5}, "ids: expected a list of strings"),
    ],
)
def test_wrong_options_are_refused(
    index: glie.Index, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(glie.InputError, match=message):
        SearchOptions(**options)
    with pytest.raises(glie.InputError, match=message):
        index.search(make_arrays(1), **options)


def test_the_dimension_is_checked_before_the_norms(index: glie.Index) -> None:
    found = np.full((3, 24), 7.0, np.float32)
    for queries in (found, [found], (make_arrays(1)[0], found), found[None], [found.tolist()]):
        listed = isinstance(queries, list) and isinstance(queries[0], list)
        message = "norm 34" if listed else "vectors have 24 numbers, those of .* have 16"
        with pytest.raises(glie.VectorError, match=message):
            index.search(queries)


def test_options_are_frozen_and_ids_a_list() -> None:
    options = SearchOptions(np.int64(3), ids=iter(["b", "a", "b"]))  # type: ignore[arg-type]
    assert options.ids == ["b", "a"]
    assert (options.top, options.shortlist, options.exact) == (3, None, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.top = 4  # type: ignore[misc]


def test_numbers_of_any_width(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "x", glie.Codec(bytes_per_page=300))
    index.add(glie.Pages(make_arrays(300, dim=128, high=9)))
    query = make_arrays(1, dim=128)
    small: dict[str, Any] = {"top": np.uint8(20), "shortlist": np.int16(200)}
    for exact in (True, False):
        hits = index.search(query, exact=exact, **small)[0]
        assert hits.ids == index.search(query, top=20, shortlist=200, exact=exact)[0].ids
