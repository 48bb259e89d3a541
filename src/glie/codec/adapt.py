"""A codebook made of the pages that are to be stored, and what is kept of a page with it."""

from __future__ import annotations

import dataclasses

import numpy as np

from glie.codec.anchors import anchor, cluster
from glie.codec.budget import ANCHOR_TYPE, config_for, least_bytes
from glie.codec.codebook import WORD_TYPE, Codebook, Floats, fit_codebook, leftovers
from glie.codec.codes import quantised
from glie.codec.config import CodecConfig
from glie.kernels.quantize import row_bytes
from glie.pages import Pages

VECTORS = 200_000  # of which the words are found, drawn from all pages
BOOK_SHARE = 0.2  # of the bytes of all pages, at most
FEWEST_WORDS, MOST_WORDS = 64, 16_384
VECTORS_A_WORD = 16  # at least, when more pages will come than those seen
WORD_SHARE = 0.8  # its own words fit a corpus better than foreign ones
FIT_PAGES = 20
# Of what anchors leave, the shipped words explain 0.45 to 0.5 on unseen sets of their encoder, and
# at most 0.05 of the vectors of another, or of noise.
EXPLAINED = 0.25


def fits(book: Codebook, pages: Pages) -> bool:
    """Whether a codebook was made for vectors like these, by how much of some it explains."""
    if book.dim != pages.dim:
        return False
    rest = _rest(_every(pages, max(1, len(pages) // FIT_PAGES)))
    missing = rest - book.words[book.nearest(rest)]
    return float((missing**2).sum()) < (1 - EXPLAINED) * float((rest**2).sum())


def settled(pages: Pages, bytes_per_page: int, *, more: bool) -> tuple[CodecConfig, Codebook]:
    """The settings and the codebook for these pages, its bytes included in the budget; unless
    `more` pages are to come, among which it weighs little."""
    dim, count = pages.dim, len(pages.vectors)
    if more:
        words = count // VECTORS_A_WORD
    else:
        word = row_bytes(dim, WORD_TYPE) + 2  # and its length
        words = int(BOOK_SHARE * bytes_per_page * len(pages)) // word
    words = min(max(words, FEWEST_WORDS), MOST_WORDS, max(1, count // 4))
    rest = _rest(_every(pages, max(1, count // VECTORS)))
    book = fit_codebook(rest, words, word_share=WORD_SHARE, notes={"adapted_to": len(pages)})
    # on a few pages even the smallest codebook weighs more than its share
    left = bytes_per_page if more else bytes_per_page - len(book.to_bytes()) // len(pages)
    config = config_for(max(left, least_bytes(dim, len(book))), dim, len(book))
    return dataclasses.replace(config, bytes_per_page=bytes_per_page), book


def _rest(pages: Pages) -> Floats:
    """What anchors leave of the vectors. Words for one number of anchors serve any other."""
    free = anchor(pages, cluster(pages, CodecConfig()))
    codes = quantised(free, ANCHOR_TYPE, sizes=False)
    return leftovers(pages, codes, Codebook.anchor_share)[0]


def _every(pages: Pages, step: int) -> Pages:
    """One page in so many."""
    chosen = range(0, len(pages), step)
    return Pages.packed(
        np.concatenate([pages[i] for i in chosen]),
        np.concatenate([[0], np.cumsum(pages.lengths[::step])]).astype(np.int64),
        [pages.ids[i] for i in chosen],
    )
