"""The verb that answers questions."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.padding
import rich.text
import typer

import glie
from glie.cli.shared import ApiKey, CollectionName, Json, Location, connected, encoder_of
from glie.errors import GlieError, InputError
from glie.terminal import output, print_json, size
from glie.wording import count

if TYPE_CHECKING:
    from glie.engines import Collection


def search(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="INDEX QUESTION",
            help="An index folder, which goes without saying with --engine, and what you want to "
            "know.",
        ),
    ],
    top: Annotated[int, typer.Option(help="How many pages to show.")] = 10,
    shortlist: Annotated[
        int | None,
        typer.Option(
            help="Pages to regenerate and score again; 0 ranks by the stored codes.",
            show_default="20 with a decoder, 200 with a codebook",
        ),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option(help="Only pages of this document or folder; may be given several times."),
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--candidates",
            help="Score every page, or only those that the index's finder names.",
            show_default="candidates in a large index",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="Ask the pages that `glie export` stored: qdrant, qdrant-edge or lancedb.",
        ),
    ] = None,
    location: Location = None,
    collection: CollectionName = None,
    api_key: ApiKey = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            help="Pages that the engine scores by their codes, those whose means are nearest.",
            show_default="1,000 and more of a large collection, all of a small one",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the pages that answer a question.

    glie search reports.glie "capital expenditure in 2018"

    glie search --engine qdrant --url http://localhost:6333 --collection reports "expenditure"
    """
    is_index = engine is None or (Path(arguments[0]) / "manifest.json").exists()
    words = arguments[1:] if is_index else arguments
    if not words:
        raise typer.BadParameter("Missing argument 'QUESTION'.")
    question = " ".join(words)
    if not question.strip():
        raise InputError("the question is empty")
    options: dict[str, Any] = {"top": top, "shortlist": shortlist, "exact": exact}
    if engine is None:
        from glie.ingest import pages_of

        if (location, collection, api_key, prefetch) != (None, None, None, None):
            raise InputError("--url, --collection, --api-key, --prefetch: they go with --engine")
        place, index = arguments[0], glie.Index.open(arguments[0])
        ids = pages_of(index, document) if document else None
        hits, encoding = _ask(index, question, ids=ids, **options)
    else:
        if collection is None and not is_index:
            raise InputError("--collection: what the pages are called there was not given")
        called = collection or Path(arguments[0]).absolute().stem
        with glie.engines.Collection.open(connected(engine, location, called, api_key)) as pages:
            place, where = pages.path, {"document": document} if document else None
            hits, encoding = _ask(pages, question, where=where, prefetch=prefetch, **options)
    shown: list[dict[str, Any]] = [
        {
            "rank": rank,
            "id": page_id,
            "score": round(score, 6),
            "document": metadata.get("document"),
            "page": metadata.get("page"),
            "path": metadata.get("path"),
            "snippet": _snippet(metadata, question),
            "metadata": metadata,
        }
        for rank, (page_id, score, metadata) in enumerate(
            zip(hits.ids, hits.scores, hits.metadata, strict=True), start=1
        )
    ]
    if as_json:
        print_json(
            {
                "index": place,
                "query": question,
                "hits": shown,
                "cost": {**dataclasses.asdict(hits.cost), "encode_seconds": encoding},
            }
        )
        return
    if not shown:
        print("no pages: the index is empty")
        return
    from glie.snippet import matches, printable

    for hit in shown:
        name = (printable(hit["id"]), "cyan")
        output.print(rich.text.Text.assemble(f"{hit['rank']:3}  {hit['score']:6.2f}  ", name))
        text = rich.text.Text(hit["snippet"])
        for start, end in matches(hit["snippet"], question):
            text.stylize("bold", start, end)
        text = text or rich.text.Text(_why_no_text(hit["metadata"]), style="dim")
        output.print(rich.padding.Padding(text, (0, 0, 0, 13), expand=False))
    cost = hits.cost
    again = f"{cost.pages_regenerated:,} regenerated, " if cost.pages_regenerated else ""
    scanned = count(cost.pages_scanned, "page")
    if cost.pages_estimated:
        scanned += f" of {cost.pages_estimated:,} estimated"
    output.print(
        f"{scanned} scanned, {again}{size(cost.bytes_read)} read, "
        f"{cost.seconds * 1000:.1f} ms; {encoding:.1f} s to load the encoder",
        style="dim",
    )


def _ask(pages: glie.Index | Collection, question: str, **options: Any) -> tuple[glie.Hits, float]:
    """The answer, and the seconds that it took to encode the question."""
    if not len(pages):
        return glie.Hits([], [], [], glie.Cost(0, 0, 0, 0.0)), 0.0
    began = time.perf_counter()
    vectors = encoder_of(pages, None).encode_queries([question])
    encoded = time.perf_counter()
    return pages.search(vectors, **options)[0], encoded - began


def _snippet(metadata: dict[str, Any], question: str) -> str:
    """Where the page answers, read from its file; empty when that is gone or is a picture."""
    from glie.documents import page_text
    from glie.snippet import best_snippet

    try:
        return best_snippet(page_text(Path(metadata["path"]), metadata["page"]), question)
    except (KeyError, TypeError, IndexError, OSError, GlieError):
        return ""


def _why_no_text(metadata: dict[str, Any]) -> str:
    if metadata.get("origin") == "ocr":
        return "(a scanned page, read by OCR)"
    path = metadata.get("path")
    return f"(its file is gone: {path})" if path and not Path(path).exists() else "(no text)"
