"""The compiled loop of coarse MaxSim."""

import numpy as np

from glie.kernels._compiled import _compile, _inline, address, sums
from glie.kernels._tiles import (
    LANES,
    TOGETHER,
    small_1x1,
    small_1x2,
    small_1x3,
    small_2x1,
    small_2x2,
    small_2x3,
    split_1,
    split_2,
    split_4,
    split_8,
    sum_below,
)


@_inline
def _levels(packed, size, bits, dim, levels, numbers):
    """Unpack the `numbers` levels in `size` bytes at address `packed` to address `levels`. Returns
    1 / length of the vector of odd integers that they stand for."""
    top = (1 << bits) - 1
    below = 0  # at one bit, a level is 0 or the top
    if bits == 8:
        split_8(packed, size, levels)
        below = sum_below(packed, size, top)  # from the bytes, not from their halves
    elif bits == 4:
        split_4(packed, size, levels)
        below = sum_below(levels, numbers, top)
    elif bits == 2:
        split_2(packed, size, levels)
        below = sum_below(levels, numbers, top)
    else:
        split_1(packed, size, levels)
    # (2 level - top)^2 = 4 level (level - top) + top^2, in whole numbers: the two nearly cancel
    return np.float32(1) / np.sqrt(np.float32(4 * np.int64(below) + dim * top * top))


@_inline
def _score_levels(
    count, blocks, levels, size, tokens, chunks, steps, shifted, offsets, scales, best
):
    if blocks == 3:
        if count == 2:
            small_2x3(levels, size, tokens, chunks, steps, shifted, offsets, scales, best)
        else:
            small_1x3(levels, size, tokens, chunks, steps, shifted, offsets, scales, best)
    elif blocks == 2:
        if count == 2:
            small_2x2(levels, size, tokens, chunks, steps, shifted, offsets, scales, best)
        else:
            small_1x2(levels, size, tokens, chunks, steps, shifted, offsets, scales, best)
    elif count == 2:
        small_2x1(levels, size, tokens, chunks, steps, shifted, offsets, scales, best)
    else:
        small_1x1(levels, size, tokens, chunks, steps, shifted, offsets, scales, best)


@_compile
def coarse_range(
    tokens,
    token_offsets,
    offsets,
    units,
    stored,
    bits,
    dim,
    steps,
    starts,
    ends,
    first,
    last,
    scores,
):
    """scores[q, p] for the pages first..last, like `maxsim_range` but with rounded tokens:
    tokens[g, :, l] is token g * lanes + l in multiples of its unit. `steps` sums of four products
    fit into 16 bits."""
    groups, fours, lanes, _ = tokens.shape
    size = stored.shape[1]
    numbers = fours * TOGETHER
    wide = numbers * bits // 8 if bits < 8 else numbers // 2
    padded = np.zeros(wide, np.uint8)
    levels = np.empty(2 * numbers, np.uint8)
    scales = np.empty(2, np.float32)
    best = np.empty(groups * lanes, np.float32)
    chunks = fours // steps
    shifted = chunks // 2 if bits == 8 else chunks  # where the lower halves begin
    for page in range(first, last):
        best[:] = -np.inf
        row, end = starts[page], ends[page]
        while row < end:
            count = 2 if row + 2 <= end else 1
            for lane in range(count):
                packed = address(stored) + (row + lane) * stored.strides[0]
                if size < wide:
                    padded[:size] = stored[row + lane]
                    packed = address(padded)
                mine = address(levels) + lane * numbers
                scales[lane] = _levels(packed, wide, bits, dim, mine, numbers)
            for g in range(groups):
                _score_levels(
                    count,
                    lanes // LANES,
                    address(levels),
                    numbers,
                    address(tokens) + g * numbers * lanes,
                    chunks,
                    steps,
                    shifted,
                    address(offsets) + 4 * g * lanes,
                    address(scales),
                    address(best) + 4 * g * lanes,
                )
            row += count
        for t in range(units.shape[0]):
            best[t] *= units[t]
        sums(best, token_offsets, page, scores)
