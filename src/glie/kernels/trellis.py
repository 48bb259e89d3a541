"""Trellis-coded quantisation: numbers of a Gaussian in half a bit to 4 bits each.

A register holds the last 8 bits of a stream. A step reads 1 to 4 bits, and the register then names
one of 256 levels: the number that the step stands for, or two numbers where they share a bit. So
each bit takes part in several numbers, and the encoder searches for the stream whose numbers are
nearest (Viterbi). At half a bit the squared error is 0.53 of the variance, where rounding every
other number has 0.68 and theory allows 0.5; at 1 bit 0.28, where rounding has 0.36 (theory 0.25).

The levels are fixed for good: stored codes refer to them. tools/fit_trellis.py made them.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.small import in_numpy

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]

REGISTER = 8  # bits
STATES = 1 << REGISTER
# In half bits a number, what a number may take, and the squared error of each.
COSTS = (0, 1, 2, 4, 6, 8)
ERRORS = (1.0, 0.525, 0.278, 0.076, 0.021, 0.0059)
LEVELS = "trellis.safetensors"
PRODUCTS_PER_STATE = 60  # the time of a state of a step in numpy, in products


class Plan(NamedTuple):
    """Which numbers get how many bits, and the steps of the stream."""

    columns: Ints  # the numbers that get any, in the order of the steps
    shifts: Ints  # (T,) bits that a step reads
    widths: Ints  # (T,) numbers that it stands for: two that share a bit, or one

    @property
    def bits(self) -> int:
        """Of the stream."""
        return int(self.shifts.sum())


def plan_for(variances: npt.NDArray[np.float64], bits: int) -> Plan:
    """The plan that lowers the squared error most with `bits` in all, or one fewer."""
    steps = np.diff(COSTS)
    gains = -np.diff(ERRORS) / steps  # of a half bit: less and less
    worth = np.outer(variances, gains)
    order = np.argsort(-worth.ravel(), kind="stable")
    level, left = np.zeros(len(variances), np.int64), 2 * bits
    for place in order.tolist():
        number, step = divmod(place, len(steps))
        if steps[step] <= left and level[number] == step:
            level[number] += 1
            left -= int(steps[step])
    halves = np.flatnonzero(level == 1)
    level[halves[len(halves) // 2 * 2 :]] = 0  # one without another to share with
    # the register is empty at first, so begin with the numbers that matter least
    columns = np.argsort(level, kind="stable")[np.count_nonzero(level == 0) :]
    whole = np.array(COSTS)[level[columns]] // 2
    pairs = np.count_nonzero(whole == 0) // 2
    shifts = np.concatenate([np.ones(pairs, np.int64), whole[whole > 0]])
    widths = np.concatenate([np.full(pairs, 2), np.ones(np.count_nonzero(whole), np.int64)])
    return Plan(columns, shifts, widths)


def to_bits(numbers: Floats, weights: Floats, plan: Plan) -> Bits:
    """The streams (n, bits), one bit a byte, for rows of `numbers` (n, C) of variance 1, such that
    the weighted squared error is least."""
    values = np.ascontiguousarray(numbers[:, plan.columns], dtype=np.float32)
    weights = np.ascontiguousarray(weights[plan.columns], dtype=np.float32)
    tables = _tables(plan)
    states = np.empty((len(values), len(plan.shifts)), np.uint8)
    given = (values, weights, plan.shifts, plan.widths, tables)
    if in_numpy(PRODUCTS_PER_STATE * STATES * states.size):
        search_in_numpy(*given, 0, len(values), states)
    else:
        from glie.kernels._trellis import search
        from glie.kernels.parallel import over_ranges

        over_ranges(lambda first, last: search(*given, first, last, states), len(values), chunk=256)
    places = np.arange(plan.bits) - np.repeat(np.cumsum(plan.shifts) - plan.shifts, plan.shifts)
    down = np.repeat(plan.shifts, plan.shifts) - 1 - places  # the first bit of a step is its high
    of_step = np.repeat(np.arange(len(plan.shifts)), plan.shifts)
    return (states[:, of_step] >> down & 1).astype(np.uint8)


def from_bits(streams: Bits, plan: Plan, count: int) -> Floats:
    """The `count` numbers that each stream stands for; 0 for those without bits."""
    padded = np.pad(streams, ((0, 0), (REGISTER, 0)))
    ends = np.cumsum(plan.shifts) + REGISTER - 1
    window = ends[:, None] - np.arange(REGISTER)
    states = (padded[:, window] << np.arange(REGISTER, dtype=np.uint8)).sum(axis=2, dtype=np.uint8)
    numbers = np.zeros((len(streams), count), np.float32)
    step = np.repeat(np.arange(len(plan.widths)), plan.widths)
    output = np.arange(len(step)) - np.repeat(np.cumsum(plan.widths) - plan.widths, plan.widths)
    numbers[:, plan.columns] = _tables(plan)[step, output, states[:, step]]
    return numbers


def search_in_numpy(
    values: Floats,
    weights: Floats,
    shifts: Ints,
    widths: Ints,
    tables: Floats,
    first: int,
    last: int,
    states: Bits,
) -> None:
    """The same as the compiled search, for small work and as its reference."""
    rows = values[first:last]
    cost = np.full((len(rows), STATES), np.inf, np.float32)
    cost[:, 0] = 0
    came, column = [], 0
    for step, shift in enumerate(shifts.tolist()):
        before = cost.reshape(len(rows), 1 << shift, STATES >> shift)
        which = before.argmin(axis=1).astype(np.uint8)
        cost = np.repeat(before.min(axis=1), 1 << shift, axis=1)
        came.append(np.repeat(which, 1 << shift, axis=1))
        for output in range(widths[step]):
            error = rows[:, column, None] - tables[step, output]
            cost += weights[column] * (error * error)
            column += 1
    state, each = cost.argmin(axis=1), np.arange(len(rows))
    for step in range(len(shifts) - 1, -1, -1):
        states[first:last, step] = state
        turn = came[step][each, state].astype(np.int64)
        state = state >> shifts[step] | turn << REGISTER - shifts[step]


def _tables(plan: Plan) -> Floats:
    """For each step the levels (T, 2, 256) of its numbers."""
    kinds = np.where(plan.widths == 2, 0, plan.shifts)
    return levels()[kinds]


@functools.cache
def levels() -> Floats:
    """(5, 2, 256): of two numbers that share a bit, then of a number of 1, 2, 3 and 4 bits."""
    from safetensors.numpy import load

    data = (resources.files("glie.kernels") / LEVELS).read_bytes()
    made: Floats = load(data)["levels"]
    return made
