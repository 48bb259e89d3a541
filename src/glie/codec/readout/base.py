"""The contract of a read-out: what a codec adds to its anchors.

A codec stores k anchors a page and has exactly one read-out. The read-out may change the anchors
before they are stored, keep further bytes of a page, and regenerate a page's vectors from its code
for the second stage of a search. To add one: write a class with these members in a file of this
folder, and name it in READOUTS of codec/store.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from glie.codec.budget import reduced
from glie.codec.codes import Codes, stored_as
from glie.codec.config import CodecConfig
from glie.errors import InputError
from glie.identity import EncoderId
from glie.pages import Floats, Pages

# Above it, shortlists grow with the square root of the pages, which keeps as much of what reranking
# every page would find: docs/experiments.md, The length of the shortlist.
SHORTLIST_PAGES = 10_000

SHORTLIST = 20  # pages regenerated a query: more cost time and bring little


class Readout(Protocol):
    """What a codec adds to its anchors. Immutable; a codec binds it to its settings with `at`."""

    @property
    def label(self) -> str:
        """What `repr` of a codec says of it; "" for nothing."""

    @property
    def dim(self) -> int | None:
        """The D it was made for; None if it accepts any."""

    @property
    def encoder(self) -> EncoderId | None:
        """The encoder it was made for, if that is known."""

    @property
    def notes(self) -> Mapping[str, Any]:
        """How it was made, for people to read."""

    @property
    def ready(self) -> bool:
        """Whether it can code pages; not while it waits for pages to make a codebook of."""

    @property
    def regenerates(self) -> bool:
        """Whether a page can be regenerated better than its anchors alone."""

    @property
    def shortlist(self) -> int:
        """How many pages a search regenerates by default."""

    @property
    def worth_caching(self) -> bool:
        """Whether regenerating a page costs more than keeping it in the page cache."""

    @property
    def exact(self) -> bool:
        """Whether codes in a few bits must keep norms and exact counts."""

    @property
    def keeps_residual(self) -> bool:
        """Whether codes have a residual: further bytes of each page beside its anchors."""

    @property
    def single_stage(self) -> Readout:
        """The best read-out for search without regeneration."""

    def at(self, config: CodecConfig) -> Readout:
        """The read-out for a codec of these settings."""

    def fits(self, pages: Pages) -> bool:
        """Whether it was made for vectors like these."""

    def extra_bytes(self, config: CodecConfig) -> int:
        """The most bytes it keeps of a page beside its anchors."""

    def code(self, pages: Pages, free: Codes, dtype: str) -> Codes:
        """The code of pages whose normalised k-means code is `free`, its numbers in `dtype`."""

    def regenerate(self, codes: Codes) -> Pages:
        """The vectors that each page is scored by, its anchors among them."""

    def smaller(self, config: CodecConfig, bytes_per_page: int, dim: int) -> CodecConfig:
        """Settings with which it codes the same pages in fewer bytes."""

    def shrunk(self, codes: Codes, anchors: Codes) -> Codes:
        """Stored codes as codes of these anchors: their own, rounded or merged."""

    def settings(self) -> dict[str, Any]:
        """What names it among the settings of a codec, in config.json and in a manifest."""

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What else config.json says of it, and the files beside config.json."""

    @classmethod
    def from_files(cls, settings: dict[str, Any], files: Mapping[str, bytes], place: str) -> Self:
        """The reverse: takes its own keys out of `settings`. `place` is what an error names."""


class AnchorsOnly:
    """Nothing is added: normalised k-means."""

    label = ""
    dim: int | None = None
    encoder: EncoderId | None = None
    ready = True
    regenerates = False
    shortlist = SHORTLIST
    worth_caching = False
    exact = False
    keeps_residual = False

    def __init__(self, notes: Mapping[str, Any] | None = None) -> None:
        self._notes = dict(notes or {})

    @property
    def notes(self) -> Mapping[str, Any]:
        return self._notes

    @property
    def single_stage(self) -> Readout:
        return self

    def at(self, config: CodecConfig) -> Readout:
        if config.adapt:
            return NoCodebookYet()
        if config.codewords:
            raise TypeError("codewords: they are those of a codebook, which was not given")
        return self

    def fits(self, pages: Pages) -> bool:
        return True

    def extra_bytes(self, config: CodecConfig) -> int:
        return 0

    def code(self, pages: Pages, free: Codes, dtype: str) -> Codes:
        return stored_as(free, dtype, exact=self.exact)

    def regenerate(self, codes: Codes) -> Pages:
        return repeated(codes)

    def smaller(self, config: CodecConfig, bytes_per_page: int, dim: int) -> CodecConfig:
        return reduced(config, bytes_per_page, dim, exact=self.exact)

    def shrunk(self, codes: Codes, anchors: Codes) -> Codes:
        return anchors

    def settings(self) -> dict[str, Any]:
        return {"notes": self._notes} if self._notes else {}

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        return {}, {}

    @classmethod
    def from_files(cls, settings: dict[str, Any], files: Mapping[str, bytes], place: str) -> Self:
        notes = settings.pop("notes", {})
        if not isinstance(notes, dict):
            raise InputError(f"notes: expected an object, found {notes!r}")
        return cls(notes)


class NoCodebookYet(AnchorsOnly):
    """A budget alone: the codebook is made of the first pages, and the settings with it."""

    label = "no codebook yet"
    ready = False

    @property
    def single_stage(self) -> Readout:
        return AnchorsOnly()

    def at(self, config: CodecConfig) -> Readout:
        return AnchorsOnly().at(config)

    def fits(self, pages: Pages) -> bool:
        return False


def grown(shortlist: int, pages: int) -> int:
    """The default shortlist of a search over so many pages, where it is `shortlist` of a few."""
    return round(shortlist * max(1.0, math.sqrt(pages / SHORTLIST_PAGES)))


def repeated(codes: Codes) -> Pages:
    """Every vector of a page as its anchor: each anchor as often as it counts."""
    counts = codes.counts.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    used = counts > 0
    return Pages.packed(np.repeat(codes.vectors[used], counts[used], axis=0), offsets, codes.ids)


def length_normed(pages: Pages, most: int, length_norm: int) -> Pages:
    """The vectors that pages are scored by, longer where a page has fewer than `most` of them: see
    `CodecConfig.length_norm`."""
    if not length_norm:
        return pages
    longer = longer_by(pages.lengths, most, length_norm)
    vectors = pages.vectors * np.repeat(longer, pages.lengths)[:, None]
    return Pages.packed(vectors, pages.offsets, pages.ids)


def longer_by(lengths: npt.NDArray[np.int64], most: int, length_norm: int) -> Floats:
    """How many times as long the vectors of pages of these lengths are."""
    longer = (most / np.maximum(lengths, 1)) ** (length_norm / 1000)
    return np.asarray(longer, np.float32)
