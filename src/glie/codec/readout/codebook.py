"""A codebook: codewords for residuals, shared by all pages.

A residual is what remains of a vector after `anchor_share` of its nearest anchor is subtracted. The
anchors carry the topic of a page, so residuals are much the same on every corpus of an encoder, and
one codebook serves them all.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from importlib import resources
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.codec.readout.tables import table_bytes, table_of
from glie.identity import EncoderId
from glie.kernels.kmeans import kmeans
from glie.kernels.nearest import Grouped, Rounded, grouped, nearest, nearest_centroids, rounded
from glie.kernels.pair_scores import Unpackable, unpackable
from glie.kernels.quantize import odd_integers, pack, row_bytes, unpack, unrotate
from glie.pages import Pages
from glie.progress import OnProgress, Progress, ignore
from glie.storage import digest

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

CODEWORD_TYPE = "int4"  # of a stored codeword
COARSE_SAMPLE = 40_000  # residuals that the centroids of the lists are fitted on
ROUNDS = 2  # of moving every codeword to the mean of its residuals
MAX_CODEWORDS = 1 << 20
MAX_DIM = 1 << 16
FORMAT = "glie-codebook-1"
# Encoders whose codebook comes with glie, the embedded one first, and their `length_norm`, which
# these files do not hold
SHIPPED = {"english": 40, "minilm": 60}
TENSORS = ("directions", "lengths", "starts")
# keys in the file, and their names here
SETTINGS = {
    "dim": "dim",
    "anchor_share": "anchor_share",
    "word_share": "codeword_share",
    "encoder": "encoder",
    "notes": "notes",
}


@dataclasses.dataclass(frozen=True)
class Codebook:
    """Codewords in lists, so that a residual is compared with the codewords of few lists only."""

    directions: npt.NDArray[np.uint8]  # (K, ...) of unit length, packed as CODEWORD_TYPE
    lengths: npt.NDArray[np.float16]  # (K,)
    starts: npt.NDArray[np.int32]  # (C + 1,): list c holds codewords starts[c]..starts[c + 1]
    dim: int
    anchor_share: float = 0.5
    codeword_share: float = 0.6  # below 1: codewords estimate directions better than lengths
    encoder: EncoderId | None = None
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for people to read
    length_norm: int = 0  # of codecs with this codebook; 0: not in the file

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def of_text(self) -> bool:
        """Whether its encoder is one of glie's that read text: the vectors of a page are then in
        the order of its words."""
        return self.encoder is not None and self.encoder.name in SHIPPED

    @property
    def config_length_norm(self) -> int:
        """`length_norm` of codecs with this codebook."""
        name = "" if self.encoder is None else self.encoder.name
        return self.length_norm or SHIPPED.get(name, 0)

    @functools.cached_property
    def is_shipped(self) -> bool:
        """Whether it comes with glie."""
        return any(self.digest == book.digest for book in Codebook.all_shipped())

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of anchor and codeword in a reconstructed vector."""
        return self.anchor_share, self.codeword_share

    @functools.cached_property
    def codewords(self) -> Floats:
        """All codewords, (K, D)."""
        return self.some(slice(None))

    def some(self, which: Ints | slice) -> Floats:
        """Some of the codewords, (n, D)."""
        lengths = self.lengths[which, None].astype(np.float32)
        return np.multiply(unpack(self.directions[which], CODEWORD_TYPE, self.dim), lengths)

    @functools.cached_property
    def centroids(self) -> Floats:
        """The mean of the codewords of each list, (C, D)."""
        rotated = odd_integers(self.directions, CODEWORD_TYPE, self.dim)
        rotated *= (self.lengths / np.linalg.norm(rotated, axis=1))[:, None]
        sums = np.add.reduceat(rotated, self.starts[:-1], axis=0, dtype=np.float64)
        # the means alone: to rotate all codewords back takes a third of a second
        return unrotate((sums / np.diff(self.starts)[:, None]).astype(np.float32))

    def nearest(self, residuals: Floats) -> Ints:
        """The codeword of each residual."""
        return self.nearest_to(rounded(residuals))

    def nearest_to(self, residuals: Rounded) -> Ints:
        """The same for residuals that are rounded already."""
        return nearest(residuals, self._grouped_centroids, self.grouped)

    @functools.cached_property
    def grouped(self) -> Grouped:
        """All codewords, in the layout of the search."""
        lengths, starts = self.lengths.astype(np.float32), self.starts.astype(np.int64)
        return grouped(self.directions, lengths, self.dim, starts)

    @functools.cached_property
    def unpackable(self) -> Unpackable:
        """All codewords, in the layout of scoring."""
        lengths = self.lengths.astype(np.float32)
        return unpackable(self.directions, lengths, self.dim, self.shares)

    @functools.cached_property
    def _grouped_centroids(self) -> Grouped:
        lengths: Floats = np.linalg.norm(self.centroids, axis=1)
        one_list = np.array([0, len(lengths)])
        return grouped(pack(self.centroids, CODEWORD_TYPE), lengths, self.dim, one_list)

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the content, by which settings name the codebook."""
        return digest(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The file of the codebook."""
        settings = {key: getattr(self, name) for key, name in SETTINGS.items()}
        if self.length_norm:
            settings["length_norm"] = self.length_norm
        return table_bytes(FORMAT, {name: getattr(self, name) for name in TENSORS}, settings)

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> Codebook:
        """The codebook of such a file; `place` is what an error names."""

        def made(tensors: Mapping[str, Any], found: dict[str, Any]) -> Codebook:
            book = cls(**tensors, **{SETTINGS.get(key, key): found[key] for key in found})
            book._check()
            return book

        return table_of(data, FORMAT, "a codebook", place, made)

    def _check(self) -> None:
        """Raise ValueError unless all parts fit together."""
        codewords, starts, dim = len(self.lengths), self.starts, self.dim
        if type(dim) is not int or not 0 < dim <= MAX_DIM:
            raise ValueError(f"dim {dim!r}")
        row = row_bytes(dim, CODEWORD_TYPE)
        for array, kind, shape in (
            (self.directions, np.uint8, (codewords, row)),
            (self.lengths, np.float16, (codewords,)),
            (starts, np.int32, (len(starts),)),
        ):
            if array.dtype != kind or array.shape != shape:
                raise ValueError(f"a tensor is {array.dtype} {array.shape}")
        if not 0 < codewords <= MAX_CODEWORDS or not np.isfinite(self.lengths).all():
            raise ValueError(f"{codewords} codewords")
        if len(starts) < 2 or starts[0] or starts[-1] != codewords or (np.diff(starts) <= 0).any():
            raise ValueError("the lists do not divide the codewords")
        for share in (self.anchor_share, self.codeword_share):
            if type(share) is not float or not 0 < share <= 1:
                raise ValueError(f"share {share!r}")
        if type(self.length_norm) is not int or not 0 <= self.length_norm <= 1000:
            raise ValueError(f"length_norm {self.length_norm!r}")

    @classmethod
    @functools.cache
    def shipped(cls, encoder: str = next(iter(SHIPPED))) -> Codebook:
        """The codebook that comes with glie for an encoder, by default for the embedded one."""
        place = resources.files("glie.codec").joinpath("shipped", encoder, "codebook.safetensors")
        return cls.from_bytes(place.read_bytes(), f"the codebook shipped for {encoder}")

    @classmethod
    def all_shipped(cls) -> Iterator[Codebook]:
        """The codebooks that come with glie, that of the embedded encoder first."""
        return map(cls.shipped, SHIPPED)


