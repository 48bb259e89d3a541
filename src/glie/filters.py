"""What a search may be restricted to: metadata that has certain values, wherever it is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from glie.errors import InputError

Wanted = tuple[tuple[str, tuple[str, ...]], ...]  # keys and, for each, its values as text


def wanted(where: Mapping[str, Any] | None) -> Wanted:
    """A restriction in a form that compares; a list stands for any of its values."""
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
    """JSON text that is equal for equal values: 1 is 1.0, and True is neither."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"where: {value!r} is not a JSON value: {error}") from None
