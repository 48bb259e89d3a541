"""The verb that searches an index or a collection."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.style
import rich.table
import rich.text
import typer

import glie
from glie.cli import MISTYPED, fail
from glie.cli.shared import (
    ENGINE_NAMES,
    ENGINE_PANEL,
    RARE,
    ApiKey,
    CollectionName,
    Json,
    Location,
    MadeWith,
    connected,
)
from glie.cli.show_index import size
from glie.cli.terminal import errors, output, print_json, status_line
from glie.errors import InputError, MissingExtraError
from glie.wording import count, printable

if TYPE_CHECKING:
    from glie.lexical.snippet import Asked
    from glie.retriever import Retriever
    from glie.running import Encoding
    from glie.search.results import Cost, Hits


SCANS_READ = 3  # hits whose scans are read again, for a snippet


def search(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INDEX QUESTION",
            help="The index folder (not needed with --engine), and the question; without one, a "
            "prompt.",
        ),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ask with a picture in place of a question: find pages like it. An encoder that "
            "reads text gets what OCR reads.",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="PAGE",
            help="Find pages like this one of the index (report.pdf#3), by what is stored of it; "
            "no encoder is loaded.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many pages to show.")] = 10,
    shortlist: Annotated[
        int | None,
        typer.Option(
            help="Pages to rerank with regenerated vectors; 0 ranks by the codes alone.",
            show_default="20 with a decoder, 200 with a codebook; more above 10,000 pages",
            rich_help_panel=RARE,
        ),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only pages of this document or folder. Repeat it for several. With --engine, a "
            "document's name.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILTER",
            help="Only pages whose metadata matches, like 'year >= 2020 and lang in (en, de)': "
            "=, !=, <, <=, >, >=, ^= (begins with), in, exists, and, or, not. Repeat it for "
            "filters that must all match.",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="hybrid: words and meaning together; late: meaning alone (vectors); lexical: "
            "words alone, without the encoder.",
            show_default="hybrid, if the pages of the index were indexed with their text",
        ),
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--candidates",
            help="Score every page, or only candidates.",
            show_default="candidates in a large index",
            rich_help_panel=RARE,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help=f"Search pages in {ENGINE_NAMES} (see `glie export`).",
            rich_help_panel=ENGINE_PANEL,
        ),
    ] = None,
    location: Location = None,
    collection: CollectionName = None,
    api_key: ApiKey = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            help="Pages that are scored by their codes: those with the nearest means.",
            show_default="all of a small collection, 2,000 or more of a large one",
            rich_help_panel=ENGINE_PANEL,
        ),
    ] = None,
    encoder: MadeWith = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A `glie serve` of this index, which has the encoder loaded (its token: "
            "GLIE_TOKEN); none: load it here.",
            show_default="the one that runs on this machine, if any",
            rich_help_panel=RARE,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the pages that answer a question. "Quotes" in it ask for an exact word or phrase, and
    -word leaves out pages with that word. Without a question, ask several at a prompt: the encoder
    is loaded once.

    glie search reports.glie "capital expenditure in 2018"

    glie search reports.glie '"3M-2018-114" -draft'

    glie search reports.glie --image page.png

    glie search reports.glie --like annual/report.pdf#3

    glie search --engine qdrant --url http://localhost:6333 --collection reports "expenditure"
    """
    from glie.filters import all_of, from_json, parse
    from glie.retriever import Retriever, asked_of
    from glie.search.options import LATE, LEXICAL

    words = arguments or []
    if engine is None and not words:
        fail("Missing argument 'INDEX QUESTION'.", MISTYPED)
    words = _index_first(words) if engine is None else words
    has_index = bool(words) and (engine is None or _is_index(words[0]))
    place, words = (words[0], words[1:]) if has_index else ("", words)
    question = " ".join(words)
    given = {"QUESTION": words, "--image": image, "--like": like}
    asked = [name for name, value in given.items() if value]
    if len(asked) > 1:
        fail(f"{' and '.join(asked)}: give one of them.", MISTYPED)
    if not asked and (as_json or not sys.stdin.isatty()):
        fail("Missing argument 'QUESTION'.", MISTYPED)
    options: dict[str, Any] = {"shortlist": shortlist, "exact": exact, "like": like, "image": image}
    filters = [parse(text) for text in where or []]
    pages: str | glie.engines.Collection
    with contextlib.ExitStack() as stack:
        if engine is None:
            if (location, collection, api_key, prefetch) != (None, None, None, None):
                raise InputError("--url, --collection, --api-key, --prefetch: these need --engine")
            pages = place
            options["documents"] = document or None
            options["mode"] = mode
        else:
            if mode not in (None, LATE):
                raise InputError(f"--mode {mode}: an engine holds no words; leave it out")
            if collection is None and not has_index:
                raise InputError("--collection: name the collection to search")
            name = collection or Path(place).absolute().stem
            there = connected(engine, location, name, api_key)
            pages = stack.enter_context(glie.engines.Collection.open(there))
            place = pages.path
            # the engine filters by name; resolving folders would read every record
            if document:
                filters.append(from_json({"document": document}))
            options["prefetch"] = prefetch
        options["where"] = all_of(filters)
        retriever = Retriever(pages, encoder)
        encoding = None
        if engine is None and encoder is None and not (image or like) and mode != LEXICAL:
            encoding = _encoding(Path(place), retriever, server)
            retriever = Retriever(pages, encoding) if encoding else retriever
        if not asked:
            from glie.cli.prompt import Prompt

            for name in ("where", "like", "image"):
                options.pop(name)
            Prompt(retriever, top, filters, options).loop()
            return
        with status_line("searching"):  # this also loads the encoder
            hits = retriever.search(question, top, **options)
        held, marks = len(retriever.index), asked_of(retriever.index, question)
    rows = rows_of(hits, marks, lambda text: retriever.nearest(question, text) if words else "")
    if as_json:
        cost = dataclasses.asdict(hits.cost)
        instead = {"image": str(image)} if image else {"like": like}
        given = {"query": question} if words else {"query": None, **instead}
        told = {} if hits.strength is None else {"weak": hits.weak, "language": hits.language}
        by = encoding.answered if encoding else None
        print_json({"index": place, **given, "hits": rows, **told, "cost": cost, "server": by})
    elif rows:
        print_doubts(hits)
        print_rows(rows, marks)
        print_cost(hits.cost)
        if encoding and encoding.answered:
            output.print(f"the server at {encoding.answered} encoded the question", style="dim")
    else:
        print("no page matches" if held else "no pages: the index is empty")