def residuals(pages: Pages, codes: Codes, anchor_share: float) -> tuple[Floats, Ints]:
    """The residual of every vector to its nearest anchor, and the slot of that anchor."""
    rest, slots = np.empty_like(pages.vectors), np.empty(len(pages.vectors), np.int64)
    for page, rows in enumerate(pages):
        anchors = codes.vectors[page, : np.count_nonzero(codes.counts[page])]
        first, last = pages.offsets[page], pages.offsets[page + 1]
        slots[first:last] = (rows @ anchors.T).argmax(axis=1)
        rest[first:last] = rows - np.float32(anchor_share) * anchors[slots[first:last]]
    return rest, slots


def fit_codebook(
    rest: Floats,
    size: int,
    *,
    seed: int = 0,
    progress: OnProgress = ignore,
    **settings: Any,
) -> Codebook:
    """Fit `size` codewords to residuals: k-means inside lists, then over all codewords."""
    count, dim = rest.shape
    size = min(size, count)
    shuffled = np.random.default_rng(seed).permutation(count)
    how = {"restarts": 1, "iterations": 8, "seed": seed}
    progress(Progress("fitting coarse centroids"))
    sample = rest[shuffled[:COARSE_SAMPLE]]
    coarse = kmeans(sample, np.array([0, len(sample)]), max(1, math.isqrt(size)), **how)
    centroids = coarse.centroids[0][coarse.counts[0] > 0]
    home = nearest_centroids(rest, centroids)
    order = np.argsort(home, kind="stable")
    bounds = np.searchsorted(home[order], np.arange(len(centroids) + 1))
    codewords, starts = [], [0]
    for place, (first, last) in enumerate(pairwise(bounds.tolist())):
        progress(Progress("lists of codewords fitted", place, len(centroids)))
        mine = last * size // count - first * size // count  # its share of `size`
        if mine:
            rows = rest[order[first:last]]
            found = kmeans(rows, np.array([0, len(rows)]), mine, **how)
            codewords.append(found.centroids[0][found.counts[0] > 0])
            starts.append(starts[-1] + len(codewords[-1]))
    book = _codebook(np.concatenate(codewords), np.array(starts), dim, settings)
    for step in range(ROUNDS):
        progress(Progress("rounds over all codewords", step, ROUNDS))
        nearest = book.nearest(rest)
        sums = np.zeros((len(book), dim))
        np.add.at(sums, nearest, rest)
        counts = np.bincount(nearest, minlength=len(book))[:, None]
        moved = np.where(counts > 0, sums / np.maximum(counts, 1), book.codewords)
        book = _codebook(moved.astype(np.float32), book.starts, dim, settings)
    return book


def _codebook(codewords: Floats, starts: npt.NDArray[Any], dim: int, settings: Any) -> Codebook:
    lengths = np.linalg.norm(codewords, axis=1).astype(np.float16)
    unit = codewords / np.maximum(lengths.astype(np.float32), 1e-6)[:, None]
    return Codebook(pack(unit, CODEWORD_TYPE), lengths, starts.astype(np.int32), dim, **settings)
