"""The compiled loop of coarse MaxSim."""

import numpy as np

from glie.kernels._compiled import _compile, _inline, address, sums, unpack_levels
from glie.kernels._tiles import (
    LANES,
    ROWS,
    pairs_1,
    pairs_2,
    pairs_3,
    small_1,
    small_2,
    small_3,
)


@_inline
def _score_levels(blocks, levels, steps, tokens, offsets, scales, best):
    if blocks == 3:
        small_3(levels, steps, tokens, offsets, scales, best)
    elif blocks == 2:
        small_2(levels, steps, tokens, offsets, scales, best)
    else:
        small_1(levels, steps, tokens, offsets, scales, best)


@_inline
def _score_pairs(blocks, rows, steps, tokens, offsets, scales, best):
    if blocks == 3:
        pairs_3(rows, steps, tokens, offsets, scales, best)
    elif blocks == 2:
        pairs_2(rows, steps, tokens, offsets, scales, best)
    else:
        pairs_1(rows, steps, tokens, offsets, scales, best)


@_compile
def coarse_range(
    tokens, token_offsets, offsets, units, stored, bits, dim, starts, ends, first, last, scores
):
    """scores[q, p] for the pages first..last, like `maxsim_range` but with rounded tokens:
    tokens[g, :, l] is token g * lanes + l in multiples of its unit, four bytes at a time. A stored
    number is in bfloat16 (0 bits), or it is the odd integer 2 * level - top; then `offsets` are
    top / 2 times the sums of the tokens."""
    groups, steps, lanes, _ = tokens.shape
    size, wide = stored.shape[1], steps * bits // 2 if bits else 4 * steps
    padded = np.zeros((ROWS, wide), np.uint8)
    levels = np.empty((ROWS, 4 * steps), np.uint8)
    scales = np.ones(ROWS, np.float32)
    best = np.empty(groups * lanes, np.float32)
    rows_at, padded_at, levels_at = address(stored), address(padded), address(levels)
    tokens_at, offsets_at, scales_at = address(tokens), address(offsets), address(scales)
    for page in range(first, last):
        best[:] = -np.inf
        for row in range(starts[page], ends[page], ROWS):
            four = rows_at + row * size
            if size < wide or row + ROWS > ends[page]:  # the last row repeats: no maximum changes
                for lane in range(ROWS):
                    padded[lane, :size] = stored[min(row + lane, ends[page] - 1)]
                four = padded_at
            if bits:
                for lane in range(ROWS):
                    packed, there = four + lane * wide, levels_at + lane * 4 * steps
                    scales[lane] = np.float32(2) * unpack_levels(packed, wide, bits, dim, there)
                four = levels_at
            for g in range(groups):
                blocks, more = lanes // LANES, 4 * g * lanes
                here = (tokens_at + steps * more, offsets_at + more, scales_at)
                if bits:
                    _score_levels(blocks, four, steps, *here, address(best) + more)
                else:
                    _score_pairs(blocks, four, steps, *here, address(best) + more)
        for t in range(units.shape[0]):
            best[t] *= units[t]
        sums(best, token_offsets, page, scores)
