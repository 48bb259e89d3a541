"""Counters of the server, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from glie.search.results import Cost
    from glie.server.library import Library

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "glie_requests",
            "Requests, by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.searches = Histogram(
            "glie_search_seconds", "Time of a search.", buckets=SECONDS, registry=registry
        )
        self.encodings = Histogram(
            "glie_encode_seconds",
            "Time to encode a question.",
            buckets=SECONDS,
            registry=registry,
        )
        self._scanned = Counter("glie_pages_scanned", "Pages scored by codes.", registry=registry)
        self._regenerated = Counter(
            "glie_pages_regenerated", "Pages reconstructed.", registry=registry
        )
        self._read = Counter("glie_read_bytes", "Bytes read by searches.", registry=registry)
        self.added = Counter("glie_pages_added", "Pages added by uploads.", registry=registry)
        self.deleted = Counter("glie_pages_deleted", "Pages deleted.", registry=registry)
        self._pages = Gauge("glie_index_pages", "Pages in the index.", registry=registry)

    def answered(self, scope: Mapping[str, Any], status: int) -> None:
        # not the path: there are as many as pages
        route = getattr(scope.get("route"), "path_format", "none")
        self._requests.labels(route, str(status)).inc()

    def searched(self, cost: Cost) -> None:
        self.searches.observe(cost.seconds)
        self._scanned.inc(cost.pages_scanned)
        self._regenerated.inc(cost.pages_regenerated)
        self._read.inc(cost.bytes_read)

    def text(self) -> bytes:
        self._pages.set(len(self._library.index))
        return generate_latest(self._registry)
