"""Ids of pages, as a search is given them."""

from __future__ import annotations

from collections.abc import Iterable

from glie.errors import IdError


def distinct_ids(ids: Iterable[str]) -> list[str]:
    """Ids without repetitions, in order. A single string is refused: it is a likely mistake."""
    if isinstance(ids, str):
        raise IdError(f"ids: expected a list of ids, found the single string {ids!r}")
    try:
        return list(dict.fromkeys(ids))
    except TypeError as error:
        raise IdError(f"ids: expected a list of strings: {error}") from None
