"""The verbs that make, change and describe an index."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import rich.table
import rich.text
import typer

import glie
from glie.cli.shared import IndexPath, Json, encoder_of, load_encoder, named_codec
from glie.errors import InputError
from glie.terminal import (
    above_budget,
    errors,
    fail,
    output,
    print_health,
    print_ingest,
    print_json,
    print_repair,
    progress_bar,
    size,
    status_line,
)
from glie.wording import count, listing

if TYPE_CHECKING:
    from glie.encoders import Encoder
    from glie.ingest import Report

DAMAGED = 1  # the exit code of a check that found damage
DONE_WITH_PROBLEMS = 3  # the exit code when some files could not be read
BYTES_PER_PAGE = 520  # unless told

Documents = Annotated[
    list[Path],
    typer.Argument(
        metavar="DOCUMENTS",
        help="Files or folders: PDF, PNG, JPEG, TIFF, WebP, text, Markdown.",
    ),
]
KeepImages = Annotated[
    bool, typer.Option("--keep-images", help="Keep a small picture of every page in the index.")
]
Ocr = Annotated[
    bool, typer.Option(help="Read pages without text by OCR, where glie\\[ocr] is installed.")
]


def index(
    documents: Documents,
    to: Annotated[Path, typer.Option("--to", metavar="INDEX", help="The index folder to make.")],
    bytes_per_page: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="What a page may take on disk; `glie plan` tells what is kept. Instead of --k, "
            "--dtype and --codec.",
            show_default=str(BYTES_PER_PAGE),
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            help="Vectors stored a page, 260 bytes each in bf16: 4 for a kilobyte, 16 for dense "
            "pages.",
            show_default="4 with --dtype or --codec, or the codec's",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="What their numbers are stored in: bf16, or a half, a quarter, an eighth or a "
            "sixteenth of it, int8, int4, int2 or int1. The fewer bits, the more vectors (--k) in "
            "the same space.",
            show_default="bf16 with --k or --codec, or the codec's",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="minilm, minilm-384, or a FOLDER with a text model, of transformers or ONNX; "
            "FOLDER@MATRIX.safetensors reduces its vectors by a fitted matrix."
        ),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            metavar="CODEC",
            help="A folder from `glie fit`, or free for normalised k-means.",
            show_default="with --k or --dtype the one that ships for the encoder, else free",
        ),
    ] = None,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    as_json: Json = False,
) -> None:
    """Make an index of documents. Run it again to take in what is new or has changed.

    Files that cannot be read are listed at the end, the rest is indexed, and the exit code is 3.
    """
    if bytes_per_page is not None and (k, dtype, codec) != (None, None, None):
        raise InputError(
            "--bytes-per-page chooses what is stored: give it without --k, --dtype and --codec"
        )
    if (to / "manifest.json").exists():
        index = glie.Index.open(to)
        if bytes_per_page is not None and bytes_per_page != index.codec.config.bytes_per_page:
            raise InputError(
                f"{to}: its pages are not stored in {bytes_per_page} bytes each; make a new index, "
                "or a smaller one of this with `glie shrink`"
            )
        if k is not None and k != index.codec.k:
            raise InputError(
                f"{to}: it stores k={index.codec.k} vectors a page, not {k}; make a new index for "
                "another k"
            )
        if dtype is not None and dtype != index.codec.dtype:
            raise InputError(
                f"{to}: it stores numbers in {index.codec.dtype}, not {dtype}; make a new index "
                "for another type"
            )
        if codec is not None:
            asked = named_codec(codec).at(index.codec.k).stored_as(index.codec.dtype)
            if not asked.same_as(index.codec):
                raise InputError(f"{to}: it has another codec; make a new index for this one")
        engine = encoder_of(index, encoder)
    else:
        from glie.ingest import found_documents

        found_documents(documents)  # before a folder is made for nothing
        chosen = None if codec is None else named_codec(codec)  # a mistyped name fails at once
        glie.Codec(k, dtype=dtype)  # and so does a wrong setting
        engine = load_encoder(encoder)
        entry = {"name": engine.name, "revision": engine.revision}
        if (k, dtype, codec) == (None, None, None):
            budget = BYTES_PER_PAGE if bytes_per_page is None else bytes_per_page
            chosen = glie.Codec(bytes_per_page=budget)
        else:
            chosen = chosen or glie.Codec.shipped(entry) or glie.Codec()
            chosen = chosen if k is None else chosen.at(k)
            chosen = chosen if dtype is None else chosen.stored_as(dtype)
        index = glie.Index.create(to, chosen, encoder=entry)
    _ingest(index, engine, documents, keep_images, ocr, as_json)


def add(
    index_path: IndexPath,
    documents: Documents,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    as_json: Json = False,
) -> None:
    """Add documents to an index; those it already has are skipped unless they changed."""
    index = glie.Index.open(index_path)
    _ingest(index, encoder_of(index, None), documents, keep_images, ocr, as_json)


def delete(
    index_path: IndexPath,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="DOCUMENTS",
            help="Documents (their name or path), or single pages (report.pdf#3).",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Delete documents or pages from an index. `compact` then frees their space."""
    from glie.ingest import pages_of

    index = glie.Index.open(index_path)
    with index.writing():
        deleted = index.delete(pages_of(index, names))
    if as_json:
        print_json({"deleted": deleted, "pages": len(index)})
    else:
        print(f"{count(deleted, 'page')} deleted, {count(len(index), 'page')} left")


