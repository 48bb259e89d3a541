"""The compiled loop of the decoder: six slots of a cluster at a time from the hidden layer to unit
vectors, without an array of all slots in between."""

import numpy as np

from glie.kernels._compiled import _compile, address
from glie.kernels._tiles import multiply_6x16


@_compile
def multiply(rows, columns, out):
    """out = rows @ columns, where columns[g, :, l] is column 16 g + l."""
    count, width = rows.shape
    groups, _, lanes = columns.shape
    last_rows = np.zeros((6, width), np.float32)
    last_out = np.empty((6, groups * lanes), np.float32)
    stride = 4 * groups * lanes
    for first in range(0, count, 6):
        whole = first + 6 <= count
        if not whole:
            last_rows[: count - first] = rows[first:]
        source = address(rows) + 4 * first * width if whole else address(last_rows)
        target = address(out) + first * stride if whole else address(last_out)
        for g in range(groups):
            column = address(columns) + 4 * g * width * lanes
            multiply_6x16(source, width, column, target + 4 * g * lanes, stride)
        if not whole:
            out[first:] = last_out[: count - first]


@_compile
def children_range(
    anchors, hidden, spreads, positions, columns, bias, alpha, starts, first, last, out
):
    """Write rows starts[c]..starts[c + 1] of `out` for the clusters first..last, all slots but slot
    0. columns[g, :, l] is column 16 g + l of the last layer."""
    groups, width, lanes = columns.shape
    dim = anchors.shape[1]
    layer = np.zeros((6, width), np.float32)
    steps = np.empty((6, groups * lanes), np.float32)
    stride = 4 * groups * lanes
    for cluster in range(first, last):
        begin = starts[cluster]
        size = starts[cluster + 1] - begin
        spread = spreads[cluster]
        for slot in range(1, size, 6):
            count = min(6, size - slot)
            for lane in range(count):
                for w in range(width):
                    number = hidden[cluster, w] + positions[slot + lane, w]
                    layer[lane, w] = max(number, np.float32(0))
            for g in range(groups):
                multiply_6x16(
                    address(layer),
                    width,
                    address(columns) + 4 * g * width * lanes,
                    address(steps) + 4 * g * lanes,
                    stride,
                )
            for lane in range(count):
                along = np.float32(0)
                for d in range(dim):
                    steps[lane, d] = (steps[lane, d] + bias[d]) * spread
                    along += steps[lane, d] * anchors[cluster, d]
                squared = np.float32(0)
                for d in range(dim):
                    steps[lane, d] -= along * anchors[cluster, d]
                    squared += steps[lane, d] * steps[lane, d]
                shrink = alpha / np.sqrt(alpha * alpha + squared)
                share = np.float32(1) / np.sqrt(np.float32(1) + squared * shrink * shrink)
                row = begin + slot + lane
                for d in range(dim):
                    out[row, d] = (anchors[cluster, d] + steps[lane, d] * shrink) * share
