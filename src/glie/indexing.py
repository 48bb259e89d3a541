"""Open or create the index that documents go into, with its encoder and codec."""

from __future__ import annotations

import dataclasses
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from glie.codec.codec import Codec
from glie.codec.readout import shared
from glie.encoders import Encoder, load_encoder
from glie.encoders.recorded import encoder_of
from glie.errors import DocumentError, InputError
from glie.identity import EncoderId
from glie.index.folder import MANIFEST
from glie.index.index import Index
from glie.index.words import language_named
from glie.ingest import OnIngestProgress, Reading, found_documents, store_documents
from glie.progress import ignore

BYTES_PER_PAGE = 520  # the default budget
FREE = "free"  # the name of normalised k-means, which is not fitted

Paths = Sequence[str | os.PathLike[str]]


def codec_named(name: str | os.PathLike[str]) -> Codec:
    """Load a codec from its folder; "free" is normalised k-means."""
    return Codec() if name == FREE else Codec.load(name)


@dataclasses.dataclass(frozen=True)
class CodecChoice:
    """How to store pages: a budget in bytes a page, or k, dtype and a codec. Without any of
    them, a new index gets the default budget and an existing one keeps its own."""

    bytes_per_page: int | None = None
    k: int | None = None
    dtype: str | None = None
    codec: str | os.PathLike[str] | None = None  # its name: a folder, or "free"

    def __post_init__(self) -> None:
        """Refuse contradictions and wrong values before anything is created."""
        named = None if self.codec is None else codec_named(self.codec)
        fixed = (self.k, self.dtype) != (None, None) or (named and named.codebook is None)
        if self.bytes_per_page is not None and fixed:
            raise InputError(
                "bytes_per_page: a budget decides k, dtype and codec; give the budget or these, "
                "not both"
            )
        Codec(self.k, dtype=self.dtype)

    @property
    def _details(self) -> bool:
        return (self.k, self.dtype, self.codec) != (None, None, None)

    def codec_for(self, encoder: EncoderId) -> Codec:
        """The codec for a new index of pages by this encoder."""
        if not self._details:
            budget = BYTES_PER_PAGE if self.bytes_per_page is None else self.bytes_per_page
            return Codec(bytes_per_page=budget)
        named = None if self.codec is None else codec_named(self.codec)
        if named and named.codebook is not None:
            shared.register(named.codebook)
            if self.bytes_per_page is not None:
                adapts = named.adapts
                return Codec.with_codebook(named.codebook, self.bytes_per_page, adapt=adapts)
        codec = named or Codec.shipped(encoder) or Codec()
        codec = codec if self.k is None else codec.at(self.k)
        return codec if self.dtype is None else codec.stored_as(self.dtype)

    def check_same(self, codec: Codec, place: object) -> None:
        """Refuse a choice that differs from the codec of an existing index or collection."""
        if self.bytes_per_page not in (None, codec.config.bytes_per_page):
            raise InputError(
                f"{place}: its pages are not stored in {self.bytes_per_page} bytes each; make a "
                "new index, or a smaller copy of this one with `glie shrink`"
            )
        if self.k not in (None, codec.k):
            raise InputError(
                f"{place}: it stores k={codec.k} vectors a page, not {self.k}; make a new index "
                "for another k"
            )
        if self.dtype not in (None, codec.dtype):
            raise InputError(
                f"{place}: it stores numbers in {codec.dtype}, not {self.dtype}; make a new index "
                "for another type"
            )
        if self.codec is not None:
            chosen = codec_named(self.codec)
            if chosen.codebook is not None:  # a budget, and words, choose the rest
                same = (
                    codec.codebook is not None and chosen.codebook.digest == codec.codebook.digest
                )
            else:
                same = chosen.at(codec.k).stored_as(codec.dtype).same_as(codec)
            if not same:
                raise InputError(f"{place}: it has another codec; make a new index for this one")


def fitted_codec(
    documents: Paths,
    encoder: Encoder,
    codec: Codec | None = None,
    *,
    reading: Reading | None = None,
    language: str | None = None,
    seed: int = 0,
    progress: OnIngestProgress = ignore,
) -> Codec:
    """What a codec, by default of 520 bytes a page, becomes in an index of these documents: there
    it adapts to the first pages, here to random ones. It adapts no further, so that indexes which
    are made with it can be merged, and searched as shards of one."""
    found = found_documents(documents)
    random.Random(seed).shuffle(found)
    with tempfile.TemporaryDirectory(prefix="glie-") as place:
        index = Index.create(
            Path(place) / "sample",
            codec or Codec(bytes_per_page=BYTES_PER_PAGE),
            encoder=EncoderId.of(encoder),
            language=language,
        )
        given = reading or Reading(), progress
        stored = store_documents(index, encoder, found, {}, *given, once=True)
        if index.dim is None:
            why = stored.report.problems or ["no page has text"]
            raise DocumentError(f"nothing to make a codec of: {why[0]}")
        return index.codec.frozen


def open_or_create(
    path: str | os.PathLike[str],
    documents: Paths,
    encoder: str | os.PathLike[str] | None = None,
    choice: CodecChoice | None = None,
    *,
    language: str | None = None,
    inside: bool = False,
) -> tuple[Index, Encoder]:
    """Open the index in a folder, or create it for these documents; load its encoder. `language` is
    that of their words, and `inside` keeps a copy of a shared codebook, as in `Index.create`.

    An existing index keeps its encoder, codec and language; others are refused.
    """
    choice = choice or CodecChoice()
    if (Path(path) / MANIFEST).exists():
        index = Index.open(path)
        choice.check_same(index.codec, index.path)
        if language is not None and language_named(language) != index.language:
            raise InputError(
                f"{index.path}: its words are in {index.language or 'no language'}, not in "
                f"{language}; make a new index for another language"
            )
        if inside:
            index.keep_codebook()
        return index, encoder_of(index, encoder)
    found_documents(documents)  # before a folder is created for nothing
    if language is not None:
        language_named(language)
    reader = load_encoder(encoder)
    entry = EncoderId.of(reader)
    codec = choice.codec_for(entry)
    made = Index.create(path, codec, encoder=entry, language=language, inside=inside)
    return made, reader
