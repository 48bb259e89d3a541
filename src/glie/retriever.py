"""Retriever: answers questions in words. It loads an index and the encoder that made it.

The command line, the web server, the MCP server and the framework retrievers load both here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack, cast

import numpy as np

from glie.documents import PAGE_PIXELS, picture_text
from glie.documents.known import known_documents, last_ocr_lang, pages_of
from glie.documents.ocr_languages import ENGLISH
from glie.documents.original import original_text, unchanged
from glie.encoders import Encoder, load_encoder
from glie.encoders.base import reads
from glie.encoders.content import picture_of
from glie.encoders.recorded import encoder_of as encoder_of  # the older place of both
from glie.encoders.recorded import load_recorded as load_recorded
from glie.errors import InputError, MissingExtraError
from glie.filters import Filter, from_json
from glie.identity import EncodedPages, check_encoder
from glie.index.index import Index
from glie.index.words import analyzer_of, language_of
from glie.lexical.language import foreign_language
from glie.lexical.query import Phrase, Query
from glie.lexical.snippet import Asked, nearest_snippet
from glie.pages import Queries
from glie.search.options import LATE, LEXICAL, SearchKeywords, check_mode
from glie.search.results import Cost, Hits
from glie.strength import Question, strengths

# A function that turns a list of texts into one (m, D) array a text.
Encode = Callable[[Sequence[str]], Sequence[Any]]
# Anything that encodes questions: an encoder, its name or path, or a function.
AnyEncoder = Encoder | Encode | str | os.PathLike[str]
# Which pages may be found: a filter on their metadata, as in Index.search, or a function of a
# page's id and metadata.
Where = Mapping[str, Any] | Filter | Callable[[str, dict[str, Any]], bool]


# The text of a page, by its id and metadata; empty: it cannot be read.
Read = Callable[[str, dict[str, Any]], str]

MOST_READ = 100  # pages whose text is read again, for a phrase


class Searchable(EncodedPages, Protocol):
    """Pages that can be searched: an index, or a collection in an engine."""

    def __len__(self) -> int: ...

    def search(
        self, queries: Any, top: int = 10, **keywords: Unpack[SearchKeywords]
    ) -> list[Hits]: ...


def open_index(path: str | os.PathLike[str]) -> Index:
    """The index in a folder or, of a folder of shards, all of them as one
    (`glie.distributed.ShardedIndex`, which has the methods of an index)."""
    from glie.distributed.shards import is_sharded

    if not is_sharded(path):
        return Index.open(path)
    from glie.distributed.sharded import ShardedIndex

    return cast(Index, ShardedIndex.open(path))


def as_index(pages: object) -> Index | None:
    """Pages with the methods of an index; None for a collection in an engine, which holds neither
    words nor codes."""
    return cast(Index, pages) if hasattr(type(pages), "like") else None


class Retriever:
    """An index and its encoder, which is loaded when the first question is asked.

    `index` is a folder, whose latest state each search sees: that of an index, or of shards (see
    `open_index`). Or it is an open Index, or a collection in an engine, which is searched as it is.
    By default the encoder is the one that the index records, at the recorded revision. An `encoder`
    with other weights is refused.

    Several threads may share a retriever.
    """

    def __init__(
        self, index: Searchable | str | os.PathLike[str], encoder: AnyEncoder | None = None
    ) -> None:
        self._follows = isinstance(index, (str, os.PathLike))
        opened = open_index(cast(Any, index)) if self._follows else index
        self.index = cast(Index, opened)  # or a collection, which is searched in the same way
        self._given = encoder
        self._encoder: Encoder | Encode | None = None
        self._loading = threading.Lock()

    def load(self) -> Encoder | Encode:
        """The encoder of the questions. The first call loads it; `search` does so if need be."""
        with self._loading:
            if self._encoder is None:
                self._encoder = query_encoder(self.index, self._given)
            return self._encoder

    @property
    def loaded(self) -> bool:
        """Whether the encoder is loaded."""
        return self._encoder is not None

    def refresh(self) -> Index:
        """The latest state of an index that was given as a folder. A search that is under way
        keeps the state it began with."""
        if self._follows:
            self.index = self.index.latest()
        return self.index

    def encode(self, question: str) -> Any:
        """The vectors of a question, (m, D)."""
        encoder = self.load()
        encode = encoder.encode_queries if hasattr(encoder, "encode_queries") else encoder
        vectors = cast(Encode, encode)([question])
        if len(vectors) != 1:
            raise InputError(
                f"encoder: expected one (m, D) array for one question, found {len(vectors)}"
            )
        return vectors[0]

    def nearest(self, question: str, text: str) -> str:
        """The passage of a text that is nearest to a question by meaning; empty if the encoder does
        not say where the vectors of a text come from."""
        encoder = self.load()
        if not (hasattr(encoder, "spans") and hasattr(encoder, "encode_pages")) or not text.strip():
            return ""
        vectors, spans = encoder.encode_pages([text])[0], encoder.spans(text)
        if len(vectors) != len(spans):
            return ""
        asked = np.asarray(self.encode(question))
        if self.index.encoder is not None and self.index.encoder.weighted:
            asked = Queries([asked]).without_last().vectors
        return nearest_snippet(text, spans, asked @ vectors.T)

    def encode_image(self, image: Any) -> Any:
        """The vectors of a picture, (n, D), as if it were a page of the index: a Pillow image, or
        the path of a file. For an encoder that reads text, OCR reads it."""
        picture = picture_of(image, 0)
        encoder = self.load()
        if not hasattr(encoder, "encode_pages"):
            raise InputError("image: expected an encoder; a function encodes questions alone")
        encoder = cast(Encoder, encoder)
        if reads(encoder) == "image":
            picture.thumbnail((PAGE_PIXELS, PAGE_PIXELS))
            return encoder.encode_pages([picture])[0]
        lang = last_ocr_lang(known_documents(self.index)) or ENGLISH
        text = picture_text(picture, lang)
        if not text:
            raise InputError(
                f"encoder {encoder.name!r} reads text, and OCR finds none in this picture; "
                "ask in words, or search an index of an encoder that looks at pages"
            )
        return encoder.encode_pages([text])[0]

    def search(
        self,
        question: str = "",
        top: int = 10,
        *,
        like: str | None = None,
        image: Any = None,
        documents: Iterable[str] | None = None,
        where: Where | None = None,
        mode: str | None = None,
        **options: Any,
    ) -> Hits:
        """The `top` best pages for a question.

        `mode` is "hybrid", words and meaning together, "late", meaning alone, or "lexical", words
        alone, which needs no encoder. By default it is hybrid if the index has the words of its
        pages. "In quotes" asks for an exact word or phrase, -word excludes.

        In place of a question, `like` is the id of a page: the pages most like it, by the vectors
        that the index stores of it. Or `image` is a picture, a Pillow image or the path of a file:
        the pages most like it, by the vectors that the encoder makes of it (`encode_image`).

        `documents` (names, paths or folders) and `where` (metadata) restrict the pages. `options`
        go to the search of the index or collection: `shortlist`, `exact`, ...
        """
        check_mode(mode)
        index = self.refresh()
        ids = None if documents is None else pages_of(index, documents)
        if callable(where):
            allowed = {name for name, metadata in index.records() if where(name, metadata)}
            ids, where = sorted(allowed if ids is None else allowed.intersection(ids)), None
        options |= {"ids": ids, "where": where}
        if like is not None:
            _check_alone("like", question or image is not None, mode)
            if as_index(index) is None:
                raise InputError("like: expected an index; an engine does not return its codes")
            return index.like(like, top, **options)
        if image is not None:
            _check_alone("image", question, mode)
            if not len(index):
                return _nothing()
            vectors, seconds = _timed(lambda: self.encode_image(image))
            return _after(seconds, index.search([vectors], top, **options)[0])
        return answer(index, question, top, self.encode, _original, mode=mode, **options)


def answer(
    pages: Searchable,
    question: str,
    top: int,
    encode: Callable[[str], Any],
    read: Read,
    *,
    mode: str | None = None,
    **options: Any,
) -> Hits:
    """The `top` best pages for a question, as `Retriever.search` explains.

    `encode` makes the vectors of a text; it is not called if words alone are searched. `read`
    returns the text of a page, of which id and metadata are given, or nothing: postings do not know
    the order of words, so pages are read again for a phrase.
    """
    if not isinstance(question, str) or not question.strip():
        raise InputError(f"the question is empty (found {question!r:.40})")
    index = as_index(pages)
    if index is None and mode not in (None, LATE):
        raise InputError(f"mode {mode!r}: an engine holds no words; search with mode 'late'")
    query = None
    if index is not None and mode != LATE and (mode is not None or index.has_text):
        query = index.parse(question)
        if not query.text:
            raise InputError(f"the question only excludes words (found {question!r:.40})")
        options["mode"] = mode
    if not len(pages):
        return _nothing()
    vectors, seconds = None, 0.0
    if mode != LEXICAL:
        encoded, seconds = _timed(lambda: encode(question if query is None else query.text))
        vectors = [encoded]
    if index is None or query is None:
        hits = pages.search(vectors, top, **options)[0]
    else:
        hits = _by_words(index, query, vectors, top, read, options)
    if isinstance(pages, Index):
        if query is None and index is not None and index.has_text:
            with contextlib.suppress(InputError):  # quotes around nothing
                query = index.parse(question)  # its words tell, though they were not searched
        hits = _with_strength(pages, question, query, vectors, encode, hits)
    return _after(seconds, hits)


def _with_strength(
    index: Index,
    question: str,
    query: Query | None,
    vectors: list[Any] | None,
    encode: Callable[[str], Any],
    hits: Hits,
) -> Hits:
    """Hits that say how well they match, and whether the encoder reads the question's language."""
    asked = Question(query, None if vectors is None else vectors[0])
    english = vectors is not None and language_of(index.encoder) is not None
    return dataclasses.replace(
        hits,
        strength=strengths(index, asked, hits.ids, encode),
        language=foreign_language(question) if english else None,
    )


