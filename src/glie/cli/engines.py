"""The verb that exports an index to a vector database."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Annotated, Any

import typer

import glie
from glie.cli import fail
from glie.cli.shared import (
    ENGINE_NAMES,
    ApiKey,
    CollectionName,
    IndexPath,
    Json,
    Location,
    connected,
)
from glie.cli.terminal import print_json, status_line
from glie.engines.base import LAYOUTS
from glie.errors import InputError
from glie.wording import count


def export(
    index_path: IndexPath,
    to: Annotated[str, typer.Option("--to", metavar="ENGINE", help=f"{ENGINE_NAMES}.")],
    location: Location = None,
    collection: CollectionName = None,
    api_key: ApiKey = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of the engine for a new collection: shard_number=6, "
            "replication_factor=2, on_disk=true, datatype=float16; nested settings in JSON. "
            "Repeat it for several.",
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(LAYOUTS),
            help="How a new collection stores pages: codes as bytes and one small vector, or the "
            "vectors too, which the engine scores by itself.",
            show_default="compact",
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete pages of the collection that the index lacks.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Export an index to Qdrant, LanceDB or PostgreSQL; `glie search --engine` searches it there.

    glie export reports.glie --to qdrant --url http://localhost:6333 --setting shard_number=6

    glie export reports.glie --to lancedb --url s3://bucket/pages

    glie export reports.glie --to postgres --url postgresql://user@host/database

    Run it again to continue after an interruption, or to export what is new or has changed.
    Pictures stay in the index.
    """
    from glie.engines import export as store

    index = glie.Index.open(index_path)
    settings = dict(_setting(text) for text in setting or [])
    name = collection or index.path.stem
    engine = connected(to, location, name, api_key)
    began = time.perf_counter()
    try:
        with status_line(f"exporting to {engine.place}") as say:
            pages, report = store(
                index,
                engine,
                layout=layout,
                settings=settings,
                prune=prune,
                progress=say,
            )
        total = len(pages)
    except KeyboardInterrupt:
        fail("interrupted; the pages stored so far stay; run it again to go on", 130)
    finally:
        engine.close()
    seconds = time.perf_counter() - began
    if as_json:
        where = {"engine": to, "url": location, "collection": name}
        counts = {**dataclasses.asdict(report), "pages": total, "seconds": seconds}
        print_json({"index": str(index_path), **where, **counts})
        return
    parts = [f"{count(report.pages_uploaded, 'page')} stored"]
    if report.pages_unchanged:
        parts.append(f"{report.pages_unchanged:,} unchanged")
    if report.pages_deleted:
        parts.append(f"{report.pages_deleted:,} deleted")
    print(f"{', '.join(parts)} in {seconds:.1f} s: {engine.place} holds {count(total, 'page')}")


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--setting: expected NAME=VALUE, found {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
