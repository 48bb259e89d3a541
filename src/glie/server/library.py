"""An index with its encoder and its documents, for many threads at once.

Each request looks at one committed state of the index, whatever is written meanwhile. Of files, it
reads those that pages of the index name, and only while they are, byte for byte, what was indexed.
"""

from __future__ import annotations

import dataclasses
import io
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np

from glie.documents import (
    OCR_PIXELS,
    TEXT,
    DocumentPage,
    open_picture,
    page_text,
    read_image,
)
from glie.encoders import Encoder
from glie.encoders.base import Floats, Grid, reads
from glie.errors import EncoderError, GlieError, IdError
from glie.identity import check_encoder
from glie.index.folder import DOCUMENTS
from glie.index.index import Index
from glie.ingest import known_documents
from glie.retriever import as_indexed, encoder_of, why_no_text
from glie.server.heatmap import Places, WordHeat, heat, patch_places, span_places, word_places

SECONDS_BETWEEN_LOOKS = 1.0  # for what other processes have written
THUMBNAIL, LARGE = 480, 1600  # the longer sides of pictures, in pixels

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The values that were used last, at most so many; threads may share it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        found = self.peek(key)
        return self.put(key, make()) if found is None else found

    def peek(self, key: Hashable) -> Value | None:
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


class Evidence(NamedTuple):
    """All vectors of a page, and where on it each comes from."""

    vectors: Floats
    places: Places


class NotShownError(GlieError):
    """Something of a page cannot be shown; the message says why."""


