"""The verbs that describe, change and check an index."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

import glie
from glie.cli.index import Inside, Ocr
from glie.cli.shared import IndexPath, Json
from glie.cli.show_index import (
    codec_line,
    print_health,
    print_info,
    print_repair,
    size,
)
from glie.cli.terminal import print_json, status_line
from glie.wording import count, listing

DAMAGED = 4  # the exit code of a check that found damage


def delete(
    index_path: IndexPath,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="DOCUMENTS",
            help="Documents or folders (by name or path), or single pages (report.pdf#3).",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Delete documents or pages from an index. `glie compact` then frees their space."""
    from glie.documents.known import pages_of
    from glie.retriever import open_index

    index = open_index(index_path)
    with index.writing():
        deleted = index.delete(pages_of(index, names))
    if as_json:
        print_json({"deleted": deleted, "pages": len(index)})
    else:
        print(f"{count(deleted, 'page')} deleted, {count(len(index), 'page')} left")


def compact(
    index_path: IndexPath,
    text: Annotated[
        bool,
        typer.Option(
            "--text",
            help="Make pages searchable by their words too, if they are not: read their text from "
            "the documents.",
        ),
    ] = False,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="Of these words: en, de, fr, ... or none. An index that has words keeps its own.",
            show_default="en with an English encoder, else none",
        ),
    ] = None,
    ocr: Ocr = True,
    inside: Inside = False,
    as_json: Json = False,
) -> None:
    """Rewrite an index without its deleted pages, to free their space.

    glie compact reports.glie --text
    """
    from glie.ingest import read_words

    if language is not None and not text:
        raise glie.InputError("--language is that of the words that --text reads: give both")
    index = glie.Index.open(index_path)
    before, found = index.info(), None
    if text:
        with status_line("reading the words") as say:
            found = read_words(index, ocr=ocr, language=language, progress=say)
    else:
        index.compact()
    if inside:
        index.keep_codebook()
    after = index.info()
    if as_json:
        words = {} if found is None else {"pages_read": found.pages, "pages_unread": found.unread}
        sizes = {"bytes_before": before.bytes, "bytes": after.bytes}
        print_json({"pages": after.pages, **sizes, **words})
        return
    if found is not None:
        print(f"{count(found.pages, 'page')} got words")
    if found is not None and found.unread:
        unread = f"{count(len(found.unread), 'page')}: {listing(found.unread)}"
        print(f"no text was read of {unread} (the files have none, are gone or have changed)")
    print(f"{size(before.bytes)} before, {size(after.bytes)} now")


def verify(
    index_path: IndexPath,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Keep the undamaged pages, and set damaged files aside.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every byte of an index, and list what is damaged and which pages are lost.

    The exit code is 4 if the index is damaged and was not repaired, 1 if it could not be checked.

    glie verify reports.glie --repair
    """
    done = glie.Index.repair(index_path) if repair else None
    found = done.before if done else glie.Index.examine(index_path)
    after = done.after if done else found
    if as_json:
        print_json(
            {
                "index": str(index_path),
                "whole": after.whole,
                "files": found.files,
                "bytes": found.bytes,
                "pages": after.pages,
                "pages_lost": found.pages_lost,
                "damage": [dataclasses.asdict(damage) for damage in found.damage],
                "repaired": repair and not found.whole,
                "set_aside": list(done.set_aside) if done else [],
                "folders": list(found.folders),
            }
        )
    else:
        print_health(index_path, found, repairs=repair)
        if done and not found.whole:
            print_repair(index_path, done)
    if not after.whole:
        raise typer.Exit(DAMAGED)


def shrink(
    index_path: IndexPath,
    bytes_per_page: Annotated[int, typer.Option(metavar="BYTES", help="Size of a page on disk.")],
    to: Annotated[
        Path, typer.Option("--to", metavar="SMALLER", help="The index folder to create.")
    ],
    as_json: Json = False,
) -> None:
    """Make a smaller copy of an index, without reading its documents again.

    The copy is made from the stored codes, so it keeps a little less than a new index of that
    size. The original does not change.

    glie shrink reports.glie --bytes-per-page 260 --to small.glie
    """
    index = glie.Index.open(index_path)
    logging.getLogger("glie.index").addHandler(logging.NullHandler())  # what it says is shown below
    with status_line("shrinking") as say:
        made = index.shrunk(to, bytes_per_page=bytes_per_page, progress=say)
    before, after = index.info(), made.info()
    if as_json:
        sizes: dict[str, Any] = {"bytes_before": before.bytes, "bytes": after.bytes}
        sizes |= {"bytes_per_page": after.bytes_per_page, "above_budget": after.above_budget}
        print_json({"index": str(to), "pages": after.pages, **sizes})
    else:
        print(f"{size(before.bytes)} before, {size(after.bytes)} now: {codec_line(made, after)}")
        above = f", {after.above_budget}" if after.above_budget else ""
        print(f"{after.bytes_per_page:,.0f} bytes a page{above}")


def info(
    index_path: IndexPath,
    documents: Annotated[bool, typer.Option("--documents", help="List the documents.")] = False,
    as_json: Json = False,
) -> None:
    """Show what an index holds and how large it is."""
    from glie.documents.known import known_documents
    from glie.retriever import open_index

    index = open_index(index_path)
    facts = index.info()
    known = known_documents(index)
    if as_json:
        listed = {name: len(document.ids) for name, document in known.items()}
        print_json(
            {
                **facts.to_dict(),
                "path": str(index_path),
                "bytes_per_page": facts.bytes_per_page,
                "compression": facts.compression,
                "above_budget": facts.above_budget,
                "documents": listed if documents else len(known),
            }
        )
        return
    print_info(index, facts, len(known))
    if documents:
        for name, document in known.items():
            print(f"{len(document.ids):6,} {name}")
