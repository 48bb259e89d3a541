"""Finding the pages worth scoring without reading every code.

A candidate index belongs to an index. It knows lists, the centroids of the stored vectors, and codewords for what
a centroid leaves of a vector; with these it writes a PQ code for every stored vector. A query
looks into the lists nearest to its own vectors and estimates MaxSim of the pages that it meets
there by their PQ codes: the best of these are the candidates that are scored as always.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from glie.codec.readout.codebook import Codebook, fit_codebook
from glie.errors import CodecError
from glie.kernels.kmeans import kmeans
from glie.kernels.pq import CODEWORDS, PARTS, PQCodes, Tables, pq_encode

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]

LISTS = 4.0  # times the square root of the number of vectors ...
FEWEST_LISTS = 512  # ... and at least so many, where there are 8 vectors for each
MOST_LISTS = 1 << 16  # the number of a list is two bytes
VECTORS_A_LIST = 32  # that the lists are found from, ...
MOST_VECTORS = 1 << 19  # ... and at most in all: 268 MB at D = 128
PQ_SAMPLE = 20_000  # vectors that the codewords are found from


@dataclasses.dataclass(frozen=True)
class IvfPq:
    """What turns a stored vector into its PQ code, and a query into what reads PQ codes."""

    coarse: Codebook  # a coarse centroid a posting list
    rotation: Halves  # (D, PARTS * width), applied to residuals before they are cut into parts
    codewords: Halves  # (PARTS, CODEWORDS, width)

    @classmethod
    def fit(cls, sample: Floats, vectors: int, *, seed: int = 0) -> IvfPq:
        """A candidate index for so many vectors, of which these are a random sample."""
        coarse = fit_codebook(sample, lists_for(vectors), seed=seed)
        some = sample[np.random.default_rng(seed).permutation(len(sample))[:PQ_SAMPLE]]
        rest = some - coarse.codewords[coarse.nearest(some)]
        rotation = _rotation(rest)
        parts = _parts(rest, rotation)
        stacked = np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(-1, parts.shape[2])
        bounds = np.arange(PARTS + 1) * len(rest)
        codewords = kmeans(
            stacked, bounds, CODEWORDS, restarts=1, iterations=8, seed=seed
        ).centroids
        return cls(coarse, rotation, codewords.astype(np.float16))

    @property
    def dim(self) -> int:
        return len(self.rotation)

    def encode(self, vectors: Floats) -> PQCodes:
        """The PQ codes (n,) of some vectors (n, D)."""
        lists = self.coarse.nearest(vectors)
        rest = _parts(vectors - self.coarse.codewords[lists], self.rotation)
        return PQCodes(lists.astype(np.uint16), pq_encode(rest, self._codewords))

    def tables(self, tokens: Floats) -> Tables:
        """What reads PQ codes for the vectors of one query."""
        return Tables.of(
            tokens, self.coarse.codewords, _parts(tokens, self.rotation), self._codewords
        )

    @functools.cached_property
    def _codewords(self) -> Floats:
        return self.codewords.astype(np.float32)

    def to_bytes(self) -> bytes:
        """A safetensors file: the lists' codebook beside the rest."""
        from safetensors.numpy import save

        book = np.frombuffer(self.coarse.to_bytes(), np.uint8)
        return bytes(save({"cells": book, "turn": self.rotation, "words": self.codewords}))

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> IvfPq:
        """The reverse; `place` is what an error names."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            parts = load(data)
            book = Codebook.from_bytes(parts["cells"].tobytes(), place)
            ivf_pq = cls(book, parts["turn"], parts["words"])
        except (SafetensorError, KeyError, AttributeError) as error:
            raise CodecError(f"{place}: damaged: {error}") from None
        width = -(-book.dim // PARTS)
        for array, shape in (
            (ivf_pq.rotation, (book.dim, PARTS * width)),
            (ivf_pq.codewords, (PARTS, CODEWORDS, width)),
        ):
            if array.dtype != np.float16 or array.shape != shape or not np.isfinite(array).all():
                raise CodecError(f"{place}: damaged: a tensor is {array.dtype} {array.shape}")
        if len(book) > MOST_LISTS:
            raise CodecError(f"{place}: damaged: {len(book)} lists")
        return ivf_pq


def lists_for(vectors: int) -> int:
    """How many lists: their number and the pages in one grow alike."""
    lists = max(round(LISTS * math.sqrt(vectors)), min(FEWEST_LISTS, vectors // 8))
    return max(1, min(lists, MOST_LISTS))


def sample_for(vectors: int) -> int:
    """How many of so many vectors it takes to fit a candidate index."""
    wanted = min(VECTORS_A_LIST * lists_for(vectors), MOST_VECTORS)
    return min(vectors, max(wanted, PQ_SAMPLE))


def _rotation(rest: Floats) -> Halves:
    """The principal directions, dealt out so that each part has an equal share of the variances'
    product; columns of zeros where D does not divide."""
    dim = rest.shape[1]
    width = -(-dim // PARTS)
    variances, directions = np.linalg.eigh((rest.T @ rest).astype(np.float64))
    variances = np.maximum(variances, 1e-9 * max(variances.max(initial=0), 1e-9))
    rotation = np.zeros((dim, PARTS, width), np.float16)
    filled, load = np.zeros(PARTS, np.int64), np.zeros(PARTS)
    for at in np.argsort(-variances, kind="stable"):
        part = int(np.where(filled < width, load, np.inf).argmin())
        rotation[:, part, filled[part]] = directions[:, at]
        filled[part] += 1
        load[part] += math.log(variances[at] / variances.min()) + 1e-6
    return rotation.reshape(dim, PARTS * width)


def _parts(vectors: Floats, rotation: Halves) -> Floats:
    """Vectors (n, D) turned, (n, PARTS, width)."""
    return (vectors @ rotation.astype(np.float32)).reshape(len(vectors), PARTS, -1)
