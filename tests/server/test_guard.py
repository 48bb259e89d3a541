"""Who may ask, from where, and how much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import glie
from glie.server.guard import check_exposure, hostname, is_loopback, session_of
from glie.server.limits import Limits
from tests.server.conftest import Client
from tests.server.test_api import A1, error_of

TOKEN = "correct-horse-battery"
BEHIND = (
    *("/info", "/metrics", "/documents", "/openapi.json", "/survey", f"/pages/{A1}"),
    *(f"/pages/{A1}/image", f"/pages/{A1}/heatmap?query=x", "/static/../info", "/nothing"),
)


def test_nothing_is_shown_without_the_token(client: Client) -> None:
    ours = client(token=TOKEN)
    for path in BEHIND:
        for headers in (
            {},
            {"authorization": "Bearer wrong-horse-battery"},
            {"authorization": f"Basic {TOKEN}"},
            {"authorization": f"Bearer {TOKEN}x"},
            {"authorization": f"Bearer {TOKEN[:-1]}"},
            {"authorization": "Bearer"},
            {"cookie": f"glie={TOKEN}"},
            {"cookie": "glie=;;; =\x01"},
        ):
            refused = ours.get(path, headers=headers)
            assert refused.status_code == 401, (path, headers)
            assert "token" in error_of(refused)
    assert ours.post("/search", json={"query": "a"}).status_code == 401
    assert ours.delete("/documents/b.pdf").status_code == 401
    for path in ("/", "/health", "/static/app.js", "/static/app.css"):
        assert ours.get(path).status_code == 200
    known = {"authorization": f"Bearer {TOKEN}"}
    assert ours.get("/info", headers=known).json()["pages"] == 5


def test_a_browser_gets_a_cookie_for_the_token(client: Client) -> None:
    ours = client(token=TOKEN)
    refused = ours.post("/session", json={"token": "wrong"})
    assert refused.status_code == 401
    assert error_of(refused) == "the token is wrong"
    assert "set-cookie" not in refused.headers
    answer = ours.post("/session", json={"token": TOKEN})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert session_of(TOKEN) in cookie
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert ours.get("/info").json()["pages"] == 5
    assert client().post("/session", json={"token": "any"}).status_code == 204  # none is needed


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("example.com", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_only_this_machine_needs_no_token(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone
    check_exposure(host, TOKEN)
    if alone:
        check_exposure(host, None)
    else:
        with pytest.raises(glie.InputError, match="--token is needed"):
            check_exposure(host, None)


@pytest.mark.parametrize("token", ["", "short", "with space in it", "ünicode-token", "a\n" * 9])
def test_a_token_is_worth_the_name(token: str) -> None:
    with pytest.raises(glie.InputError, match="expected at least 8 letters"):
        check_exposure("127.0.0.1", token)


def test_names_that_were_made_to_point_here_are_refused(client: Client) -> None:
    ours = client()
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1"):
        refused = ours.get("/info", headers={"host": host})
        assert refused.status_code == 421, host
        assert "is not one that this server answers to" in error_of(refused)
    for host in ("127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000"):
        assert ours.get("/info", headers={"host": host}).status_code == 200
    named = client(hosts=["search.example"])
    assert named.get("/info", headers={"host": "search.example:443"}).status_code == 200
    assert named.get("/info").status_code == 421
    assert client(hosts=None).get("/info", headers={"host": "any"}).status_code == 200
    assert hostname("[::1]:80") == "::1"


def test_pages_of_other_sites_change_and_ask_nothing(client: Client) -> None:
    ours = client()
    sent: dict[str, Any] = {"files": [("files", ("x.txt", b"planted by a web page"))]}
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        for refused in (
            ours.post("/documents", headers=headers, **sent),
            ours.delete("/documents/b.pdf", headers=headers),
            ours.post("/search", headers=headers, json={"query": "a"}),
        ):
            assert refused.status_code == 403
            assert error_of(refused) == "requests from pages of other sites are refused"
    assert ours.get("/info").json()["pages"] == 5
    own = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
    assert ours.post("/search", headers=own, json={"query": "a"}).status_code == 200


def test_every_answer_is_locked_down(client: Client) -> None:
    ours = client()
    for path in ("/", "/info", f"/pages/{A1}/image", "/none", "/static/app.js"):
        headers = ours.get(path, headers={"origin": "https://evil.example"}).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in headers if name.startswith("access-control")]
    assert ours.get("/info").headers["cache-control"] == "no-store"
    preflight = ours.options("/search", headers={"origin": "https://evil.example"})
    assert preflight.status_code == 405
    # what would load scripts from elsewhere is not there
    assert [ours.get(path).status_code for path in ("/docs", "/redoc")] == [404, 404]


def test_the_page_asks_for_nothing_elsewhere(client: Client) -> None:
    ours = client()
    for path in ("/", "/static/app.css", "/static/app.js", "/static/icon.svg"):
        text = ours.get(path).text
        assert "https://" not in text
        found = text.replace("http://www.w3.org/2000/svg", "")  # the name of a format
        assert "http://" not in found
    refused = ours.get("/static/..%2Fapp.py")
    assert refused.status_code == 404


def test_bodies_are_limited(client: Client) -> None:
    ours = client(limits=Limits(body_bytes=1000, upload_bytes=2000))
    for path, most, said in (("/search", 1000, "1,000"), ("/documents", 2000, "2,000")):
        form = {"content-type": "multipart/form-data; boundary=x"}
        declared = ours.post(path, content=b"x" * (most + 1), headers=form)
        chunked = ours.post(path, content=pieces(most + 1), headers=form)
        lied = ours.post(path, content=pieces(most + 1), headers={**form, "content-length": "5"})
        for refused in (declared, chunked, lied):
            assert refused.status_code == 413, path
            assert f"larger than the limit of {said} bytes" in error_of(refused)
    assert ours.post("/search", json={"query": "a"}).status_code == 200


def pieces(size: int) -> Iterator[bytes]:
    """A body whose size is not told; the form is one that is read to its end."""
    yield b'--x\r\ncontent-disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'
    for _ in range(size // 100 + 1):
        yield b"y" * 100


def test_failures_are_one_line_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, *arguments: object) -> None:
        raise RuntimeError("a fault\nof ours")

    monkeypatch.setattr("glie.server.library.Library.documents", broken)
    refused = client().get("/documents")
    assert refused.status_code == 500
    assert error_of(refused) == "the server failed; its log says why"
