"""Connections: so many at a time, and none that makes no progress.

A connection costs an attacker nothing and the server a file descriptor. uvicorn limits the time
between two requests only. Here the head of a request, each 64 KB of its body, and each part of the
answer have a time limit too. When all connections are taken, a new one takes the place of the one
that has waited longest for a request; if all of them have one, it is answered with 503.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from glie.server.limits import Limits

BACKLOG = 64  # connections that are accepted at once, before any of them is looked at
OTHER_FILES = 2 * BACKLOG + 64  # that may be open beside connections: these, and those of the index
BODY_PART = 64 << 10  # bytes of a body that have the time of one limit
SECONDS_BETWEEN_LINES = 10.0  # of a log that say the same

SAID = b'{"error": "too many connections are open"}'
REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(SAID), SAID)
)

log = logging.getLogger("uvicorn.error")


def fitting(limits: Limits) -> Limits:
    """Limits with no more connections than this process may have open files. The system's limit is
    raised if it can be."""
    try:
        import resource
    except ImportError:  # Windows
        return limits
    kind, wanted = resource.RLIMIT_NOFILE, limits.connections + OTHER_FILES
    files, most = resource.getrlimit(kind)
    if files < wanted:
        files = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(kind, (files, most))
    room = max(files - OTHER_FILES, 1)
    return dataclasses.replace(limits, connections=min(limits.connections, room))


def limited(chosen: Limits) -> type[H11Protocol]:
    """The protocol of a server with these limits."""

    class Limited(LimitedProtocol):
        limits = chosen

    return Limited


class LimitedProtocol(H11Protocol):
    """HTTP over one connection, with limits."""

    limits = Limits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: asyncio.TimerHandle | None = None  # of the head or the body
        self._writing: asyncio.TimerHandle | None = None  # of the answer
        self._arrived = 0  # bytes since the timer was set
        self.waits_since: float | None = None  # for a request; None while there is one

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.limits.connections:
            log.warning("%d connections are open: the limit", self.limits.connections)
            ours = [c for c in self.connections if isinstance(c, LimitedProtocol)]
            waiting = {c.waits_since: c for c in ours if c.waits_since is not None}
            if not waiting:
                transport.write(REFUSED)
                transport.close()
                return
            waiting[min(waiting)]._end()
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self.resume_writing()
        if self.flow is not None:  # not if it was refused
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.flow is None:
            return
        super().data_received(data)
        if self.transport.is_closing():
            self._stop()
        elif self.conn.their_state is h11.SEND_BODY:
            self._arrived += len(data)
            if self.waits_since is not None or self._arrived >= BODY_PART:
                self.waits_since = None
                self._start(self._body_late)
        elif self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            if self._timer is None:
                self._await_head()
        else:  # the request is complete
            self.waits_since = None
            self._stop()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.waits_since = time.monotonic()  # uvicorn's own limit ends it

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.limits.seconds, self._end)

    def resume_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self.flow is not None:
            super().resume_writing()

    def _await_head(self) -> None:
        self.waits_since = time.monotonic()
        self._start(self._end)

    def _body_late(self) -> None:
        if self.flow.read_paused:  # the application is what takes its time
            self._start(self._body_late)
        else:
            self._end()

    def _end(self) -> None:
        self.waits_since = None
        self.transport.abort()

    def _start(self, late: Callable[[], None]) -> None:
        self._stop()
        self._arrived = 0
        self._timer = self.loop.call_later(self.limits.seconds, late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Seldom(logging.Filter):
    """Lets a line through once in 10 seconds; the next one says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        key, now = (str(record.msg), repr(fault)), time.monotonic()
        last, left_out = self._seen.get(key, (-SECONDS_BETWEEN_LINES, 0))
        if now - last < SECONDS_BETWEEN_LINES:
            self._seen[key] = last, left_out + 1
            return False
        if len(self._seen) > 1000:  # of many kinds of faults
            self._seen.clear()
        self._seen[key] = now, 0
        if left_out:
            record.msg = f"{record.msg} ({left_out:,} more like it before)"
        return True


def log_seldom() -> None:
    """Bound the log of the server, whatever clients do."""
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(one, Seldom) for one in logger.filters):
            logger.addFilter(Seldom())
