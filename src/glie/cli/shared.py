"""What several verbs take, and do with what they took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import glie
from glie.cli.terminal import errors, status_line
from glie.errors import InputError

if TYPE_CHECKING:
    from glie.encoders import Encoder
    from glie.engines import Engine
    from glie.evaluation import Dataset, Encoded
    from glie.identity import EncodedPages

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="An index folder.")]
Datasets = Annotated[
    list[str],
    typer.Argument(
        metavar="DATASET",
        help="Folders with corpus.jsonl, queries.jsonl and qrels/test.tsv (the BEIR shape), "
        "folders of cached vectors, or ViDoRe sets by their name on the Hub.",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="GLIE_CACHE",
        help="Keep the vectors in a folder there; the next run reads them.",
        show_default="none is kept",
    ),
]
MadeWith = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="Where the encoder that made the index lies now; another one is refused.",
        show_default="where it lay then",
    ),
]
Location = Annotated[
    str | None,
    typer.Option(
        "--url",
        "--uri",
        "--path",
        metavar="WHERE",
        help="Where the engine is: http://host:6333 for qdrant, a folder for qdrant-edge, a folder "
        "or s3://bucket/folder for lancedb.",
    ),
]
CollectionName = Annotated[
    str | None,
    typer.Option(
        "--collection",
        "--table",
        metavar="NAME",
        help="What the pages are called there.",
        show_default="the index's name",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="The engine's key; better in the variable QDRANT_API_KEY or LANCEDB_API_KEY.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def numbers(text: str, option: str, least: int) -> list[int]:
    """The numbers of a list like 2,4,8, each once."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option}: expected numbers like 2,4,8, found {text!r}") from None
    if min(found) < least:
        raise InputError(f"{option}: expected numbers of at least {least}, found {text!r}")
    return list(dict.fromkeys(found))


def words(text: str | None, option: str, known: Sequence[str]) -> list[str]:
    """The words of a list, each a known one; `all` stands for every one of them."""
    if text == "all":
        return list(known)
    found = [word.strip() for word in text.split(",")] if text else []
    for word in found:
        if word not in known:
            raise InputError(
                f"{option}: {word!r} is unknown; expected all, or some of {', '.join(known)}"
            )
    return found


def named_codec(name: str) -> glie.Codec:
    """The codec that an option names."""
    return glie.Codec() if name == "free" else glie.Codec.load(name)


def load_encoder(name: str | None) -> Encoder:
    from glie.encoders import load_encoder as load

    with status_line("loading the encoder"):
        return load(name)


def connected(engine: str, location: str | None, collection: str, api_key: str | None) -> Engine:
    """The engine that options name."""
    from glie.engines import connect

    if location is None:
        raise InputError(f"--url: where {engine} is was not given")
    options = {} if api_key is None else {"api_key": api_key}
    return connect(engine, location, collection, **options)


def encoder_of(index: EncodedPages, asked: str | None) -> Encoder:
    """The encoder that made the pages; another one is refused."""
    from glie.retriever import encoder_of as of

    with status_line("loading the encoder"):
        return of(index, asked)


def encode_sets(
    loaded: Sequence[Dataset | Encoded], encoder: str | None, cache: Path | None
) -> list[Encoded]:
    """Sets as vectors, with a word on what was left out; vectors need no encoder."""
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
