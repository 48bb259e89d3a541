"""The compact layout: the engine finds candidates by a small vector, and glie scores their codes.

The vector is the mean of a page's anchors. It was compared with larger and cleverer ones, which
hold little more of the best pages or less: docs/experiments.md, One small vector a page.
"""

from __future__ import annotations

import math

import numpy as np

from glie.codec.codec import Codec
from glie.engines.base import Candidates, Engine, Entry, Restriction
from glie.errors import EngineError
from glie.kernels.quantize import Packed, row_bytes
from glie.pages import Queries
from glie.search.scan import CodeBlock, scan

# candidates for so many pages: PREFETCH_SHARE times their number to the power of PREFETCH_GROWTH
PREFETCH_SHARE = 1.4
PREFETCH_GROWTH = 0.8
PREFETCH = 2000  # and at least so many


def candidates_for(pages: int, count: int) -> int:
    """How many candidates an engine gives, of so many pages, to find `count`."""
    return max(PREFETCH, round(PREFETCH_SHARE * math.pow(pages, PREFETCH_GROWTH)), count)


def nearest(
    engine: Engine,
    codec: Codec,
    dim: int,
    queries: Queries,
    count: int,
    prefetch: int | None,
    among: Restriction,
) -> list[list[Entry]]:
    """What `Engine.nearest` returns, from an engine that only knows the means of pages."""
    means = np.stack([vectors.mean(axis=0) for vectors in queries])
    best: list[list[str]] = []
    for q, found in enumerate(engine.candidates(means, prefetch, among)):
        block = _block(found, codec, dim, engine.place)
        positions = scan(queries.slice(q, q + 1), [block], count).positions[0]
        best.append([found.ids[position] for position in positions])
    wanted = list(dict.fromkeys(page_id for ids in best for page_id in ids))
    entries = {entry.id: entry for entry in engine.entries(wanted)} if wanted else {}
    # what is missing was deleted since
    return [[entries[page_id] for page_id in ids if page_id in entries] for ids in best]


def _block(found: Candidates, codec: Codec, dim: int, place: str) -> CodeBlock:
    """The vectors of candidates, to be scanned."""
    width = row_bytes(dim, codec.dtype)
    used, over = np.divmod(np.array([len(code) for code in found.codes], np.int64), width)
    wrong = np.flatnonzero((over != 0) | (used < 1) | (used > codec.k))
    if len(wrong):
        raise EngineError(
            f"{place}: what is stored of page {found.ids[wrong[0]]!r} is not a code of its codec; "
            "export the page again"
        )
    counts = (np.arange(codec.k) < used[:, None]).astype(np.uint8)
    rows = np.zeros((len(used), codec.k, width), np.uint8)
    rows[counts > 0] = np.frombuffer(b"".join(found.codes), np.uint8).reshape(-1, width)
    return CodeBlock(Packed(rows, codec.dtype, dim), counts, 0, np.arange(len(used)))
