"""Adapting to a corpus: a codebook made of the pages to be stored, and the settings for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from glie.codec.anchors import anchor, cluster
from glie.codec.budget import ANCHOR_TYPE, config_for, least_bytes
from glie.codec.codes import quantised
from glie.codec.config import CodecConfig
from glie.codec.length_norm import length_norm_of
from glie.codec.readout.codebook import CODEWORD_TYPE, Codebook, Floats, fit_codebook, residuals
from glie.errors import InputError, VectorError
from glie.kernels.quantize import row_bytes
from glie.pages import Pages

MOST_NUMBERS = 1 << 27  # of vectors held in memory, sampled over all pages: 1,048,576 at D = 128
BOOK_SHARE = 0.2  # of the bytes of all pages, at most, for the codebook
FEWEST_CODEWORDS, MOST_CODEWORDS = 64, 16_384
LARGEST = 65_536  # codewords for a large corpus, whose sample has VECTORS_A_CODEWORD for each
VECTORS_A_CODEWORD = 16  # at least, if more pages will come
CODEWORD_SHARE = 0.8  # above the default: a corpus's own codewords fit it better
FIT_PAGES = 20
# The shipped codebook explains 0.45 to 0.5 of the residuals on unseen sets of its encoder, and at
# most 0.05 with the vectors of another encoder, or with noise.
EXPLAINED = 0.25


def fits(book: Codebook, pages: Pages) -> bool:
    """Whether a codebook suits these pages: it explains enough of the residuals of some of them."""
    return book.dim == pages.dim and explained(book, pages) > EXPLAINED


def explained(book: Codebook, pages: Pages) -> float:
    """The share of the energy of residuals that codewords explain, on some of the pages."""
    step = max(1, len(pages) // FIT_PAGES)
    rest = residuals_of(every(pages, step, 0))
    missing = rest - book.codewords[book.nearest(rest)]
    whole = float((rest**2).sum())
    return 1 - float((missing**2).sum()) / whole if whole else 0.0


class Sample(NamedTuple):
    """Pages sampled over a corpus, and the size of the corpus."""

    pages: Pages
    of_pages: int
    of_vectors: int


def drawn(pages: Pages | Iterable[Pages]) -> Sample:
    """All pages, or every 2nd, 4th, 8th, ... page such that at most MOST_NUMBERS numbers are held.

    Blocks are read one by one. The sample does not depend on how pages are divided into blocks.
    """
    step, count, vectors, held = 1, 0, 0, 0
    kept: list[Floats] = []
    for block in _blocks(pages):
        for rows in block:
            if kept and rows.shape[1] != kept[0].shape[1]:
                raise VectorError(
                    f"pages: their vectors have {kept[0].shape[1]} numbers, and later "
                    f"{rows.shape[1]}; all must agree"
                )
            if count % step == 0:
                kept.append(rows if step == 1 else rows.copy())  # a view would keep its block
                held += len(rows)
            while held * rows.shape[1] > MOST_NUMBERS and len(kept) > 1:
                kept, step = [rows.copy() for rows in kept[::2]], 2 * step
                held = sum(map(len, kept))
            count, vectors = count + 1, vectors + len(rows)
    if not kept:
        raise InputError("pages: expected at least one to adapt to")
    whole = len(block) == count and step == 1  # one block: there is nothing to copy
    return Sample(block if whole else packed_pages(kept), count, vectors)


def _blocks(pages: Pages | Iterable[Pages]) -> Iterator[Pages]:
    """The pages, or the blocks they come in, checked."""
    for block in [pages] if isinstance(pages, Pages) or not isinstance(pages, Iterable) else pages:
        if not isinstance(block, Pages):
            raise InputError(f"pages: expected glie.Pages, found {type(block).__name__}")
        yield block


def adapted_to(sample: Sample, bytes_per_page: int, *, more: bool) -> tuple[CodecConfig, Codebook]:
    """The settings and the codebook for a corpus. The codebook's bytes count in the budget, unless
    `more` pages will come, among which it weighs little."""
    dim = sample.pages.dim
    if more:
        codewords, most = sample.of_vectors // VECTORS_A_CODEWORD, MOST_CODEWORDS
    else:
        codeword = row_bytes(dim, CODEWORD_TYPE) + 2  # and its length
        codewords = int(BOOK_SHARE * bytes_per_page * sample.of_pages) // codeword
        supported = len(sample.pages.vectors) // VECTORS_A_CODEWORD
        most = min(LARGEST, max(MOST_CODEWORDS, supported))
    codewords = min(max(codewords, FEWEST_CODEWORDS), most, max(1, sample.of_vectors // 4))
    notes = {"adapted_to": sample.of_pages}
    book = fit_codebook(
        residuals_of(sample.pages), codewords, codeword_share=CODEWORD_SHARE, notes=notes
    )
    # with few pages even the smallest codebook takes more than its share
    left = bytes_per_page if more else bytes_per_page - len(book.to_bytes()) // sample.of_pages
    config = config_for(
        max(left, least_bytes(dim, len(book))),
        dim,
        len(book),
        length_norm=length_norm_of(sample.pages),
    )
    return dataclasses.replace(config, bytes_per_page=bytes_per_page), book


def every(pages: Pages, step: int, first: int) -> Pages:
    """Every so many of the pages, from the first given on."""
    return packed_pages([pages[row] for row in range(first, len(pages), step)])


def residuals_of(pages: Pages) -> Floats:
    """The residuals of pages. A codebook fitted at one k serves any k."""
    free = anchor(pages, cluster(pages, CodecConfig()))
    codes = quantised(free, ANCHOR_TYPE, exact=False)
    return residuals(pages, codes, Codebook.anchor_share)[0]


def packed_pages(arrays: Sequence[Floats]) -> Pages:
    """Pages without names of their own, from the vectors of each."""
    offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
    return Pages.packed(np.concatenate(arrays), offsets, [str(i) for i in range(len(arrays))])
