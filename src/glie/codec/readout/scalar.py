"""Coordinates rounded one by one: the code of tables of the first format, which stay readable.

A coordinate has 0 to 4 bits and the best levels for a Gaussian.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint8]

MOST_BITS = 4  # of a coordinate
# The best levels for a Gaussian of variance 1, those above zero, by bits; and the mean squared
# error with 0, 1, 2, ... bits.
LEVELS = {
    1: (0.7979,),
    2: (0.4528, 1.5104),
    3: (0.2451, 0.7560, 1.3439, 2.1519),
    4: (0.1284, 0.3880, 0.6567, 0.9423, 1.2562, 1.6180, 2.0690, 2.7326),
}
ERRORS = (1.0, 0.3634, 0.1175, 0.0345, 0.0095)


def bits_for(variances: npt.NDArray[np.float64], rate: int) -> Bits:
    """The bits of each coordinate, `rate` in all or fewer, each where it lowers the squared error
    most."""
    worth = np.outer(variances, -np.diff(ERRORS))  # of each further bit: less and less
    order = np.argsort(-worth.ravel(), kind="stable") // MOST_BITS
    return np.bincount(order[:rate], minlength=len(variances)).astype(np.uint8)


def to_bits(numbers: Floats, bits: Bits) -> Bits:
    """The stored bits (n, width), one a byte, of numbers (n, C) of variance 1."""
    columns = []
    for column in np.flatnonzero(bits):
        levels = _levels(int(bits[column]))
        level = np.searchsorted((levels[1:] + levels[:-1]) / 2, numbers[:, column])
        columns.append(level[:, None] >> np.arange(int(bits[column])) & 1)
    return np.concatenate(columns, axis=1).astype(np.uint8)


def from_bits(stored: Bits, bits: Bits) -> Floats:
    """The numbers (n, C) that such bits stand for."""
    numbers, first = np.zeros((len(stored), len(bits)), np.float32), 0
    for column in np.flatnonzero(bits):
        count = int(bits[column])
        level = stored[:, first : first + count] @ (1 << np.arange(count))
        numbers[:, column] = _levels(count)[level]
        first += count
    return numbers


@functools.cache
def _levels(bits: int) -> Floats:
    above = np.array(LEVELS[bits], np.float32)
    return np.concatenate([-above[::-1], above])
