"""Documents into an index: read, encode and add what is new or has changed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from glie.codec.anchors import check_length
from glie.documents import (
    DocumentPage,
    FoundDocument,
    find_documents,
    has_picture,
    read_document,
    scanned_text,
    small_picture,
)
from glie.documents.counting import PageCount, PageCounter
from glie.documents.find import WHAT, kind_of
from glie.documents.known import (
    KnownDocument,
    gone_documents,
    known_documents,
    last_ocr_lang,
    named_apart,
)
from glie.documents.ocr_languages import ENGLISH, data_folder
from glie.documents.original import file_digest, original_text, unchanged
from glie.encoders.base import Encoder, reads
from glie.errors import (
    DocumentError,
    InputError,
    MissingExtraError,
    VectorError,
)
from glie.identity import EncoderId, check_encoder
from glie.index.adding import FIRST_PAGES, Batch
from glie.index.index import Index
from glie.index.words import language_of
from glie.kernels.small import COMPILING_SECONDS, compiling_ahead
from glie.lexical.english import seems_english
from glie.pages import Pages
from glie.progress import OnProgress, Progress, ignore
from glie.workload import IngestProgress, OnIngestProgress, Workload

__all__ = ["IngestProgress", "OnIngestProgress", "Report", "ingest", "read_words"]

PAGES_PER_COMMIT = 64  # an interruption loses about this many pages, or one document
PAGES_PER_ENCODE = 16  # small enough that progress moves


@dataclasses.dataclass
class Report:
    """What an ingestion did."""

    documents_added: int = 0
    documents_changed: int = 0
    documents_unchanged: int = 0
    pages_added: int = 0
    pages_by_ocr: int = 0
    pages_not_english: int = 0  # of those added, if the encoder reads English
    documents_gone: list[str] = dataclasses.field(default_factory=list)  # their files are gone
    pages_without_text: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


class Stored(NamedTuple):
    """What `store_documents` did."""

    report: Report
    names: list[str]  # of documents that were new or had changed
    read: int  # documents read; fewer than given if it stopped after the first commit


class WordsRead(NamedTuple):
    """What `read_words` did."""

    pages: int  # that have words now, and had none
    unread: list[str]  # pages whose text cannot be read: no text, or the file is gone or changed


@dataclasses.dataclass
class _Ready:
    """A document that is read and waits to be encoded."""

    digest: str
    missing: int  # pages that could not be read
    pages: list[DocumentPage]
    replaces: list[str]  # page ids


# Whose words are indexed beside a page: the text of its file, or of OCR where that has none; that
# of its file alone; that of OCR alone; none.
TEXTS = ("auto", "layer", "ocr", "none")


@dataclasses.dataclass(frozen=True)
class Reading:
    """How to read documents."""

    keep_images: bool = False
    ocr: bool = True
    text: str = "auto"  # one of TEXTS
    ocr_lang: str | None = None  # as it was asked for; None is the one that the index records
    recorded: str | None = None  # the one that it records, if any

    def __post_init__(self) -> None:
        if self.text not in TEXTS:
            raise InputError(f"text: expected {', '.join(TEXTS)}, found {self.text!r}")
        if self.ocr_lang is not None:
            if not self.ocr:
                raise InputError("ocr_lang: OCR is switched off; leave one of the two out")
            data_folder(self.ocr_lang)

    def beside(self, known: Mapping[str, KnownDocument]) -> Reading:
        """The same for an index with these documents: by default OCR reads in the language of the
        last of them."""
        return dataclasses.replace(self, recorded=self.recorded or last_ocr_lang(known))

    @property
    def lang(self) -> str:
        return self.ocr_lang or self.recorded or ENGLISH

    def wants_again(self, index: Index | None, known: KnownDocument) -> bool:
        """Whether to read a document again that has not changed: an earlier run kept no pictures,
        or its OCR read another language."""
        other = self.ocr_lang not in (None, known.ocr_lang or ENGLISH)
        pictures = self.keep_images and index is not None and lacks_images(index, known)
        return pictures or (known.scanned and other)


@dataclasses.dataclass(frozen=True)
class _Settings:
    """How to read documents, and for which index."""

    index: Index
    reads: Literal["text", "image"]
    ocr: bool
    reading: Reading
    english: bool  # whether the encoder reads English alone

    def wants_again(self, known: KnownDocument) -> bool:
        return self.reading.wants_again(self.index, known)


def lacks_images(index: Index, known: KnownDocument) -> bool:
    """Whether a document has pictures and the index keeps none of them."""
    pictured = has_picture(known.path)
    return pictured and known.ids[0] in index and index.image(known.ids[0]) is None


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
) -> Stored:
    """Read, encode and add the documents that are not `known` or have changed. `once` stops after
    the first commit."""
    report, kind, reading = Report(), reads(encoder), reading.beside(known)
    ocr = reading.ocr and (kind == "text" or reading.text in ("auto", "ocr"))
    settings = _Settings(index, kind, ocr, reading, language_of(EncoderId.of(encoder)) == "english")
    waiting: list[_Ready] = []
    names: list[str] = []
    work, read = Workload(len(found), progress), 0
    same = _count(found, known, settings, work) if work.wanted else set[str]()
    if compiling_ahead(work.pages):
        work.expect_compiling(COMPILING_SECONDS)
    for read, document in enumerate(found, start=1):
        work.begin(document.name)
        ready = None
        if document.name in same:
            report.documents_unchanged += 1
        else:
            ready = _read(document, known.get(document.name), report, settings, work)
        if ready is not None:
            names.append(document.name)
            waiting.append(ready)
        work.finish(len(ready.pages) if ready else 0)
        enough = sum(len(r.pages) for r in waiting) >= _pages_per_commit(index)
        if read == len(found) or enough:
            _store(index, encoder, waiting, report, reading, work)
            waiting = []
            if once:
                break
    return Stored(report, names, read)


def _count(
    found: Sequence[FoundDocument],
    known: Mapping[str, KnownDocument],
    settings: _Settings,
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


def _same(document: FoundDocument, known: KnownDocument, settings: _Settings) -> bool:
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


def _read(
    document: FoundDocument,
    known: KnownDocument | None,
    report: Report,
    settings: _Settings,
    work: Workload,
) -> _Ready | None:
    """Read the pages that the encoder accepts: those with text, or all if it encodes pictures.
    None if the document is unchanged or cannot be read."""
    if settings.reads == "image" and not has_picture(document.path):
        what = WHAT[kind_of(document.path)]
        report.problems.append(
            f"{document.name}: {what} has no picture for the encoder; make a PDF of it, "
            "or use an encoder that reads text"
        )
        return None
    try:
        digest = file_digest(document.path)
        same = (
            known is not None
            and (known.digest, known.path) == (digest, str(document.path))
            and not settings.wants_again(known)
        )
        if known is not None and same and not known.missing:
            report.documents_unchanged += 1
            return None
        pages, problems = read_document(
            document, ocr=settings.ocr, ocr_lang=settings.reading.lang, each=work.read_page
        )
    except OSError as error:
        report.problems.append(f"{document.name}: cannot be read: {error.strerror or error}")
        return None
    except MissingExtraError as error:
        report.problems.append(f"{document.name}: {error}")
        return None
    except DocumentError as error:
        report.problems.append(str(error))
        return None
    report.problems.extend(problems)
    usable, unread = pages, []
    if settings.reads == "text":
        usable = [page for page in pages if page.origin in ("text", "ocr")]
        unread = [page.id for page in pages if page.origin == "none"]
    report.pages_without_text.extend(unread)
    if not usable and not unread and not problems:
        report.problems.append(f"{document.name}: no text on any of its pages, even by OCR")
    if known is not None and same and {page.id for page in usable} <= set(known.ids):
        report.documents_unchanged += 1  # nothing more could be read than before
        return None
    if known is None:
        report.documents_added += bool(usable)
    else:
        report.documents_changed += 1
    if settings.english:
        report.pages_not_english += sum(not seems_english(page.text) for page in usable)
    report.pages_by_ocr += sum(page.origin == "ocr" for page in usable)
    missing = len(unread) + len(problems)
    return _Ready(digest, missing, usable, known.ids if known else [])


def _store(
    index: Index,
    encoder: Encoder,
    documents: Sequence[_Ready],
    report: Report,
    reading: Reading,
    work: Workload,
) -> None:
    """Encode and add documents in one commit."""
    pages = [(page, document) for document in documents for page in document.pages]
    # a shard on a cluster does not hold the pages that it replaces in the index
    replaced = [p for document in documents for p in document.replaces if p in index]
    stored, kind = 0, reads(encoder)

    def batches() -> Iterator[Batch]:
        nonlocal stored
        for at in range(0, len(pages), PAGES_PER_ENCODE):
            part = pages[at : at + PAGES_PER_ENCODE]
            given = [(page, document, _given(page, kind, report)) for page, document in part]
            given = [row for row in given if row[2] is not None]
            vectors = _encoded(encoder, given, report)
            kept = []
            for (page, document, _), array in zip(given, vectors, strict=True):
                if array is None:
                    continue
                try:
                    check_length(len(array), f"{page.document}, page {page.number}")
                except VectorError as error:
                    report.problems.append(str(error))
                else:
                    kept.append((page, document, array))
            stored += len(kept)
            yield Batch(
                Pages([array for *_, array in kept], [page.id for page, *_ in kept]),
                [_metadata(page, document, reading) for page, document, _ in kept],
                [_picture(page, report) for page, *_ in kept] if reading.keep_images else None,
                [_text(page, reading.text, report) for page, *_ in kept],
            )
            work.encode(len(part))

    if pages or replaced:
        work.begin_encoding()
        index.add(batches(), replacing=replaced, expected_pages=work.pages)
        report.pages_added += stored
        work.store()


def _given(page: DocumentPage, kind: Literal["text", "image"], report: Report) -> Any:
    """What the encoder gets: the page, or its picture. None, and a problem, if it has none."""
    try:
        return page if kind == "text" else page.image()
    except DocumentError as error:
        _note(report, str(error))
        return None


def _encoded(
    encoder: Encoder, given: Sequence[tuple[DocumentPage, _Ready, Any]], report: Report
) -> Sequence[Any]:
    """Encode pages. A page that the encoder refuses, such as a text without a token, is None and
    a problem in the report."""
    try:
        return encoder.encode_pages([content for *_, content in given])
    except InputError as error:
        if len(given) > 1:
            return [_encoded(encoder, [one], report)[0] for one in given]
        page = given[0][0]
        why = str(error).removeprefix("page 0: ")
        report.problems.append(f"{page.document}, page {page.number}: {why}")
        return [None]


def _metadata(page: DocumentPage, document: _Ready, reading: Reading) -> dict[str, Any]:
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


def _text(page: DocumentPage, which: str, report: Report) -> str | None:
    """The text whose words are indexed. None, and a problem, if OCR cannot read it."""
    if which == "none" or (which == "layer" and page.origin != "text"):
        return None
    if which == "ocr" and page.origin == "text" and has_picture(page.path):
        try:
            return scanned_text(page.path, page.number, page.ocr_lang)
        except (DocumentError, MissingExtraError, OSError) as error:
            _note(report, f"{page.document}: no words by OCR: {error}")
            return None
    return page.text


def _picture(page: DocumentPage, report: Report) -> bytes | None:
    try:
        return small_picture(page)
    except DocumentError as error:
        _note(report, f"no picture is kept: {error}")
        return None


def _note(report: Report, problem: str) -> None:
    if problem not in report.problems[-1:]:  # report a file once, not once a page
        report.problems.append(problem)
