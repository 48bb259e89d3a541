"""Page cache (LRU): reconstructed pages kept in memory, so that a popular page is decoded once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.kernels.maxsim import maxsim
from glie.pages import Floats, Pages, Queries

MOST_BYTES = 64 << 20  # 127 pages of 1,031 x 128


class Reconstructed(NamedTuple):
    """Reconstructed pages, and how many of them were cached."""

    pages: Pages
    cached: int


class Scored(NamedTuple):
    """Scores (Q, P) of pages, and how many of them were cached."""

    scores: Floats
    cached: int


class PageCache:
    """Reconstructs pages with `regenerate` and keeps the last used, by id, up to `most_bytes` of
    vectors; 0 keeps none. Threads may share it."""

    def __init__(
        self,
        regenerate: Callable[[Codes], Pages],
        most_bytes: int = MOST_BYTES,
        score: Callable[[Queries, Codes], Floats] | None = None,
    ) -> None:
        """`score` gives the scores (Q, P) of pages that are not kept: see `scores`."""
        self._regenerate = regenerate
        self._score = score
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, Floats] = OrderedDict()  # the last used at the end
        self._bytes = 0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, codec: Codec) -> PageCache | None:
        """A cache for pages of this codec; None if its pages are only what is stored of them."""
        if not codec.regenerates:
            return None
        if codec.worth_caching:
            return cls(codec.regenerate)
        # looking codewords up costs no more than a look into the cache
        return cls(codec.regenerate, 0, codec.maxsim)

    @property
    def scores_codes(self) -> bool:
        """Whether pages are scored as they are read: nothing is gained by sharing them."""
        return self._score is not None

    def scores(self, queries: Queries, codes: Codes) -> Scored:
        """The scores of the pages of these codes: MaxSim over their vectors."""
        if self._score is not None:
            return Scored(self._score(queries, codes), 0)
        pages, cached = self.pages(codes)
        bounds = pages.offsets[:-1], pages.offsets[1:]
        return Scored(maxsim(queries.vectors, queries.offsets, pages.vectors, *bounds), cached)

    def pages(self, codes: Codes) -> Reconstructed:
        """The pages of these codes, in their order."""
        if not self._most_bytes:
            return Reconstructed(self._regenerate(codes), 0)
        with self._lock:
            found = [self._kept.get(page_id) for page_id in codes.ids]
            for page_id, vectors in zip(codes.ids, found, strict=True):
                if vectors is not None:
                    self._kept.move_to_end(page_id)
        missing = np.array([i for i, vectors in enumerate(found) if vectors is None], np.int64)
        made = self._regenerate(codes.take(missing))
        self._keep(made)
        if len(missing) == len(codes):
            return Reconstructed(made, 0)
        for i, vectors in zip(missing.tolist(), made, strict=True):
            found[i] = vectors
        rows = [vectors for vectors in found if vectors is not None]
        offsets = np.cumsum([0, *map(len, rows)])
        pages = Pages.packed(np.concatenate(rows), offsets, codes.ids)
        return Reconstructed(pages, len(codes) - len(missing))

    def _keep(self, pages: Pages) -> None:
        with self._lock:
            for page_id, vectors in zip(pages.ids, pages, strict=True):
                if vectors.nbytes > self._most_bytes or page_id in self._kept:
                    continue
                self._kept[page_id] = vectors.copy()  # a view would keep the whole batch
                self._bytes += vectors.nbytes
                while self._bytes > self._most_bytes:
                    self._bytes -= self._kept.popitem(last=False)[1].nbytes
