"""`glie serve`, as it is typed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run  # noqa: F401 (a fixture)


def test_where_it_may_not_listen(
    run: Run,  # noqa: F811
    index_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GLIE_TOKEN", raising=False)
    for host in ("0.0.0.0", "::", "example.com"):
        done = run("serve", index_path, "--host", host)
        assert done.code == 2
        assert done.err.startswith(f"glie: --host {host}: others could reach it")
        assert done.err.count("\n") == 1
    monkeypatch.setenv("GLIE_TOKEN", "short")
    assert "expected at least 8 letters" in run("serve", index_path, "--host", "0.0.0.0").err
    monkeypatch.setenv("GLIE_TOKEN", "long-enough-token")
    done = run("serve", index_path, "--host", "host.invalid")
    assert done.code == 1
    assert "cannot listen on host.invalid, port 8000" in done.err


def test_a_port_that_is_taken(run: Run, index_path: Path) -> None:  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", index_path, "--port", port)
    assert done.code == 1
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in done.err


def test_what_is_no_index(run: Run, tmp_path: Path) -> None:  # noqa: F811
    done = run("serve", tmp_path / "none.glie")
    assert done.code == 1
    assert "does not exist" in done.err


@pytest.mark.parametrize("hidden", ["uvicorn", "fastapi", "prometheus_client"])
def test_the_extra_is_named(index_path: Path, hidden: str) -> None:
    code = f"""
import sys
sys.modules[{hidden!r}] = None
sys.argv = ["glie", "serve", {str(index_path)!r}, "--port", "0"]
from glie.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        'glie: the web application needs an optional part: pip install "glie[serve]"\n'
    )


def test_help_teaches(run: Run) -> None:  # noqa: F811
    said = run("serve", "--help").out
    for option in ("--host", "--port", "--token", "--read-only", "GLIE_TOKEN", "--max-searches"):
        assert option in said
