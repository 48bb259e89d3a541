"""What servers of encoders expect and answer: one `Protocol` each, in pure functions.

The fields are those of the servers' documentation; docs/encoders.md names them.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import io
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from glie.encoders.base import Floats

Body = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Items:
    """What one call encodes: texts or Pillow images, as documents or as queries."""

    kind: Literal["text", "image"]
    role: Literal["document", "query"]
    contents: list[Any]
    prompt: str = ""  # the text beside each picture


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A way to ask a server for the vectors of items."""

    path: str  # after the URL of the server
    key: str  # the field of an item of the answer that has its vectors
    reads: Literal["text", "image"]  # what its models most often read of a page
    wants_prompts: bool  # whether the server leaves prompts around questions to its clients
    bodies: Callable[[str, Items, bool], list[Body]]  # model, items, whether base64 is understood


def _vllm(model: str, items: Items, packed: bool) -> list[Body]:
    """vLLM's pooling API. A chat holds one picture: one request each, in parallel."""
    common = {"model": model, "task": "token_embed"} | _encoding(packed)
    if items.kind == "text":
        return [common | {"input": items.contents}]
    chats = [
        [
            {"type": "image_url", "image_url": {"url": data_uri(image)}},
            {"type": "text", "text": items.prompt},
        ]
        for image in items.contents
    ]
    return [common | {"messages": [{"role": "user", "content": chat}]} for chat in chats]


def _infinity(model: str, items: Items, packed: bool) -> list[Body]:
    """infinity's embeddings API, with its field `modality`."""
    given = _inputs(items)
    return [{"model": model, "modality": items.kind, "input": given} | _encoding(packed)]


def _openai(model: str, items: Items, packed: bool) -> list[Body]:
    """OpenAI's embeddings API, with the field `input_type` that several hosts add to it."""
    return [{"model": model, "input": _inputs(items), "input_type": items.role} | _encoding(False)]


PROTOCOLS = {
    "vllm": Protocol("/pooling", "data", "image", True, _vllm),
    "infinity": Protocol("/embeddings", "embedding", "image", False, _infinity),
    "openai": Protocol("/embeddings", "embedding", "text", False, _openai),
}


def _encoding(packed: bool) -> Body:
    return {"encoding_format": "base64" if packed else "float"}


def _inputs(items: Items) -> list[str]:
    return [data_uri(one) if items.kind == "image" else one for one in items.contents]


def data_uri(image: Any) -> str:
    """A Pillow image as a data URI, without loss."""
    packed = io.BytesIO()
    image.save(packed, "PNG", compress_level=1)  # fast; the picture is on the way only once
    return "data:image/png;base64," + base64.b64encode(packed.getvalue()).decode()


def vectors_of(answer: Any, key: str, count: int, dim: int | None) -> list[Floats]:
    """The (n, D) vectors of each item of an answer, in the order that they were asked in. Rows of
    zeros are padding, and left out. Raises ValueError, which says what was found."""
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f'expected a list of items in "data", found {answer!r:.80}')
    if len(items) != count:
        raise ValueError(f"expected vectors for {count} inputs, found those of {len(items)}")
    places = [item.get("index", i) for i, item in enumerate(items)]
    if sorted(map(str, places)) != sorted(map(str, range(count))):
        raise ValueError(f'expected "index" from 0 to {count - 1}, found {places!r:.80}')
    found: list[Floats] = [np.empty(0, np.float32)] * count
    for place, item in zip(places, items, strict=True):
        found[int(place)] = _rows(item.get(key), key, dim)
    return found


def _rows(given: Any, key: str, dim: int | None) -> Floats:
    if isinstance(given, str) and dim is not None:
        try:
            flat = np.frombuffer(base64.b64decode(given, validate=True), "<f4")
            rows = flat.reshape(-1, dim).astype(np.float32)
        except (ValueError, binascii.Error):
            raise ValueError(
                f"{key!r} is no base64 of float32 vectors of {dim} dimensions"
            ) from None
    else:
        try:
            rows = np.asarray(given, dtype=np.float32)
        except (TypeError, ValueError):
            raise ValueError(f"{key!r} is no list of vectors: {given!r:.60}") from None
    if rows.ndim == 1 and rows.size:
        raise ValueError(
            f"one vector an input, of {rows.size} numbers; expected one for each token or patch: "
            "serve a late-interaction model, in vLLM with --pooler-config.task token_embed"
        )
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"{key!r} is of shape {rows.shape}; expected (vectors, dimensions)")
    if dim is not None and rows.shape[1] != dim:
        raise ValueError(f"vectors of {rows.shape[1]} dimensions; the first ones had {dim}")
    if not np.isfinite(rows).all():
        raise ValueError("vectors with numbers that are not finite; the model overflows there")
    rows = rows[rows.any(axis=1)]
    if not len(rows):
        raise ValueError("nothing but zeros for an input")
    return rows
