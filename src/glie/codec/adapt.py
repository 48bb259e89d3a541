"""A codebook made of the pages that are to be stored, and what is kept of a page with it."""

from __future__ import annotations

import numpy as np

from glie.codec.anchors import anchor, cluster
from glie.codec.budget import ANCHOR_TYPE, config_for, least_bytes
from glie.codec.codebook import WORD_TYPE, Codebook, fit_codebook, leftovers
from glie.codec.codes import quantised
from glie.codec.config import CodecConfig
from glie.kernels.quantize import row_bytes
from glie.pages import Pages

VECTORS = 200_000  # of which the words are found, drawn from all pages
BOOK_SHARE = 0.2  # of the bytes of all pages, at most
FEWEST_WORDS, MOST_WORDS = 64, 16_384
WORD_SHARE = 0.8  # its own words fit a corpus better than foreign ones


def settled(pages: Pages, bytes_per_page: int) -> tuple[CodecConfig, Codebook]:
    """The settings and the codebook for these pages, its bytes included in the budget."""
    dim = pages.dim
    word = row_bytes(dim, WORD_TYPE) + 2  # and its length
    words = int(BOOK_SHARE * bytes_per_page * len(pages)) // word
    words = min(max(words, FEWEST_WORDS), MOST_WORDS, max(1, len(pages.vectors) // 4))
    config = config_for(bytes_per_page, dim, words)
    sample = _sample(pages)
    codes = quantised(anchor(sample, cluster(sample, config)), ANCHOR_TYPE, sizes=False)
    rest, _ = leftovers(sample, codes, Codebook.anchor_share)
    book = fit_codebook(rest, words, word_share=WORD_SHARE, notes={"adapted_to": len(pages)})
    # on a few pages even the smallest codebook weighs more than its share
    left = bytes_per_page - len(book.to_bytes()) // len(pages)
    return config_for(max(left, least_bytes(dim, len(book))), dim, len(book)), book


def _sample(pages: Pages) -> Pages:
    """Whole pages, evenly spaced, of about so many vectors."""
    step = max(1, len(pages.vectors) // VECTORS)
    chosen = range(0, len(pages), step)
    return Pages.packed(
        np.concatenate([pages[i] for i in chosen]),
        np.concatenate([[0], np.cumsum(pages.lengths[::step])]).astype(np.int64),
        [pages.ids[i] for i in chosen],
    )
