"""Connections that make no progress are ended, and so many are open at a time."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from glie.server.connections import Seldom, fitting, limited
from glie.server.limits import Limits

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the size of the body; /large with more than a connection buffers."""
    if scope["type"] != "http":
        return
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(2.5)
    body = b"x" * (64 << 20) if scope["path"] == "/large" else str(size).encode()
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def serving(limits: Limits) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, http=limited(limits), lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield listening.getsockname()
        finally:
            server.should_exit = True
            thread.join()


def open_to(address: tuple[str, int], sent: bytes = b"") -> socket.socket:
    one = socket.create_connection(address, timeout=20)
    one.sendall(sent)
    return one


def ended(one: socket.socket) -> bool:
    with one, contextlib.suppress(ConnectionResetError):
        return one.recv(1) == b""
    return True


def answer(one: socket.socket) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(one)
    response.begin()
    return response.status, response.read()


def asked(address: tuple[str, int], sent: bytes = HEAD % 0) -> tuple[int, bytes]:
    with open_to(address, sent) as one:
        return answer(one)


def test_what_does_not_go_on_is_ended() -> None:
    """No byte; half of a head; a second head after an answer; half of a body; an answer that
    nobody reads."""
    with serving(Limits(seconds=1)) as address:
        again = open_to(address, HEAD % 0)
        assert answer(again) == (200, b"0")
        again.sendall(b"POST / HT")
        stuck = [
            open_to(address),
            open_to(address, b"GET / HTTP/1.1\r\nhost:"),
            again,
            open_to(address, HEAD % 100 + b"half"),
        ]
        unread = open_to(address, b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        assert all(ended(one) for one in stuck)
        with contextlib.suppress(ConnectionResetError), unread:
            time.sleep(2)
            size = sum(len(part) for part in iter(lambda: unread.recv(1 << 20), b""))
            assert size < 64 << 20
        assert asked(address) == (200, b"0")


def test_a_head_that_drips_is_ended_and_a_body_that_flows_is_not() -> None:
    with serving(Limits(seconds=1)) as address:
        dripping = open_to(address)
        flowing = open_to(address, HEAD % (4 * 65536))
        for _ in range(4):
            with contextlib.suppress(OSError):
                dripping.sendall(b"G")
            flowing.sendall(b"x" * 65536)
            time.sleep(0.6)
        assert ended(dripping)
        with flowing:
            assert answer(flowing) == (200, b"262144")
        # nor is one that waits for a slow answer
        assert asked(address, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n") == (200, b"0")


def test_idle_connections_make_room_and_busy_ones_do_not() -> None:
    with serving(Limits(connections=5)) as address:
        idle = [open_to(address) for _ in range(40)]
        assert asked(address) == (200, b"0")
        assert ended(idle[0])
        busy = [open_to(address, HEAD % 100 + b"half") for _ in range(5)]
        time.sleep(0.3)
        refused = b'{"error": "too many connections are open"}'
        assert asked(address, b"") == (503, refused)
        for one in busy:
            one.sendall(b"x" * 96)
            assert answer(one) == (200, b"100")
        assert asked(address) == (200, b"0")
        for one in (*idle, *busy):
            one.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_connections_leave_files_to_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    for files, connections, now in (
        ((10_000, 10_000), 200, []),
        ((256, 10_000), 200, [(392, 10_000)]),
        ((256, 256), 64, [(256, 256)]),
        ((50, 50), 1, [(50, 50)]),
    ):
        raised.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: files)
        assert fitting(Limits()).connections == connections
        assert raised == now


def test_the_log_says_the_same_seldom(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("glie.server.connections.time.monotonic", lambda: now)
    logger = logging.getLogger("glie.test")
    seldom = Seldom()
    logger.addFilter(seldom)
    try:
        for _ in range(300):
            logger.warning("invalid")
        logger.warning("another")
        now = 11.0
        logger.warning("invalid")
    finally:
        logger.removeFilter(seldom)
    assert caplog.messages == ["invalid", "another", "invalid (299 more like it before)"]
