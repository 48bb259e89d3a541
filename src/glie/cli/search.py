"""The verb that searches an index or a collection."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated, Any

import rich.style
import rich.table
import rich.text
import typer

import glie
from glie.cli.shared import (
    ENGINE_PANEL,
    ApiKey,
    CollectionName,
    Json,
    Location,
    MadeWith,
    connected,
)
from glie.cli.show_index import size
from glie.cli.terminal import output, print_json, status_line
from glie.errors import InputError, MissingExtraError
from glie.wording import count, printable


def search(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="INDEX QUESTION",
            help="The index folder (not needed with --engine), and the question.",
        ),
    ],
    top: Annotated[int, typer.Option(help="How many pages to show.")] = 10,
    shortlist: Annotated[
        int | None,
        typer.Option(
            help="Pages to rerank with regenerated vectors; 0 ranks by the codes alone.",
            show_default="20 with a decoder, 200 with a codebook",
        ),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option(help="Only pages of this document or folder. Repeat it for several."),
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--candidates",
            help="Score every page, or only candidates.",
            show_default="candidates in a large index",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="Search pages in qdrant, qdrant-edge or lancedb (see `glie export`).",
            rich_help_panel=ENGINE_PANEL,
        ),
    ] = None,
    location: Location = None,
    collection: CollectionName = None,
    api_key: ApiKey = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            help="Pages that the engine scores by their codes: those with the nearest means.",
            show_default="all of a small collection, 1,000 or more of a large one",
            rich_help_panel=ENGINE_PANEL,
        ),
    ] = None,
    encoder: MadeWith = None,
    as_json: Json = False,
) -> None:
    """Find the pages that answer a question.

    glie search reports.glie "capital expenditure in 2018"

    glie search --engine qdrant --url http://localhost:6333 --collection reports "expenditure"
    """
    from glie.documents.original import why_no_text
    from glie.documents.snippet import matches
    from glie.retriever import Retriever

    is_index = engine is None or (Path(arguments[0]) / "manifest.json").exists()
    words = arguments[1:] if is_index else arguments
    if not words:
        raise typer.BadParameter("Missing argument 'QUESTION'.")
    question = " ".join(words)
    options: dict[str, Any] = {"shortlist": shortlist, "exact": exact}
    with contextlib.ExitStack() as stack:
        if engine is None:
            if (location, collection, api_key, prefetch) != (None, None, None, None):
                raise InputError(
                    "--url, --collection, --api-key, --prefetch: they go with --engine"
                )
            place, retriever = arguments[0], Retriever(arguments[0], encoder)
            options["documents"] = document or None
        else:
            if collection is None and not is_index:
                raise InputError("--collection: name the collection to search")
            called = collection or Path(arguments[0]).absolute().stem
            pages_there = stack.enter_context(
                glie.engines.Collection.open(connected(engine, location, called, api_key))
            )
            place, retriever = pages_there.path, Retriever(pages_there, encoder)
            options |= {"where": {"document": document} if document else None, "prefetch": prefetch}
        with status_line("searching"):  # this also loads the encoder
            hits = retriever.search(question, top, **options)
    cost = hits.cost
    shown: list[dict[str, Any]] = [
        {
            "rank": rank,
            "id": page.id,
            "score": round(page.score, 6),
            "document": page.metadata.get("document"),
            "page": page.metadata.get("page"),
            "path": page.metadata.get("path"),
            "snippet": _snippet(page.metadata, question),
            "metadata": page.metadata,
        }
        for rank, page in enumerate(hits, start=1)
    ]
    if as_json:
        print_json(
            {
                "index": place,
                "query": question,
                "hits": shown,
                "cost": dataclasses.asdict(cost),
            }
        )
        return
    if not shown:
        print("no pages: the index is empty")
        return
    table = rich.table.Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=3)
    table.add_column(justify="right", min_width=6)
    table.add_column(overflow="fold")
    for hit in shown:
        text = rich.text.Text(hit["snippet"])
        for start, end in matches(hit["snippet"], question):
            text.stylize("bold", start, end)
        text = text or rich.text.Text(f"({why_no_text(hit['metadata'])})", style="dim")
        lines = [rich.text.Text(printable(hit["id"]), style="cyan"), text]
        if isinstance(hit["path"], str):
            link = Path(hit["path"]).absolute().as_uri()  # many terminals open it with a click
            style = rich.style.Style(dim=True, link=link)
            lines.append(rich.text.Text(printable(hit["path"]), style=style))
        table.add_row(str(hit["rank"]), f"{hit['score']:.2f}", rich.text.Text("\n").join(lines))
    output.print(table)
    again = f"{cost.pages_regenerated:,} regenerated, " if cost.pages_regenerated else ""
    scanned = count(cost.pages_scanned, "page")
    if cost.pages_estimated:
        scanned += f" of {cost.pages_estimated:,} estimated"
    output.print(
        f"{scanned} scanned, {again}{size(cost.bytes_read)} read, "
        f"{cost.seconds * 1000:.1f} ms; {cost.encode_seconds:.1f} s to load the encoder",
        style="dim",
    )


def _snippet(metadata: dict[str, Any], question: str) -> str:
    """The snippet of a hit; empty where an extra is missing to read its file."""
    from glie.documents.original import original_text
    from glie.documents.snippet import best_snippet

    try:
        return best_snippet(original_text(metadata), question)
    except MissingExtraError:
        return ""
