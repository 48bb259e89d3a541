"""What a replica on a cluster counts, without a cluster."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import glie
from glie.distributed import ShardedIndex
from glie.distributed.fleet import Fleet
from glie.distributed.replica import Actor
from glie.distributed.shards import Shards
from glie.errors import BusyError
from tests.conftest import make_arrays


class Counted:
    """Counters that remember what they were told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def answered(self, method: str, seconds: float, pages: int) -> None:
        assert seconds >= 0
        self.told.append(("answered", method, pages))

    def busy(self) -> None:
        self.told.append(("busy",))

    def waiting(self, calls: int) -> None:
        self.told.append(("waiting", calls))

    def holds(self, pages: int) -> None:
        self.told.append(("holds", pages))


class Here:
    """An actor, called in this process."""

    def __init__(self, name: str, actor: Actor) -> None:
        self.name, self._actor = name, actor

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(asyncio.run(getattr(self._actor, method)(*arguments)))
        return future


@pytest.mark.parametrize("waiting", [0, -1])
def test_a_replica_counts(waiting: int, tmp_path: Path) -> None:
    """Answers and their pages by round, and what it refuses (here: all, without room for one)."""
    many = ShardedIndex.create(tmp_path / "shards", 1, glie.Codec(k=2))
    many.add(glie.Pages(make_arrays(6)))
    counted = Counted()
    actor = Actor(str(many.path), "0000", searches=1, waiting=waiting, meters=lambda: counted)
    asks = ShardedIndex(Shards.read(many.path), Fleet({"0000": [Here("0000/0", actor)]}))
    if waiting:
        with pytest.raises(BusyError, match="shard 0000"):
            asks.search(make_arrays(1))
        assert counted.told == [("busy",)]
    else:
        assert len(asks.search(make_arrays(1), 3)[0]) == 3
        assert counted.told == [("answered", "first", 6), ("holds", 6), ("waiting", 0)]
