"""Filters on metadata as a tree. Its nodes are values: they compare, and can be hashed."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from reprlib import repr as shown  # short, however long or deep a value is
from typing import Any, ClassVar

from glie.errors import InputError

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].+)?", re.ASCII)
_ENCODER = json.JSONEncoder(sort_keys=True)


class Filter(ABC):
    """Which pages a search may find, by their metadata."""

    @abstractmethod
    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a page with this metadata may be found."""

    @property
    @abstractmethod
    def fields(self) -> frozenset[str]:
        """The names of the fields that it looks at."""


class Condition(Filter):
    """What is asked of one field."""

    key: str

    @property
    def fields(self) -> frozenset[str]:
        return frozenset([self.key])


@dataclasses.dataclass(frozen=True)
class AnyOf(Condition):
    """The field has one of these values, which are canonical JSON."""

    key: str
    values: frozenset[str]

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return self.key in metadata and canonical(metadata[self.key]) in self.values


@dataclasses.dataclass(frozen=True)
class Compare(Condition):
    """The field is above or below a number, a string or a date."""

    key: str
    operator: str  # of COMPARISONS
    value: float | str

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        found, value = metadata.get(self.key), self.value
        if isinstance(found, str) and isinstance(value, str):
            one, other = moment(found), moment(value)
            if one is not None and other is not None:
                return COMPARISONS[self.operator](one, other)
        elif not is_number(found) or isinstance(value, str):
            return False
        return COMPARISONS[self.operator](found, value)


@dataclasses.dataclass(frozen=True)
class Exists(Condition):
    """The page has the field, be it null."""

    operator: ClassVar[str] = "exists"
    key: str

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return self.key in metadata


@dataclasses.dataclass(frozen=True)
class Prefix(Condition):
    """The field is a string that begins so."""

    operator: ClassVar[str] = "prefix"
    key: str
    text: str

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        found = metadata.get(self.key)
        return isinstance(found, str) and found.startswith(self.text)


@dataclasses.dataclass(frozen=True)
class And(Filter):
    """Every part matches; without parts, every page does."""

    parts: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return all(part.matches(metadata) for part in self.parts)

    @property
    def fields(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.fields for part in self.parts))


@dataclasses.dataclass(frozen=True)
class Or(Filter):
    """Some part matches; without parts, no page does."""

    parts: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return any(part.matches(metadata) for part in self.parts)

    @property
    def fields(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.fields for part in self.parts))


@dataclasses.dataclass(frozen=True)
class Not(Filter):
    """The part does not match."""

    part: Filter

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return not self.part.matches(metadata)

    @property
    def fields(self) -> frozenset[str]:
        return self.part.fields


def all_of(filters: Iterable[Filter]) -> Filter:
    """Several filters as one. Those that match every page are left out."""
    parts = tuple(part for part in filters if part != And(()))
    return parts[0] if len(parts) == 1 else And(parts)


def canonical(value: Any) -> str:
    """JSON text that is equal for equal values: 1 equals 1.0, True equals neither."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        # the same text; the encoder is quick for strings alone
        return str(value) if type(value) is int else _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"where: {shown(value)} is not a JSON value: {error}") from None


def is_number(value: object) -> bool:
    """Whether a value is compared as a number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@functools.lru_cache(4096)  # many pages have the same date
def moment(text: str) -> datetime | None:
    """The moment of an ISO date or date-time; None if it is neither. A date is its midnight, and
    one without a time zone is in UTC."""
    if not _DATE.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
