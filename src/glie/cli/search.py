"""The verb that answers questions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.style
import rich.table
import rich.text
import typer

from glie.cli.shared import IndexPath, Json, MadeWith
from glie.errors import MissingExtraError
from glie.terminal import output, print_json, size, status_line
from glie.wording import count

if TYPE_CHECKING:
    from glie.asking import FoundPage


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
    from glie.asking import Asker, why_no_text
    from glie.snippet import matches, printable

    question = " ".join(words)
    with status_line("searching"):  # and loading the encoder, which takes longer
        pages, cost, encode_seconds = Asker(index_path, encoder).ask(
            question, top, shortlist=shortlist, documents=document or None, exact=exact
        )
    shown: list[dict[str, Any]] = [
        {
            "rank": rank,
            "id": page.id,
            "score": round(page.score, 6),
            "document": page.metadata.get("document"),
            "page": page.metadata.get("page"),
            "path": page.metadata.get("path"),
            "snippet": _snippet(page, question),
            "metadata": page.metadata,
        }
        for rank, page in enumerate(pages, start=1)
    ]
    if as_json:
        print_json(
            {
                "index": str(index_path),
                "query": question,
                "hits": shown,
                "cost": {**dataclasses.asdict(cost), "encode_seconds": encode_seconds},
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
            link = Path(hit["path"]).absolute().as_uri()  # which many terminals open by a click
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
        f"{cost.seconds * 1000:.1f} ms; {encode_seconds:.1f} s to load the encoder",
        style="dim",
    )


def _snippet(page: FoundPage, question: str) -> str:
    """Where the page answers; a hit is worth showing without, where its file cannot be read."""
    from glie.snippet import best_snippet

    try:
        return best_snippet(page.text(), question)
    except MissingExtraError:
        return ""
