"""Documents into an index: read, encode and add what is new or has changed."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from glie.codec.anchors import check_length
from glie.documents import (
    DocumentPage,
    FoundDocument,
    find_documents,
    has_picture,
    scanned_text,
    small_picture,
)
from glie.documents.ahead import Readers
from glie.documents.counting import PageCount, PageCounter
from glie.documents.known import KnownDocument, gone_documents, known_documents, named_apart
from glie.documents.original import original_text, unchanged
from glie.documents.read import OcrThreads
from glie.encoders.base import Encoder, reads
from glie.errors import DocumentError, InputError, MissingExtraError, VectorError
from glie.identity import EncoderId, check_encoder
from glie.index.adding import FIRST_PAGES, Batch
from glie.index.index import Index
from glie.index.words import language_of
from glie.kernels.small import COMPILING_SECONDS, compiling_ahead
from glie.pages import Pages
from glie.progress import OnProgress, Progress, ignore
from glie.reading import Reading, Ready, Report, Seen, Settings, ready, see
from glie.workload import IngestProgress, OnIngestProgress, Workload

__all__ = ["IngestProgress", "OnIngestProgress", "Reading", "Report", "ingest", "read_words"]

PAGES_PER_COMMIT = 64  # an interruption loses about this many pages, or one document
PAGES_PER_ENCODE = 16  # small enough that progress moves


class Stored(NamedTuple):
    """What `store_documents` did."""

    report: Report
    names: list[str]  # of documents that were new or had changed
    read: int  # documents read; fewer than given if it stopped after the first commit


class WordsRead(NamedTuple):
    """What `read_words` did."""

    pages: int  # that have words now, and had none
    unread: list[str]  # pages whose text cannot be read: no text, or the file is gone or changed


def ingest(
    index: Index,
    encoder: Encoder,
    paths: Iterable[str | os.PathLike[str]],
    *,
    keep_images: bool = False,
    ocr: bool = True,
    text: str = "auto",
    ocr_lang: str | None = None,
    only: Collection[Path] | None = None,
    progress: OnIngestProgress = ignore,
) -> Report:
    """Read, encode and add the documents that are new or have changed, 64 pages a commit. A file
    that cannot be read is reported, and the rest is indexed. `text` says whose words can be
    searched beside the vectors: "auto", "layer" (the text of files), "ocr" or "none". `ocr_lang` is
    the language that OCR reads, like "deu+eng"; by default it is that of the last run, and at first
    English. `only` are files and folders below `paths`: what is not at or below them is not looked
    at."""
    reading = Reading(keep_images, ocr, text, ocr_lang)
    check_encoder(index, encoder)
    paths = list(paths)
    with index.writing():
        known = known_documents(index)
        every = found_documents(paths) if only is None else find_documents(paths)
        found = named_apart(every, known)
        wanted = found if only is None else _below(found, only)
        report = store_documents(index, encoder, wanted, known, reading, progress).report
        report.documents_gone = gone_documents(paths, known, found)
    return report


def _below(found: Sequence[FoundDocument], only: Collection[Path]) -> list[FoundDocument]:
    """The documents at or below these paths."""
    places = {path.resolve() for path in only}
    return [d for d in found if d.path in places or not places.isdisjoint(d.path.parents)]


def read_words(
    index: Index, *, ocr: bool = True, language: str | None = None, progress: OnProgress = ignore
) -> WordsRead:
    """Give words to pages that have none, from the files they were indexed from, and compact the
    index. `ocr` reads by OCR what was indexed by it; `language` is that of the texts, if the index
    has no words yet."""
    with index.writing():
        index.refresh()
        facts = index.info()
        lacking = facts.pages - facts.pages_with_text
        done, unread = 0, list[str]()

        def text(page_id: str, metadata: dict[str, Any]) -> str | None:
            nonlocal done
            # the words of another version would not fit the vectors
            found = original_text(metadata, ocr=ocr) if unchanged(metadata) else ""
            unread.extend([] if found.strip() else [page_id])
            done += 1
            progress(Progress("pages", done, lacking))
            return found

        index.compact(text, language=language)
        return WordsRead(index.info().pages_with_text - facts.pages_with_text, unread)


def store_documents(
    index: Index,
    encoder: Encoder,
    found: Sequence[FoundDocument],
    known: Mapping[str, KnownDocument],
    reading: Reading,
    progress: OnIngestProgress = ignore,
    *,
    once: bool = False,
    readers: int | None = None,
) -> Stored:
    """Read, encode and add the documents that are not `known` or have changed. `once` stops after
    the first commit. `readers` threads read ahead, by default as many as there are cores; the
    calling thread encodes and stores."""
    report, kind, reading = Report(), reads(encoder), reading.beside(known)
    ocr = reading.ocr and (kind == "text" or reading.text in ("auto", "ocr"))
    settings = Settings(index, kind, ocr, reading, language_of(EncoderId.of(encoder)) == "english")
    waiting: list[Ready] = []
    names: list[str] = []
    work, read = Workload(len(found), progress), 0
    same = _count(found, known, settings, work) if work.wanted else set[str]()
    if compiling_ahead(work.pages):
        work.expect_compiling(COMPILING_SECONDS)
    again = {d.name for d in found if (k := known.get(d.name)) and settings.wants_again(k)}

    def see_document(
        document: FoundDocument, each: Callable[[bool], None], threads: OcrThreads | None
    ) -> Seen:
        if document.name in same:
            return Seen()
        before = known.get(document.name)
        return see(document, before, document.name in again, settings, each, threads)

    with Readers(readers) as threads:
        for read, coming in enumerate(threads.documents(found, see_document), start=1):
            document = coming.document
            work.begin(document.name)
            seen = coming.result(work.read_page)
            one = ready(document, known.get(document.name), seen, report, settings)
            if one is not None:
                names.append(document.name)
                waiting.append(one)
            work.finish(len(one.pages) if one else 0)
            enough = sum(len(r.pages) for r in waiting) >= _pages_per_commit(index)
            if read == len(found) or enough:
                _store(index, encoder, waiting, report, reading, work, threads)
                waiting = []
                if once:
                    break
    return Stored(report, names, read)


def _count(
    found: Sequence[FoundDocument],
    known: Mapping[str, KnownDocument],
    settings: Settings,
    work: Workload,
) -> set[str]:
    """Count the pages that will be read, and those that OCR will read. Returns the names of the
    documents that are unchanged, which will not."""
    same = set[str]()
    with PageCounter() as counter:
        for document in found:
            before = known.get(document.name)
            if before is not None and not before.missing and _same(document, before, settings):
                same.add(document.name)
                work.count(document.name, PageCount(0, 0))
                continue
            pages, scans = counter.count(document)
            work.count(document.name, PageCount(pages, scans if settings.ocr else 0))
    return same


def _same(document: FoundDocument, known: KnownDocument, settings: Settings) -> bool:
    """Whether the index holds a document as it is."""
    path = str(document.path)
    facts = {"path": path, "digest": known.digest}
    return known.path == path and unchanged(facts) and not settings.wants_again(known)


def _pages_per_commit(index: Index) -> int:
    """64. If the codec will be adapted to the first pages, the first commit holds as many as that
    takes, and one more, so that the index sees that there are more."""
    codec, encoder = index.codec, index.encoder
    if not codec.adapts or index.dim is not None:
        return PAGES_PER_COMMIT
    made_for = codec.readout.encoder
    known = made_for and encoder and made_for.matches(encoder)
    return PAGES_PER_COMMIT if known else FIRST_PAGES + 1


def found_documents(paths: Sequence[str | os.PathLike[str]]) -> list[FoundDocument]:
    """Find the documents among paths and folders; raise DocumentError if there are none."""
    found = find_documents(paths)
    if not found:
        given = ", ".join(str(path) for path in paths)
        raise DocumentError(
            f"{given}: no documents there (PDF, image, text, Office, HTML, EPUB or e-mail)"
        )
    return found


def _store(
    index: Index,
    encoder: Encoder,
    documents: Sequence[Ready],
    report: Report,
    reading: Reading,
    work: Workload,
    threads: Readers,
) -> None:
    """Encode and add documents in one commit."""
    pages = [(page, document) for document in documents for page in document.pages]
    # a shard on a cluster does not hold the pages that it replaces in the index
    replaced = [p for document in documents for p in document.replaces if p in index]
    stored, kind = 0, reads(encoder)
    draws = kind == "image" or reading.keep_images or reading.text == "ocr"

    def prepared() -> Iterator[list[_Prepared]]:
        make = functools.partial(_prepared, kind=kind, reading=reading)
        beside = threads if draws else Readers(0)
        return beside.parts(pages, PAGES_PER_ENCODE, make)

    def batches() -> Iterator[Batch]:
        nonlocal stored
        for part in prepared():
            for page in part:
                _note(report, page.unseen)
            given = [page for page in part if page.unseen is None]
            vectors = _encoded(encoder, given, report)
            kept = []
            for page, array in zip(given, vectors, strict=True):
                if array is None:
                    continue
                try:
                    check_length(len(array), f"{page.page.document}, page {page.page.number}")
                except VectorError as error:
                    report.problems.append(str(error))
                else:
                    kept.append((page, array))
            stored += len(kept)
            for unkept in ("no_picture", "no_words"):
                for page, _ in kept:
                    _note(report, getattr(page, unkept))
            yield Batch(
                Pages([array for _, array in kept], [page.page.id for page, _ in kept]),
                [_metadata(page.page, page.document, reading) for page, _ in kept],
                [page.picture for page, _ in kept] if reading.keep_images else None,
                [page.text for page, _ in kept],
            )
            work.encode(len(part))

    if pages or replaced:
        work.begin_encoding()
        index.add(batches(), replacing=replaced, expected_pages=work.pages)
        report.pages_added += stored
        work.store()


@dataclasses.dataclass
class _Prepared:
    """A page with what is stored of it beside its vectors, and what could not be made."""

    page: DocumentPage
    document: Ready
    given: Any = None  # to the encoder: the page, or its picture
    picture: bytes | None = None
    text: str | None = None
    unseen: str | None = None
    no_picture: str | None = None
    no_words: str | None = None


def _prepared(
    row: tuple[DocumentPage, Ready], *, kind: Literal["text", "image"], reading: Reading
) -> _Prepared:
    made = _Prepared(*row)
    page = made.page
    try:
        made.given = page if kind == "text" else page.image()
    except DocumentError as error:
        made.unseen = str(error)
        return made
    if reading.keep_images:
        try:
            made.picture = small_picture(page)
        except DocumentError as error:
            made.no_picture = f"no picture is kept: {error}"
    try:
        made.text = _text(page, reading.text)
    except (DocumentError, MissingExtraError, OSError) as error:
        made.no_words = f"{page.document}: no words by OCR: {error}"
    return made


def _encoded(encoder: Encoder, given: Sequence[_Prepared], report: Report) -> Sequence[Any]:
    """Encode pages. A page that the encoder refuses, such as a text without a token, is None and
    a problem in the report."""
    try:
        return encoder.encode_pages([page.given for page in given])
    except InputError as error:
        if len(given) > 1:
            return [_encoded(encoder, [one], report)[0] for one in given]
        page = given[0].page
        why = str(error).removeprefix("page 0: ")
        report.problems.append(f"{page.document}, page {page.number}: {why}")
        return [None]


def _metadata(page: DocumentPage, document: Ready, reading: Reading) -> dict[str, Any]:
    metadata = {
        "document": page.document,
        "page": page.number,
        "path": str(page.path),
        "digest": document.digest,
        "origin": page.origin,
    }
    if document.missing:
        metadata["missing"] = document.missing
    if has_picture(page.path) and (reading.ocr_lang or reading.recorded):
        metadata["ocr_lang"] = reading.lang
    return metadata


def _text(page: DocumentPage, which: str) -> str | None:
    """The text whose words are indexed."""
    if which == "none" or (which == "layer" and page.origin != "text"):
        return None
    if which == "ocr" and page.origin == "text" and has_picture(page.path):
        return scanned_text(page.path, page.number, page.ocr_lang)
    return page.text


def _note(report: Report, problem: str | None) -> None:
    # a file is reported once, not once a page
    if problem is not None and problem not in report.problems[-1:]:
        report.problems.append(problem)
