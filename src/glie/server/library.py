"""An index with its encoder and its documents, shared by the threads of the server.

Each request sees one committed state of the index. Files are read only if a page of the index names
them, and only while they are, byte for byte, what was indexed.
"""

from __future__ import annotations

import dataclasses
import io
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np

from glie.documents import (
    OCR_PIXELS,
    DocumentPage,
    Word,
    has_picture,
    open_picture,
    page_text,
    read_image,
)
from glie.documents.known import known_documents
from glie.documents.ocr_languages import ENGLISH
from glie.documents.original import unchanged, why_no_text
from glie.encoders import Encoder
from glie.encoders.base import Floats, Grid, reads
from glie.errors import EncoderError, GlieError, IdError
from glie.identity import check_encoder
from glie.index.folder import DOCUMENTS
from glie.index.index import Index
from glie.lexical.snippet import is_stop_word, nearest_snippet
from glie.pages import Queries
from glie.retriever import Retriever
from glie.search.scan import warm_up as load_loops
from glie.server.heatmap import (
    Places,
    Span,
    WordHeat,
    heat,
    nowhere,
    patch_places,
    span_places,
    word_places,
)

SECONDS_BETWEEN_REFRESHES = 1.0  # that show what other processes have written
SIZES = {"thumbnail": 480, "large": 1600, "full": 3200}  # longer sides of pictures, in pixels

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The `most` values that were used last (LRU); threads may share it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key; made and kept if it is new."""
        found = self.peek(key)
        return self.put(key, make()) if found is None else found

    def peek(self, key: Hashable) -> Value | None:
        """The value of a key, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Hashable, value: Value) -> Value:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value


@dataclasses.dataclass(frozen=True)
class StoredDocument:
    """A document of the index."""

    name: str
    ids: list[str]
    uploaded: bool  # its file is in the index's own folder


class EncodedPage(NamedTuple):
    """All vectors of a page, and where on the page each comes from."""

    vectors: Floats
    places: Places
    spans: Sequence[Span] = ()  # the characters of its text, if it was encoded as text


class NotShownError(GlieError):
    """Something of a page cannot be shown; the message says why."""


