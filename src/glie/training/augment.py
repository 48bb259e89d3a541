"""Data augmentation: new variants of the pages in each epoch, against overfitting.

The targets of a fit come from the encoder's vectors, not from labels, so any set of vectors can
serve as a page. Each epoch cuts every page to a random stretch, appends a stretch of another page
to half of them, and clusters the result again.
"""

from __future__ import annotations

import numpy as np

from glie.codec.anchors import MAX_VECTORS
from glie.pages import Floats, Pages

SHORTEST = 0.4  # share of a page
JOINED = 0.5  # share of the pages


def varied(pages: Pages, rng: np.random.Generator) -> Pages:
    """Variants of the pages, in the same order and with the same ids."""
    others = rng.integers(0, len(pages), len(pages))
    joined = rng.random(len(pages)) < JOINED
    arrays = []
    for page in range(len(pages)):
        rows = _stretch(pages[page], rng)
        if joined[page]:
            rows = np.concatenate([rows, _stretch(pages[int(others[page])], rng)])[:MAX_VECTORS]
        arrays.append(rows)
    offsets = np.cumsum([0] + [len(rows) for rows in arrays], dtype=np.int64)
    return Pages.packed(np.concatenate(arrays), offsets, pages.ids)


def _stretch(rows: Floats, rng: np.random.Generator) -> Floats:
    length = max(1, round(len(rows) * rng.uniform(SHORTEST, 1)))
    first = int(rng.integers(0, len(rows) - length + 1))
    return rows[first : first + length]
