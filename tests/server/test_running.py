"""`glie search` asks the `glie serve` of an index for the vectors of a question."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glie
from glie.index.folder import SERVER
from glie.running import Server, announce, running, withdraw
from tests.cli.conftest import Run, run  # noqa: F401 (a fixture)
from tests.server.browser import served

TOKEN = "a-token-of-this-test"
QUESTION = "holiday allowance"


@pytest.fixture(scope="module")
def address(made: Path) -> Iterator[str]:
    """A server that needs a token, with its encoder loaded."""
    with served(made / "my.glie", token=TOKEN, read_only=True) as url:
        for _ in range(600):
            if Server(url).ready:
                break
        yield url


@pytest.fixture
def index(made: Path, address: str) -> Iterator[Path]:
    announce(made / "my.glie", address, TOKEN)
    yield made / "my.glie"
    (made / "my.glie" / SERVER).unlink(missing_ok=True)


def searched(run: Run, index: Path, *options: object) -> Any:  # noqa: F811
    done = run("search", index, QUESTION, "--json", *options)
    assert (done.code, done.err) == (0, "")
    found = done.json
    found["cost"] = {key: found["cost"][key] for key in ("pages_scanned", "bytes_read")}
    return found


def test_the_answer_is_the_same(run: Run, index: Path, address: str) -> None:  # noqa: F811
    assert (index / SERVER).stat().st_mode & 0o777 == 0o600
    asked, alone = searched(run, index), searched(run, index, "--server", "none")
    assert (asked.pop("server"), alone.pop("server")) == (address, None)
    assert asked == alone
    shown = run("search", index, QUESTION)
    assert f"the server at {address} encoded the question" in shown.out
    assert "encoded the question" not in run("search", index, QUESTION, "--server", "none").out
    assert "encoded" not in run("search", index, QUESTION, "--mode", "lexical").out


def test_an_address_that_is_given(
    run: Run,  # noqa: F811
    index: Path,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (index / SERVER).unlink()
    done = run("search", index, QUESTION, "--server", address)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "a token is needed" in done.err
    monkeypatch.setenv("GLIE_TOKEN", TOKEN)
    assert searched(run, index, "--server", address)["server"] == address
    for wrong, says, code in (
        ("ftp://x", "expected an address like http", 2),  # the option is mistyped
        (address + "x", "expected an address like http", 2),
        (address + "/x", "status 404", 1),
    ):
        done = run("search", index, QUESTION, "--server", wrong)
        assert (done.code, says in done.err) == (code, True)


def test_a_file_that_does_not_fit_is_passed_over(
    run: Run,  # noqa: F811
    index: Path,
    address: str,
    tmp_path: Path,
) -> None:
    """Of a killed server, another host, another index, or with an address elsewhere."""
    place = index / SERVER
    note = json.loads(place.read_text())
    assert running(index) == Server(address, TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for key, value in (
            *(("process", 2**22 + 5), ("process", -1), ("process", "x"), ("host", "elsewhere")),
            *(("index", str(tmp_path)), ("url", "http://192.0.2.1:8000/"), ("url", "http://x/")),
            *(("url", f"http://127.0.0.1:{port}/"), ("url", 7), ("url", "")),
        ):
            place.write_text(json.dumps({**note, key: value}))
            assert running(index) is None, (key, value)
    for text in ("", "[]", "{}", "\0"):
        place.write_text(text)
        assert running(index) is None
    place.write_text(json.dumps({**note, "token": "wrong-token"}))
    assert searched(run, index)["server"] is None  # the encoder is loaded here
    copied = shutil.copytree(index, tmp_path / "copied.glie")
    assert running(copied) is None


def test_another_server_keeps_its_file(index: Path) -> None:
    place = index / SERVER
    others = json.dumps({**json.loads(place.read_text()), "process": os.getpid() + 1})
    place.write_text(others)
    withdraw(index)
    assert place.read_text() == others
    announce(index, "http://127.0.0.1:1/", None)
    withdraw(index)
    assert not place.exists()
    withdraw(index)


def test_its_bytes_are_not_those_of_the_index(index: Path) -> None:
    before = glie.Index.open(index).info().bytes
    (index / SERVER).unlink()
    assert glie.Index.open(index).info().bytes == before
