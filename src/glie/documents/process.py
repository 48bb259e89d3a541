"""Start the process that reads documents (reader_process.py), ask it, and kill it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from glie.errors import DocumentError


class KilledError(DocumentError):
    """More memory or time than allowed was taken, so the process was killed."""


class FaultError(DocumentError):
    """What the process said went wrong; `refused` if that is all there is to say."""

    def __init__(self, fault: str, refused: bool = False) -> None:
        super().__init__(fault)
        self.refused = refused


_answering: dict[int, ReaderProcess] = {}  # what threads wait for, by their idents


def end_answers(threads: Iterable[int]) -> None:
    """Kill the processes whose answers these threads wait for: nobody wants them any more."""
    for thread in threads:
        process = _answering.get(thread)
        if process is not None:
            process.abandon()


class ReaderProcess:
    """The process that reads one document, or counts the pages of any (`path` is "-")."""

    def __init__(self, kind: str, path: str, name: str, seconds: int, memory: int) -> None:
        self._abandoned = False
        script = str(Path(__file__).with_name("reader_process.py"))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", script, kind, path, str(seconds), str(memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
            )
        except OSError as error:
            raise DocumentError(
                f"{name}: the process that reads documents cannot be started: {error.strerror}"
            ) from None

    def asked(self, *request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() reports it
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        _answering[threading.get_ident()] = self
        try:
            line = self._process.stdout.readline()
        finally:
            del _answering[threading.get_ident()]
        if not line.endswith(b"\n"):
            raise self._gone()
        try:
            said: dict[str, Any] = json.loads(line)
            fault = said.get("fault")
        except (ValueError, AttributeError):
            self.end()
            raise DocumentError(
                f"the process that reads it answered {line[:40]!r}; expected JSON"
            ) from None
        if fault is not None:
            raise FaultError(fault, bool(said.get("refused")))
        return said

    def read(self, size: int) -> bytes:
        """The bytes behind an answer."""
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise self._gone()
        return data

    def _gone(self) -> DocumentError:
        """Why the process stopped answering."""
        self._process.wait()
        code = self._process.returncode
        self.end()
        if self._abandoned:
            return DocumentError("no longer wanted")
        if code < 0:  # killed by the system, or by its reader when memory ran out
            return KilledError("it takes more memory or time than any page should")
        return DocumentError(f"the process that reads it ended with exit code {code}")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def abandon(self) -> None:
        """Kill it from another thread than the one that asks it."""
        self._abandoned = True
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
