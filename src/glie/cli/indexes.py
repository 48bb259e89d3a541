"""The verbs that make, change and describe an index."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import rich.table
import rich.text
import typer

import glie
from glie.cli.shared import (
    ApiKey,
    CollectionName,
    IndexPath,
    Json,
    Location,
    MadeWith,
    connected,
    encoder_of,
    load_encoder,
    named_codec,
)
from glie.cli.terminal import (
    above_budget,
    errors,
    fail,
    output,
    print_health,
    print_json,
    print_repair,
    print_report,
    print_weight,
    progress_bar,
    size,
    status_line,
)
from glie.errors import InputError
from glie.wording import count, listing

if TYPE_CHECKING:
    from glie.encoders import Encoder
    from glie.engines import Collection, Engine
    from glie.ingest import Report

DAMAGED = 4  # the exit code of a check that found damage
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
    to: Annotated[
        Path | None, typer.Option("--to", metavar="INDEX", help="The index folder to make.")
    ] = None,
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
            metavar="NAME",
            help="minilm, minilm-384, or a model in a FOLDER or of that name on the Hugging Face "
            "Hub: a late-interaction one for text (ColBERT) or page images (ColPali, ColQwen2), or "
            "a FOLDER with any text model, of transformers or ONNX. NAME@MATRIX.safetensors "
            "reduces its vectors by a fitted matrix.",
            show_default="minilm",
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
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Encode and compress on a Ray cluster: that of the variable RAY_ADDRESS, or one "
            "that is started on this machine.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --ray: how many at once.", show_default="as many as there are cores"
        ),
    ] = None,
    gpus: Annotated[float, typer.Option(min=0, help="With --ray: GPUs for each worker.")] = 0,
    shards: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --ray: where workers write; a folder that all machines see.",
            show_default="INDEX.shards",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="With --ray: store the pages in qdrant, qdrant-edge or lancedb instead of --to.",
        ),
    ] = None,
    location: Location = None,
    collection: CollectionName = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Make an index of documents. Run it again to take in what is new or has changed.

    Files that cannot be read are listed at the end, the rest is indexed, and the exit code is 3.

    glie index reports/ --to reports.glie --ray --workers 8

    glie index reports/ --ray --engine qdrant --url http://localhost:6333 --collection reports
    """
    if (to is None) == (engine is None):
        raise typer.BadParameter("Missing option '--to' (or --ray and --engine).")
    if not ray and (workers, gpus, shards, engine) != (None, 0, None, None):
        raise InputError("--workers, --gpus, --shards, --engine: they go with --ray")
    wanted = _Wanted(bytes_per_page, k, dtype, codec)
    cluster = _Cluster(workers, gpus, shards or Path(f"{to or collection}.shards"))
    target: glie.Index | Collection
    if engine is None:
        assert to is not None
        target, reader = _index_at(to, documents, encoder, wanted)
    elif collection is None:
        raise InputError("--collection: what the pages shall be called there was not given")
    else:
        there = connected(engine, location, collection, api_key)
        target, reader = _collection_at(there, documents, encoder, wanted, cluster.shards, ocr)
    _ingest(target, reader, documents, keep_images, ocr, as_json, cluster if ray else None)


class _Cluster(NamedTuple):
    """How Ray is to be used."""

    workers: int | None
    gpus: float
    shards: Path


class _Wanted(NamedTuple):
    """How pages are to be stored, as far as it was said."""

    bytes_per_page: int | None
    k: int | None
    dtype: str | None
    codec: str | None

    def check(self) -> None:
        """Refuse contradictions, mistyped names and wrong settings, before anything is made."""
        if self.bytes_per_page is not None and self[1:] != (None, None, None):
            raise InputError(
                "--bytes-per-page chooses what is stored: give it without --k, --dtype and --codec"
            )
        if self.codec is not None:
            named_codec(self.codec)
        glie.Codec(self.k, dtype=self.dtype)

    def check_stored(self, codec: glie.Codec, place: object) -> None:
        """Refuse other settings than those of what is there."""
        if self.bytes_per_page is not None and self.bytes_per_page != codec.config.bytes_per_page:
            raise InputError(
                f"{place}: its pages are not stored in {self.bytes_per_page} bytes each; make a "
                "new index, or a smaller one of this with `glie shrink`"
            )
        if self.k is not None and self.k != codec.k:
            raise InputError(
                f"{place}: it stores k={codec.k} vectors a page, not {self.k}; make a new index "
                "for another k"
            )
        if self.dtype is not None and self.dtype != codec.dtype:
            raise InputError(
                f"{place}: it stores numbers in {codec.dtype}, not {self.dtype}; make a new index "
                "for another type"
            )
        if self.codec is not None:
            asked = named_codec(self.codec).at(codec.k).stored_as(codec.dtype)
            if not asked.same_as(codec):
                raise InputError(f"{place}: it has another codec; make a new index for this one")

    def chosen(self, encoder: dict[str, str]) -> glie.Codec:
        """The codec for new pages of an encoder."""
        if self[1:] == (None, None, None):
            budget = BYTES_PER_PAGE if self.bytes_per_page is None else self.bytes_per_page
            return glie.Codec(bytes_per_page=budget)
        named = None if self.codec is None else named_codec(self.codec)
        chosen = named or glie.Codec.shipped(encoder) or glie.Codec()
        chosen = chosen if self.k is None else chosen.at(self.k)
        return chosen if self.dtype is None else chosen.stored_as(self.dtype)


