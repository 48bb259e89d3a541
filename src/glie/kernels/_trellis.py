"""The compiled search for the best path through a trellis."""

import numpy as np

from glie.kernels._compiled import _compile


def _search(values, weights, shifts, widths, tables, first, last, states):
    """The states of the best path for rows first..last of `values`: see kernels/trellis.py.

    The costs of 256 states are updated in place of two rows that take turns; `came` holds which of
    the possible states before was the best.
    """
    steps = shifts.shape[0]
    cost = np.empty(256, np.float32)
    ahead = np.empty(256, np.float32)
    came = np.empty((steps, 256), np.uint8)
    least = np.empty(256, np.float32)
    which = np.empty(256, np.uint8)
    for row in range(first, last):
        cost[:] = np.inf
        cost[0] = 0
        column = 0
        for step in range(steps):
            shift = shifts[step]
            before = 256 >> shift
            for state in range(before):
                least[state] = cost[state]
                which[state] = 0
            for turn in range(1, 1 << shift):
                for state in range(before):
                    other = cost[turn * before + state]
                    better = other < least[state]
                    least[state] = other if better else least[state]
                    which[state] = turn if better else which[state]
            for state in range(256):
                ahead[state] = least[state >> shift]
                came[step, state] = which[state >> shift]
            for output in range(widths[step]):
                value = values[row, column]
                weight = weights[column]
                table = tables[step, output]
                for state in range(256):
                    error = value - table[state]
                    ahead[state] += weight * (error * error)
                column += 1
            for state in range(256):
                cost[state] = ahead[state]
        state = 0
        for other in range(1, 256):
            if cost[other] < cost[state]:
                state = other
        for step in range(steps - 1, -1, -1):
            states[row, step] = state
            state = (state >> shifts[step]) | (came[step, state] << (8 - shifts[step]))


# no fast maths: the sums are those of the reference, to the last bit
search = _compile(_search, fastmath=False)
