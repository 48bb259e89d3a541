"""The compiled loop of coarse MaxSim."""

import numpy as np

from glie.kernels._compiled import _compile, sums, unpack_levels
from glie.kernels._tiles import LANES, ROWS, address, copy_bytes, score_pairs, score_small


@_compile
def coarse_range(
    tokens, token_offsets, offsets, units, stored, size, bits, dim, starts, ends, first, last, scores
):
    """scores[q, p] for the pages first..last, like `maxsim_range` but with rounded tokens:
    tokens[g, :, l] is token g * lanes + l in multiples of its unit, four bytes at a time. A stored
    number is in bfloat16 (16 bits), or it is the odd integer 2 * level - top; then `offsets` are
    top / 2 times the sums of the tokens."""
    groups, steps, lanes, _ = tokens.shape
    levelled = bits < 16
    wide = steps * bits // 2 if levelled else 4 * steps
    padded = np.zeros((ROWS, wide), np.uint8)
    levels = np.empty((ROWS, 4 * steps), np.uint8)
    scales = np.ones(ROWS, np.float32)
    best = np.empty(groups * lanes, np.float32)
    for page in range(first, last):
        best[:] = -np.inf
        for row in range(starts[page], ends[page], ROWS):
            four = stored + row * size
            if size < wide or row + ROWS > ends[page]:  # the last row repeats: no maximum changes
                four = address(padded)
                for lane in range(ROWS):
                    source = stored + min(row + lane, ends[page] - 1) * size
                    copy_bytes(source, four + lane * wide, size)
            if levelled:
                for lane in range(ROWS):
                    there = address(levels) + lane * 4 * steps
                    length = unpack_levels(four + lane * wide, wide, bits, dim, there)
                    scales[lane] = np.float32(2) * length
                four = address(levels)
            for g in range(groups):
                blocks, more = lanes // LANES, 4 * g * lanes
                here = address(tokens) + steps * more
                offset, highest = address(offsets) + more, address(best) + more
                if levelled:
                    score_small(blocks, four, steps, here, offset, address(scales), highest)
                else:
                    score_pairs(blocks, four, steps, here, offset, address(scales), highest)
        for t in range(units.shape[0]):
            best[t] *= units[t]
        sums(best, token_offsets, page, scores)
