"""The compiled loops of the decoder: some slots of a cluster at a time, from the hidden layer to
unit vectors, without an array of all slots in between."""

import numpy as np

from glie.kernels._compiled import _compile, _inline
from glie.kernels._tiles import TILE_BLOCKS, TILE_ROWS, address, copy_bytes, multiply_tile

BLOCK = 6 * TILE_ROWS  # slots whose hidden layers, and steps, stay in a core's cache


@_inline
def _multiply_block(rows, count, columns, out):
    """out = rows @ columns for the first `count` rows, and the few behind them that fill a tile.
    All of them use a group of columns before the next."""
    groups, width, lanes = columns.shape
    stride = 4 * groups * lanes
    for g in range(groups):
        column = address(columns) + 4 * g * width * lanes
        for first in range(0, count, TILE_ROWS):
            source = address(rows) + 4 * first * width
            target = address(out) + first * stride + 4 * g * lanes
            multiply_tile(TILE_BLOCKS, source, width, column, target, stride)


@_compile
def multiply(rows, columns, out):
    """out = rows @ columns, where columns[g, :, l] is column TILE_COLUMNS * g + l."""
    count, width = rows.shape
    some = np.empty((BLOCK, width), np.float32)
    some[:] = 0
    products = np.empty((BLOCK, out.shape[1]), np.float32)
    for first in range(0, count, BLOCK):
        size = min(BLOCK, count - first)
        copy_bytes(address(rows) + 4 * first * width, address(some), 4 * size * width)
        _multiply_block(some, size, columns, products)
        target = address(out) + 4 * first * out.shape[1]
        copy_bytes(address(products), target, 4 * size * out.shape[1])


@_compile
def children_range(
    anchors, hidden, spreads, positions, columns, bias, alpha, starts, first, last, out
):
    """Write the rows first..last of `out`, where cluster c has starts[c]..starts[c + 1] and the
    first of these is left out. columns[g, :, l] is column TILE_COLUMNS * g + l of the last
    layer."""
    groups, width, lanes = columns.shape
    dim = anchors.shape[1]
    layer = np.empty((BLOCK, width), np.float32)
    layer[:] = 0
    steps = np.empty((BLOCK, groups * lanes), np.float32)
    cluster = 0
    row = first
    while row < last:
        while starts[cluster + 1] <= row:
            cluster += 1
        row = max(row, starts[cluster] + 1)
        end = min(last, starts[cluster + 1])
        spread = spreads[cluster]
        while row < end:
            count = min(BLOCK, end - row)
            slot = row - starts[cluster]
            for i in range(count):
                for w in range(width):
                    number = hidden[cluster, w] + positions[slot + i, w]
                    layer[i, w] = max(number, np.float32(0))
            _multiply_block(layer, count, columns, steps)
            for i in range(count):
                along = np.float32(0)
                for d in range(dim):
                    step = (steps[i, d] + bias[d]) * spread
                    steps[i, d] = step
                    along += step * anchors[cluster, d]
                squared = np.float32(0)
                for d in range(dim):
                    step = steps[i, d] - along * anchors[cluster, d]
                    steps[i, d] = step
                    squared += step * step
                shrink = alpha / np.sqrt(alpha * alpha + squared)
                share = np.float32(1) / np.sqrt(np.float32(1) + squared * shrink * shrink)
                for d in range(dim):
                    out[row + i, d] = (anchors[cluster, d] + steps[i, d] * shrink) * share
            row += count
