"""Filters as SQL conditions for PostgreSQL, with their parameters apart; and metadata as its JSON.

PostgreSQL cannot read JSON with the character 0. It is stored as MARK and "0", MARK itself as MARK
and "1".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from glie.engines.base import Restriction, untranslated
from glie.engines.entries import terms_for
from glie.errors import InputError
from glie.filters import And, AnyOf, Compare, Exists, Filter, Not, Or, Prefix

MARK = "\uffff"  # no character


class Condition(NamedTuple):
    """SQL with a %s for each parameter, to be used as a template of psycopg.sql.SQL."""

    sql: str
    parameters: tuple[Any, ...] = ()


def restriction(among: Restriction, place: str) -> Condition:
    """The pages that a search may find."""
    parts = []
    if among.ids is not None:
        parts.append(Condition("id = ANY(%s)", (list(among.ids),)))
    if among.where is not None:
        parts.append(_of(among.where, place))
    if among.native is not None:
        if not isinstance(among.native, str):
            raise InputError(f"filter: expected SQL, found {type(among.native).__name__}")
        parts.append(Condition(f"({_escaped(among.native)})"))
    return _joined(parts, "AND", "TRUE")


def _escaped(sql: str) -> str:
    """SQL without parameters."""
    for special in "%{}":
        sql = sql.replace(special, 2 * special)
    return sql


def json_of(metadata: dict[str, Any]) -> str:
    """Metadata as it is stored."""
    text = json.dumps(metadata, ensure_ascii=False)
    if "\\u0000" in text or MARK in text:
        text = json.dumps(_mapped(metadata, _marked), ensure_ascii=False)
    return text


def metadata_of(text: str) -> dict[str, Any]:
    """The metadata that was stored as `json_of` gave it."""
    found = json.loads(text)
    read: dict[str, Any] = _mapped(found, _unmarked) if MARK in text else found
    return read


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """JSON with all its strings changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(item, change) for item in value]
    return value


def _marked(text: str) -> str:
    return text.replace(MARK, f"{MARK}1").replace("\x00", f"{MARK}0")


def _unmarked(text: str) -> str:
    return text.replace(f"{MARK}0", "\x00").replace(f"{MARK}1", MARK)


def _joined(parts: list[Condition], word: str, empty: str) -> Condition:
    inner = f" {word} ".join(part.sql for part in parts)
    parameters = tuple(each for part in parts for each in part.parameters)
    return Condition(f"({inner or empty})", parameters)


def _of(where: Filter, place: str) -> Condition:
    match where:
        case And(parts):
            return _joined([_of(part, place) for part in parts], "AND", "TRUE")
        case Or(parts):
            return _joined([_of(part, place) for part in parts], "OR", "FALSE")
        case Not(part):
            inner = _of(part, place)
            return Condition(f"(NOT {inner.sql})", inner.parameters)
        case AnyOf():
            return Condition("(terms && %s::bigint[])", (terms_for(where),))
        case Compare(value=value):
            if isinstance(value, str):
                raise untranslated(place, where, "compares numbers only")
            key = _marked(where.key)
            # as numeric, which holds every number of JSON exactly; CASE: only what is a number
            return Condition(
                "(CASE WHEN json_typeof(metadata -> %s) = 'number' THEN "
                f"(metadata ->> %s)::numeric {where.operator} %s::numeric ELSE FALSE END)",
                (key, key, repr(value)),
            )
        case Exists():
            return Condition("((metadata -> %s) IS NOT NULL)", (_marked(where.key),))
        case Prefix(text=text):
            # of its JSON, as it was written: each character has one form there
            start = json.dumps(_marked(text), ensure_ascii=False)[:-1]
            sql = "coalesce(starts_with((metadata -> %s)::text, %s), FALSE)"
            return Condition(sql, (_marked(where.key), start))
    raise TypeError(f"a filter of an unknown kind: {where!r}")
