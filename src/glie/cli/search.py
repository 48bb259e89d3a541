"""The verb that answers questions."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import rich.padding
import rich.text
import typer

import glie
from glie.cli.shared import IndexPath, Json, MadeWith, encoder_of
from glie.errors import GlieError, InputError
from glie.terminal import output, print_json, size
from glie.wording import count


def search(
    index_path: IndexPath,
    words: Annotated[list[str], typer.Argument(metavar="QUESTION", help="What you want to know.")],
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
    encoder: MadeWith = None,
    as_json: Json = False,
) -> None:
    """Find the pages that answer a question."""
    from glie.ingest import pages_of

    index = glie.Index.open(index_path)
    question = " ".join(words)
    if not question.strip():
        raise InputError("the question is empty")
    ids = pages_of(index, document) if document else None
    began = time.perf_counter()
    if len(index):
        vectors = encoder_of(index, encoder).encode_queries([question])
        encoded = time.perf_counter()
        hits = index.search(vectors, top=top, shortlist=shortlist, ids=ids, exact=exact)[0]
    else:
        encoded = began
        hits = glie.Hits([], [], [], glie.Cost(0, 0, 0, 0.0))
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
                "index": str(index_path),
                "query": question,
                "hits": shown,
                "cost": {**dataclasses.asdict(hits.cost), "encode_seconds": encoded - began},
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
        f"{cost.seconds * 1000:.1f} ms; {encoded - began:.1f} s to load the encoder",
        style="dim",
    )


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
