"""Filters as JSON: `{"year": {">=": 2020}, "lang": ["en", "de"]}`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from reprlib import repr as shown  # short, however long or deep a value is
from typing import Any

from glie.errors import InputError
from glie.filters.tree import (
    COMPARISONS,
    AnyOf,
    Compare,
    Exists,
    Filter,
    Not,
    Or,
    Prefix,
    all_of,
    canonical,
    is_number,
)

OPERATORS = ("=", "!=", *COMPARISONS, "in", "not in", "exists", "prefix")
MOST_LEVELS = 50  # of filters in filters: Python's own stack is limited


def from_json(where: Mapping[str, Any] | Filter) -> Filter:
    """Read a filter from JSON. One that has been read already is returned as it is."""
    return _filter(where, 0)


def _filter(where: Any, level: int) -> Filter:
    if isinstance(where, Filter):
        return where
    if not isinstance(where, Mapping):
        raise InputError(f"where: expected a dict of metadata values, found {shown(where)}")
    if level > MOST_LEVELS:
        raise too_deep()
    for key in where:
        if not isinstance(key, str):
            raise InputError(f"where: expected the name of a field, found {shown(key)}")
    return all_of(_entry(key, value, level + 1) for key, value in sorted(where.items()))


def _entry(key: str, value: Any, level: int) -> Filter:
    """One key of a filter: and, or, not, or the name of a field."""
    mapping, values = isinstance(value, Mapping), isinstance(value, (list, tuple, set))
    if key == "not" and mapping:
        return Not(_filter(value, level))
    if key in ("and", "or"):
        filters = [isinstance(part, (Mapping, Filter)) for part in value] if values else []
        if values and all(filters):
            joined = tuple(_filter(part, level) for part in value)
            return all_of(joined) if key == "and" else Or(joined)
        if any(filters) or (mapping and not set(value) & set(OPERATORS)):
            raise InputError(f"where: {key!r}: expected a list of filters, found {shown(value)}")
    if values:
        return condition(key, "in", value)
    if not mapping or not set(value) & set(OPERATORS):
        return condition(key, "=", value)
    return all_of(condition(key, name, operand) for name, operand in value.items())


def condition(key: str, operator: str, operand: Any) -> Filter:
    """What an operator asks of a field."""
    match operator:
        case "=":
            return AnyOf(key, frozenset([canonical(operand)]))
        case "!=":
            return Not(condition(key, "=", operand))
        case "in":
            if isinstance(operand, (list, tuple, set)):
                return AnyOf(key, frozenset(map(canonical, operand)))
            expected = "a list of values"
        case "not in":
            if isinstance(operand, (list, tuple, set)):
                return Not(condition(key, "in", operand))
            expected = "a list of values"
        case "exists":
            if isinstance(operand, bool):
                return Exists(key) if operand else Not(Exists(key))
            expected = "true or false"
        case "prefix":
            if isinstance(operand, str):
                return Prefix(key, operand)
            expected = "a string"
        case _ if operator in COMPARISONS:
            if isinstance(operand, str) or _is_finite(operand):
                return Compare(key, operator, operand)
            expected = "a number or a string, which may be a date"
        case _:
            known = ", ".join(OPERATORS)
            raise InputError(
                f"where: {key!r}: {operator!r} is no operator; expected {known}; a dict "
                'as a value is written {"=": {...}}'
            )
    raise InputError(f"where: {key!r} {operator}: expected {expected}, found {shown(operand)}")


def _is_finite(value: Any) -> bool:
    # a large int is no float
    return is_number(value) and (isinstance(value, int) or math.isfinite(value))


def too_deep() -> InputError:
    """The error for a filter that is nested too deeply."""
    return InputError(f"where: filters in filters, more than {MOST_LEVELS} deep; write it flatter")