def compact(index_path: IndexPath, as_json: Json = False) -> None:
    """Rewrite an index without its deleted pages."""
    index = glie.Index.open(index_path)
    before = index.info()
    index.compact()
    after = index.info()
    if as_json:
        print_json({"pages": after.pages, "bytes_before": before.bytes, "bytes": after.bytes})
    else:
        print(f"{size(before.bytes)} before, {size(after.bytes)} now")


def verify(
    index_path: IndexPath,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Keep what is whole: commit a new state of it, and set damaged files aside.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every byte of an index, and say what is damaged and which pages that concerns.

    The exit code is 1 when something is damaged and was not repaired.

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
            }
        )
    else:
        print_health(index_path, found)
        if done and not found.whole:
            print_repair(index_path, done)
    if not after.whole:
        raise typer.Exit(DAMAGED)


def shrink(
    index_path: IndexPath,
    bytes_per_page: Annotated[
        int, typer.Option(metavar="BYTES", help="What a page may take on disk.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="SMALLER", help="The index folder to make.")],
    as_json: Json = False,
) -> None:
    """Make a smaller index of one that is there, without reading its documents again.

    It is made of what is stored, so it keeps a little less than an index made of the documents
    with that budget. The one that is there stays as it is.

    glie shrink reports.glie --bytes-per-page 260 --to small.glie
    """
    index = glie.Index.open(index_path)
    with status_line("shrinking") as say:
        made = index.shrunk(to, bytes_per_page=bytes_per_page, progress=say)
    before, after = index.info(), made.info()
    each = after.lean_bytes / after.pages
    if as_json:
        sizes = {"bytes_before": before.bytes, "bytes": after.bytes}
        print_json({"index": str(to), "pages": after.pages, **sizes, "bytes_per_page": each})
    else:
        print(f"{size(before.bytes)} before, {size(after.bytes)} now: {_codec_line(made, after)}")
        above = above_budget(after)
        print(f"{each:,.0f} bytes a page" + (f", {above}" if above else ""))


def info(
    index_path: IndexPath,
    documents: Annotated[bool, typer.Option("--documents", help="List the documents.")] = False,
    as_json: Json = False,
) -> None:
    """Show what an index holds and what it weighs."""
    from glie.ingest import known_documents

    index = glie.Index.open(index_path)
    facts = index.info()
    known = known_documents(index)
    lean = facts.lean_bytes
    per_page = lean / facts.pages if facts.pages else None
    ratio = facts.uncompressed_bytes / lean if facts.pages else None
    if as_json:
        listed = {name: len(document.ids) for name, document in known.items()}
        print_json(
            {
                **dataclasses.asdict(facts),
                "path": str(index_path),
                "bytes_per_page": per_page,
                "compression": ratio,
                "documents": listed if documents else len(known),
            }
        )
        return
    table = rich.table.Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    rows = [
        ("pages", f"{facts.pages:,} in {count(len(known), 'document')}"),
        ("deleted", f"{facts.deleted:,}" + (" (compact frees them)" if facts.deleted else "")),
        ("encoder", facts.encoder or "not recorded"),
        ("codec", _codec_line(index, facts)),
        ("on disk", size(lean) + f" in {count(facts.segments, 'segment')}"),
    ]
    if per_page and ratio:
        rows.append(("a page", f"{per_page:,.0f} bytes, codes {facts.code_bytes_per_page:,}"))
        above = above_budget(facts)
        if above:
            rows.append(("", above))
        rows.append(
            (
                "vectors",
                f"{facts.vectors:,}, {size(facts.uncompressed_bytes)} at 2 bytes a number",
            )
        )
        rows.append(("compression", f"{ratio:,.1f} times"))
    if facts.finder_bytes:
        each = facts.finder_bytes / facts.pages if facts.pages else 0
        rows.append(("finder", f"{each:,.0f} of these bytes a page, beyond any budget"))
    else:
        rows.append(("finder", "none: every page is scanned"))
    if facts.image_bytes:
        rows.append(("pictures", f"{size(facts.image_bytes)}, not counted in the lines above"))
    for name, value in rows:
        table.add_row(name, rich.text.Text(value))
    output.print(table)
    if documents:
        for name, document in known.items():
            print(f"{len(document.ids):6,} {name}")


def _codec_line(index: glie.Index, facts: glie.IndexInfo) -> str:
    line = f"k = {facts.k}" + (f", D = {facts.dim}" if facts.dim else "") + f", {facts.dtype}"
    if facts.words:
        return f"{line}, and at most {count(facts.words, 'word')} a page"
    if index.codec.refiner is None:
        return f"{line}, normalised k-means"
    stages = "fitted, two stages" if index.codec.decoder else "fitted, one stage"
    return f"{line}, {stages} ({size(facts.codec_bytes)} besides the lines below)"


def _ingest(
    index: glie.Index,
    encoder: Encoder,
    documents: list[Path],
    keep_images: bool,
    ocr: bool,
    as_json: bool,
) -> None:
    from glie.ingest import ingest

    began = time.perf_counter()
    try:
        with progress_bar() as show:
            report = ingest(
                index, encoder, documents, keep_images=keep_images, ocr=ocr, progress=show
            )
    except KeyboardInterrupt:
        kept = f"the index keeps the {count(len(index), 'page')} committed so far"
        fail(f"interrupted; {kept}; run it again to go on", 130)
    seconds = time.perf_counter() - began
    facts = index.info()
    if as_json:
        print_json(
            {
                **dataclasses.asdict(report),
                "seconds": seconds,
                "pages": facts.pages,
                "bytes": facts.bytes,
            }
        )
    else:
        print_ingest(report, facts, seconds)
    hint = ocr_hint(report)
    if hint:
        errors.print(hint, style="yellow", soft_wrap=True)
    if report.documents_gone:
        gone = count(len(report.documents_gone), "indexed document")
        names = listing(report.documents_gone)
        errors.print(f"files gone of {gone}: {names}; `glie delete` takes them out", soft_wrap=True)
    if report.problems:
        errors.print(f"{count(len(report.problems), 'problem')}:", style="red")
    for problem in report.problems:
        errors.print(problem, style="red", soft_wrap=True)
    if report.problems:
        raise typer.Exit(DONE_WITH_PROBLEMS)


def ocr_hint(report: Report) -> str | None:
    """What to say of pages that could not be read for want of OCR."""
    from glie.documents import ocr_available

    if not report.pages_without_text:
        return None
    pages = count(len(report.pages_without_text), "page")
    said = f"{pages} without text left out: {listing(report.pages_without_text)}"
    return said if ocr_available() else f'{said}; pip install "glie[ocr]" to read them'
