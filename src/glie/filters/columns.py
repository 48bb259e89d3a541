"""Filters over many pages at once: a condition is asked of each value, not of each page."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.filters.tree import (
    COMPARISONS,
    And,
    AnyOf,
    Compare,
    Condition,
    Exists,
    Filter,
    Not,
    Or,
    Prefix,
    canonical,
    is_number,
)

Mask = npt.NDArray[np.bool_]

EXACT = 1 << 53  # numbers up to here are exact in an int64 and in a float64


class Column(NamedTuple):
    """One field of some pages: the number of each page's value, from 1, or 0 if it has none."""

    numbers: npt.NDArray[Any]
    values: list[Any]

    def matching(self, where: Condition) -> Mask:
        """Which of the pages match."""
        found = np.empty(len(self.values) + 1, bool)
        found[0] = where.matches({})
        found[1:] = np.fromiter(_matching_values(where, self.values), bool, len(self.values))
        return np.take(found, self.numbers)


class NumberColumn(NamedTuple):
    """One field of some pages with numbers of at most EXACT: `numbers` + `least`; a whole number
    that is 0, or a float that is not a number, stands for none."""

    numbers: npt.NDArray[Any]
    least: int | None  # None: floats

    def matching(self, where: Condition) -> Mask:
        """Which of the pages match."""
        there = np.isfinite(self.numbers) if self.least is None else self.numbers > 0
        if isinstance(where, Exists):
            return np.asarray(there)
        numbers = self.numbers
        if self.least is not None:
            numbers = numbers.astype(np.int64) + self.least
        if isinstance(where, AnyOf):
            wanted = [value for value in map(json.loads, where.values) if is_number(value)]
            return np.isin(numbers, [_within(value) for value in wanted]) & there
        if isinstance(where, Compare) and not isinstance(where.value, str):
            return np.asarray(COMPARISONS[where.operator](numbers, _within(where.value)) & there)
        return np.zeros(len(numbers), bool)  # what is asked of strings


AnyColumn = Column | NumberColumn


def columns_of(
    records: Iterable[Mapping[str, Any]], names: Iterable[str] | None = None
) -> dict[str, Column]:
    """The columns of some fields; None: of all."""
    known = {name: _Known({}, [], []) for name in names or ()}
    pages = 0
    for row, metadata in enumerate(records):
        pages = row + 1
        for name in metadata if names is None else known:
            if name in metadata:
                if name not in known:
                    known[name] = _Known({}, [], [])
                known[name].add(row, metadata[name])
    return {name: field.column(pages) for name, field in known.items()}


class _Known(NamedTuple):
    """What is known of a field: its values, and which page has which."""

    values: dict[Any, tuple[int, Any]]  # by a key: the number of a value, and the value
    rows: list[int]
    numbers: list[int]

    def add(self, row: int, value: Any) -> None:
        # true, 1 and 1.0 are equal as keys
        key = (type(value), value) if isinstance(value, (str, int, float)) else canonical(value)
        self.rows.append(row)
        self.numbers.append(self.values.setdefault(key, (len(self.values) + 1, value))[0])

    def column(self, pages: int) -> Column:
        numbers = np.zeros(pages, np.uint32)
        numbers[self.rows] = self.numbers
        return Column(numbers, [value for _, value in self.values.values()])


def matching(where: Filter, columns: Mapping[str, AnyColumn], pages: int) -> Mask:
    """Which of the pages match, given the columns of the fields that the filter names."""
    if isinstance(where, Condition):
        return columns[where.key].matching(where)
    if isinstance(where, Not):
        return ~matching(where.part, columns, pages)
    assert isinstance(where, And | Or)
    parts = [matching(part, columns, pages) for part in where.parts]
    if isinstance(where, And):
        return functools.reduce(np.logical_and, parts, np.ones(pages, bool))
    return functools.reduce(np.logical_or, parts, np.zeros(pages, bool))


def _matching_values(where: Condition, values: list[Any]) -> Iterable[bool]:
    """Which of the values match: as `where.matches` says, but quick for many strings."""
    if isinstance(where, AnyOf | Prefix) and set(map(type, values)) == {str}:
        if isinstance(where, Prefix):
            return map(str.startswith, values, repeat(where.text))
        return map(
            {json.loads(text) for text in where.values if text[0] == '"'}.__contains__, values
        )
    return (where.matches({where.key: value}) for value in values)


def _within(number: float) -> float:
    """A number to compare those of a column with: a larger one than they can be stays larger."""
    return number if abs(number) <= EXACT else 2 * EXACT if number > 0 else -2 * EXACT
