"""Inverted file: coarse centroids, a posting list for each, and which lists a query probes.

Each stored vector goes into the posting list of its nearest coarse centroid, and the residual gets
a PQ code. A query probes the lists nearest to its own vectors, estimates MaxSim of the pages in
these lists from their PQ codes, and keeps the best as candidates.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.candidates.pq import Floats, Halves, Ints, best_estimated, fit_pq, rotated_parts
from glie.codec.readout.codebook import Codebook, fit_codebook
from glie.errors import CodecError
from glie.kernels.pq import (
    CODEWORDS,
    PARTS,
    PostingLists,
    PQCodes,
    Tables,
    pages_in_lists,
    pq_encode,
)

Mask = npt.NDArray[np.bool_]

LISTS_PER_ROOT = 4.0  # posting lists, times the square root of the number of vectors ...
FEWEST_LISTS = 512  # ... and at least this many, if there are 8 vectors for each
MOST_LISTS = 1 << 16  # a list number has two bytes
SAMPLE_PER_LIST = 32  # vectors that the coarse centroids are fitted on, for each list, ...
MOST_SAMPLE = 1 << 19  # ... and at most in all: 268 MB at D = 128
PQ_SAMPLE = 20_000  # vectors that the PQ codewords are fitted on
PROBES_PER_ROOT = 24  # probes of a query, times the square root of the number of lists
USUAL_VECTORS = 4  # of a page, at least: with fewer, there are more probes
CANDIDATES_PER_ROOT = 16  # candidates of a query, times the square root of the number of pages, ...
CANDIDATES_PER_HIT = 24  # ... and at least this many times the pages to be found, ...
PAGES_PER_CANDIDATE = 10  # ... but fewer than one page in this many, ...
FEWEST_PER_HIT = 4  # ... unless these are fewer than so many times the pages to be found


@dataclasses.dataclass(frozen=True)
class IvfPq:
    """A fitted IVF-PQ: it encodes stored vectors, and makes the score tables of a query."""

    coarse: Codebook  # the coarse centroids, one for each posting list
    rotation: Halves  # (D, PARTS * width), applied to residuals before they are cut into parts
    codewords: Halves  # (PARTS, CODEWORDS, width)

    @classmethod
    def fit(cls, sample: Floats, vectors: int, *, seed: int = 0) -> IvfPq:
        """Fit to a random sample of the `vectors` that will be encoded."""
        coarse = fit_codebook(sample, lists_for(vectors), seed=seed)
        some = sample[np.random.default_rng(seed).permutation(len(sample))[:PQ_SAMPLE]]
        residuals = some - coarse.codewords[coarse.nearest(some)]
        return cls(coarse, *fit_pq(residuals, seed=seed))

    @property
    def dim(self) -> int:
        return len(self.rotation)

    @property
    def lists(self) -> int:
        """The number of posting lists."""
        return len(self.coarse)

    def encode(self, vectors: Floats) -> PQCodes:
        """List numbers (n,) and PQ codes (n, PARTS) of vectors (n, D)."""
        lists = self.coarse.nearest(vectors)
        residuals = rotated_parts(vectors - self.coarse.codewords[lists], self.rotation)
        return PQCodes(lists.astype(np.uint16), pq_encode(residuals, self._codewords))

    def tables(self, tokens: Floats) -> Tables:
        """Score tables of one query (asymmetric distance computation)."""
        rotated = rotated_parts(tokens, self.rotation)
        return Tables.of(tokens, self.coarse.codewords, rotated, self._codewords)

    @functools.cached_property
    def _codewords(self) -> Floats:
        return self.codewords.astype(np.float32)

    def to_bytes(self) -> bytes:
        """A safetensors file."""
        from safetensors.numpy import save

        book = np.frombuffer(self.coarse.to_bytes(), np.uint8)
        return bytes(save({"cells": book, "turn": self.rotation, "words": self.codewords}))

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> IvfPq:
        """Read what `to_bytes` wrote; errors name `place`."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            parts = load(data)
            book = Codebook.from_bytes(parts["cells"].tobytes(), place)
            ivf_pq = cls(book, parts["turn"], parts["words"])
        except (SafetensorError, KeyError, AttributeError) as error:
            raise CodecError(f"{place}: damaged: {error}") from None
        width = -(-book.dim // PARTS)
        for name, array, shape in (
            ("rotation", ivf_pq.rotation, (book.dim, PARTS * width)),
            ("codewords", ivf_pq.codewords, (PARTS, CODEWORDS, width)),
        ):
            if array.dtype != np.float16 or array.shape != shape:
                raise CodecError(
                    f"{place}: damaged: the {name} are {array.dtype} {array.shape}, expected "
                    f"float16 {shape}"
                )
            if not np.isfinite(array).all():
                raise CodecError(f"{place}: damaged: the {name} are not all finite")
        if len(book) > MOST_LISTS:
            raise CodecError(
                f"{place}: damaged: {len(book)} posting lists, expected at most {MOST_LISTS}"
            )
        return ivf_pq


def lists_for(vectors: int) -> int:
    """The number of posting lists for this many vectors. It grows with the square root, and so
    does the length of a list."""
    lists = max(round(LISTS_PER_ROOT * math.sqrt(vectors)), min(FEWEST_LISTS, vectors // 8))
    return max(1, min(lists, MOST_LISTS))


def sample_for(vectors: int) -> int:
    """The size of the sample that an IVF-PQ for this many vectors is fitted on."""
    wanted = min(SAMPLE_PER_LIST * lists_for(vectors), MOST_SAMPLE)
    return min(vectors, max(wanted, PQ_SAMPLE))


def probes_for(lists: int, k: int) -> int:
    """The number of probes of one query, shared by its vectors. A page of fewer vectors is in fewer
    lists, and takes less time to estimate."""
    return round(PROBES_PER_ROOT * max(1, USUAL_VECTORS / k) * math.sqrt(lists))


def candidates_for(pages: int, top: int) -> int:
    """The number of candidates for finding the `top` best of this many pages."""
    wanted = max(round(CANDIDATES_PER_ROOT * math.sqrt(pages)), CANDIDATES_PER_HIT * top)
    return max(min((pages - 1) // PAGES_PER_CANDIDATE, wanted), FEWEST_PER_HIT * top)


class EncodedBlock(NamedTuple):
    """PQ codes and posting lists of consecutive pages."""

    pq_codes: PQCodes
    lists: PostingLists
    allowed: Mask | None  # the pages that may be candidates; None: all

    @property
    def pages(self) -> int:
        """How many pages may be candidates."""
        if self.allowed is None:
            return len(self.pq_codes.lists)
        return int(np.count_nonzero(self.allowed))


class Candidates(NamedTuple):
    """The candidates of one query."""

    rows: list[Ints]  # of each block
    estimated: int  # pages in the probed lists
    bytes_read: int  # of their PQ codes


def find_candidates(
    ivf_pq: IvfPq, tokens: Floats, blocks: Sequence[EncodedBlock], wanted: int, probes: int
) -> Candidates:
    """Probe the lists nearest to the vectors of one query, and keep the `wanted` pages that are
    estimated best."""
    tables = ivf_pq.tables(tokens)
    probed = probe(tables.by_token, blocks, probes, wanted)
    best = best_estimated(tables, [block.pq_codes for block in blocks], probed, wanted)
    read = [
        len(rows) * block.pq_codes.page_bytes for block, rows in zip(blocks, probed, strict=True)
    ]
    return Candidates(best, sum(map(len, probed)), sum(read))


def probe(by_token: Floats, blocks: Sequence[EncodedBlock], probes: int, wanted: int) -> list[Ints]:
    """The allowed rows of each block that have a vector in a probed list. `by_token` (T, C) scores
    the lists for each query vector, and each probes its best. All query vectors share `probes`;
    the number doubles until the lists hold `wanted` pages."""
    tokens, count = by_token.shape
    each = -(-probes // tokens)
    while True:
        each = min(each, count)
        picked = np.unique(np.argpartition(by_token, count - each, axis=1)[:, count - each :])
        probed = []
        for block in blocks:
            marked = pages_in_lists(block.lists, picked, len(block.pq_codes.lists))
            if block.allowed is not None:
                marked &= block.allowed
            probed.append(np.flatnonzero(marked))
        if each == count or sum(map(len, probed)) >= wanted:
            return probed
        each *= 2
