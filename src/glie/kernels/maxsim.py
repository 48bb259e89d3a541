"""MaxSim: the sum over a query's vectors of the best inner product with any vector of the page.

The only home of this operator. A page is rows starts[p]..ends[p] of `vectors`, so ragged pages
and stored codes (whose unused slots lie behind ends[p]) go through the same function, and a
padded slot is never in the set that is scored. A page without rows scores -inf.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# Query tokens scored in one pass over the pages: 256 x 128 floats stay in a core's L2 cache.
TOKENS_PER_PASS = 256


def maxsim(
    tokens: Floats,
    token_offsets: Ints,
    vectors: npt.NDArray[Any],
    starts: Ints,
    ends: Ints,
) -> Floats:
    """scores (Q, P), float32. `vectors` are (T, D) float32, or uint16 holding bfloat16 bits."""
    from glie.kernels import _compiled
    from glie.kernels.parallel import over_ranges

    bits, shift = _bits(vectors)
    tokens = np.ascontiguousarray(tokens, dtype=np.float32)
    scores = np.empty((len(token_offsets) - 1, len(starts)), dtype=np.float32)
    # about a millisecond of work a chunk: enough to hide a thread's start, little enough to share
    rows = int(np.maximum(ends - starts, 1).sum()) if len(starts) else 1
    for first_query, last_query in _passes(token_offsets):
        part = token_offsets[first_query : last_query + 1]
        part_tokens = tokens[part[0] : part[-1]]
        work = rows * max(len(part_tokens), 1) / max(len(starts), 1)
        chunk = max(1, int(200_000 / work))

        def run(
            first: int,
            last: int,
            part_tokens: Floats = part_tokens,
            offsets: Ints = part - part[0],
            out: Floats = scores[first_query:last_query],
        ) -> None:
            _compiled.maxsim_range(
                part_tokens, offsets, bits, shift, starts, ends, first, last, out
            )

        over_ranges(run, len(starts), chunk=chunk)
    return scores


@functools.cache
def prepare() -> None:
    """Have the compiled loop in memory, so that what is timed next is only the search."""
    token, one = np.ones((1, 1), np.float32), np.array([0, 1])
    stored = np.ones((1, 1), np.uint16)
    stored.setflags(write=False)  # as a mapped file is
    maxsim(token, one, stored, one[:1], one[1:])


def maxsim_reference(
    tokens: Floats,
    token_offsets: Ints,
    vectors: npt.NDArray[Any],
    starts: Ints,
    ends: Ints,
) -> Floats:
    """The same in plain numpy, as the definition reads."""
    bits, shift = _bits(vectors)
    plain = (bits.astype(np.uint32) << shift).view(np.float32)
    scores = np.full((len(token_offsets) - 1, len(starts)), -np.inf, dtype=np.float32)
    for q, (first, last) in enumerate(pairwise(token_offsets)):
        for p, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if start < end:
                scores[q, p] = (tokens[first:last] @ plain[start:end].T).max(axis=1).sum()
    return scores


def _bits(vectors: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], np.uint32]:
    """The raw bits and the shift that turns them into float32 bits."""
    if vectors.dtype == np.uint16:
        return vectors, np.uint32(16)
    return np.ascontiguousarray(vectors, dtype=np.float32).view(np.uint32), np.uint32(0)


def _passes(token_offsets: Ints) -> list[tuple[int, int]]:
    """Runs of whole queries of about TOKENS_PER_PASS tokens; a longer query is a run by itself."""
    passes: list[tuple[int, int]] = []
    first = 0
    queries = len(token_offsets) - 1
    for query in range(queries):
        if token_offsets[query + 1] - token_offsets[first] >= TOKENS_PER_PASS:
            passes.append((first, query + 1))
            first = query + 1
    if first < queries:
        passes.append((first, queries))
    return passes
