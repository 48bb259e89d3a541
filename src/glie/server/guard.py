"""Access control: the checks that every request passes before the application sees it.

A page of another site can make a browser send requests to this machine. Three checks refuse them:
the Host header (against DNS rebinding), the site that a request comes from (against cross-site
requests), and the token, if there is one.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from glie.errors import InputError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

COOKIE = "glie"
# these need no token: the files of the page hold nothing of the index
OPEN_PATHS = re.compile(r"/|/health|/session|/static/[^/]+")
CHANGES = {"POST", "PUT", "PATCH", "DELETE"}

# of a file that someone else has written: nothing of it runs, loads or submits
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; sandbox"

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on that host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to listen where others can reach the server, unless there is a good token."""
    if token is not None and not re.fullmatch(r"[\x21-\x7e]{8,}", token):
        raise InputError(
            "--token: expected at least 8 letters, digits or signs, without spaces; "
            "`openssl rand -hex 16` makes one"
        )
    if token is None and not is_loopback(host):
        raise InputError(
            f"--host {host}: others could reach it, so --token is needed (or GLIE_TOKEN)"
        )


def session_of(token: str) -> str:
    """The session cookie: it proves that the token was known, without containing it."""
    return hmac.new(token.encode(), b"glie session", hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two secrets are equal, compared in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


class Guard:
    """ASGI middleware with these checks, security headers and a limit on the body.

    `hosts` are the names that the server answers to (None: any, which is safe only with a token).
    `refuse` makes the response to a refused request. `seen` is called with the status of every
    response. Starlette's TrustedHostMiddleware answers 400 in plain text; this answers 421 in JSON,
    like all other errors, so the host check is ours.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str | None,
        hosts: Sequence[str] | None,
        refuse: Callable[[int, str], App],
        body_limit: Callable[[str, str], int],
        seen: Callable[[Message, int], None] = lambda scope, status: None,
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = None if hosts is None else {host.strip("[]").lower() for host in hosts}
        self._refuse = refuse
        self._body_limit = body_limit
        self._seen = seen

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # startup and shutdown
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._seen(scope, message["status"])
                given = {name.lower() for name, _ in message["headers"]}
                ours = ((name.encode(), value.encode()) for name, value in HEADERS.items())
                missing = [header for header in ours if header[0] not in given]
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        headers = _headers(scope)
        app = self._app
        problem = self._problem(scope["method"], scope["path"], headers)
        limit = self._body_limit(scope["method"], scope["path"])
        declared = headers.get("content-length", "0")
        if problem is None and declared.isdecimal() and int(declared) > limit:
            problem = 413, too_large(limit)
        if problem is not None:
            app = self._refuse(*problem)
        await app(scope, _counted(receive, limit), send_with_headers)

    def _problem(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._hosts is not None and hostname(host) not in self._hosts:
            return 421, f"host {host[:80]!r} is not one that this server answers to"
        if method in CHANGES and not _same_site(headers, host):
            return 403, "requests from pages of other sites are refused"
        if self._token is None or OPEN_PATHS.fullmatch(path) or self._knows_token(headers):
            return None
        return 401, "a token is needed: Authorization: Bearer TOKEN"

    def _knows_token(self, headers: dict[str, str]) -> bool:
        assert self._token is not None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and same(given.strip(), self._token):
            return True
        cookie = SimpleCookie()
        try:
            cookie.load(headers.get("cookie", ""))
        except CookieError:
            return False
        return COOKIE in cookie and same(cookie[COOKIE].value, session_of(self._token))


def hostname(host: str) -> str:
    """The name in a Host header, without port and brackets; empty if it is malformed."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def too_large(limit: int) -> str:
    return f"the body is larger than the limit of {limit:,} bytes"


def _headers(scope: Message) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }


def _same_site(headers: dict[str, str], host: str) -> bool:
    """Whether a change comes from the server's own page, or not from a web page."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _counted(receive: Receive, limit: int) -> Receive:
    """Receive a body, and refuse it once it exceeds the limit."""
    arrived = 0

    async def counted() -> Message:
        nonlocal arrived
        message = await receive()
        arrived += len(message.get("body", b""))
        if arrived > limit:
            raise HTTPException(413, too_large(limit))
        return message

    return counted