class Library:
    """The index at `path`. The encoder is loaded when it is first needed, unless it is given."""

    def __init__(self, path: Path, encoder: Encoder | None = None) -> None:
        self._index = Index.open(path)
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._encoder = encoder
        self._encoder_error: str | None = None
        self._documents: tuple[Index | None, dict[str, StoredDocument]] = None, {}
        self._texts: Recent[str] = Recent(2000)
        self._pictures: Recent[bytes] = Recent(256)
        self._evidence: Recent[Evidence] = Recent(64)
        self._questions: Recent[Floats] = Recent(256)
        if encoder is not None:
            check_encoder(self._index, encoder)

    @property
    def path(self) -> Path:
        return self._index.path

    @property
    def folder(self) -> Path:
        """Where uploaded documents are; resolved, as the paths of documents in an index are."""
        return self.path.resolve() / DOCUMENTS

    @property
    def index(self) -> Index:
        """The latest state, or that of a moment ago."""
        if time.monotonic() - self._looked > SECONDS_BETWEEN_LOOKS:
            self.refresh()
        return self._index

    def refresh(self) -> None:
        """See what has been written."""
        with self._lock:
            self._index = self._index.latest()
            self._looked = time.monotonic()

    # the encoder

    @property
    def encoder(self) -> Encoder:
        """The encoder that made the index."""
        with self._loading:
            if self._encoder is None:
                if self._encoder_error is not None:  # it does not get better by trying again
                    raise EncoderError(self._encoder_error)
                try:
                    found = encoder_of(self._index)
                except GlieError as error:
                    self._encoder_error = str(error)
                    raise
                self._encoder = found
            return self._encoder

    @property
    def encoder_state(self) -> str:
        """none, loading, ready, or what is wrong with it."""
        if self._index.encoder is None:
            return "none"
        return self._encoder_error or ("ready" if self._encoder else "loading")

    def warm_up(self) -> None:
        """Load what the first search needs; what is wrong is said when it is asked."""
        index = self.index
        try:
            vectors = self.question("a")
        except GlieError:
            if index.dim is None:
                return
            vectors = np.eye(1, index.dim, dtype=np.float32)
        if len(index):
            index.search([vectors], top=1)

    def question(self, text: str) -> Floats:
        """A question as vectors."""
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
        """Whether a file was uploaded, and is the index's to delete."""
        return path.parent == self.folder

    def page(self, index: Index, page_id: str) -> DocumentPage:
        """A page as its document has it, without its text; raises NotShownError unless the file is
        the one that was indexed."""
        metadata = self.located(index.metadata(page_id))
        number = metadata.get("page")
        if not as_indexed(metadata) or not isinstance(number, int) or number < 1:
            raise NotShownError(_why_not_shown(metadata))
        return DocumentPage(
            str(metadata.get("document")),
            number,
            Path(metadata["path"]),
            "",
            metadata.get("origin", "text"),
        )

    def located(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Metadata with the path of an uploaded document as it is now: the index may have been
        moved, with its folder."""
        path = Path(str(metadata.get("path", "")))
        if path.parent.name == DOCUMENTS and not path.exists():
            return {**metadata, "path": str(self.folder / path.name)}
        return metadata

    def text(self, index: Index, page_id: str, *, ocr: bool = True) -> str:
        """What a page says. Without `ocr`, that of a scanned page only if it was read lately."""
        page = self.page(index, page_id)
        key = str(page.path), page.number, index.metadata(page_id)["digest"]
        if page.origin != "ocr":
            return self._texts.get(key, lambda: page_text(page.path, page.number))
        if not ocr:
            return self._texts.peek(key) or ""
        return self._texts.get(key, lambda: read_image(page.image(OCR_PIXELS))[0])

    def why_no_text(self, index: Index, page_id: str) -> str:
        """What to say of a page without text beside it."""
        metadata = self.located(index.metadata(page_id))
        return why_no_text(metadata) if as_indexed(metadata) else _why_not_shown(metadata)

    def has_picture(self, index: Index, page_id: str) -> bool:
        """Whether a page is worth looking at: not one of a text file."""
        suffix = Path(str(index.metadata(page_id).get("path", ""))).suffix.lower()
        kept = index.image(page_id) is not None
        return kept or (suffix not in TEXT and suffix != "")

    def picture(self, index: Index, page_id: str, longest: int) -> bytes:
        """The page as a WebP: drawn from its file or, where that is gone, as it was kept."""
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

    def evidence(self, index: Index, page_id: str) -> Evidence:
        """A page's true vectors, encoded again, and their places; raises NotShownError where that
        cannot be done."""
        digest = index.metadata(page_id).get("digest")
        return self._evidence.get((page_id, digest), lambda: self._locate(index, page_id))

    def _locate(self, index: Index, page_id: str) -> Evidence:
        page, encoder = self.page(index, page_id), self.encoder
        if reads(encoder) == "image":
            picture = page.image()
            grid: Grid | None = _asked(encoder, "patches")(picture)
            if grid is None:
                raise NotShownError(f"encoder {encoder.name!r} does not tell its patches apart")
            vectors = encoder.encode_pages([picture])[0]
            return Evidence(vectors, patch_places(grid, len(vectors)))
        if page.origin == "ocr":
            text, words = read_image(page.image(OCR_PIXELS))
        else:
            text, words = self.text(index, page_id), page.words()
        spans = _asked(encoder, "spans")(text)
        vectors = encoder.encode_pages([text])[0]
        if len(vectors) != len(spans):
            found = f"{len(vectors)} vectors and {len(spans)} places for them"
            raise NotShownError(f"encoder {encoder.name!r} gives {found}")
        plain = page.path.suffix.lower() in TEXT
        places = span_places(text, spans) if plain else word_places(text, spans, words)
        return Evidence(vectors, places)

    def stored(self, index: Index, page_id: str) -> Floats:
        """A page's vectors as the index reads them back."""
        return index.codec.regenerate(index.codes([page_id]))[0]

    def heat(
        self, index: Index, page_id: str, question: str, vectors: Literal["document", "index"]
    ) -> tuple[Places, list[WordHeat]]:
        """Where a question finds its evidence on a page: by all vectors of the document or, each
        replaced by the nearest that is stored, by what the index knows of them."""
        found = self.evidence(index, page_id)
        page, stored = found.vectors, None
        if vectors == "index":
            stored = self.stored(index, page_id)
            page = stored[(page @ stored.T).argmax(axis=1)]
        asked = self.question(question)
        spans = self.encoder.spans(question) if hasattr(self.encoder, "spans") else []
        return found.places, heat(question, spans, asked, page, found.places, stored)


def _asked(encoder: Encoder, method: str) -> Callable[[Any], Any]:
    """What an encoder may have, to tell where its vectors come from."""
    found = getattr(encoder, method, None)
    if found is None:
        raise NotShownError(f"encoder {encoder.name!r} does not say where its vectors come from")
    return cast(Callable[[Any], Any], found)


def _why_not_shown(metadata: dict[str, Any]) -> str:
    path = metadata.get("path")
    if not path or not {"digest", "page"} <= set(metadata):
        return "the index names no document for this page"
    name = Path(str(path)).name
    if not Path(str(path)).exists():
        return f"its file is gone: {name}"
    return f"{name} has changed since it was indexed; index it again"
