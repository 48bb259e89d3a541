"""An HTTP server on loopback that speaks the protocols of docs/encoders.md, as their documentation
has them, over a model of a few lines. It refuses what the real ones refuse."""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from glie.encoders.base import Floats

DIM = 16
MODEL = "vidore/colpali-v1.3-hf"
KEY = "a-secret"
DATA_URI = re.compile(r"data:image/png;base64,(.+)")
IMAGES_PER_REQUEST = 32  # of infinity


class RefusedError(Exception):
    """A request that the real server would refuse."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def vector(seed: str) -> Floats:
    """A unit vector for a word."""
    made = np.random.default_rng(zlib.crc32(seed.encode())).standard_normal(DIM)
    return np.asarray(made / np.linalg.norm(made), dtype=np.float32)


def text_vectors(text: str) -> Floats:
    """One for each word, the special ones included."""
    return np.stack([vector(word) for word in re.findall(r"<[^>]+>|\w+", text.lower())])


def image_vectors(uri: str) -> Floats:
    """One for each quarter of a picture: of the name of its mean colour."""
    match = DATA_URI.fullmatch(uri)
    if match is None:
        raise RefusedError(422, "not a data URI of an image")
    try:
        picture = Image.open(io.BytesIO(base64.b64decode(match[1], validate=True)))
    except (binascii.Error, OSError) as error:
        raise RefusedError(400, f"cannot read the image: {error}") from None
    small = np.asarray(picture.convert("RGB").resize((2, 2))).reshape(4, 3)
    return np.stack([vector(str(colour)) for colour in small.tolist()])


def encoded(vectors: Floats, how: str) -> Any:
    if how == "base64":
        return base64.b64encode(vectors.astype("<f4").tobytes()).decode()
    if how == "float":
        return vectors.tolist()
    raise RefusedError(400, f"encoding_format {how!r}")


def some_texts(body: dict[str, Any]) -> list[str]:
    given = body["input"]
    texts = [given] if isinstance(given, str) else given
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RefusedError(422, "input: expected texts")
    return list(texts)


def vllm(body: dict[str, Any]) -> dict[str, Any]:
    """POST /pooling: `input` with texts, or `messages` of one chat with a picture."""
    if body.get("task") != "token_embed":
        raise RefusedError(400, "Task is not supported by the model")
    if ("input" in body) == ("messages" in body):
        raise RefusedError(400, "one of input and messages")
    if "input" in body:
        found = [text_vectors(text) for text in some_texts(body)]
    else:
        (message,) = body["messages"]
        if message["role"] != "user":
            raise RefusedError(400, "Unexpected role")
        image, text = message["content"]
        if (image["type"], text["type"]) != ("image_url", "text"):
            raise RefusedError(400, "Unknown part type")
        seen = image_vectors(image["image_url"]["url"])
        found = [np.concatenate([seen, text_vectors(text["text"])])]
    items = [
        {
            "index": i,
            "object": "pooling",
            "data": encoded(made, body.get("encoding_format", "float")),
        }
        for i, made in enumerate(found)
    ]
    return {"id": "pool-1", "object": "list", "created": 1, "model": MODEL, "data": items}


def infinity(body: dict[str, Any]) -> dict[str, Any]:
    """POST /embeddings: `input` with texts, or data URIs if `modality` is image. A batch of pictures
    is padded with zeros."""
    modality = body.get("modality", "text")
    if modality == "image":
        if len(body["input"]) > IMAGES_PER_REQUEST:
            raise RefusedError(422, "List should have at most 32 items after validation")
        found = [image_vectors(uri) for uri in body["input"]]
        found = [np.concatenate([one, np.zeros((3, DIM), np.float32)]) for one in found]
    elif modality == "text":
        found = [text_vectors(text) for text in some_texts(body)]
    else:
        raise RefusedError(422, f"modality {modality!r}")
    return openai_answer(found, body)


def openai(body: dict[str, Any]) -> dict[str, Any]:
    """POST /v1/embeddings, with a list of vectors an input; in another order than asked."""
    if body.get("input_type") not in ("query", "document"):
        raise RefusedError(400, "input_type")
    is_image = str(body["input"][0]).startswith("data:")
    found = [image_vectors(one) if is_image else text_vectors(one) for one in body["input"]]
    answer = openai_answer(found, body)
    answer["data"].reverse()
    return answer


def openai_answer(found: list[Floats], body: dict[str, Any]) -> dict[str, Any]:
    how = body.get("encoding_format", "float")
    items = [
        {"object": "embedding", "embedding": encoded(made, how), "index": i}
        for i, made in enumerate(found)
    ]
    return {"object": "list", "data": items, "model": MODEL, "usage": {"total_tokens": 1}}


ROUTES = {"/pooling": vllm, "/embeddings": infinity, "/v1/embeddings": openai}


class Handler(BaseHTTPRequestHandler):
    """Answers as told; notes what was asked."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, dict[str, Any]]]
    key: str | None = None  # what clients must give
    failures: list[tuple[int, dict[str, str]]]  # answered first, with these headers
    dies_after: int | None = None  # requests; then connections break
    answer: Any = None  # instead of the right one
    lock: threading.Lock

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            self.asked.append((self.path, json.loads(body)))
            failure = self.failures.pop(0) if self.failures else None
            dead = self.dies_after is not None and len(self.asked) > self.dies_after
        if dead:
            self.close_connection = True
            return  # without an answer
        if self.key and self.headers.get("Authorization") != f"Bearer {self.key}":
            self._send(401, {"error": "Unauthorized"})
        elif failure is not None:
            self._send(failure[0], {"error": {"message": "busy", "code": failure[0]}}, failure[1])
        elif self.path not in ROUTES:
            self._send(404, {"detail": "Not Found"})
        elif self.answer is not None:
            self._send(200, self.answer)
        elif json.loads(body).get("model") != MODEL:
            said = f"The model `{json.loads(body).get('model')}` does not exist."
            self._send(404, {"error": {"message": said, "type": "NotFoundError", "code": 404}})
        else:
            try:
                self._send(200, ROUTES[self.path](json.loads(body)))
            except RefusedError as error:
                self._send(error.status, {"error": {"message": str(error)}})

    def _send(self, status: int, answer: Any, headers: dict[str, str] | None = None) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Quietly."""


@contextmanager
def serving(port: int = 0) -> Iterator[tuple[str, type[Handler]]]:
    """The URL of a server, and what answers there."""
    told = {"asked": [], "failures": [], "lock": threading.Lock()}
    handler = type("Told", (Handler,), told)
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
