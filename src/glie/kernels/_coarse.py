"""The compiled loop of coarse MaxSim."""

import numpy as np

from glie.kernels._compiled import _compile, sums
from glie.kernels._levels import round_halves, split_rows
from glie.kernels._tiles import LANES, ROWS, UNIT, address, copy_bytes, prefetch, score_levels

AHEAD = 4  # pages between prefetch and use: candidates lie far apart in memory
LINE = 64  # bytes that come into a cache together


@_compile
def coarse_range(
    tokens,
    token_offsets,
    offsets,
    units,
    stored,
    size,
    bits,
    dim,
    starts,
    ends,
    first,
    last,
    scores,
    widest,
):
    """scores[q, p] for the pages first..last, like `maxsim_range` but with rounded tokens:
    tokens[g, :, l] is token g * lanes + l in multiples of its unit, four bytes at a time. A stored
    number is in bfloat16 (16 bits), and rounded too; or it is the odd integer 2 * level - top.
    `offsets` are the sums of the tokens times the level that stands for 0. widest[p] is the largest
    step of a rounded row."""
    groups, steps, lanes, _ = tokens.shape
    wide = steps * bits // 2
    padded = np.empty((ROWS, wide), np.uint8)
    padded[:] = 0
    levels = np.empty((ROWS, 4 * steps), np.uint8)
    parts = np.empty(ROWS * wide // UNIT, np.int32)
    parts[:] = 0
    top = (1 << bits) - 1
    square = dim * top * top
    scales = np.empty(ROWS, np.float32)
    best = np.empty(groups * lanes, np.float32)
    for page in range(first, last):
        ahead = min(page + AHEAD, last - 1)
        for place in range(starts[ahead] * size, ends[ahead] * size, LINE):
            prefetch(stored + place)
        best[:] = -np.inf
        for row in range(starts[page], ends[page], ROWS):
            four = stored + row * size
            if size < wide or row + ROWS > ends[page]:  # the last row repeats: no maximum changes
                four = address(padded)
                for lane in range(ROWS):
                    source = stored + min(row + lane, ends[page] - 1) * size
                    copy_bytes(source, four + lane * wide, size)
            place_size = wide
            if bits == 16:
                step = round_halves(four, ROWS * 4 * steps, address(levels))
                scales[:] = step
                widest[page] = max(widest[page], step)
                place_size = 4 * steps
            else:
                split_rows(bits, four, wide, address(levels), address(parts))
                each = wide // UNIT
                for lane in range(ROWS):
                    above = 0
                    for unit in range(lane * each, (lane + 1) * each):
                        above += parts[unit]
                    # (2 level - top)^2 = top^2 - 4 level (top - level), in whole numbers
                    scales[lane] = np.float32(2) / np.sqrt(np.float32(square - 4 * above))
            for g in range(groups):
                more = 4 * g * lanes
                score_levels(
                    lanes // LANES,
                    address(levels),
                    place_size,
                    steps,
                    address(tokens) + steps * more,
                    address(offsets) + more,
                    address(scales),
                    address(best) + more,
                )
        for t in range(units.shape[0]):
            best[t] *= units[t]
        sums(best, token_offsets, page, scores)
