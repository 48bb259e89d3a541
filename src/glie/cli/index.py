"""The verbs that read documents into an index."""

from __future__ import annotations

import dataclasses
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import glie
from glie.cli import fail
from glie.cli.shared import RARE, IndexPath, Json, MadeWith
from glie.cli.show_index import size
from glie.cli.terminal import errors, print_json, progress_bar, status_line
from glie.wording import count, listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from glie.engines import Collection
    from glie.ingest import OnIngestProgress, Report

DONE_WITH_PROBLEMS = 3  # the exit code when some files could not be read
CODEC_PANEL = "Codec, instead of --bytes-per-page"

Documents = Annotated[
    list[Path],
    typer.Argument(
        metavar="DOCUMENTS",
        help="Files or folders: PDF, PNG, JPEG, TIFF, WebP, text, Markdown, Word, PowerPoint, "
        "Excel, HTML, EPUB, e-mail.",
    ),
]
BytesPerPage = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        help="Size of a page on disk. `glie plan` measures what each size keeps.",
        show_default="520",
    ),
]
EncoderName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="english; multilingual, for text in other languages (extra glie\\[multilingual]); "
        "minilm, minilm-384; or a late-interaction model in a FOLDER or on the Hugging Face Hub: "
        "ColBERT for text, ColPali or ColQwen2 for page images; or one on a server, like "
        "vllm:http://host:8000#MODEL. docs/encoders.md lists more.",
        show_default="english",
    ),
]
KeepImages = Annotated[
    bool,
    typer.Option(
        "--keep-images",
        help="Keep a small picture of every page in the index.",
        rich_help_panel=RARE,
    ),
]
Ocr = Annotated[
    bool,
    typer.Option(
        help="Read pages without text by OCR if glie\\[ocr] is installed.",
        rich_help_panel=RARE,
    ),
]
OcrLang = Annotated[
    str | None,
    typer.Option(
        "--ocr-lang",
        metavar="LANG",
        help="The language that OCR reads, by tesseract's names: deu, fra, deu+eng. Its data is "
        "installed apart: docs/guide.md says how.",
        show_default="as in the last run, at first eng",
        rich_help_panel=RARE,
    ),
]
TextOf = Annotated[
    str,
    typer.Option(
        "--text",
        metavar="WHOSE",
        help="Whose words are indexed beside the vectors: those of the file and, where it has "
        "none, of OCR (auto); of the file alone (layer); of OCR alone (ocr); none.",
        rich_help_panel=RARE,
    ),
]
Language = Annotated[
    str | None,
    typer.Option(
        metavar="LANGUAGE",
        help="Of these words, to find other forms of them: en, de, fr, ... or none.",
        show_default="en with an English encoder, else none",
        rich_help_panel=RARE,
    ),
]
K = Annotated[
    int | None,
    typer.Option(
        help="Vectors stored per page, 260 bytes each in bf16: 4 for a kilobyte, 16 for dense "
        "pages.",
        show_default="4, or the codec's",
        rich_help_panel=CODEC_PANEL,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="How their numbers are stored: bf16, or in fewer bits: int8, int4, int2, int1. "
        "Fewer bits leave room for more vectors.",
        show_default="bf16, or the codec's",
        rich_help_panel=CODEC_PANEL,
    ),
]
CodecName = Annotated[
    str | None,
    typer.Option(
        metavar="CODEC",
        help="A folder from `glie codec make` (which --bytes-per-page goes with) or `glie fit`, or "
        "free for normalised k-means.",
        show_default="with --k or --dtype, the one shipped for the encoder, else free",
        rich_help_panel=CODEC_PANEL,
    ),
]

Inside = Annotated[
    bool,
    typer.Option(
        "--inside",
        help="Copy a codebook that `glie codec make` made into the index, to move it alone.",
        rich_help_panel=CODEC_PANEL,
    ),
]


def index(
    documents: Documents,
    to: Annotated[Path, typer.Option("--to", metavar="INDEX", help="The index folder.")],
    bytes_per_page: BytesPerPage = None,
    encoder: EncoderName = None,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    ocr_lang: OcrLang = None,
    text: TextOf = "auto",
    language: Language = None,
    k: K = None,
    dtype: Dtype = None,
    codec: CodecName = None,
    inside: Inside = False,
    as_json: Json = False,
) -> None:
    """Index documents. Run it again to add what is new or has changed.

    Files that cannot be read are listed at the end; the rest is indexed and the exit code is 3. If
    none can be read, no index is made.

    glie index reports/ --to reports.glie
    """
    from glie.distributed.shards import is_sharded
    from glie.indexing import CodecChoice, open_or_create
    from glie.ingest import Reading, ingest

    choice = CodecChoice(bytes_per_page, k, dtype, codec)
    Reading(ocr=ocr, text=text, ocr_lang=ocr_lang)  # refused before a folder is created
    fresh = not to.exists()
    if is_sharded(to):
        raise glie.IndexFolderError(
            f"{to}: a folder of shards; `glie add {to} DOCUMENTS` adds to them"
        )
    with status_line("loading the encoder"):
        target, reader = open_or_create(
            to, documents, encoder, choice, language=language, inside=inside
        )
    run(
        target,
        lambda show: ingest(
            target,
            reader,
            documents,
            keep_images=keep_images,
            ocr=ocr,
            text=text,
            ocr_lang=ocr_lang,
            progress=show,
        ),
        as_json,
        fresh=fresh,
    )


