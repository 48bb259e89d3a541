"""MaxSim: the sum over a query's vectors of the best inner product with any vector of the page.

The only home of this operator. A page is rows starts[p]..ends[p] of `vectors`, so ragged pages
and stored codes (whose unused slots lie behind ends[p]) go through the same function, and a
padded slot is never in the set that is scored. A page without rows scores -inf.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.quantize import BFLOAT16, BITS, Packed, scan_order

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# Query tokens scored in one pass over the pages: 256 x 128 floats stay in a core's L2 cache.
TOKENS_PER_PASS = 256
LANES = 8  # the compiled loop scores one, two or three times so many tokens together ...
COST = {3: 3.0, 2: 2.2, 1: 1.6}  # ... which takes about so long


def maxsim(
    tokens: Floats,
    token_offsets: Ints,
    vectors: Floats | Packed,
    starts: Ints,
    ends: Ints,
) -> Floats:
    """scores (Q, P), float32. `vectors` are T rows: (T, D) as they are, or packed."""
    from glie.kernels import _compiled
    from glie.kernels.parallel import over_ranges

    scan = _scan(tokens, vectors)
    scores = np.empty((len(token_offsets) - 1, len(starts)), dtype=np.float32)
    # about a millisecond of work a chunk: enough to hide a thread's start, little enough to share
    rows = int(np.maximum(ends - starts, 1).sum()) if len(starts) else 1
    for first_query, last_query in _passes(token_offsets):
        part = token_offsets[first_query : last_query + 1]
        part_tokens = _groups(scan.tokens[part[0] : part[-1]])
        work = rows * part_tokens[:, 0].size / max(len(starts), 1)
        chunk = max(1, int(500_000 / work))

        def run(
            first: int,
            last: int,
            part_tokens: Floats = part_tokens,
            offsets: Ints = part - part[0],
            out: Floats = scores[first_query:last_query],
        ) -> None:
            _compiled.maxsim_range(part_tokens, offsets, *scan[1:], starts, ends, first, last, out)

        over_ranges(run, len(starts), chunk=chunk)
    return scores


@functools.cache
def prepare() -> None:
    """Have the compiled loops in memory, so that what is timed next is only the search."""
    token, one = np.ones((1, 1), np.float32), np.array([0, 1])
    for dtype in (BFLOAT16, "int8"):  # one loop for all types of a few bits
        stored = Packed.of(token, dtype)
        stored.rows.setflags(write=False)  # as a mapped file is
        maxsim(token, one, stored, one[:1], one[1:])


def maxsim_reference(
    tokens: Floats,
    token_offsets: Ints,
    vectors: Floats | Packed,
    starts: Ints,
    ends: Ints,
) -> Floats:
    """The same in plain numpy, as the definition reads."""
    plain = vectors.vectors() if isinstance(vectors, Packed) else vectors
    scores = np.full((len(token_offsets) - 1, len(starts)), -np.inf, dtype=np.float32)
    for q, (first, last) in enumerate(pairwise(token_offsets)):
        for p, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if start < end:
                scores[q, p] = (tokens[first:last] @ plain[start:end].T).max(axis=1).sum()
    return scores


class _Scan(NamedTuple):
    """What the compiled loop reads: float32 bits that lost their lower part, or numbers of a few
    bits each."""

    tokens: Floats  # (T, ...), as the loop meets their numbers
    stored: npt.NDArray[Any]  # (T, ...)
    shift: np.uint32  # that turns a stored value into float32 bits
    bits: int = 0  # of a number; 0: it is one of those values
    filling: int = 0  # numbers at the end of a row that are no part of it


def _scan(tokens: Floats, vectors: Floats | Packed) -> _Scan:
    tokens = np.ascontiguousarray(tokens, dtype=np.float32)
    if not isinstance(vectors, Packed):
        plain = np.ascontiguousarray(vectors, dtype=np.float32)
        return _Scan(tokens, plain.view(np.uint32), np.uint32(0))
    if vectors.dtype == BFLOAT16:
        return _Scan(tokens, vectors.rows.view("<u2"), np.uint32(16))
    tokens = scan_order(tokens, vectors.dtype)
    filling = tokens.shape[1] - vectors.dim
    return _Scan(tokens, vectors.rows, np.uint32(0), BITS[vectors.dtype], filling)


def _groups(tokens: Floats) -> Floats:
    """Tokens (T, D) side by side in groups (G, D, lanes), the last filled with zeros."""
    blocks = -(-max(len(tokens), 1) // LANES)
    lanes = LANES * min(COST, key=lambda together: -(-blocks // together) * COST[together])
    groups = -(-max(len(tokens), 1) // lanes)
    filled = np.zeros((groups * lanes, tokens.shape[1]), np.float32)
    filled[: len(tokens)] = tokens
    return np.ascontiguousarray(filled.reshape(groups, lanes, -1).swapaxes(1, 2))


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
