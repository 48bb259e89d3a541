"""Encoders behind an endpoint: vLLM, infinity, or any server that answers as OpenAI's does.

load_encoder("vllm:http://host:8000#vidore/colpali-v1.3-hf")
load_encoder("infinity:http://host:7997#vidore/colqwen2-v1.0-merged")
load_encoder("openai:https://host/v1#my-model?reads=text&revision=2026-10")

What is sent and what comes back is in `protocols.py`; the way there and back is in `http.py`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, cast
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from glie.encoders.base import Floats
from glie.encoders.batches import BatchEncoder
from glie.encoders.http import Client
from glie.encoders.protocols import PROTOCOLS, Items, vectors_of
from glie.errors import EncoderError

ADDRESS = re.compile(rf"({'|'.join(PROTOCOLS)}):(.*)", re.DOTALL)
SLOT = "{}"  # where a text goes in a template
PAGE_PROMPT = "Describe the image."  # of ColPali, ColQwen2 and ColQwen3
# What the processors of these models put around a question. vLLM expects it from us.
QUERY_TEMPLATES = {
    "colpali": f"Question: {SLOT}{'<pad>' * 10}\n",
    "colqwen2": f"Query: {SLOT}{'<|endoftext|>' * 10}\n",
}
EXAMPLE = "vllm:http://host:8000#vidore/colpali-v1.3-hf"


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An address, read: PROTOCOL:URL#MODEL, and options after a question mark."""

    name: str  # the address as it was given
    protocol: str
    url: str
    model: str
    reads: Literal["text", "image"]
    page: str  # the text beside a picture, or the template of a text
    query: str  # the template of a question
    revision: str = ""
    batch: int = 8
    timeout: float = 120.0
    piece: int = 1000  # characters of a text page in one input; longer ones are cut

    @property
    def digest(self) -> str:
        """Changes with everything that is known here and decides the vectors. The host is not
        part of it: a model may move."""
        decides = [self.protocol, self.model, self.reads, self.page, self.query, self.revision]
        if self.reads == "text":
            decides.append(str(self.piece))
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]


def is_endpoint(name: str) -> bool:
    """Whether a name is an address of an encoder."""
    return ADDRESS.fullmatch(name) is not None


def read_address(name: str) -> Endpoint:
    """Read an address; raise EncoderError if it is none."""
    match = ADDRESS.fullmatch(name)
    if match is None:
        raise EncoderError(f"{name}: not an address; expected one like {EXAMPLE}")
    protocol = match[1]
    url, _, rest = match[2].partition("#")
    model, _, query = rest.partition("?")
    url = _checked_url(url, name)
    if not model:
        raise EncoderError(f"{name}: it names no model; expected one after #, as in {EXAMPLE}")
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        raise EncoderError(
            f"{name}: {query!r} are no options; expected NAME=VALUE, joined by &"
        ) from None
    return _with_options(name, protocol, url, model, options)


