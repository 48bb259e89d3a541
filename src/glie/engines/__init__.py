"""Engines: vector databases that hold the pages of an index when one machine is not enough.

    place = engines.connect("qdrant", "http://localhost:6333", "reports")
    reports, _ = engines.export(index, place)
    hits = reports.search(queries, top=10)

An engine is a class with the methods of `base.Engine`; it joins by being added to ENGINES.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from glie.engines.base import Engine
from glie.engines.collection import Collection
from glie.engines.exporting import Exported, export
from glie.errors import InputError

ENGINES = {  # by name: its module here, and its class
    "qdrant": ("qdrant", "Qdrant"),
    "qdrant-edge": ("qdrant_edge", "QdrantEdge"),
    "lancedb": ("lancedb", "LanceDB"),
}

__all__ = ["ENGINES", "Collection", "Engine", "Exported", "connect", "export", "open"]


def connect(
    engine: str, location: str | os.PathLike[str], collection: str, **options: Any
) -> Engine:
    """The place of a collection: in "qdrant" (an address, a folder, or ":memory:"), "qdrant-edge"
    (a folder) or "lancedb" (a folder, or the address of a bucket). The options are those of its
    library's own client, such as api_key, timeout or storage_options."""
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is unknown; expected one of {', '.join(ENGINES)}")
    if not isinstance(collection, str) or not collection.strip():
        raise InputError(f"collection: expected a name, found {collection!r}")
    module, name = ENGINES[engine]
    made = getattr(importlib.import_module(f"glie.engines.{module}"), name)
    connected: Engine = made(os.fspath(location), collection, **options)
    return connected


def open(  # as one reads it: glie.engines.open(...)
    engine: str, location: str | os.PathLike[str], collection: str, **options: Any
) -> Collection:
    """A collection that is there, to be searched and changed; `connect` says what to give."""
    return Collection.open(connect(engine, location, collection, **options))
