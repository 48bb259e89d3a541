"""Coarse MaxSim over stored rows, with an error bound: up to three times as fast as exact scores.

Each query vector is rounded to integer multiples of a unit, so that its largest number becomes 127.
Rows of a few bits are integers already, and have unit length: an inner product changes by at most
the length of the rounding error. Rows in bfloat16 are rounded to 8 bits on the way, which changes
it by at most the length of that error too. A search can leave out pages that are too far behind
and score the few others exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.maxsim import Floats, Ints, in_lanes, in_passes
from glie.kernels.quantize import BFLOAT16, BITS, Packed, scan_order

MOST_NUMBERS = 1 << 16  # in a vector: longer sums might not fit into 32 bits
ROUNDING = 1e-5  # relative error that single precision may add
LONGEST = 1.01  # length of a unit vector whose numbers are rounded to bfloat16


class Rounded(NamedTuple):
    """Query vectors, rounded."""

    items: npt.NDArray[Any]  # (T, steps, n): n numbers in every four bytes
    offsets: Floats  # (T,): to subtract from a product with levels
    units: Floats  # (T,): to multiply a product with
    errors: Floats  # (T,): the most by which a product with a stored row may be off


def is_worthwhile(vectors: Packed) -> bool:
    """Whether coarse scores of these rows can be had, and faster than exact ones."""
    from glie.kernels import _tiles

    if vectors.dtype == BFLOAT16 and not _tiles.ADDS_FOURS:
        return False  # rounding takes as long as is won
    return vectors.dim <= MOST_NUMBERS


def coarse_maxsim(
    tokens: Floats, token_offsets: Ints, vectors: Packed, starts: Ints, ends: Ints
) -> tuple[Floats, Floats]:
    """Scores (Q, P) of stored rows, and the error bound of each query (Q,)."""
    from glie.kernels import _coarse, _tiles

    bits = BITS.get(vectors.dtype, 16)
    tokens = np.ascontiguousarray(tokens, dtype=np.float32)
    most = 64 if bits >= 8 and _tiles.SATURATES else 127  # two products must fit into 16 bits
    if bits < 16:
        query = rounded(scan_order(tokens, vectors.dtype), (2**bits - 1) / 2, most)
    else:
        filling = -tokens.shape[1] % _tiles.UNIT
        query = rounded(np.pad(tokens, [(0, 0), (0, filling)]), _tiles.ZERO, most)
    rows = np.ascontiguousarray(vectors.rows)
    widest = np.zeros(len(starts), np.float32)
    scores = np.empty((len(token_offsets) - 1, len(starts)), np.float32)

    def some(queries: slice, part: Ints) -> Callable[[int, int], None]:
        mine = slice(part[0], part[-1])
        side_by_side = in_lanes(query.items[mine])
        lanes = len(side_by_side) * side_by_side.shape[2]
        offsets = np.zeros(lanes, np.float32)
        offsets[: part[-1] - part[0]] = query.offsets[mine]

        def run(first: int, last: int) -> None:
            _coarse.coarse_range(
                side_by_side.view(np.uint8),
                part - part[0],
                offsets,
                query.units[mine],
                rows.ctypes.data,
                rows.shape[1],
                bits,
                vectors.dim,
                starts,
                ends,
                first,
                last,
                scores[queries],
                widest,
            )

        return run

    in_passes(token_offsets, starts, ends, some)
    # of a row: half a step in each number
    of_rows = widest.max(initial=0) / 2 * math.sqrt(vectors.dim)
    lengths = np.linalg.norm(tokens, axis=1)
    each = LONGEST * query.errors + of_rows * (lengths + query.errors) + ROUNDING * lengths
    each = np.append(each, 0)
    bounds = np.add.reduceat(each, token_offsets[:-1]) * (np.diff(token_offsets) > 0)
    return scores, bounds.astype(np.float32)


def rounded(tokens: Floats, zero: float, most: int = 127) -> Rounded:
    """Vectors (T, D) as integer multiples of their units, of which the largest is `most`, for rows
    whose level `zero` stands for 0."""
    largest = np.abs(tokens).max(axis=1, initial=0)
    units = np.where(largest > 0, largest / most, 1).astype(np.float32)
    whole = np.rint(tokens / units[:, None]).astype(np.int8)
    errors = np.linalg.norm(tokens - whole * units[:, None], axis=1)
    offsets = (zero * whole.sum(axis=1, dtype=np.int64)).astype(np.float32)
    items = whole.reshape(len(whole), whole.shape[1] // 4, 4)
    return Rounded(items, offsets, units, errors.astype(np.float32))
