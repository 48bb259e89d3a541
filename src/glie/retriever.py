"""Questions in words, asked of an index: by its own encoder, and answered with what the pages say.

The command line, the frameworks' retrievers and the MCP server all ask here.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from glie.documents import (
    DocumentPage,
    ocr_available,
    page_text,
    picture_kind,
    scanned_text,
    small_picture,
)
from glie.encoders import Encoder, load_encoder
from glie.errors import GlieError, InputError, MissingExtraError
from glie.identity import EncodedPages, check_encoder, recorded_encoder
from glie.index.index import Index
from glie.ingest import file_digest, pages_of
from glie.search.results import Cost, Hits

# What turns questions into vectors: an encoder, its name, or any function of a list of texts that
# gives one (m, D) array a text.
Encode = Callable[[Sequence[str]], Sequence[Any]]
AnyEncoder = Encoder | Encode | str | os.PathLike[str]

# Which pages may answer: values of their metadata, as Index.search takes them, or a function of a
# page's id and metadata.
Where = Mapping[str, Any] | Callable[[str, dict[str, Any]], bool]


@dataclasses.dataclass(frozen=True)
class FoundPage:
    """A page that answers a question."""

    id: str
    score: float
    metadata: dict[str, Any]

    def text(self, *, ocr: bool = False) -> str:
        """What it says, read from its file."""
        return text_of(self.metadata, ocr=ocr)


class Answers(NamedTuple):
    """The best pages for a question, best first, and what finding them cost."""

    pages: list[FoundPage]
    cost: Cost
    encode_seconds: float  # of the question, with loading the encoder where that came first


class Searchable(EncodedPages, Protocol):
    """Pages that can be searched: an index, or a collection in an engine."""

    def __len__(self) -> int: ...

    def search(
        self,
        queries: Any,
        top: int = 10,
        *,
        shortlist: int | None = None,
        ids: Iterable[str] | None = None,
        where: Mapping[str, Any] | None = None,
        exact: bool | None = None,
    ) -> list[Hits]: ...


class Retriever:
    """An index and what encodes questions for it, loaded when the first is asked.

    `index` is a folder, whose latest state is asked each time, or an open Index (or a collection in
    an engine), which is asked as it is. `encoder` is the one that made the index unless another is
    given; one that is known to be of other weights is refused.
    """

    def __init__(
        self, index: Searchable | str | os.PathLike[str], encoder: AnyEncoder | None = None
    ) -> None:
        self._follows = isinstance(index, (str, os.PathLike))
        opened = Index.open(cast(Any, index)) if self._follows else index
        self.index = cast(Index, opened)  # or what is searched like one
        self._encoder = encoder
        self._encode: Encode | None = None
        self._loading = threading.Lock()

    def warm_up(self) -> None:
        """Load the encoder now, so that the first question need not wait for it."""
        with self._loading:
            if self._encode is None:
                self._encode = encode_by(self.index, self._encoder)

    def refresh(self) -> None:
        """Take in what others have changed, where the index was given as a folder."""
        if self._follows:
            self.index.refresh()

    def ask(
        self,
        question: str,
        top: int = 10,
        *,
        shortlist: int | None = None,
        documents: Iterable[str] | None = None,
        where: Where | None = None,
        exact: bool | None = None,
        **more: Any,
    ) -> Answers:
        """The `top` best pages for a question: of these documents (names, paths or folders), and
        with this metadata, if that is restricted. `more` is what the search of a collection takes
        besides."""
        if not isinstance(question, str) or not question.strip():
            raise InputError(f"the question is empty (found {question!r:.40})")
        self.refresh()
        ids = None if documents is None else pages_of(self.index, documents)
        if not len(self.index):
            return Answers([], Cost(0, 0, 0, 0.0), 0.0)
        if callable(where):
            fitting = {name for name, metadata in self.index.records() if where(name, metadata)}
            ids, where = sorted(fitting if ids is None else fitting.intersection(ids)), None
        began = time.perf_counter()
        self.warm_up()
        assert self._encode is not None
        vectors = self._encode([question])
        encoded = time.perf_counter()
        results = self.index.search(
            vectors, top=top, shortlist=shortlist, ids=ids, where=where, exact=exact, **more
        )
        if len(results) != 1:
            raise InputError(
                f"encoder: expected one (m, D) array for one question, found {len(results)}"
            )
        hits = results[0]
        found = zip(hits.ids, hits.scores, hits.metadata, strict=True)
        return Answers([FoundPage(*page) for page in found], hits.cost, encoded - began)


def encode_by(index: EncodedPages, encoder: AnyEncoder | None) -> Encode:
    """What turns questions into vectors for an index."""
    if encoder is None or (isinstance(encoder, (str, os.PathLike)) and index.encoder is not None):
        return encoder_of(index, encoder).encode_queries
    if isinstance(encoder, (str, os.PathLike)):
        encoder = load_encoder(encoder)
    if hasattr(encoder, "encode_queries"):
        known = cast(Encoder, encoder)
        if index.encoder is not None:
            check_encoder(index, known)
        return known.encode_queries
    if not callable(encoder):
        raise InputError(
            "encoder: expected an encoder, its name, or a function of a list of texts, found "
            f"{type(encoder).__name__}"
        )
    return encoder


def encoder_of(pages: EncodedPages, asked: str | os.PathLike[str] | None = None) -> Encoder:
    """Load the encoder that made the pages, at its recorded revision; another is refused. `asked`
    is where it lies now, if it has moved."""
    recorded = recorded_encoder(pages)
    wanted = recorded.name if asked is None else os.fspath(asked)
    encoder = load_encoder(wanted, revision=recorded.revision if wanted == recorded.name else None)
    check_encoder(pages, encoder)
    return encoder


def as_setting(encoder: AnyEncoder | None) -> Any:
    """An encoder as it can be saved: by its name; a function stays what it is."""
    if isinstance(encoder, os.PathLike):
        return os.fspath(encoder)
    return getattr(encoder, "name", encoder)


def text_of(metadata: Mapping[str, Any], *, ocr: bool = False) -> str:
    """What a page says, read from its file; empty when that is gone or is a picture. With `ocr`, a
    page that was read by OCR when it was indexed is read so again, if that extra is installed."""
    try:
        path, number = Path(metadata["path"]), metadata["page"]
        if ocr and metadata.get("origin") == "ocr" and ocr_available():
            return scanned_text(path, number)
        return page_text(path, number)
    except MissingExtraError:
        raise
    except (KeyError, TypeError, IndexError, OSError, GlieError):
        return ""


def why_no_text(metadata: Mapping[str, Any]) -> str:
    """What to say of a page whose text cannot be shown."""
    if metadata.get("origin") == "ocr":
        return "a scanned page, read by OCR"
    path = metadata.get("path")
    return f"its file is gone: {path}" if path and not Path(path).exists() else "no text"


class Picture(NamedTuple):
    """An image file, and what kind it is, like image/webp."""

    data: bytes
    kind: str


def picture_of(index: Index, page_id: str, *, draw: bool = True) -> Picture | None:
    """A page as a small picture: as it was kept in the index or, unless `draw` is false, drawn
    from its file. None where there is neither."""
    data, metadata = index.image(page_id), index.metadata(page_id)
    try:
        if data is None and draw:
            path = Path(metadata["path"])
            data = small_picture(DocumentPage(path.name, metadata["page"], path, "", "none"))
        return None if data is None else Picture(data, picture_kind(data, page_id))
    except MissingExtraError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OSError, GlieError):
        return None


def as_indexed(metadata: Mapping[str, Any]) -> bool:
    """Whether a page's file holds, byte for byte, what was indexed. Of a file that was not, nothing
    is known but a path, which whoever made the index chose."""
    try:
        path = Path(metadata["path"])
        at = path.stat()
        return _digest(path, at.st_mtime_ns, at.st_size) == str(metadata["digest"])
    except (KeyError, TypeError, ValueError, OSError):
        return False


@functools.lru_cache(maxsize=1024)
def _digest(path: Path, changed: int, size: int) -> str:
    """The digest of a file, read again when it has changed."""
    return file_digest(path)
