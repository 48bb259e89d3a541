"""Work on many machines, by Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glie.distributed.sharded import ShardedIndex as ShardedIndex


def __getattr__(name: str) -> Any:
    """`glie.distributed.ShardedIndex`, loaded when it is first used: most searches need none."""
    if name == "ShardedIndex":
        from glie.distributed.sharded import ShardedIndex

        return ShardedIndex
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