class Library:
    """The index at `path`. Its encoder is loaded when it is first needed, or given."""

    def __init__(self, path: Path, encoder: Encoder | None = None) -> None:
        self._retriever = Retriever(path, encoder)
        self._refreshed = time.monotonic()
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._encoder_error: str | None = None
        self._documents: tuple[Index | None, dict[str, StoredDocument]] = None, {}
        self._texts: Recent[str] = Recent(2000)
        self._scans: Recent[tuple[str, list[Word]]] = Recent(512)
        self._pictures: Recent[bytes] = Recent(256)
        self._encoded: Recent[EncodedPage] = Recent(64)
        self._questions: Recent[Floats] = Recent(256)
        if encoder is not None:
            check_encoder(self.index, encoder)
            self._retriever.load()

    @property
    def path(self) -> Path:
        return self._retriever.index.path

    @property
    def folder(self) -> Path:
        """Where uploaded documents are; resolved, like all paths of documents in an index."""
        return self.path.resolve() / DOCUMENTS

    @property
    def index(self) -> Index:
        """The latest state of the index, or that of at most a second ago."""
        if time.monotonic() - self._refreshed > SECONDS_BETWEEN_REFRESHES:
            self.refresh()
        return self._retriever.index

    def refresh(self) -> None:
        """Show what has been written."""
        with self._lock:
            self._retriever.refresh()
            self._refreshed = time.monotonic()

    # the encoder

    @property
    def encoder(self) -> Encoder:
        """The encoder that made the index. An error is kept: loading again would not help."""
        with self._loading:
            if self._encoder_error is not None:
                raise EncoderError(self._encoder_error)
            try:
                return cast(Encoder, self._retriever.load())
            except GlieError as error:
                self._encoder_error = str(error)
                raise

    @property
    def encoder_state(self) -> str:
        """none, loading, ready, or the error."""
        if self._retriever.index.encoder is None:
            return "none"
        return self._encoder_error or ("ready" if self._retriever.loaded else "loading")

    def warm_up(self) -> None:
        """Load the encoder and compile the search. Errors are reported by the first request."""
        index = self.index
        try:
            vectors = self.question("a")
        except GlieError:
            if index.dim is None:
                return
            vectors = np.eye(1, index.dim, dtype=np.float32)
        if len(index):
            load_loops()  # a server answers many questions
            index.search([vectors], top=1)

    def question(self, text: str) -> Floats:
        """The vectors of a question."""
        return self._questions.get(text, lambda: self.encoder.encode_queries([text])[0])

    # documents and pages

    def documents(self) -> dict[str, StoredDocument]:
        """The documents of the index, by name."""
        index = self.index
        seen, found = self._documents
        if seen is not index:
            found = {
                name: StoredDocument(name, known.ids, self.is_own(Path(known.path)))
                for name, known in known_documents(index).items()
            }
            self._documents = index, found
        return found

    def document(self, name: str) -> StoredDocument:
        try:
            return self.documents()[name]
        except KeyError:
            raise IdError(f"document {name!r} is not in the index") from None

    def is_own(self, path: Path) -> bool:
        """Whether a file was uploaded: it lies in the index's own folder, and may be deleted."""
        return path.parent == self.folder

    def page(self, index: Index, page_id: str) -> DocumentPage:
        """A page of a document, without its text. Raises NotShownError if the file is not the one
        that was indexed."""
        metadata = self.located(index.metadata(page_id))
        number = metadata.get("page")
        if not unchanged(metadata) or not isinstance(number, int) or number < 1:
            raise NotShownError(why_not_shown(metadata))
        return DocumentPage(
            str(metadata.get("document")),
            number,
            Path(metadata["path"]),
            "",
            metadata.get("origin", "text"),
            metadata.get("ocr_lang", ENGLISH),
        )

    def located(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Metadata with the current path of an uploaded document: the index folder may have
        moved."""
        path = Path(str(metadata.get("path", "")))
        if path.parent.name == DOCUMENTS and not path.exists():
            return {**metadata, "path": str(self.folder / path.name)}
        return metadata

    def text(self, index: Index, page_id: str, *, ocr: bool = True) -> str:
        """The text of a page. Without `ocr`, that of a scanned page only if it is cached."""
        page = self.page(index, page_id)
        key = str(page.path), page.number, index.metadata(page_id)["digest"]
        if page.origin != "ocr":
            return self._texts.get(key, lambda: page_text(page.path, page.number))
        if ocr:
            return self._scan(index, page_id, page)[0]
        return (self._scans.peek(key) or ("",))[0]

    def words(self, index: Index, page_id: str) -> list[Word]:
        """The words of a page and where they are on its picture, as its text layer or OCR has
        them; none of a page that has no picture."""
        page = self.page(index, page_id)
        return self._scan(index, page_id, page)[1] if page.origin == "ocr" else page.words()

    def _scan(self, index: Index, page_id: str, page: DocumentPage) -> tuple[str, list[Word]]:
        """What OCR reads on a page, which takes seconds."""
        key = str(page.path), page.number, index.metadata(page_id)["digest"]
        return self._scans.get(key, lambda: read_image(page.image(OCR_PIXELS), page.ocr_lang))

    def why_no_text(self, index: Index, page_id: str) -> str:
        """The note that stands in place of a page's text."""
        metadata = self.located(index.metadata(page_id))
        return why_no_text(metadata) if unchanged(metadata) else why_not_shown(metadata)

    def has_picture(self, index: Index, page_id: str) -> bool:
        """Whether a page can be shown as a picture; one of a text file cannot."""
        path = str(index.metadata(page_id).get("path", ""))
        return index.image(page_id) is not None or has_picture(path)

    def picture(self, index: Index, page_id: str, longest: int) -> bytes:
        """The page as WebP: drawn from its file or, if that is gone, the kept picture."""
        digest = index.metadata(page_id).get("digest")
        return self._pictures.get(
            (page_id, digest, longest), lambda: self._draw(index, page_id, longest)
        )

    def _draw(self, index: Index, page_id: str, longest: int) -> bytes:
        try:
            drawn = self.page(index, page_id).image(longest)
        except (GlieError, OSError, IndexError) as error:
            kept = index.image(page_id)
            if kept is None:
                raise NotShownError(str(error)) from None
            drawn = open_picture(io.BytesIO(kept), f"page {page_id!r}")
            drawn.thumbnail((longest, longest))
        buffer = io.BytesIO()
        drawn.save(buffer, "WEBP", quality=82, method=2)
        return buffer.getvalue()

    # why a page matched

    def encoded(self, index: Index, page_id: str) -> EncodedPage:
        """A page encoded again: its original vectors and their places. Raises NotShownError if its
        file is gone or has changed, or the encoder does not say where vectors come from."""
        digest = index.metadata(page_id).get("digest")
        return self._encoded.get((page_id, digest), lambda: self.locate(index, page_id))

    def locate(self, index: Index, page_id: str) -> EncodedPage:
        """The same, encoded now."""
        page, encoder = self.page(index, page_id), self.encoder
        if reads(encoder) == "image":
            picture = page.image()
            grid: Grid | None = _method(encoder, "patches")(picture)
            if grid is None:
                raise NotShownError(f"encoder {encoder.name!r} does not tell its patches apart")
            vectors = encoder.encode_pages([picture])[0]
            return EncodedPage(vectors, patch_places(grid, len(vectors)))
        if page.origin == "ocr":
            text, words = self._scan(index, page_id, page)
        else:
            text, words = self.text(index, page_id), page.words()
        spans = _method(encoder, "spans")(text)
        vectors = encoder.encode_pages([text])[0]
        if len(vectors) != len(spans):
            found = f"{len(vectors)} vectors and {len(spans)} places for them"
            raise NotShownError(f"encoder {encoder.name!r} gives {found}")
        drawn = has_picture(page.path)
        places = word_places(text, spans, words) if drawn else span_places(text, spans)
        return EncodedPage(vectors, places, spans)

    def stored(self, index: Index, page_id: str) -> Floats:
        """A page's vectors as the index reconstructs them."""
        return index.codec.regenerate(index.codes([page_id]))[0]

    def nearest(self, index: Index, page_id: str, question: str) -> str:
        """The passage of a page that is nearest to a question by meaning; empty if it cannot be
        told."""
        if reads(self.encoder) == "image":
            return ""
        found = self.encoded(index, page_id)
        asked = self._searched(index, question)
        text = self.text(index, page_id)
        return nearest_snippet(text, found.spans, asked @ found.vectors.T)

    def _searched(self, index: Index, question: str) -> Floats:
        """The vectors of a question as a search compares them with those of a page."""
        asked = self.question(question)
        if index.encoder is not None and index.encoder.weighted:
            return Queries([asked]).without_last().vectors
        return asked

    def heat(
        self, index: Index, page_id: str, question: str, vectors: Literal["document", "index"]
    ) -> Heat:
        """Where on a page each word of a question matches, and what it adds to the page's score.
        `vectors` are those of the document, or each of them replaced by the nearest that the index
        reconstructs. If there is no document, stored vectors have scores, and no places."""
        asked, reason, stored = self._searched(index, question), None, None
        if vectors == "index":
            stored = self.stored(index, page_id)
        try:
            found = self.encoded(index, page_id)
            page, places = found.vectors, found.places
            if stored is not None:
                page = stored[(page @ stored.T).argmax(axis=1)]
        except (GlieError, OSError, IndexError) as error:
            if stored is None:
                raise
            page, places, reason = stored, nowhere(stored), str(error)
        spans = self.encoder.spans(question) if hasattr(self.encoder, "spans") else []
        common = index.common_terms(question)

        def stop_word(word: str) -> bool:
            return is_stop_word(word, index.analyzer, common)

        words = heat(question, spans, asked, page, places, stored, stop_word)
        if index.has_text:
            words = self._with_words(index, page_id, question, words)
        return Heat(places, words, reason)

    def _with_words(
        self, index: Index, page_id: str, question: str, words: list[WordHeat]
    ) -> list[WordHeat]:
        """The words with their parts of the page's score by words. A term that occurs twice is
        shared."""
        query = index.parse(question)
        scores = index.word_scores(page_id, query)
        parts = []
        for word in words:
            terms = index.analyzer.counted(question[word.start : word.end])
            part = sum(
                scores.get(term, 0.0) * often / query.terms[term]
                for term, often in terms.items()
                if query.terms[term]
            )
            parts.append(word._replace(by_words=part))
        return parts


class Heat(NamedTuple):
    """Where the words of a question match a page."""

    places: Places
    words: list[WordHeat]
    reason: str | None  # why there are no places


def _method(encoder: Encoder, method: str) -> Callable[[Any], Any]:
    """An optional method of an encoder, which says where its vectors come from."""
    found = getattr(encoder, method, None)
    if found is None:
        raise NotShownError(f"encoder {encoder.name!r} does not say where its vectors come from")
    return cast(Callable[[Any], Any], found)


def why_not_shown(metadata: dict[str, Any]) -> str:
    """Why the file of a page is neither read nor sent."""
    path = metadata.get("path")
    if not path or not {"digest", "page"} <= set(metadata):
        return "the index names no document for this page"
    name = Path(str(path)).name
    if not Path(str(path)).exists():
        return f"its file is gone: {name}"
    return f"{name} has changed since it was indexed; index it again"
