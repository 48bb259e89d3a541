"""How far a long task is: the value that every `progress` callback gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Progress:
    """How many of what are done. As text: "120 of 500 pages"."""

    what: str  # what is counted, or the task itself where nothing is counted
    done: int = 0
    total: int | None = None  # None where it is unknown

    def __str__(self) -> str:
        if self.total is not None:
            return f"{self.done:,} of {self.total:,} {self.what}"
        return f"{self.done:,} {self.what}" if self.done else self.what


OnProgress = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """The default callback: show nothing."""
