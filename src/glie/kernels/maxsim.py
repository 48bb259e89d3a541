"""MaxSim: the sum over a query's vectors of the best inner product with any vector of the page.

This is the only implementation. Page p is rows starts[p]..ends[p] of `vectors`. Ragged pages and
stored codes, whose unused slots lie behind ends[p], use the same function, and padding is never
scored. A page without rows scores -inf.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.quantize import BFLOAT16, BITS, Packed, odd_integers, rotate, scan_order
from glie.kernels.small import in_numpy

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Query tokens scored in one pass over some pages: 256 x 128 floats stay in a core's second cache,
# small integers in its first.
TOKENS_PER_PASS = 256
COST = {3: 3.0, 2: 2.2, 1: 1.6}  # of one, two or three LLVM vectors of tokens scored together
NUMBERS_PER_BLOCK = 1 << 17  # in numpy: stored numbers, or products, at a time; 1 MB of each
GRID = 26  # bits of a number in numpy: products of two fit into the 53 bits of a float64


def maxsim(
    tokens: Floats,
    token_offsets: Ints,
    vectors: Floats | Packed,
    starts: Ints,
    ends: Ints,
) -> Floats:
    """Scores (Q, P) in float32. `vectors` are (T, D) floats, or T packed rows."""
    if in_numpy(products_of(tokens, starts, ends)):
        return maxsim_in_numpy(tokens, token_offsets, vectors, starts, ends)
    from glie.kernels import _compiled

    scan = _scan(tokens, vectors)
    where = scan.rows.ctypes.data
    scores = np.empty((len(token_offsets) - 1, len(starts)), dtype=np.float32)

    def some(queries: slice, offsets: Ints) -> Callable[[int, int], None]:
        mine = in_lanes(scan.tokens[offsets[0] : offsets[-1]])
        out = scores[queries]

        def run(first: int, last: int) -> None:
            _compiled.maxsim_range(
                mine, offsets - offsets[0], where, *scan[2:], starts, ends, first, last, out
            )

        return run

    in_passes(token_offsets, starts, ends, some)
    return scores


def in_passes(
    token_offsets: Ints,
    starts: Ints,
    ends: Ints,
    some: Callable[[slice, Ints], Callable[[int, int], None]],
) -> None:
    """Scan the pages once for every few queries. some(queries, their offsets) returns the function
    that is called with ranges of pages, in threads."""
    from glie.kernels.parallel import over_ranges

    # about a millisecond of work per chunk: much longer than a thread takes to start
    rows = max(_rows(starts, ends), len(starts), 1)
    tokens = max(int(token_offsets[-1] - token_offsets[0]), 8)
    chunk = max(1, int(500_000 * len(starts) / (rows * tokens)))
    passes = [
        some(slice(first, last), token_offsets[first : last + 1])
        for first, last in _passes(token_offsets)
    ]

    def run(first: int, last: int) -> None:
        for scan in passes:  # the pages stay in a cache meanwhile
            scan(first, last)

    over_ranges(run, len(starts), chunk=chunk)


def products_of(tokens: Floats, starts: Ints, ends: Ints) -> int:
    """How many numbers `maxsim` multiplies."""
    return _rows(starts, ends) * tokens.size


def _rows(starts: Ints, ends: Ints) -> int:
    return int(ends.sum() - starts.sum())


def maxsim_in_numpy(
    tokens: Floats,
    token_offsets: Ints,
    vectors: Floats | Packed,
    starts: Ints,
    ends: Ints,
) -> Floats:
    """`maxsim` without compiled loops, for small work.

    A matrix product may add up in any order, which depends on the shape of the matrices. Here every
    sum is exact, so that a page's score depends on that page alone.
    """
    scores = np.full((len(token_offsets) - 1, len(starts)), -np.inf, np.float32)
    if isinstance(vectors, Packed) and vectors.dtype in BITS:
        tokens = rotate(tokens)
    whole, units = _on_grid(tokens)
    lengths = ends - starts
    filled = np.flatnonzero(lengths > 0)
    behind = np.cumsum(lengths[filled])  # rows up to the end of each page
    step = max(1, NUMBERS_PER_BLOCK // max(*tokens.shape, 1))
    blocks = np.searchsorted(behind, np.arange(step, behind[-1] if len(behind) else 0, step))
    for pages in np.split(filled, blocks):
        if not len(pages):
            continue
        firsts = np.cumsum(lengths[pages]) - lengths[pages]
        rows = np.arange(lengths[pages].sum()) + np.repeat(starts[pages] - firsts, lengths[pages])
        stored, scales = _exact_rows(vectors, rows)
        products = ((whole @ stored.T) * (units * scales.T)).astype(np.float32)
        best = np.maximum.reduceat(products, firsts, axis=1)
        for q, (first, last) in enumerate(pairwise(token_offsets)):
            scores[q, pages] = best[first:last].sum(axis=0, dtype=np.float64)
    return scores


def _exact_rows(vectors: Floats | Packed, rows: Ints) -> tuple[Doubles, Doubles]:
    """Some rows as integers (n, D), and what to multiply them by (n, 1)."""
    if not isinstance(vectors, Packed):
        return _on_grid(vectors[rows])
    some = vectors.take(rows)
    if vectors.dtype == BFLOAT16:
        return _on_grid(some.vectors())
    odd = odd_integers(*some).astype(np.float64)
    return odd, 1 / np.linalg.norm(odd, axis=1, keepdims=True)


def _on_grid(vectors: Floats) -> tuple[Doubles, Doubles]:
    """Vectors (n, D) as integers, and their units (n, 1). The length in units is at most 2^GRID, so
    an inner product, and any part of its sum, is at most 2^(2 GRID)."""
    _, exponents = np.frexp(np.linalg.norm(vectors, axis=1, keepdims=True))
    units = np.ldexp(1.0, exponents - GRID)
    return np.rint(vectors / units), units


def maxsim_reference(
    tokens: Floats,
    token_offsets: Ints,
    vectors: Floats | Packed,
    starts: Ints,
    ends: Ints,
) -> Floats:
    """`maxsim` in plain numpy, by its definition."""
    plain = vectors.vectors() if isinstance(vectors, Packed) else vectors
    scores = np.full((len(token_offsets) - 1, len(starts)), -np.inf, dtype=np.float32)
    for q, (first, last) in enumerate(pairwise(token_offsets)):
        for p, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if start < end:
                scores[q, p] = (tokens[first:last] @ plain[start:end].T).max(axis=1).sum()
    return scores


class _Scan(NamedTuple):
    """The input of the compiled loop, which knows rows by their address: so it is compiled once for
    all types, and for arrays that cannot be written to."""

    tokens: Floats  # (T, ...), with their numbers in the order of the loop
    rows: npt.NDArray[Any]  # (T, ...)
    size: int  # bytes of a row
    bits: int  # of a number: a float, the upper half of one, or a level
    dim: int


def _scan(tokens: Floats, vectors: Floats | Packed) -> _Scan:
    tokens = np.ascontiguousarray(tokens, dtype=np.float32)
    if not isinstance(vectors, Packed):
        plain = np.ascontiguousarray(vectors, dtype=np.float32)
        return _Scan(tokens, plain, 4 * tokens.shape[1], 32, tokens.shape[1])
    rows = np.ascontiguousarray(vectors.rows)
    if vectors.dtype == BFLOAT16:
        return _Scan(tokens, rows, 2 * vectors.dim, 16, vectors.dim)
    ordered, bits = scan_order(tokens, vectors.dtype), BITS[vectors.dtype]
    return _Scan(ordered, rows, rows.shape[1], bits, vectors.dim)


def in_lanes(tokens: npt.NDArray[Any], lanes: int = 0) -> npt.NDArray[Any]:
    """Tokens (T, D) or (T, D / n, n) in groups of lanes: (G, D, lanes) or (G, D / n, lanes, n). The
    last group is filled with zeros. Without `lanes`, as many as take the least time."""
    from glie.kernels._tiles import LANES

    if not lanes:
        blocks = -(-max(len(tokens), 1) // LANES)
        lanes = LANES * min(COST, key=lambda together: -(-blocks // together) * COST[together])
    groups = -(-max(len(tokens), 1) // lanes)
    filled = np.zeros((groups * lanes, *tokens.shape[1:]), tokens.dtype)
    filled[: len(tokens)] = tokens
    apart = filled.reshape(groups, lanes, *tokens.shape[1:])
    return np.ascontiguousarray(apart.swapaxes(1, 2))


def _passes(token_offsets: Ints) -> list[tuple[int, int]]:
    """Ranges of whole queries with about TOKENS_PER_PASS tokens; a longer query is one range."""
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