def _encoding(index: Path, retriever: Retriever, server: str | None) -> Encoding | None:
    """What encodes questions in place of an encoder that is loaded here: the server at this
    address, or one that runs for the index."""
    from glie.running import Encoding, Server, running

    if server is None:
        found = running(index)
        return None if found is None else Encoding(found, retriever.index, retriever.encode)
    if server == "none":
        return None
    return Encoding(Server(server, os.environ.get("GLIE_TOKEN")), retriever.index)


def _is_index(place: str) -> bool:
    """Whether this is the folder of an index or, where there is none, of shards."""
    return any((Path(place) / name).exists() for name in ("manifest.json", "shards.json"))


def _index_first(arguments: list[str]) -> list[str]:
    """The arguments with the index in front, where only the last of them is one."""
    first, last = _is_index(arguments[0]), _is_index(arguments[-1])
    if first or not last:
        return arguments
    errors.print(f"{arguments[-1]} is the index: it goes before the question", soft_wrap=True)
    return [arguments[-1], *arguments[:-1]]


def rows_of(
    hits: Hits, marks: Asked, nearest: Callable[[str], str] = lambda text: ""
) -> list[dict[str, Any]]:
    """The hits as JSON shows them. `nearest` finds the passage of a text that is nearest by
    meaning, where it has no word of the question. OCR, which takes a second or more, reads the
    first few scans again."""
    scans = [row for row, hit in enumerate(hits) if hit.metadata.get("origin") == "ocr"]
    read = scans[:SCANS_READ]
    strength = hits.strength
    return [
        {
            "rank": rank,
            "id": hit.id,
            "score": round(hit.score, 6),
            **{name: round(part[rank - 1], 6) for name, part in hits.parts.items()},
            **({} if strength is None else {"strength": round(strength[rank - 1], 3)}),
            "document": hit.metadata.get("document"),
            "page": hit.metadata.get("page"),
            "path": hit.metadata.get("path"),
            "snippet": _snippet(hit.metadata, marks, nearest, ocr=rank - 1 in read),
            "metadata": hit.metadata,
        }
        for rank, hit in enumerate(hits, start=1)
    ]


