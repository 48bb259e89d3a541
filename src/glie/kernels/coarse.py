"""Coarse MaxSim over rows of a few bits, in small integers: twice as fast, with an error bound.

Each query vector is rounded to multiples of a unit, so that its largest number becomes 127. Stored
rows have unit length, so an inner product changes by at most the length of the rounding error. A
search can leave out pages that are too far behind and score the few others exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from glie.kernels.maxsim import Floats, Ints, in_lanes, in_passes
from glie.kernels.quantize import BITS, Packed, scan_order

MOST_NUMBERS = 1 << 16  # in a vector: longer sums might not fit into 32 bits
LARGEST = 127  # number in a rounded query vector
ROUNDING = 1e-5  # relative error that single precision may add


def coarse_maxsim(
    tokens: Floats, token_offsets: Ints, vectors: Packed, starts: Ints, ends: Ints
) -> tuple[Floats, Floats]:
    """Scores (Q, P) of stored rows of a few bits, and the error bound of each query (Q,)."""
    from glie.kernels import _coarse

    bits = BITS[vectors.dtype]
    top = 2**bits - 1
    ordered = scan_order(np.ascontiguousarray(tokens, dtype=np.float32), vectors.dtype)
    whole, units, errors = rounded(ordered)
    offsets = (top * whole.sum(axis=1, dtype=np.int64)).astype(np.float32)
    if bits == 8:  # once for the upper half of each stored number, once for the lower
        whole = np.concatenate([whole, whole], axis=1)
    steps = _steps(ordered.shape[1] // 4, min(top, 15))
    fours = whole.reshape(len(whole), whole.shape[1] // 4, 4)
    scores = np.empty((len(token_offsets) - 1, len(starts)), np.float32)

    def some(queries: slice, part: Ints) -> Callable[[int, int], None]:
        mine = slice(part[0], part[-1])
        side_by_side = in_lanes(fours[mine])
        lanes = len(side_by_side) * side_by_side.shape[2]
        filled = np.zeros(lanes, np.float32)
        filled[: part[-1] - part[0]] = offsets[mine]

        def run(first: int, last: int) -> None:
            _coarse.coarse_range(
                side_by_side,
                part - part[0],
                filled,
                units[mine],
                vectors.rows,
                bits,
                vectors.dim,
                steps,
                starts,
                ends,
                first,
                last,
                scores[queries],
            )

        return run

    in_passes(token_offsets, starts, ends, some)
    lengths = np.linalg.norm(ordered, axis=1)
    each = np.append(errors + ROUNDING * lengths, 0)
    bounds = np.add.reduceat(each, token_offsets[:-1]) * (np.diff(token_offsets) > 0)
    return scores, bounds.astype(np.float32)


def rounded(tokens: Floats) -> tuple[npt.NDArray[np.int8], Floats, Floats]:
    """Vectors (T, D) as integer multiples of their units, the units, and the lengths of the
    rounding errors."""
    largest = np.abs(tokens).max(axis=1, initial=0)
    units = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    whole = np.rint(tokens / units[:, None]).astype(np.int8)
    errors = np.linalg.norm(tokens - whole * units[:, None], axis=1)
    return whole, units, errors.astype(np.float32)


def _steps(fours: int, top: int) -> int:
    """How many sums of four products to add up in 16 bits: the most that divide `fours`."""
    most = (2**15 - 1) // (2 * top * LARGEST)
    return max(steps for steps in range(1, min(most, fours) + 1) if fours % steps == 0)