def _by_words(
    index: Index,
    query: Query,
    vectors: list[Any] | None,
    top: int,
    read: Read,
    options: dict[str, Any],
) -> Hits:
    """The hits of a question with words, whose phrases are looked up in the texts of the best
    pages."""
    phrases = [phrase for phrase in query.required if phrase.inexact]
    without = [phrase for phrase in query.excluded if len(phrase.words) > 1]
    count = max(top, MOST_READ) if phrases or without else top
    excluded = tuple(phrase for phrase in query.excluded if phrase not in without)
    asked = dataclasses.replace(query, excluded=excluded)
    hits = index.search(vectors, count, text=[asked], **options)[0]
    if without:
        kept = _without_phrases(index, hits, without, count if phrases else top, read)
        if len(kept) < top and len(hits) == count:  # there are more, if all with their words go
            kept = max(kept, index.search(vectors, count, text=[query], **options)[0], key=len)
        hits = kept
    if phrases:
        found = _with_phrases(hits, phrases, top, read)
        hits = found if len(found) or query.only_quotes else hits
    return hits.take(range(min(top, len(hits))))


def _nothing() -> Hits:
    """What is found in an index without pages."""
    return Hits([], [], [], Cost(0, 0, 0, 0.0))


def _timed(encode: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and how long it took."""
    began = time.perf_counter()
    return encode(), time.perf_counter() - began


def _after(seconds: float, hits: Hits) -> Hits:
    """Hits whose query took some time to encode."""
    return dataclasses.replace(hits, cost=dataclasses.replace(hits.cost, encode_seconds=seconds))


def _check_alone(what: str, beside: object, mode: str | None) -> None:
    """Refuse a question beside a page or a picture, whose words are not searched."""
    if beside or mode not in (None, LATE):
        raise InputError(f"{what}: expected no question beside it, nor a mode with words")


def _with_phrases(hits: Hits, phrases: Sequence[Phrase], top: int, read: Read) -> Hits:
    """The first `top` hits whose text has these phrases. A page whose text cannot be read stays:
    it has the words."""
    kept = list[int]()
    for row, hit in enumerate(hits):
        text = read(hit.id, hit.metadata)
        if not text or all(phrase.in_text(text) for phrase in phrases):
            kept.append(row)
        if len(kept) == top:
            break
    return hits.take(kept)


def _without_phrases(
    index: Index, hits: Hits, phrases: Sequence[Phrase], top: int, read: Read
) -> Hits:
    """The first `top` hits whose text has none of these phrases. A page whose text cannot be read
    is left out if it has the words of one."""
    having, kept = functools.cache(index.having), list[int]()
    for row, hit in enumerate(hits):
        text = read(hit.id, hit.metadata)
        if not any(phrase.in_text(text) if text else having(phrase)(hit.id) for phrase in phrases):
            kept.append(row)
        if len(kept) == top:
            break
    return hits.take(kept)


def _original(_: str, metadata: dict[str, Any]) -> str:
    """The text of a page for a phrase; empty where an extra is missing to read its file."""
    try:
        return original_text(metadata) if unchanged(metadata) else ""
    except MissingExtraError:
        return ""


def asked_of(pages: EncodedPages, question: str) -> Asked:
    """What marks the words of a question in the texts of pages."""
    index = as_index(pages)
    if index is not None:
        return Asked(question, index.analyzer, index.common_terms(question))
    return Asked(question, analyzer_of(language_of(pages.encoder)))


def filter_from_outside(where: Mapping[str, Any] | None) -> Filter:
    """A filter that someone else sent. It may not ask for the paths of files: answers would tell
    where on this machine they are."""
    found = from_json(where or {})
    if "path" in found.fields:
        raise InputError("where: 'path' is not known here; ask for 'document'")
    return found


def query_encoder(pages: EncodedPages, given: AnyEncoder | None) -> Encoder | Encode:
    """What encodes questions for an index: the encoder it records, or the one given."""
    if given is None:
        return encoder_of(pages)
    if isinstance(given, (str, os.PathLike)):
        return load_encoder(given) if pages.encoder is None else encoder_of(pages, given)
    if hasattr(given, "encode_queries"):
        if pages.encoder is not None:
            check_encoder(pages, cast(Encoder, given))
    elif not callable(given):
        raise InputError(
            "encoder: expected an encoder, its name, or a function of a list of texts, found "
            f"{type(given).__name__}"
        )
    return given


def as_setting(encoder: AnyEncoder | None) -> Any:
    """An encoder as a setting that can be saved: its name. A function is returned as it is."""
    if isinstance(encoder, os.PathLike):
        return os.fspath(encoder)
    return getattr(encoder, "name", encoder)
