"""The residual read-out: a set of codewords a page says where its vectors lie around its anchors.

A pair (anchor, codeword) stands for the unit vector of anchor_share * anchor + codeword_share *
codeword. A page keeps the pairs its vectors need most. Pages of any length keep at most the same
number: a set that grew with the page would give long pages more chances to score by accident.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from glie.codec.adapt import fits
from glie.codec.budget import config_for
from glie.codec.codes import Blobs, Codes, stored_as
from glie.codec.config import CodecConfig
from glie.codec.readout import shared
from glie.codec.readout.base import AnchorsOnly, Readout, length_normed, longer_by, repeated
from glie.codec.readout.codebook import Codebook
from glie.codec.readout.pairs import (
    check_sets,
    most_residual_bytes,
    packed_sets,
    read_pairs,
    residual_blob,
)
from glie.errors import InputError
from glie.identity import EncoderId
from glie.kernels.maxsim import maxsim
from glie.kernels.needed import beside, most_needed, needed_pairs
from glie.kernels.pair_scores import pair_scores
from glie.kernels.residual import FIRST_LAYER, ONE_LAYER, layers, reconstruct
from glie.kernels.small import is_small
from glie.pages import Pages, Queries

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

RESIDUAL_SHORTLIST = 200  # pages reconstructed a query: adding codewords is cheap
PRODUCTS_PER_PAGE = 1_000_000  # the time to reconstruct a page in numpy, in products
CODEBOOK = "codebook.safetensors"


@dataclasses.dataclass(frozen=True, eq=False)
class Residual:
    """Codewords of a codebook around the anchors, at most `codewords` a page."""

    codebook: Codebook
    codewords: int = 0
    most: int = 0  # vectors that a page is scored by
    length_norm: int = 0
    first_layer: int = FIRST_LAYER

    regenerates = True
    shortlist = RESIDUAL_SHORTLIST
    worth_caching = False  # reconstructing a page costs no more than keeping it
    exact = False
    ready = True
    keeps_residual = True

    @property
    def label(self) -> str:
        return f"{self.codewords} of {len(self.codebook):,} codewords"

    @property
    def dim(self) -> int:
        return self.codebook.dim

    @property
    def encoder(self) -> EncoderId | None:
        return self.codebook.encoder

    @property
    def notes(self) -> Mapping[str, Any]:
        return self.codebook.notes

    @property
    def single_stage(self) -> Readout:
        """The anchors alone: codewords only serve to reconstruct a shortlist."""
        return AnchorsOnly()

    def at(self, config: CodecConfig) -> Readout:
        return dataclasses.replace(
            self,
            codewords=config.codewords,
            most=config.k + config.codewords,
            length_norm=config.length_norm,
            first_layer=config.first_layer,
        )

    def fits(self, pages: Pages) -> bool:
        return fits(self.codebook, pages)

    def extra_bytes(self, config: CodecConfig) -> int:
        book, pairs = len(self.codebook), config.codewords
        return 2 + most_residual_bytes(config.k, book, pairs, config.first_layer)

    def code(self, pages: Pages, free: Codes, dtype: str) -> Codes:
        codes = stored_as(free, dtype, exact=self.exact)
        how = self.codebook, self.codewords, self.first_layer
        return dataclasses.replace(codes, residual=residual_codes(pages, codes, *how))

    def regenerate(self, codes: Codes) -> Pages:
        """The anchors of every page, then the vectors of its pairs."""
        if codes.residual is None:
            return repeated(codes)
        pages = reconstructed(codes, self.codebook, self.first_layer)
        return length_normed(pages, self.most, self.length_norm)

    def scores(self, queries: Queries, codes: Codes) -> Floats:
        """MaxSim (Q, P) of queries with the pages that `regenerate` would give."""
        used = np.count_nonzero(codes.counts, axis=1)
        sets = packed_sets(codes, self.first_layer)
        lengths = used + sets.counts
        products = int(lengths.sum()) * queries.vectors.size
        if is_small(products + PRODUCTS_PER_PAGE * len(codes)):
            pages = self.regenerate(codes)
            bounds = pages.offsets[:-1], pages.offsets[1:]
            return maxsim(queries.vectors, queries.offsets, pages.vectors, *bounds)
        longer = longer_by(lengths, self.most, self.length_norm)
        asked = queries.vectors, queries.offsets
        anchors = codes.vectors if codes.packed is None else codes.packed
        found, taken = pair_scores(*asked, sets, anchors, used, self.codebook.unpackable, longer)
        check_sets(sets, taken)
        return found

    def config_for(self, bytes_per_page: int, first_layer: int = ONE_LAYER) -> CodecConfig:
        """The settings for a budget."""
        book = self.codebook
        return config_for(
            bytes_per_page,
            book.dim,
            len(book),
            of_text=book.of_text,
            length_norm=book.config_length_norm,
            first_layer=first_layer,
        )

    def smaller(self, config: CodecConfig, bytes_per_page: int, dim: int) -> CodecConfig:
        return self.config_for(bytes_per_page, config.first_layer)

    def shrunk(self, codes: Codes, anchors: Codes) -> Codes:
        """Where the anchors stay, the most needed codewords stay. Where they were merged, codewords
        are found anew around the merged ones."""
        if anchors.k == codes.k:
            residual = self._cut(codes)
        else:
            stored = reconstructed(codes, self.codebook, self.first_layer)
            need = _need(codes, stored, self.first_layer)
            how = self.codebook, self.codewords, self.first_layer
            residual = residual_codes(stored, anchors, *how, need)
        return dataclasses.replace(anchors, residual=residual)

    def _cut(self, codes: Codes) -> Blobs:
        """The residual of the same anchors with fewer codewords."""
        book, first_layer = self.codebook, self.first_layer
        pairs, bounds = read_pairs(codes, len(book), first_layer)
        blobs = []
        for page, rows in enumerate(reconstructed(codes, book, first_layer)):
            mine = pairs[bounds[page] : bounds[page + 1]]
            used = len(rows) - len(mine)
            kept = _kept(rows, used, self.codewords, first_layer)
            blobs.append(residual_blob(mine[kept], used * len(book), first_layer))
        return Blobs.of(blobs)

    def settings(self) -> dict[str, Any]:
        return {"codebook": self.codebook.digest}

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The codebook, unless it comes with glie."""
        return {}, {} if self.codebook.is_shipped else {CODEBOOK: self.codebook.to_bytes()}

    @classmethod
    def from_files(cls, settings: dict[str, Any], files: Mapping[str, bytes], place: str) -> Self:
        named = settings.pop("codebook")
        if CODEBOOK in files:
            book = Codebook.from_bytes(files[CODEBOOK], f"{place}, {CODEBOOK}")
        else:
            book = _named(named)
        if book.digest != named:
            raise InputError(f"{CODEBOOK} is not the file that config.json names")
        return cls(book)