def print_rows(rows: Sequence[dict[str, Any]], marks: Asked) -> None:
    from glie.documents.original import page_address, why_no_text
    from glie.lexical.snippet import matches

    table = rich.table.Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=3)
    table.add_column(justify="right", min_width=6)
    table.add_column(overflow="fold")
    for row in rows:
        text = rich.text.Text(row["snippet"])
        for start, end in matches(row["snippet"], *marks):
            text.stylize("bold", start, end)
        text = text or rich.text.Text(f"({why_no_text(row['metadata'])})", style="dim")
        lines = [rich.text.Text(printable(row["id"]), style="cyan"), text]
        if isinstance(row["path"], str):
            link = page_address(row["path"], row["page"])  # many terminals open it with a click
            style = rich.style.Style(dim=True, link=link)
            lines.append(rich.text.Text(printable(row["path"]), style=style))
        score = rich.text.Text(f"{row['score']:.2f}")
        if row.get("strength", 1) < 1:
            score.append("\nweak", style="yellow")
        if "words" in row:  # how much of it the words are
            share = row["words"] / row["score"] if row["score"] > 0 else 0
            score.append(f"\n{min(max(share, 0), 1):.0%} words", style="dim")
        table.add_row(str(row["rank"]), score, rich.text.Text("\n").join(lines))
    output.print(table)


def print_doubts(hits: Hits) -> None:
    """Say that nothing matches well, and that the encoder does not read the question's language."""
    if hits.language is not None:
        said = f"this looks like {hits.language}; the encoder of this index reads English"
        errors.print(said, style="yellow", soft_wrap=True)
    if hits.weak:
        said = "nothing here matches well: questions about other things reach as much"
        errors.print(said, style="yellow", soft_wrap=True)


def print_cost(cost: Cost) -> None:
    if cost.missing:
        few = count(len(cost.missing), "shard")
        said = f"{few} did not answer in time: {', '.join(cost.missing)}; their pages are missing"
        errors.print(said, style="yellow", soft_wrap=True)
    scanned = count(cost.pages_scanned, "page")
    if cost.pages_estimated:
        scanned += f" of {cost.pages_estimated:,} estimated"
    again = f"{cost.pages_regenerated:,} regenerated, " if cost.pages_regenerated else ""
    waited = cost.encode_seconds  # with a loaded encoder, hardly any
    loaded = f"; {waited:.1f} s to load the encoder" if waited >= 0.1 else ""
    output.print(
        f"{scanned} scanned, {again}{size(cost.bytes_read)} read, "
        f"{cost.seconds * 1000:.1f} ms{loaded}",
        style="dim",
    )


def _snippet(
    metadata: dict[str, Any], marks: Asked, nearest: Callable[[str], str], *, ocr: bool
) -> str:
    """The snippet of a hit; empty where an extra is missing to read its file."""
    from glie.documents.original import original_text
    from glie.lexical.snippet import best_snippet, matches

    try:
        text = original_text(metadata, ocr=ocr)
        snippet = best_snippet(text, *marks)
        found = bool(matches(snippet, *marks)) or not snippet
        return snippet if found else nearest(text) or snippet
    except MissingExtraError:
        return ""
