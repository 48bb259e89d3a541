"""Counts, lists and names in messages."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: int, what: str) -> str:
    """ "1 page", "1,200 pages"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Replace control characters, so that a terminal shows the text and does not obey it."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def listing(names: Sequence[str]) -> str:
    """The first five names."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
