"""How things are counted and listed in what people read."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def printable(name: str) -> str:
    """A name in one line of a terminal, whatever is in it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def listing(names: Sequence[str]) -> str:
    """The first few names."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
