"""Engines: vector databases that store pages when one machine is not enough.

    place = engines.connect("qdrant", "http://localhost:6333", "reports")
    reports, _ = engines.export(index, place)
    hits = reports.search(queries, top=10)

An engine is a class with the methods of `base.Engine`. To add one, write the class and list it in
ENGINES; every engine passes the same tests.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from glie.engines.base import Engine
from glie.engines.collection import Collection
from glie.engines.exporting import Exported, export
from glie.errors import InputError

ENGINES = {  # name: module and class
    "qdrant": ("qdrant", "Qdrant"),
    "qdrant-edge": ("qdrant_edge", "QdrantEdge"),
    "lancedb": ("lancedb", "LanceDB"),
    "postgres": ("postgres", "Postgres"),
}

__all__ = ["ENGINES", "Collection", "Engine", "Exported", "connect", "export", "open"]


def connect(
    engine: str, location: str | os.PathLike[str], collection: str, **options: Any
) -> Engine:
    """Connect to a place for a collection: in "qdrant" (a URL, a folder, or ":memory:"),
    "qdrant-edge" (a folder), "lancedb" (a folder, or the URL of a bucket) or "postgres" (a URL).
    `options` go to the engine's own client: api_key, timeout, storage_options, ..."""
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is unknown; expected one of {', '.join(ENGINES)}")
    if not isinstance(collection, str) or not collection.strip():
        raise InputError(f"collection: expected a name, found {collection!r}")
    module, name = ENGINES[engine]
    made = getattr(importlib.import_module(f"glie.engines.{module}"), name)
    connected: Engine = made(os.fspath(location), collection, **options)
    return connected


def open(  # glie.engines.open(...)
    engine: str, location: str | os.PathLike[str], collection: str, **options: Any
) -> Collection:
    """Open an existing collection; the arguments are those of `connect`."""
    return Collection.open(connect(engine, location, collection, **options))
