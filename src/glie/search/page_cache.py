"""Regenerated pages kept at hand, so that a page which many ask for is not decoded each time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.pages import Floats, Pages

MOST_BYTES = 64 << 20  # 127 pages of 1,031 x 128


class PageCache:
    """Calls `regenerate` for pages that are not at hand, told apart by their ids. Keeps at most
    `most_bytes` of vectors, those used last. Threads may share it."""

    def __init__(self, regenerate: Callable[[Codes], Pages], most_bytes: int = MOST_BYTES) -> None:
        self._regenerate = regenerate
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, Floats] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __call__(self, codes: Codes) -> Pages:
        with self._lock:
            found = [self._kept.get(page_id) for page_id in codes.ids]
            for page_id, vectors in zip(codes.ids, found, strict=True):
                if vectors is not None:
                    self._kept.move_to_end(page_id)
        missing = np.array([i for i, vectors in enumerate(found) if vectors is None], np.int64)
        made = self._regenerate(codes.take(missing))
        for i, vectors in zip(missing.tolist(), made, strict=True):
            found[i] = vectors
        self._keep(made)
        if len(missing) == len(codes):
            return made
        rows = [vectors for vectors in found if vectors is not None]
        offsets = np.cumsum([0, *map(len, rows)])
        return Pages.packed(np.concatenate(rows), offsets, codes.ids)

    def cached(self, ids: Iterable[str]) -> int:
        """How many of these need not be regenerated."""
        with self._lock:
            return sum(page_id in self._kept for page_id in ids)

    def _keep(self, pages: Pages) -> None:
        with self._lock:
            for page_id, vectors in zip(pages.ids, pages, strict=True):
                if vectors.nbytes > self._most_bytes or page_id in self._kept:
                    continue
                self._kept[page_id] = vectors.copy()  # not the whole batch's memory
                self._bytes += vectors.nbytes
                while self._bytes > self._most_bytes:
                    self._bytes -= self._kept.popitem(last=False)[1].nbytes


def reconstruct_with(codec: Codec, hot: PageCache) -> Callable[[Codes], Pages] | None:
    """What reads the pages of a shortlist back, if anything can."""
    if codec.decoder is None:  # to look words up costs no more than to keep them
        return codec.regenerate if codec.regenerates else None
    return hot