def _index_at(
    path: Path, documents: list[Path], encoder: str | None, wanted: _Wanted
) -> tuple[glie.Index, Encoder]:
    """The index that is there, or a new one, and its encoder."""
    from glie.ingest import found_documents

    wanted.check()
    if (path / "manifest.json").exists():
        index = glie.Index.open(path)
        wanted.check_stored(index.codec, path)
        return index, encoder_of(index, encoder)
    found_documents(documents)  # before a folder is made for nothing
    reader = load_encoder(encoder)
    entry = {"name": reader.name, "revision": reader.revision}
    return glie.Index.create(path, wanted.chosen(entry), encoder=entry), reader


def _collection_at(
    engine: Engine,
    documents: list[Path],
    encoder: str | None,
    wanted: _Wanted,
    shards: Path,
    ocr: bool,
) -> tuple[Collection, Encoder]:
    """The same in an engine."""
    from glie.distributed.ingest import first_shard
    from glie.engines import Collection
    from glie.ingest import Reading, found_documents

    wanted.check()
    if engine.exists() and engine.read_header() is not None:
        pages = Collection.open(engine)
        wanted.check_stored(pages.codec, pages.path)
        return pages, encoder_of(pages, encoder)
    found_documents(documents)
    reader = load_encoder(encoder)
    entry = {"name": reader.name, "revision": reader.revision}
    codec = first_shard(wanted.chosen(entry), reader, documents, shards, Reading(ocr=ocr))
    dim = reader.encode_queries(["a"])[0].shape[1]
    return Collection.create(engine, codec, dim, encoder=entry), reader


def add(
    index_path: IndexPath,
    documents: Documents,
    encoder: MadeWith = None,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    as_json: Json = False,
) -> None:
    """Add documents to an index; those it already has are skipped unless they changed."""
    index = glie.Index.open(index_path)
    _ingest(index, encoder_of(index, encoder), documents, keep_images, ocr, as_json)


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

    The exit code is 4 when something is damaged and was not repaired, 1 when it could not be
    checked.

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
        print_health(index_path, found, repairs=repair)
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
                **facts.to_dict(),
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
    if facts.candidate_bytes:
        each = facts.candidate_bytes / facts.pages if facts.pages else 0
        rows.append(("finder", f"{each:,.0f} of these bytes a page, beyond any budget"))
    else:
        rows.append(("finder", "none: every page is scanned"))
    if facts.image_bytes:
        rows.append(("pictures", f"{size(facts.image_bytes)}, not counted in the lines above"))
    if facts.document_bytes:
        rows.append(("uploads", f"{size(facts.document_bytes)}, not counted either"))
    for name, value in rows:
        table.add_row(name, rich.text.Text(value))
    output.print(table)
    if documents:
        for name, document in known.items():
            print(f"{len(document.ids):6,} {name}")


def _codec_line(index: glie.Index, facts: glie.IndexInfo) -> str:
    line = f"k = {facts.k}" + (f", D = {facts.dim}" if facts.dim else "") + f", {facts.dtype}"
    if facts.codewords:
        return f"{line}, and at most {count(facts.codewords, 'codeword')} a page"
    if index.codec.refiner is None:
        return f"{line}, normalised k-means"
    stages = "fitted, two stages" if index.codec.decoder else "fitted, one stage"
    return f"{line}, {stages} ({size(facts.codec_bytes)} besides the lines below)"


def _ingest(
    target: glie.Index | Collection,
    encoder: Encoder,
    documents: list[Path],
    keep_images: bool,
    ocr: bool,
    as_json: bool,
    cluster: _Cluster | None = None,
) -> None:
    began = time.perf_counter()
    reading: dict[str, Any] = {"keep_images": keep_images, "ocr": ocr}
    try:
        with progress_bar() as show:
            if isinstance(target, glie.Index) and cluster is None:
                from glie.ingest import ingest

                report = ingest(target, encoder, documents, **reading, progress=show)
            else:
                from glie.distributed.ingest import ingest_on_ray

                assert cluster is not None
                spread = cluster._asdict()
                report = ingest_on_ray(
                    target, encoder, documents, **reading, **spread, progress=show
                )
    except KeyboardInterrupt:
        kept = f"the index keeps the {count(len(target), 'page')} committed so far"
        fail(f"interrupted; {kept}; run it again to go on", 130)
    seconds = time.perf_counter() - began
    facts = target.info() if isinstance(target, glie.Index) else None
    pages = len(target)
    if not isinstance(target, glie.Index):
        target.close()
    if as_json:
        sizes = {} if facts is None else {"bytes": facts.bytes}
        outcome = {**dataclasses.asdict(report), "seconds": seconds}
        print_json({**outcome, "pages": pages, **sizes})
    else:
        print_report(report, seconds)
        if facts is None:
            print(f"{target.path} holds {count(pages, 'page')}")
        else:
            print_weight(facts)
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
