"""Options and helpers that several verbs share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glie.cli.terminal import errors, status_line
from glie.engines import ENGINES
from glie.errors import InputError

if TYPE_CHECKING:
    from glie.encoders import Encoder
    from glie.engines import Engine
    from glie.evaluation import Dataset, Encoded

ENGINE_PANEL = "Vector database"
RARE = "Rarely needed"
ENGINE_NAMES = " or ".join([", ".join([*ENGINES][:-1]), [*ENGINES][-1]])

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The index folder.")]
Datasets = Annotated[
    list[str],
    typer.Argument(
        metavar="DATASET",
        help="Folders in the BEIR format (corpus.jsonl, queries.jsonl, qrels/test.tsv), folders of "
        "cached vectors, or names of ViDoRe sets on the Hub. A folder of sets stands for all of "
        "them.",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="GLIE_CACHE",
        help="Keep the vectors in this folder, and read them in the next run.",
        show_default="not kept",
        rich_help_panel=RARE,
    ),
]
MadeWith = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="Where the encoder of the index is now, if it has moved.",
        show_default="where it was",
        rich_help_panel=RARE,
    ),
]
Location = Annotated[
    str | None,
    typer.Option(
        "--url",
        "--uri",
        "--path",
        metavar="WHERE",
        help="Address of the engine: http://host:6333 for qdrant, a folder for qdrant-edge, a "
        "folder or s3://bucket/folder for lancedb, postgresql://user@host/database for postgres.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
CollectionName = Annotated[
    str | None,
    typer.Option(
        "--collection",
        "--table",
        metavar="NAME",
        help="Name of the collection or table.",
        show_default="the name of the index",
        rich_help_panel=ENGINE_PANEL,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Key of the engine, or password of postgres; better set QDRANT_API_KEY, "
        "LANCEDB_API_KEY or PGPASSWORD.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def numbers(text: str, option: str, least: int, example: str = "2,4,8") -> list[int]:
    """Parse a list like the example, which an error shows; drop repetitions."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option}: expected numbers like {example}, found {text!r}") from None
    if min(found) < least:
        raise InputError(f"{option}: expected numbers of at least {least}, found {text!r}")
    return list(dict.fromkeys(found))


def names(text: str | None, option: str, known: Sequence[str]) -> list[str]:
    """Parse a list of known names; `all` stands for every one."""
    if text == "all":
        return list(known)
    found = [name.strip() for name in text.split(",")] if text else []
    for name in found:
        if name not in known:
            raise InputError(
                f"{option}: {name!r} is unknown; expected all, or some of {', '.join(known)}"
            )
    return found


def load_encoder(name: str | None) -> Encoder:
    from glie.encoders import load_encoder as load

    with status_line("loading the encoder"):
        return load(name)


def connected(engine: str, location: str | None, collection: str, api_key: str | None) -> Engine:
    """Connect to the engine that the options name."""
    from glie.engines import connect

    if location is None and engine in ENGINES:
        raise InputError(f"--url: give the address of {engine}")
    options = {} if api_key is None else {"api_key": api_key}
    return connect(engine, location or "", collection, **options)


def encode_sets(
    loaded: Sequence[Dataset | Encoded], encoder: str | None, cache: Path | None
) -> list[Encoded]:
    """Encode sets, and print what is left out. Sets of cached vectors need no encoder."""
    from glie.evaluation import Encoded, encode

    for dataset in loaded:
        say_left_out(dataset.name, dataset.warnings)
    engine = None
    if encoder is not None or not all(isinstance(dataset, Encoded) for dataset in loaded):
        engine = load_encoder(encoder)
    sets = []
    for dataset in loaded:
        with status_line(dataset.name) as say:
            sets.append(encode(dataset, engine, cache, say))
        say_left_out(dataset.name, sets[-1].warnings[len(dataset.warnings) :])
    return sets


def say_left_out(name: str, warnings: Sequence[str]) -> None:
    for line in warnings:
        errors.print(f"{name}: {line}", style="yellow", soft_wrap=True)
