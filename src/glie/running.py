"""The `glie serve` that runs for an index: where it says so, and asking it.

The server writes its address beside the lock, for the eyes of its user alone. `glie search` asks it
for the vectors of a question, which saves loading the encoder; the search itself is the same. A
file that a killed server has left is noticed: its process, its host or its answer does not fit.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from glie.errors import EncoderError, InputError
from glie.identity import EncodedPages, EncoderId
from glie.index.folder import SERVER

ALIVE_SECONDS = 0.5  # to answer whether it is there
ENCODE_SECONDS = 60.0


class Server(NamedTuple):
    """A server that encodes questions."""

    url: str
    token: str | None = None

    def vectors(self, question: str, encoder: EncoderId | None) -> npt.NDArray[np.float32]:
        """The vectors of a question. They must be by the encoder that the index records."""
        found = self._request("POST", "/encode", {"query": question}, ENCODE_SECONDS)
        try:
            made_by, vectors = EncoderId.of(found["encoder"]), np.array(found["vectors"], "<f4")
            fits = vectors.ndim == 2
        except (KeyError, TypeError, ValueError, InputError):
            fits, made_by = False, None
        if not fits or encoder is None or made_by is None or not encoder.matches(made_by):
            raise EncoderError(f"{self.url}: it serves another index, or is no `glie serve`")
        return vectors

    @property
    def ready(self) -> bool:
        """Whether it answers at once, with a loaded encoder."""
        try:
            return bool(self._request("GET", "/health", None, ALIVE_SECONDS)["encoder"] == "ready")
        except (EncoderError, KeyError, TypeError):
            return False

    def _request(self, method: str, path: str, body: Any, seconds: float) -> Any:
        try:
            parts = urlsplit(self.url)
            port, fits = parts.port, parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:  # no number is the port
            port, fits = None, False
        if not fits:
            raise InputError(f"--server {self.url}: expected an address like http://127.0.0.1:8000")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        headers = {"content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        place = parts.path.rstrip("/") + path
        try:
            with contextlib.closing(kind(parts.hostname or "", port, timeout=seconds)) as link:
                link.request(method, place, None if body is None else json.dumps(body), headers)
                answer = link.getresponse()
                found = json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise EncoderError(f"{self.url}: no answer of a `glie serve`: {error}") from None
        if answer.status != 200:
            why = found.get("error", "") if isinstance(found, dict) else ""
            raise EncoderError(f"{self.url}: {why or answer.reason} (status {answer.status})")
        return found


def announce(index: Path, url: str, token: str | None) -> None:
    """Say in the folder of an index that this process serves it. A folder that cannot be written
    stays as it is: nobody finds the server by itself then."""
    place = index.absolute() / SERVER
    note = {"process": os.getpid(), "host": socket.gethostname(), "index": str(place.parent)}
    new = place.with_name(f"{SERVER}.{os.getpid()}")
    with contextlib.suppress(OSError):
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)  # it has the token
        with open(handle, "w") as file:
            json.dump({**note, "url": url, "token": token}, file)
        new.replace(place)


def withdraw(index: Path) -> None:
    """Remove what `announce` wrote, unless another server has come since."""
    place = index.absolute() / SERVER
    with contextlib.suppress(OSError):
        if _read(place).get("process") == os.getpid():
            place.unlink()


def running(index: Path) -> Server | None:
    """The server of an index on this machine, if there is one that answers."""
    place = index.absolute() / SERVER
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        note = _read(place)
        if hasattr(os, "getuid") and place.stat().st_uid != os.getuid():
            return None  # someone else's, who would see the questions
        here = (note["host"], note["index"]) == (socket.gethostname(), str(place.parent))
        if here and _runs(int(note["process"])) and _is_loopback(str(note["url"])):
            server = Server(str(note["url"]), note["token"])
            return server if server.ready else None
    return None


class Encoding:
    """Encodes questions for some pages by a server, as a Retriever takes it. If the server no
    longer answers, `otherwise` encodes them."""

    def __init__(
        self, server: Server, pages: EncodedPages, otherwise: Callable[[str], Any] | None = None
    ) -> None:
        self._server, self._pages, self._otherwise = server, pages, otherwise
        self.answered: str | None = None  # the server's address, if it encoded the last question

    def __call__(self, questions: Sequence[str]) -> list[Any]:
        try:
            vectors = [self._server.vectors(text, self._pages.encoder) for text in questions]
        except EncoderError:
            if self._otherwise is None:
                raise
            self.answered = None
            return [self._otherwise(text) for text in questions]
        self.answered = self._server.url
        return vectors


def _read(place: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        note = json.loads(place.read_text())
        return note if isinstance(note, dict) else {}
    return {}


def _runs(process: int) -> bool:
    """Whether a process of this machine is alive."""
    if os.name == "nt":
        return True  # the server's answer tells
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return process > 0


def _is_loopback(url: str) -> bool:
    try:
        return ipaddress.ip_address(urlsplit(url).hostname or "").is_loopback
    except ValueError:
        return False
