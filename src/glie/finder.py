"""Finding the pages worth scoring without reading every code.

A finder belongs to an index. It knows cells, the centres of the stored vectors, and words for what
a centre leaves of a vector; with these it writes a signature for every stored vector. A query
looks into the cells nearest to its own vectors and estimates MaxSim of the pages that it meets
there by their signatures: the best of these are the candidates that are scored as always.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from glie.codec.codebook import Codebook, fit_codebook
from glie.errors import CodecError
from glie.kernels.kmeans import kmeans
from glie.kernels.signatures import PARTS, WORDS, Signatures, Tables, product_words

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]

CELLS = 4.0  # times the square root of the number of vectors ...
FEWEST_CELLS = 512  # ... and at least so many, where there are 8 vectors for each
MOST_CELLS = 1 << 16  # the number of a cell is two bytes
VECTORS_A_CELL = 32  # that the cells are found from, ...
MOST_VECTORS = 1 << 19  # ... and at most in all: 268 MB at D = 128
WORD_SAMPLE = 20_000  # vectors that the words are found from


@dataclasses.dataclass(frozen=True)
class Finder:
    """What turns a stored vector into its signature, and a query into what reads signatures."""

    cells: Codebook  # the centre of each cell is a word of it
    turn: Halves  # (D, PARTS * width): the directions in which words tell what a centre leaves
    words: Halves  # (PARTS, WORDS, width)

    @classmethod
    def fit(cls, sample: Floats, vectors: int, *, seed: int = 0) -> Finder:
        """A finder for so many vectors, of which these are a random sample."""
        cells = fit_codebook(sample, cells_for(vectors), seed=seed)
        some = sample[np.random.default_rng(seed).permutation(len(sample))[:WORD_SAMPLE]]
        rest = some - cells.words[cells.nearest(some)]
        turn = _turn(rest)
        parts = _parts(rest, turn)
        stacked = np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(-1, parts.shape[2])
        bounds = np.arange(PARTS + 1) * len(rest)
        words = kmeans(stacked, bounds, WORDS, restarts=1, iterations=8, seed=seed).centroids
        return cls(cells, turn, words.astype(np.float16))

    @property
    def dim(self) -> int:
        return len(self.turn)

    def sign(self, vectors: Floats) -> Signatures:
        """The signatures (n,) of some vectors (n, D)."""
        cells = self.cells.nearest(vectors)
        rest = _parts(vectors - self.cells.words[cells], self.turn)
        return Signatures(cells.astype(np.uint16), product_words(rest, self._words))

    def tables(self, tokens: Floats) -> Tables:
        """What reads signatures for the vectors of one query."""
        return Tables.of(tokens, self.cells.words, _parts(tokens, self.turn), self._words)

    @functools.cached_property
    def _words(self) -> Floats:
        return self.words.astype(np.float32)

    def to_bytes(self) -> bytes:
        """A safetensors file: the cells' codebook beside the rest."""
        from safetensors.numpy import save

        book = np.frombuffer(self.cells.to_bytes(), np.uint8)
        return bytes(save({"cells": book, "turn": self.turn, "words": self.words}))

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> Finder:
        """The reverse; `place` is what an error names."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            parts = load(data)
            book = Codebook.from_bytes(parts["cells"].tobytes(), place)
            finder = cls(book, parts["turn"], parts["words"])
        except (SafetensorError, KeyError, AttributeError) as error:
            raise CodecError(f"{place}: damaged: {error}") from None
        width = -(-book.dim // PARTS)
        for array, shape in (
            (finder.turn, (book.dim, PARTS * width)),
            (finder.words, (PARTS, WORDS, width)),
        ):
            if array.dtype != np.float16 or array.shape != shape or not np.isfinite(array).all():
                raise CodecError(f"{place}: damaged: a tensor is {array.dtype} {array.shape}")
        if len(book) > MOST_CELLS:
            raise CodecError(f"{place}: damaged: {len(book)} cells")
        return finder


def cells_for(vectors: int) -> int:
    """How many cells: their number and the pages in one grow alike."""
    cells = max(round(CELLS * math.sqrt(vectors)), min(FEWEST_CELLS, vectors // 8))
    return max(1, min(cells, MOST_CELLS))


def sample_for(vectors: int) -> int:
    """How many of so many vectors it takes to fit a finder."""
    wanted = min(VECTORS_A_CELL * cells_for(vectors), MOST_VECTORS)
    return min(vectors, max(wanted, WORD_SAMPLE))


def _turn(rest: Floats) -> Halves:
    """The principal directions, dealt out so that each part has an equal share of the variances'
    product; columns of zeros where D does not divide."""
    dim = rest.shape[1]
    width = -(-dim // PARTS)
    variances, directions = np.linalg.eigh((rest.T @ rest).astype(np.float64))
    variances = np.maximum(variances, 1e-9 * max(variances.max(initial=0), 1e-9))
    turn = np.zeros((dim, PARTS, width), np.float16)
    filled, load = np.zeros(PARTS, np.int64), np.zeros(PARTS)
    for at in np.argsort(-variances, kind="stable"):
        part = int(np.where(filled < width, load, np.inf).argmin())
        turn[:, part, filled[part]] = directions[:, at]
        filled[part] += 1
        load[part] += math.log(variances[at] / variances.min()) + 1e-6
    return turn.reshape(dim, PARTS * width)


def _parts(vectors: Floats, turn: Halves) -> Floats:
    """Vectors (n, D) turned, (n, PARTS, width)."""
    return (vectors @ turn.astype(np.float32)).reshape(len(vectors), PARTS, -1)
