"""The verbs that work on a Ray cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import rich.table
import typer

import glie
from glie.cli import MISTYPED, fail
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
    OcrLang,
    TextOf,
    run,
)
from glie.cli.shared import (
    ENGINE_NAMES,
    ENGINE_PANEL,
    RARE,
    ApiKey,
    CollectionName,
    Json,
    Location,
    connected,
)
from glie.cli.terminal import output, print_json, status_line
from glie.errors import InputError
from glie.wording import count

if TYPE_CHECKING:
    from glie.distributed.service import ReplicaStatus

ShardsPath = Annotated[
    Path, typer.Argument(metavar="SHARDS", help="The folder of shards (see `--keep-shards`).")
]


def serve(
    shards: ShardsPath,
    replicas: Annotated[
        int, typer.Option(min=1, help="Of each shard, on different nodes where there are as many.")
    ] = 2,
    cpus: Annotated[
        float,
        typer.Option(
            min=0.001, help="CPUs that Ray reserves for a replica. A search uses all that are free."
        ),
    ] = 0.1,
    searches: Annotated[
        int, typer.Option(min=1, help="Searches at once in a replica.", rich_help_panel=RARE)
    ] = 2,
    waiting: Annotated[
        int,
        typer.Option(
            min=0,
            help="Searches that wait in a replica; further ones are refused at once.",
            rich_help_panel=RARE,
        ),
    ] = 16,
    as_json: Json = False,
) -> None:
    """Serve a folder of shards on a Ray cluster: the one that RAY_ADDRESS names, or the one that
    runs on this machine (`ray start --head`).

    It goes on until `glie cluster stop`. Searches and servers that are given the folder then ask
    the cluster. Run it again to change the number of replicas, or after an upgrade of glie: shard
    by shard, without a pause.

    glie cluster serve reports.shards --replicas 2

    glie search reports.shards "capital expenditure in 2018"
    """
    from glie.distributed import service
    from glie.distributed.shards import Shards

    found = Shards.read(shards)
    ray = service.named_cluster()
    with status_line("starting replicas") as say:
        serving = service.Serving(replicas, cpus, searches, waiting)
        service.serve(found, ray, serving, progress=say)
    _show_replicas(found.path, service.status(found, ray), as_json)


def status(shards: ShardsPath, as_json: Json = False) -> None:
    """Show the replicas of every shard: where they run, and what they have answered."""
    from glie.distributed import service
    from glie.distributed.shards import Shards

    found = Shards.read(shards)
    _show_replicas(found.path, service.status(found, service.named_cluster()), as_json)


def replace(
    shards: ShardsPath,
    shard: Annotated[str, typer.Argument(metavar="SHARD", help="The name of the shard: 0002.")],
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Its new version: an index in the folder of shards."),
    ],
    as_json: Json = False,
) -> None:
    """Replace a shard by a new version, without a pause: replicas open it beside the old one, then
    searches move to it. The old folder stays; remove it when it is no longer wanted.

    glie cluster replace reports.shards 0002 reports.shards/0002.new
    """
    from glie.distributed import service
    from glie.distributed.shards import Shards

    old = service.replace(Shards.read(shards), shard, folder)
    if as_json:
        print_json({"shard": shard, "folder": folder.name, "before": old.name})
    else:
        print(f"shard {shard} is {folder.name} now; {old.name} is no longer used")


def stop(shards: ShardsPath, as_json: Json = False) -> None:
    """Stop serving a folder of shards. The folder stays as it is."""
    from glie.distributed import service
    from glie.distributed.shards import Shards

    stopped = service.stop(Shards.read(shards), service.named_cluster())
    if as_json:
        print_json({"stopped": stopped})
    else:
        print(f"{count(stopped, 'replica')} stopped")


def _show_replicas(path: Path, rows: list[ReplicaStatus], as_json: bool) -> None:
    if as_json:
        replicas = [dataclasses.asdict(row) for row in rows]
        print_json({"shards": str(path), "replicas": replicas})
        return
    if not rows:
        print(f"{path}: not served; `glie cluster serve` does")
        return
    table = rich.table.Table("replica", "node", "state", "pages", "answered", "busy", box=None)
    for row in rows:
        numbers = f"{row.pages:,}", f"{row.answered:,}", f"{row.busy:,}"
        table.add_row(row.name, row.node[:8], row.state, *numbers)
    output.print(table)


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
            help="Where workers write what they have done: a folder that all machines see.",
            show_default="INDEX.shards",
        ),
    ] = None,
    keep_shards: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Make --to a folder of N shards, each an index, which `glie cluster serve` "
            "searches together, instead of one index.",
            show_default="one index; the shards that are there",
        ),
    ] = None,
    bytes_per_page: BytesPerPage = None,
    encoder: EncoderName = None,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    ocr_lang: OcrLang = None,
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

    glie cluster index reports/ --to reports.shards --keep-shards 4

    glie cluster index reports/ --engine qdrant --url http://localhost:6333 --collection reports
    """
    from glie.distributed.ingest import (
        Target,
        ingest_on_ray,
        open_or_create_collection,
        open_or_create_shards,
    )
    from glie.distributed.shards import is_sharded
    from glie.indexing import CodecChoice, open_or_create
    from glie.ingest import Reading

    if (to is None) == (engine is None):
        fail("Missing option '--to' (or --engine): give one of them.", MISTYPED)
    choice = CodecChoice(bytes_per_page, k, dtype, codec)
    reading = Reading(keep_images, ocr, text, ocr_lang)  # refused before a folder is created
    if engine is not None and (text, language) != ("auto", None):
        raise InputError("--text, --language: an engine holds no words; leave them out")
    if keep_shards is not None and to is None:
        raise InputError("--keep-shards: shards are kept in a folder: give --to")
    many = to is not None and (keep_shards is not None or is_sharded(to))
    place = shards or Path(f"{to or collection}.{'parts' if many else 'shards'}")
    target: Target
    fresh = to is not None and not to.exists()
    if to is not None and many:
        with status_line("loading the encoder"):
            target, reader = open_or_create_shards(
                to,
                keep_shards,
                documents,
                encoder,
                choice,
                reading=reading,
                language=language,
            )
    elif to is not None:
        with status_line("loading the encoder"):
            target, reader = open_or_create(to, documents, encoder, choice, language=language)
    elif collection is None:
        raise InputError("--collection: name the collection to store the pages in")
    else:
        there = connected(str(engine), location, collection, api_key)
        with status_line("loading the encoder"):
            target, reader = open_or_create_collection(
                there, documents, encoder, choice, shards=place, ocr=ocr, ocr_lang=ocr_lang
            )
    try:
        run(
            cast(Any, target),
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
                ocr_lang=ocr_lang,
                progress=show,
            ),
            as_json,
            fresh=fresh,
        )
    finally:
        if isinstance(target, glie.engines.Collection):
            target.close()
