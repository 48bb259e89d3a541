"""A codebook for an encoder: made once from a sample of pages, for all indexes of that encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from glie.codec.adapt import VECTORS_A_CODEWORD, packed_pages, residuals_of
from glie.codec.length_norm import MOST_PAGES, length_norm_of
from glie.codec.readout.codebook import MAX_CODEWORDS, Codebook, fit_codebook
from glie.errors import InputError, VectorError
from glie.identity import EncoderId, Identified
from glie.pages import Pages
from glie.progress import OnProgress, ignore

FEWEST, MOST = 16_384, 65_536  # codewords, if their number is not given
LEAST_VECTORS = 4  # a codeword


def vectors_for(codewords: int | None = None) -> int:
    """How many vectors to sample for a codebook; more improve it little."""
    return VECTORS_A_CODEWORD * (codewords or MOST)


def codewords_for(vectors: int, codewords: int | None = None) -> int:
    """The number of codewords to make of so many vectors: `codewords`, or as many as they
    support."""
    most = max(1, vectors // LEAST_VECTORS)
    if codewords is None:
        return min(max(vectors // VECTORS_A_CODEWORD, FEWEST), MOST, most)
    if not 1 <= codewords <= min(most, MAX_CODEWORDS):
        raise InputError(
            f"codewords: expected 1 to {min(most, MAX_CODEWORDS):,} for pages of {vectors:,} "
            f"vectors, found {codewords:,}; give more pages, or ask for fewer"
        )
    return codewords


def make_codebook(
    pages: Pages | Iterable[Pages],
    encoder: Identified | Mapping[str, Any] | str | None,
    codewords: int | None = None,
    *,
    notes: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: OnProgress = ignore,
) -> Codebook:
    """Make a codebook for an encoder from pages of it, or from blocks of them. Blocks are read one
    by one, but the residuals of all their vectors are held in memory: give a sample
    (`vectors_for`). By default, it has as many codewords as they support, 16,384 to 65,536."""
    rest: list[Any] = []
    first: list[Any] = []  # pages, enough to know how much their length counts
    for block in [pages] if isinstance(pages, Pages) else pages:
        rest.append(residuals_of(block))
        first.extend(rows.copy() for rows in block.slice(0, MOST_PAGES - len(first)))
        if rest[-1].shape[1] != rest[0].shape[1]:
            raise VectorError(
                f"pages: their vectors have {rest[0].shape[1]} numbers, and later "
                f"{rest[-1].shape[1]}; all must agree"
            )
    if not rest:
        raise InputError("pages: expected at least one to make a codebook of")
    count = codewords_for(sum(map(len, rest)), codewords)
    vectors = np.concatenate(rest)
    rest.clear()  # half of the memory
    return fit_codebook(
        vectors,
        count,
        seed=seed,
        encoder=EncoderId.of(encoder),
        notes=dict(notes or {}),
        length_norm=length_norm_of(packed_pages(first)),
        progress=progress,
    )
