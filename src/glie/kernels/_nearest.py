"""Compiled loops of the search for codewords in small integers: rotate, round and compare."""

import numpy as np

from glie.kernels._compiled import _compile, _inline
from glie.kernels._integers import COLUMNS, NUMBERS, ROWS, best_4x16, best_of_16, scores_4x16
from glie.kernels._tiles import address
from glie.kernels.nearest import LARGEST, TOP


@_compile
def centroids_range(x, centroids, half, first, last, nearest):
    """nearest[i] = the centroid c of the largest x_i . c - |c|^2 / 2, for the rows first..last."""
    for i in range(first, last):
        best = np.float32(-np.inf)
        for c in range(centroids.shape[0]):
            score = np.float32(0)
            for d in range(centroids.shape[1]):
                score += x[i, d] * centroids[c, d]
            score -= half[c]
            if score > best:
                best = score
                nearest[i] = c


@_inline
def _mix(row, block):
    """The transform of each block of a row, in place: the sums of `quantize._hadamard`."""
    half = block // 2
    while half > 0:
        if half == 4:
            break
        for first in range(0, row.shape[0], 2 * half):
            for i in range(first, first + half):
                a = row[i]
                b = row[i + half]
                row[i] = a + b
                row[i + half] = a - b
        half //= 2
    if half == 4:  # the last three turns at once: loops this short are not vectorised
        for i in range(0, row.shape[0], 8):
            a, b, c, d = row[i], row[i + 1], row[i + 2], row[i + 3]
            e, f, g, h = row[i + 4], row[i + 5], row[i + 6], row[i + 7]
            a, b, c, d, e, f, g, h = a + e, b + f, c + g, d + h, a - e, b - f, c - g, d - h
            a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
            row[i], row[i + 1], row[i + 2], row[i + 3] = a + b, a - b, c + d, c - d
            row[i + 4], row[i + 5], row[i + 6], row[i + 7] = e + f, e - f, g + h, g - h
    scale = np.float32(block**-0.5)
    for d in range(row.shape[0]):
        row[d] *= scale


@_inline
def rotate_row(row, signs, block, scratch, out):
    """out = `quantize.rotate` of a row."""
    dim = row.shape[0]
    for d in range(dim):
        out[d] = row[d] * signs[d]
    _mix(out, block)
    apart = dim // block
    if apart > 1:  # interleave the blocks, and mix again
        for b in range(apart):
            for i in range(block):
                scratch[i * apart + b] = out[b * block + i]
        for d in range(dim):
            out[d] = scratch[d] * signs[d]
        _mix(out, block)


@_inline
def round_row(row, numbers):
    """Round a row to `numbers`; returns its step and the sum of the numbers."""
    highest = np.float32(0)
    for d in range(row.shape[0]):
        size = abs(row[d])
        highest = size if size > highest else highest
    step = highest / np.float32(LARGEST)
    inverse = np.float32(1) / step if step > 0 else np.float32(0)
    total = np.int32(0)
    for d in range(row.shape[0]):
        number = np.int32(np.rint(row[d] * inverse))
        numbers[d] = number
        total += number
    return step, total


@_compile
def round_range(x, signs, block, first, last, numbers, steps, sums):
    """Rotate and round the rows first..last."""
    scratch = np.empty(x.shape[1], np.float32)
    rotated = np.empty(x.shape[1], np.float32)
    for i in range(first, last):
        rotate_row(x[i], signs, block, scratch, rotated)
        steps[i], sums[i] = round_row(rotated, numbers[i])


@_inline
def four_rows(numbers, steps, sums, rows, at, shifts, scales):
    """Prepare four rows for a tile: their addresses, shifts and steps."""
    for r in range(ROWS):
        at[r] = address(numbers) + rows[r] * numbers.shape[1]
        shifts[r] = TOP * sums[rows[r]]
        scales[r] = steps[rows[r]]


@_compile
def probes_range(numbers, steps, sums, levels, scales, halves, first, last, top):
    """top[i] = the codewords of the best scores, best first, for the rows first..last."""
    groups = levels.shape[0]
    width = numbers.shape[1]
    probes = top.shape[1]
    scores = np.empty((ROWS, groups * COLUMNS), np.float32)
    best = np.empty(probes, np.float32)
    rows = np.empty(ROWS, np.int64)
    at = np.empty(ROWS, np.int64)
    shifts = np.empty(ROWS, np.int32)
    factors = np.empty(ROWS, np.float32)
    ones = np.ones(ROWS, np.float32)
    for begin in range(first, last, ROWS):
        for r in range(ROWS):
            rows[r] = min(begin + r, last - 1)
        four_rows(numbers, steps, sums, rows, at, shifts, factors)
        for g in range(groups):
            scores_4x16(
                at[0],
                at[1],
                at[2],
                at[3],
                address(levels) + g * width * COLUMNS,
                width // NUMBERS,
                address(factors),
                address(shifts),
                address(ones),
                address(scales) + 4 * g * COLUMNS,
                address(halves) + 4 * g * COLUMNS,
                address(scores) + 4 * g * COLUMNS,
                4 * groups * COLUMNS,
            )
        for r in range(min(ROWS, last - begin)):
            best[:] = -np.inf
            found = top[begin + r]
            found[:] = 0
            for c in range(groups * COLUMNS):
                score = scores[r, c]
                if score > best[probes - 1]:
                    place = probes - 1
                    while place > 0 and score > best[place - 1]:
                        best[place] = best[place - 1]
                        found[place] = found[place - 1]
                        place -= 1
                    best[place] = score
                    found[place] = c


@_compile
def best_range(
    numbers,
    steps,
    sums,
    levels,
    scales,
    halves,
    names,
    starts,
    wanted,
    bounds,
    first,
    last,
    score,
    found,
):
    """For the lists first..last: score[j] and found[j], the best codeword of list c for row
    wanted[j], for every j in bounds[c]..bounds[c + 1]."""
    width = numbers.shape[1]
    best = np.empty((ROWS, COLUMNS), np.float32)
    which = np.empty((ROWS, COLUMNS), np.int32)
    rows = np.empty(ROWS, np.int64)
    at = np.empty(ROWS, np.int64)
    shifts = np.empty(ROWS, np.int32)
    factors = np.empty(ROWS, np.float32)
    ones = np.ones(ROWS, np.float32)
    for c in range(first, last):
        for begin in range(bounds[c], bounds[c + 1], ROWS):
            for r in range(ROWS):
                rows[r] = wanted[min(begin + r, bounds[c + 1] - 1)]
            four_rows(numbers, steps, sums, rows, at, shifts, factors)
            best[:] = -np.inf
            which[:] = starts[c]
            for g in range(starts[c], starts[c + 1]):
                best_4x16(
                    at[0],
                    at[1],
                    at[2],
                    at[3],
                    address(levels) + g * width * COLUMNS,
                    width // NUMBERS,
                    address(factors),
                    address(shifts),
                    address(ones),
                    address(scales) + 4 * g * COLUMNS,
                    address(halves) + 4 * g * COLUMNS,
                    address(best),
                    address(which),
                    g,
                )
            for r in range(min(ROWS, bounds[c + 1] - begin)):
                here = 4 * r * COLUMNS
                place = best_of_16(address(best) + here, address(which) + here)
                score[begin + r] = best[r, place % COLUMNS]
                found[begin + r] = names[place // COLUMNS, place % COLUMNS]