def _named(digest: str) -> Codebook:
    """The codebook that settings name: one that comes with glie, or one that indexes share."""
    shipped = {book.digest: book for book in Codebook.all_shipped()}
    found = shipped.get(digest) or shared.find(digest)
    if found is None:
        raise shared.CodebookError(
            f"it needs the codebook {digest}, which is not beside it, not among those of this "
            f"version of glie ({', '.join(shipped)}), and not in {shared.folder()}; `glie codec "
            f"add CODEC` puts it there, from the folder that `glie codec make` wrote, or copy "
            f"{digest}{shared.SUFFIX} from the machine that has it; else index the documents again"
        )
    return found


def residual_codes(
    pages: Pages,
    codes: Codes,
    book: Codebook,
    pairs: int,
    first_layer: int,
    weights: Floats | None = None,
) -> Blobs:
    """The residual of every page: at most `pairs` pairs. `weights` says how much each vector of the
    pages counts; by default all count alike."""
    if weights is None:
        weights = np.ones(len(pages.vectors), np.float32)
    used = np.count_nonzero(codes.counts, axis=1)
    rows = beside(pages.vectors, pages.offsets, codes.vectors, used, book.anchor_share)
    found = rows.slots * len(book) + book.nearest_to(rows.rest)
    kept, counts = needed_pairs(
        rows,
        pages.offsets,
        codes.vectors,
        used,
        found,
        weights,
        book.grouped,
        book.shares,
        pairs,
        first_layer,
    )
    return Blobs.of(
        [
            residual_blob(mine[:count], anchors * len(book), first_layer)
            for mine, count, anchors in zip(kept, counts.tolist(), used.tolist(), strict=True)
        ]
    )


def reconstructed(codes: Codes, book: Codebook, first_layer: int) -> Pages:
    """The vectors that a page is scored by: its anchors, then the vectors of its pairs."""
    used = np.count_nonzero(codes.counts, axis=1)
    pairs, bounds = read_pairs(codes, len(book), first_layer)
    codewords, pairs = _codewords_of(pairs, book)
    vectors, offsets = reconstruct(codes.vectors, used, codewords, book.shares, pairs, bounds)
    return Pages.packed(vectors, offsets, codes.ids)


def _codewords_of(pairs: Ints, book: Codebook) -> tuple[Floats, Ints]:
    """The codewords for these pairs, and the pairs numbered by them. For small work only those that
    are named: unpacking a large codebook takes longer."""
    if not is_small(len(pairs) * book.dim):
        return book.codewords, pairs
    slots, codewords = np.divmod(pairs, len(book))
    named, places = np.unique(codewords, return_inverse=True)
    return book.some(named), slots * len(named) + places


def _need(codes: Codes, stored: Pages, first_layer: int) -> Floats:
    """How much each reconstructed vector counts. Pairs come in layers (`kernels.residual.layers`);
    each layer counts half as much as the one before, the first as much as the anchors."""
    need = np.ones(len(stored.vectors), np.float32)
    used = np.count_nonzero(codes.counts, axis=1)
    for start, end in zip(stored.offsets[:-1] + used, stored.offsets[1:], strict=True):
        for place, (first, last) in enumerate(layers(end - start, first_layer)):
            need[start + first : start + last] = 0.5**place
    return need


def _kept(rows: Floats, used: int, codewords: int, first_layer: int) -> Ints:
    """The places of the codewords that stay: the first layers whole and, of the layer that is cut,
    those that the page's reconstructed vectors need most."""
    count = len(rows) - used
    if count <= codewords:
        return np.arange(count)
    whole, last = next(layer for layer in layers(count, first_layer) if layer[1] > codewords)
    room = codewords - whole
    order = most_needed(rows @ rows[: used + last].T, used + whole, room) - used
    return np.concatenate([np.arange(whole), np.sort(order[:room])])