def add(
    index_path: IndexPath,
    documents: Documents,
    encoder: MadeWith = None,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    ocr_lang: OcrLang = None,
    text: TextOf = "auto",
    as_json: Json = False,
) -> None:
    """Add documents to an index. Those that it already holds are skipped unless they changed."""
    from glie.ingest import ingest
    from glie.retriever import encoder_of, open_index

    target = open_index(index_path)
    with status_line("loading the encoder"):
        reader = encoder_of(target, encoder)
    run(
        target,
        lambda show: ingest(
            target,
            reader,
            documents,
            keep_images=keep_images,
            ocr=ocr,
            text=text,
            ocr_lang=ocr_lang,
            progress=show,
        ),
        as_json,
    )


def run(
    target: glie.Index | Collection,
    ingest: Callable[[OnIngestProgress], Report],
    as_json: bool,
    *,
    fresh: bool = False,
) -> None:
    """Run an ingestion with a progress bar and show its report. A `fresh` index that stays empty is
    removed."""
    from glie.retriever import as_index

    began = time.perf_counter()
    try:
        with progress_bar() as show:
            report = ingest(show)
    except KeyboardInterrupt:
        kept = f"the index keeps the {count(len(target), 'page')} committed so far"
        fail(f"interrupted; {kept}; run it again to go on", 130)
    seconds = time.perf_counter() - began
    index = as_index(target)
    facts = None if index is None else index.info()
    nothing = fresh and index is not None and not len(index)
    if nothing:
        shutil.rmtree(target.path, ignore_errors=True)
    if as_json:
        sizes = {} if facts is None else {"bytes": facts.bytes}
        outcome = {**dataclasses.asdict(report), "seconds": seconds}
        print_json({**outcome, "pages": len(target), **sizes})
    else:
        _print_report(report, seconds)
        if nothing:
            print("nothing to index: no index was made")
        elif facts is None:
            print(f"{target.path} holds {count(len(target), 'page')}")
        else:
            _print_size(facts)
    _print_problems(report)
    if nothing:
        raise typer.Exit(1)
    if report.problems:
        raise typer.Exit(DONE_WITH_PROBLEMS)


def _print_report(report: Report, seconds: float) -> None:
    parts = [f"{count(report.documents_added, 'document')} added"]
    if report.documents_changed:
        parts.append(f"{report.documents_changed} changed")
    if report.documents_unchanged:
        parts.append(f"{report.documents_unchanged} unchanged")
    read = f" ({report.pages_by_ocr} read by OCR)" if report.pages_by_ocr else ""
    rate = f", {report.pages_added / seconds:.1f} a second" if report.pages_added else ""
    print(f"{', '.join(parts)}: {count(report.pages_added, 'page')}{read} in {seconds:.1f} s{rate}")


def _print_size(facts: glie.IndexInfo) -> None:
    if facts.pages:
        print(
            f"the index holds {count(facts.pages, 'page')} in {size(facts.index_bytes)}, "
            f"{facts.bytes_per_page:,.0f} bytes a page; their "
            f"{count(facts.vectors, 'vector')} would take {size(facts.uncompressed_bytes)}"
        )
    if facts.above_budget:
        print(facts.above_budget)


def _print_problems(report: Report) -> None:
    for hint in filter(None, [ocr_hint(report), language_hint(report)]):
        errors.print(hint, style="yellow", soft_wrap=True)
    if report.documents_gone:
        gone = count(len(report.documents_gone), "indexed document")
        names = listing(report.documents_gone)
        errors.print(
            f"the files of {gone} are gone: {names}; `glie delete` removes them from the index",
            soft_wrap=True,
        )
    if report.problems:
        errors.print(f"{count(len(report.problems), 'problem')}:", style="red")
    for problem in report.problems:
        errors.print(problem, style="red", soft_wrap=True)


def language_hint(report: Report) -> str | None:
    """Said where most pages are in a language that the encoder does not read."""
    if 2 * report.pages_not_english <= report.pages_added:
        return None
    found = f"{report.pages_not_english:,} of {count(report.pages_added, 'page')}"
    seem = "seems" if report.pages_added == 1 else "seem"
    return (
        f"{found} {seem} not to be in English, the only language that this index's encoder reads; "
        "many are read by `glie index --encoder multilingual` into a new index "
        '(pip install "glie[multilingual]")'
    )


def ocr_hint(report: Report) -> str | None:
    """What to say about pages without text, and how to read them where OCR is missing."""
    from glie.documents import ocr_available

    if not report.pages_without_text:
        return None
    pages = count(len(report.pages_without_text), "page")
    said = f"{pages} without text left out: {listing(report.pages_without_text)}"
    return said if ocr_available() else f'{said}; pip install "glie[ocr]" to read them'