def _checked_url(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EncoderError(f"{name}: {url!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise EncoderError(
            f"{name}: {url!r} is no URL of a server; expected http:// or https:// and a host, as "
            f"in {EXAMPLE}"
        )
    if parts.username is not None or parts.password is not None:
        # an index records the address
        raise EncoderError(
            "encoder: the address holds a user or a password, which an index would record; give "
            "the key in the environment variable GLIE_ENCODER_API_KEY"
        )
    if parts.query:
        raise EncoderError(f"{name}: options stand after the model, as in {EXAMPLE}?batch=4")
    return url.rstrip("/")


def _with_options(
    name: str, protocol: str, url: str, model: str, options: dict[str, str]
) -> Endpoint:
    known = PROTOCOLS[protocol]
    reads = options.pop("reads", known.reads)
    if reads not in ("text", "image"):
        raise EncoderError(f"{name}: reads={reads}; expected text or image")
    family = re.search("|".join(QUERY_TEMPLATES), model.lower())
    asks = QUERY_TEMPLATES[family[0]] if family and known.wants_prompts else SLOT
    page = options.pop("page", PAGE_PROMPT if reads == "image" else SLOT)
    query = options.pop("query", asks)
    for key, template in [("query", query)] + [("page", page)] * (reads == "text"):
        if template.count(SLOT) != 1:
            raise EncoderError(f"{name}: {key}={template}; expected {SLOT} once, for the text")
    numbers = {
        key: _number(name, key, options.pop(key), kind)
        for key, kind in [("batch", int), ("timeout", float), ("piece", int)]
        if key in options
    }
    revision = options.pop("revision", "")
    if options:
        raise EncoderError(
            f"{name}: option {next(iter(options))!r} is unknown; expected reads, revision, page, "
            "query, batch, timeout or piece"
        )
    return Endpoint(
        name, protocol, url, model,
        cast(Literal["text", "image"], reads), page, query, revision, **numbers,
    )  # fmt: skip


def _number(name: str, key: str, text: str, kind: Callable[[str], float]) -> Any:
    try:
        found = kind(text)
    except ValueError:
        found = 0
    if not 0 < found < 1e6:  # neither infinite nor NaN
        raise EncoderError(f"{name}: {key}={text}; expected a positive number")
    return found


def endpoint_encoder(name: str) -> BatchEncoder:
    """The encoder at an address. A first request checks that it answers, and finds its
    dimension."""
    endpoint = read_address(name)
    model = _Model(endpoint)
    return BatchEncoder(
        name,
        model.pages,
        model.queries,
        revision=endpoint.digest,
        reads=endpoint.reads,
        batch=endpoint.batch,
    )


class _Model:
    """The two functions of a BatchEncoder, over HTTP."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._protocol = PROTOCOLS[endpoint.protocol]
        self._client = Client(
            endpoint.url + self._protocol.path, endpoint.timeout, connections=endpoint.batch
        )
        self._dim: int | None = None  # not known yet: vectors come as lists, not in base64
        self._dim = self.queries(["a"])[0].shape[1]

    def pages(self, contents: list[Any]) -> list[Floats]:
        """The vectors of pictures, or of texts in pieces that fit the network."""
        if self._endpoint.reads == "image":
            return self._ask(Items("image", "document", contents, self._endpoint.page))
        pieces = [list(_pieces(text, self._endpoint.piece)) for text in contents]
        texts = [self._endpoint.page.replace(SLOT, piece) for some in pieces for piece in some]
        made: list[Floats] = []
        for at in range(0, len(texts), self._endpoint.batch):
            some = texts[at : at + self._endpoint.batch]
            made += self._ask(Items("text", "document", some))
        parts = iter(made)
        return [np.concatenate([next(parts) for _ in some]) for some in pieces]

    def queries(self, texts: list[str]) -> list[Floats]:
        """The vectors of questions."""
        asked = [self._endpoint.query.replace(SLOT, text) for text in texts]
        return self._ask(Items("text", "query", asked))

    def _ask(self, items: Items) -> list[Floats]:
        bodies = self._protocol.bodies(self._endpoint.model, items, self._dim is not None)
        per_body = len(items.contents) // len(bodies)
        with ThreadPoolExecutor(len(bodies)) as threads:  # a request each, if one takes one item
            answers = list(threads.map(self._client.post, bodies))
        made = []
        for answer in answers:
            try:
                made += vectors_of(answer, self._protocol.key, per_body, self._dim)
            except ValueError as error:
                raise EncoderError(f"{self._client.url}: {error}") from None
        return made


def _pieces(text: str, most: int) -> Iterator[str]:
    """Cut a text at white space into pieces of at most `most` characters.

    >>> list(_pieces("one two three", 8))
    ['one two', 'three']
    """
    text = text.strip()
    while len(text) > most:
        at = max(text.rfind(space, 0, most + 1) for space in " \n\t")
        at = at if at > 0 else most  # a word longer than that
        yield text[:at].rstrip()
        text = text[at:].lstrip()
    if text:
        yield text
