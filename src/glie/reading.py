"""Documents to the pages that an encoder accepts, and a report of what was met on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from glie.documents import DocumentPage, FoundDocument, has_picture, read_document
from glie.documents.find import WHAT, kind_of
from glie.documents.known import KnownDocument, last_ocr_lang
from glie.documents.ocr_languages import ENGLISH, data_folder
from glie.documents.original import file_digest
from glie.documents.read import OcrThreads, ReadDocument
from glie.errors import DocumentError, InputError, MissingExtraError
from glie.index.index import Index
from glie.lexical.english import seems_english


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


@dataclasses.dataclass
class Ready:
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
class Settings:
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


class Seen(NamedTuple):
    """What reading a document gave: its pages, or a problem; neither if it is unchanged."""

    problem: str | None = None
    digest: str = ""
    same: bool = False  # as the index has it, of which pages are missing
    read: ReadDocument | None = None


def see(
    document: FoundDocument,
    known: KnownDocument | None,
    again: bool,
    settings: Settings,
    each: Callable[[bool], None],
    threads: OcrThreads | None,
) -> Seen:
    """Read a document unless it is unchanged; `again`: even then. In any thread: nothing is changed
    here."""
    if settings.reads == "image" and not has_picture(document.path):
        what = WHAT[kind_of(document.path)]
        return Seen(
            f"{document.name}: {what} has no picture for the encoder; make a PDF of it, "
            "or use an encoder that reads text"
        )
    try:
        digest = file_digest(document.path)
        facts = digest, str(document.path)
        same = known is not None and (known.digest, known.path) == facts and not again
        if known is not None and same and not known.missing:
            return Seen()
        read = read_document(
            document,
            ocr=settings.ocr,
            ocr_lang=settings.reading.lang,
            each=each,
            threads=threads,
        )
    except OSError as error:
        return Seen(f"{document.name}: cannot be read: {error.strerror or error}")
    except MissingExtraError as error:
        return Seen(f"{document.name}: {error}")
    except DocumentError as error:
        return Seen(str(error))
    return Seen(None, digest, same, read)


def ready(
    document: FoundDocument,
    known: KnownDocument | None,
    seen: Seen,
    report: Report,
    settings: Settings,
) -> Ready | None:
    """The pages that the encoder accepts: those with text, or all if it encodes pictures. None if
    the document is unchanged or cannot be read."""
    if seen.problem is not None:
        report.problems.append(seen.problem)
        return None
    if seen.read is None:
        report.documents_unchanged += 1
        return None
    pages, problems = seen.read
    report.problems.extend(problems)
    usable, unread = pages, []
    if settings.reads == "text":
        usable = [page for page in pages if page.origin in ("text", "ocr")]
        unread = [page.id for page in pages if page.origin == "none"]
    report.pages_without_text.extend(unread)
    if not usable and not unread and not problems:
        report.problems.append(f"{document.name}: no text on any of its pages, even by OCR")
    if known is not None and seen.same and {page.id for page in usable} <= set(known.ids):
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
    return Ready(seen.digest, missing, usable, known.ids if known else [])
