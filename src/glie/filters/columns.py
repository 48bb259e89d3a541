"""Filters over many pages at once: a condition is asked of each value, not of each page."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.filters.tree import And, Condition, Filter, Not, Or, canonical

Mask = npt.NDArray[np.bool_]


class Column(NamedTuple):
    """One field of some pages: the number of each page's value, or -1 if it has none."""

    numbers: npt.NDArray[np.int32]
    values: list[Any]


def columns_of(records: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, Column]:
    """The columns of some fields."""
    numbers: dict[str, list[int]] = {name: [] for name in names}
    values: dict[str, list[Any]] = {name: [] for name in names}
    known: dict[str, dict[Any, int]] = {name: {} for name in names}
    for metadata in records:
        for name, found in numbers.items():
            if name not in metadata:
                found.append(-1)
                continue
            value = metadata[name]
            # true, 1 and 1.0 are equal as keys
            key = (type(value), value) if isinstance(value, (str, int, float)) else canonical(value)
            number = known[name].setdefault(key, len(values[name]))
            if number == len(values[name]):
                values[name].append(value)
            found.append(number)
    return {name: Column(np.array(numbers[name], np.int32), values[name]) for name in numbers}


def matching(where: Filter, columns: Mapping[str, Column], pages: int) -> Mask:
    """Which of the pages match, given the columns of the fields that the filter names."""
    if isinstance(where, Condition):
        column = columns[where.key]
        found = [where.matches({where.key: value}) for value in column.values]
        return np.array([*found, where.matches({})])[column.numbers]  # -1 is the last
    if isinstance(where, Not):
        return ~matching(where.part, columns, pages)
    assert isinstance(where, And | Or)
    parts = [matching(part, columns, pages) for part in where.parts]
    if isinstance(where, And):
        return functools.reduce(np.logical_and, parts, np.ones(pages, bool))
    return functools.reduce(np.logical_or, parts, np.zeros(pages, bool))
