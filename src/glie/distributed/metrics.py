"""Counters of a replica as Ray's own metrics: each node shows them to Prometheus beside Ray's."""

from __future__ import annotations

import functools
from collections.abc import Callable

SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]


class RayMeters:
    """The counters of one replica, labelled with its shard."""

    def __init__(self, shard: str, replica: str) -> None:
        from ray.util.metrics import Counter, Gauge, Histogram

        labels = {"shard": shard, "replica": replica}
        keys = tuple(labels)
        self._seconds = Histogram(
            "glie_shard_seconds",
            "Time of an answer of a shard, by round.",
            boundaries=SECONDS,
            tag_keys=(*keys, "round"),
        )
        self._scanned = Counter("glie_shard_pages_scanned", "Pages scored by codes.", keys)
        self._busy = Counter("glie_shard_busy", "Searches refused, for there was no room.", keys)
        self._inside = Gauge("glie_shard_searches_inside", "Searches under way or waiting.", keys)
        self._pages = Gauge("glie_shard_pages", "Pages of the shard.", keys)
        for meter in (self._seconds, self._scanned, self._busy, self._inside, self._pages):
            meter.set_default_tags(labels)

    @classmethod
    def maker(cls, shard: str, replica: str) -> Callable[[], RayMeters]:
        """What makes the counters in the replica's own process."""
        return functools.partial(cls, shard, replica)

    def answered(self, method: str, seconds: float, pages: int) -> None:
        self._seconds.observe(seconds, {"round": method})
        if pages:
            self._scanned.inc(pages)

    def busy(self) -> None:
        self._busy.inc()

    def waiting(self, calls: int) -> None:
        self._inside.set(calls)

    def holds(self, pages: int) -> None:
        self._pages.set(pages)
