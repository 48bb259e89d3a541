"""MaxSim over rows of a few bits in small integers: twice as fast, and off by a known bound.

A query vector is rounded to multiples of a unit, 127 of them its largest number. A stored row is
of unit length, so the rounding changes none of a vector's products by more than its own length:
whoever looks for the best pages can leave out those that are too far behind, and score the few
that remain exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from glie.kernels.maxsim import Floats, Ints, in_lanes, in_passes
from glie.kernels.quantize import BITS, Packed, scan_order

MOST_NUMBERS = 1 << 16  # of a vector: sums of more might not fit into 32 bits
LARGEST = 127  # of a rounded query vector's numbers
ROUNDING = 1e-5  # a share of a score that single precision may add


def coarse_maxsim(
    tokens: Floats, token_offsets: Ints, vectors: Packed, starts: Ints, ends: Ints
) -> tuple[Floats, Floats]:
    """Scores (Q, P) of stored rows of a few bits, and how far those of each query may be from the
    true ones (Q,)."""
    from glie.kernels import _coarse

    bits = BITS[vectors.dtype]
    top = 2**bits - 1
    ordered = scan_order(np.ascontiguousarray(tokens, dtype=np.float32), vectors.dtype)
    whole, units, errors = rounded(ordered)
    offsets = (top * whole.sum(axis=1, dtype=np.int64)).astype(np.float32)
    if bits == 8:  # first for the upper halves of the stored numbers, then for the lower
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
    """Vectors (T, D) as whole multiples of a unit each, and the lengths of what that leaves."""
    largest = np.abs(tokens).max(axis=1, initial=0)
    units = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    whole = np.rint(tokens / units[:, None]).astype(np.int8)
    errors = np.linalg.norm(tokens - whole * units[:, None], axis=1)
    return whole, units, errors.astype(np.float32)


def _steps(fours: int, top: int) -> int:
    """How many of these steps of four products to sum in 16 bits: the most, in equal parts."""
    most = (2**15 - 1) // (2 * top * LARGEST)
    return max(steps for steps in range(1, min(most, fours) + 1) if fours % steps == 0)
