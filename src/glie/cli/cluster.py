"""The verbs that work on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import glie
from glie.cli.index import (
    BytesPerPage,
    CodecName,
    Documents,
    Dtype,
    EncoderName,
    K,
    KeepImages,
    Language,
    Ocr,
    TextOf,
    run,
)
from glie.cli.shared import (
    ENGINE_NAMES,
    ENGINE_PANEL,
    ApiKey,
    CollectionName,
    Json,
    Location,
    connected,
)
from glie.cli.terminal import status_line
from glie.errors import InputError

if TYPE_CHECKING:
    from glie.engines import Collection


def index(
    documents: Documents,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="INDEX", help="The index folder.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="How many run at once.", show_default="one for each core"),
    ] = None,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs for each worker.")] = 0,
    shards: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where workers write: a folder that all machines see.",
            show_default="INDEX.shards",
        ),
    ] = None,
    bytes_per_page: BytesPerPage = None,
    encoder: EncoderName = None,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    text: TextOf = "auto",
    language: Language = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help=f"Store the pages in {ENGINE_NAMES}, instead of --to.",
            rich_help_panel=ENGINE_PANEL,
        ),
    ] = None,
    location: Location = None,
    collection: CollectionName = None,
    api_key: ApiKey = None,
    k: K = None,
    dtype: Dtype = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Index documents on a Ray cluster, into an index or straight into a vector database.

    The cluster is the one that RAY_ADDRESS names; without it, one is started on this machine.
    All machines must see the documents. Run it again to add what is new or has changed.

    glie cluster index reports/ --to reports.glie --workers 8

    glie cluster index reports/ --engine qdrant --url http://localhost:6333 --collection reports
    """
    from glie.distributed.ingest import ingest_on_ray, open_or_create_collection
    from glie.indexing import CodecChoice, open_or_create
    from glie.ingest import Reading

    if (to is None) == (engine is None):
        raise typer.BadParameter("Missing option '--to' (or --engine): give one of them.")
    choice = CodecChoice(bytes_per_page, k, dtype, codec)
    Reading(text=text)  # refused before a folder is created
    if engine is not None and (text, language) != ("auto", None):
        raise InputError("--text, --language: an engine holds no words; leave them out")
    place = shards or Path(f"{to or collection}.shards")
    target: glie.Index | Collection
    fresh = to is not None and not to.exists()
    if to is not None:
        with status_line("loading the encoder"):
            target, reader = open_or_create(to, documents, encoder, choice, language=language)
    elif collection is None:
        raise InputError("--collection: name the collection to store the pages in")
    else:
        there = connected(str(engine), location, collection, api_key)
        with status_line("loading the encoder"):
            target, reader = open_or_create_collection(
                there, documents, encoder, choice, shards=place, ocr=ocr
            )
    try:
        run(
            target,
            lambda show: ingest_on_ray(
                target,
                reader,
                documents,
                shards=place,
                workers=workers,
                gpus=gpus,
                keep_images=keep_images,
                ocr=ocr,
                text=text,
                progress=show,
            ),
            as_json,
            fresh=fresh,
        )
    finally:
        if not isinstance(target, glie.Index):
            target.close()
