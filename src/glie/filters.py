"""What a search can be restricted to: ids, and metadata values. The same for every store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from glie.errors import IdError, InputError

Wanted = tuple[tuple[str, tuple[str, ...]], ...]  # each key with its values, as canonical JSON


def distinct_ids(ids: Iterable[str]) -> list[str]:
    """Ids without repetitions, in order. A single string is refused: it is a likely mistake."""
    if isinstance(ids, str):
        raise IdError(f"ids: expected a list of ids, found the single string {ids!r}")
    try:
        return list(dict.fromkeys(ids))
    except TypeError as error:
        raise IdError(f"ids: expected a list of strings: {error}") from None


def wanted(where: Mapping[str, Any] | None) -> Wanted:
    """A metadata filter in a form that can be compared and hashed. A list matches any of its
    values."""
    if where is None:
        return ()
    if not isinstance(where, Mapping):
        raise InputError(f"where: expected a dict of metadata values, found {where!r}")
    return tuple(
        (key, tuple(sorted(canonical(v) for v in values)))
        for key, value in sorted(where.items())
        for values in [value if isinstance(value, (list, tuple, set)) else [value]]
    )


def canonical(value: Any) -> str:
    """JSON text that is equal for equal values: 1 equals 1.0, True equals neither."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"where: {value!r} is not a JSON value: {error}") from None
