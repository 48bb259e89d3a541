"""Old public names: they keep working, and the first use of each says what to write instead."""

from __future__ import annotations

import warnings
from typing import Any


def renamed(old: str, new: str) -> Any:
    """A property that stands for another attribute of the same object."""

    def read(self: Any) -> Any:
        warn(f"{type(self).__name__}.{old}", f"{type(self).__name__}.{new}")
        return getattr(self, new)

    return property(read, doc=f"The older name of `{new}`.")


_warned: set[str] = set()


def warn(old: str, new: str) -> None:
    """Say once that a name has changed."""
    if old not in _warned:
        _warned.add(old)
        warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=3)
