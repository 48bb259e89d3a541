"""Counts and sizes of an index."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from glie.codec.budget import CODES_SHARE
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
    vectors: int  # of the pages before compression; rounded in indexes of before segments 3
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
        return {**dataclasses.asdict(self), **older, "index_bytes": self.index_bytes}

    @property
    def index_bytes(self) -> int:
        """Of `bytes`, those that a search needs: all but kept images and uploaded documents."""
        return self.bytes - self.image_bytes - self.document_bytes

    @property
    def lean_bytes(self) -> int:
        """Of `index_bytes`, those that grow with the pages: all but the codec's files."""
        return self.index_bytes - self.codec_bytes

    @property
    def bytes_per_page(self) -> float | None:
        """What a page takes: `index_bytes`, measured on the files, a page. A codebook that is in
        the folder counts; one that comes with glie or is shared is not there."""
        return self.index_bytes / self.pages if self.pages else None

    @property
    def compression(self) -> float | None:
        """How many times more the uncompressed vectors take."""
        return self.uncompressed_bytes / self.index_bytes if self.pages else None

    @property
    def above_budget(self) -> str | None:
        """Why a page takes more than the budget, if it does. A candidate index is not counted."""
        taken = self.index_bytes - self.candidate_bytes
        if not self.pages or not self.budget or taken <= self.budget * self.pages:
            return None
        above = f"above the {self.budget:,} asked for"
        if self.deleted:
            return f"{above}: deleted pages take space until `glie compact`"
        words, codec = self.text_bytes / self.pages, self.codec_bytes / self.pages
        if words > self.budget * (1 - CODES_SHARE):
            return f"{above}: {words:,.0f} are words (`glie index --text none` leaves them out)"
        beside = taken / self.pages - (self.code_bytes_per_page or 0) - words - codec
        shared = f"{codec:,.0f} are the codebook and " if codec else ""
        return (
            f"{above}: {shared}{beside:,.0f} are page names and fixed files, which more pages "
            "would share"
        )


def index_info(folder: Folder, state: Snapshot, codec: Codec) -> IndexInfo:
    """Count and measure one state of an index."""
    manifest = state.manifest
    vectors = sum(
        int(segment.sizes[state.live(number)].sum(dtype=np.int64))
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
