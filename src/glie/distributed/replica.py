"""A replica: it holds a shard and answers for it. On a cluster, it is an actor of Ray."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from glie.distributed import asked
from glie.distributed.asked import Asked, First, Second, Wanted
from glie.distributed.fleet import REFUSED, Busy, Failed, Refused, StaleError
from glie.distributed.shards import Shards, is_name
from glie.errors import ClusterError, GlieError, IndexFolderError, InputError
from glie.index.index import Index
from glie.search.scan import warm_up
from glie.storage import digest

STATES = 4  # of a shard that are kept: searches under way go on in the state they began with
SECONDS_KEPT = 60.0  # after a state was last asked for, unless it is the latest


class Meters(Protocol):
    """Counters of a replica: those of Ray, or none."""

    def answered(self, method: str, seconds: float, pages: int) -> None: ...

    def busy(self) -> None: ...

    def waiting(self, calls: int) -> None: ...

    def holds(self, pages: int) -> None: ...


def version_of(folder: str, index: Index) -> str:
    """The name of the state that an index shows: of its folder, its number, and its manifest."""
    manifest = asked.state_of(index).manifest
    return f"{folder}@{manifest.generation}-{digest(manifest.to_json().encode())}"


class Held:
    """The states of a shard that are open. Threads may share it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._states: collections.OrderedDict[str, tuple[Index, float]] = collections.OrderedDict()

    def open(self, version: str) -> Index:
        """The state of this name. Raises StaleError if the folder is in another."""
        with self._lock:
            now = time.monotonic()
            known = self._states.get(version)
            index = self._opened(version) if known is None else known[0]
            self._states[version] = index, now
            self._states.move_to_end(version)
            for name, (_, last) in list(self._states.items())[:-1]:
                if len(self._states) > STATES or now - last > SECONDS_KEPT:
                    del self._states[name]
            return index

    def _opened(self, version: str) -> Index:
        folder = version.rpartition("@")[0]
        if not is_name(folder):
            raise InputError(f"version: expected a folder's name in it, found {version!r}")
        others = [i for v, (i, _) in self._states.items() if v.rpartition("@")[0] == folder]
        # segments that did not change are shared with the state before
        try:
            index = others[-1].latest() if others else Index.open(self.root / folder)
        except IndexFolderError as error:
            if (self.root / folder).exists():
                raise
            raise StaleError(str(error)) from None
        if version_of(folder, index) != version:
            raise StaleError(f"{self.root / folder}: not in the state that was asked for")
        return index

    @property
    def versions(self) -> list[str]:
        return list(self._states)

    @property
    def pages(self) -> int:
        """How many the state has that was asked for last."""
        return next((len(index) for index, _ in reversed(list(self._states.values()))), 0)


class Shard:
    """What answers for a shard."""

    def __init__(self, root: str | os.PathLike[str], name: str) -> None:
        self.name = name
        self._held = Held(Path(root))

    def prepare(self, version: str | None = None) -> None:
        """Open a state, by default the latest, and warm it up."""
        if version is None:
            folder = Shards.read(self._held.root).folders[self.name]
            version = version_of(folder, Index.open(self._held.root / folder))
        index = self._held.open(version)
        warm_up()
        if len(index) and index.dim is not None:
            import numpy as np

            index.search([np.eye(1, index.dim, dtype=np.float32)], top=1)

    def first(self, version: str, asks: Asked) -> First:
        return asked.first(self._held.open(version), asks)

    def second(self, version: str, asks: Asked, wanted: list[Wanted | None]) -> Second:
        return asked.second(self._held.open(version), asks, wanted)

    @property
    def versions(self) -> list[str]:
        return self._held.versions

    @property
    def pages(self) -> int:
        return self._held.pages


class Local:
    """A replica in this process."""

    def __init__(self, root: Path, name: str, pool: ThreadPoolExecutor) -> None:
        self.name, self._pool = f"{name}/local", pool
        self._shard = Shard(root, name)

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        if method == "sign":
            return self._pool.submit(lambda: None)
        # the first argument says how long the caller waits
        return self._pool.submit(refusing, getattr(self._shard, method), *arguments[1:])


def refusing(work: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or Refused for what no other replica would answer either, or Failed."""
    try:
        return work(*arguments)
    except (InputError, StaleError) as error:
        return Refused(error)
    except GlieError as error:
        return Failed(str(error))
    except Exception as error:  # of any class: the search goes on with another replica
        logging.getLogger(__name__).exception("a replica fails")
        return Failed(f"{type(error).__name__}: {error}")


class Actor:
    """A replica on a cluster. It answers some searches at a time, lets some wait, and refuses
    others at once, so that no queue grows."""

    def __init__(
        self,
        root: str,
        shard: str,
        *,
        searches: int,
        waiting: int,
        meters: Callable[[], Meters] | None = None,
    ) -> None:
        self._shard = Shard(root, shard)
        self._most = searches + waiting
        self._pool = ThreadPoolExecutor(searches, thread_name_prefix="search")
        self._inside = 0  # searches and those that wait; only the event loop changes it
        self._meters = None if meters is None else meters()
        self._counts = {"answered": 0, "busy": 0, "late": 0, "failed": 0}
        with contextlib.suppress(StaleError):  # a later one was committed: searches say which
            self._shard.prepare()

    async def sign(self) -> None:
        """A sign of life."""

    async def prepare(self, seconds: float, version: str) -> Any:
        """Open a state before searches ask for it. It does not wait behind searches."""
        return await asyncio.to_thread(refusing, self._shard.prepare, version)

    async def first(self, seconds: float, *arguments: Any) -> Any:
        return await self._admitted("first", seconds, arguments)

    async def second(self, seconds: float, *arguments: Any) -> Any:
        return await self._admitted("second", seconds, arguments)

    async def facts(self) -> dict[str, Any]:
        """What this replica is and has done."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        return {
            "pid": os.getpid(),
            "node": node,
            "pages": self._shard.pages,
            "versions": self._shard.versions,
            "inside": self._inside,
            "memory": _resident(),
            **self._counts,
        }

    async def _admitted(self, method: str, seconds: float, arguments: tuple[Any, ...]) -> Any:
        if method in REFUSED and self._inside >= self._most:
            self._counts["busy"] += 1
            if self._meters:
                self._meters.busy()
            return Busy()
        self._inside += 1
        due = time.monotonic() + seconds
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._answer, method, due, arguments)
        finally:
            self._inside -= 1
            if self._meters:
                self._meters.waiting(self._inside)

    def _answer(self, method: str, due: float, arguments: tuple[Any, ...]) -> Any:
        began = time.monotonic()
        if began > due:  # nobody waits for it
            self._counts["late"] += 1
            return Refused(ClusterError("the deadline had passed before the search began"))
        found = refusing(getattr(self._shard, method), *arguments)
        self._counts["failed" if isinstance(found, Failed) else "answered"] += 1
        if self._meters and not isinstance(found, (Refused, Failed)):
            self._meters.answered(method, time.monotonic() - began, found.cost.pages_scanned)
            self._meters.holds(self._shard.pages)
        return found


def _resident() -> int:
    """Bytes of this process in memory, mapped files included; 0 where Linux does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])
