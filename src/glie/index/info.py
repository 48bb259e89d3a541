"""Counts and sizes of an index."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from glie.codec.codec import Codec
from glie.codec.readout.codebook import Codebook
from glie.index.folder import Folder
from glie.index.snapshot import Snapshot
from glie.renamed import renamed


@dataclasses.dataclass(frozen=True)
class IndexInfo:
    """Counts and sizes of an index."""

    pages: int
    deleted: int
    segments: int
    generation: int
    k: int
    dim: int | None
    dtype: str  # of the stored vectors
    codewords: int  # of the codebook that a page keeps, at most
    encoder: str | None
    budget: int | None  # bytes per page that the index was made for
    code_bytes_per_page: int | None  # measured; None in an index without pages
    bytes: int  # of all files in the folder
    image_bytes: int  # of `bytes`, kept page images
    codec_bytes: int  # of `bytes`, the fitted codec; the same for any number of pages
    vectors: int  # of the pages before compression; rounded where counts are rounded
    uncompressed_bytes: int  # of these vectors at 2 bytes a number
    candidate_bytes: int  # of `bytes`, candidate files; 0: every search scans all pages
    document_bytes: int  # of `bytes`, uploaded documents
    text_bytes: int = 0  # of `bytes`, postings of the pages' words
    pages_with_text: int = 0
    language: str | None = None  # whose stems these are
    column_bytes: int = 0  # of `bytes`, columns of metadata, which answer filters
    codebook: str | None = None  # its digest
    codebook_size: int = 0  # in codewords
    codebook_bytes: int = 0  # of its file; part of `codec_bytes` if it is inside
    codebook_in: str | None = None  # index: inside; glie: comes with it; shared: a user's folder

    words = renamed("words", "codewords")
    finder_bytes = renamed("finder_bytes", "candidate_bytes")

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the old names of renamed fields beside the new."""
        older = {"words": self.codewords, "finder_bytes": self.candidate_bytes}
        return {**dataclasses.asdict(self), **older}

    @property
    def lean_bytes(self) -> int:
        """Bytes that a search needs and that grow with the pages: all but codec, images and
        documents."""
        return self.bytes - self.image_bytes - self.codec_bytes - self.document_bytes


def index_info(folder: Folder, state: Snapshot, codec: Codec) -> IndexInfo:
    """Count and measure one state of an index."""
    manifest = state.manifest
    vectors = sum(
        int(segment.counts[state.live(number)].sum(dtype=np.int64))
        for number, segment in enumerate(state.segments)
    )
    stored = sum(segment.pages for segment in state.segments)
    code_bytes = sum(segment.code_bytes for segment in state.segments)
    book = codec.codebook
    return IndexInfo(
        pages=len(state),
        deleted=sum(entry.deleted for entry in manifest.segments),
        segments=len(manifest.segments),
        generation=manifest.generation,
        k=codec.k,
        dim=manifest.dim,
        dtype=codec.dtype,
        codewords=codec.config.codewords,
        encoder=None if manifest.encoder is None else manifest.encoder["name"],
        budget=codec.config.bytes_per_page or None,
        code_bytes_per_page=round(code_bytes / stored) if stored else None,
        bytes=folder.size(),
        image_bytes=sum(images.bytes for images in state.images if images),
        codec_bytes=folder.codec_size(),
        vectors=vectors,
        uncompressed_bytes=vectors * 2 * (manifest.dim or 0),
        candidate_bytes=state.candidates.bytes,
        document_bytes=folder.documents_size(),
        text_bytes=sum(postings.bytes for postings in state.postings if postings),
        pages_with_text=0 if state.words is None else state.words.pages,
        column_bytes=sum(columns.bytes for columns in state.columns if columns),
        language=None if manifest.text is None else manifest.text.language,
        codebook=None if book is None else book.digest,
        codebook_size=0 if book is None else len(book),
        codebook_bytes=0 if book is None else len(book.to_bytes()),
        codebook_in=None if book is None else _place(book, inside="fitted" in manifest.codec),
    )


def _place(book: Codebook, *, inside: bool) -> str:
    return "index" if inside else "glie" if book.is_shipped else "shared"
