"""Fit the levels of the trellis code (kernels/trellis.py) to a Gaussian.

    python tools/fit_trellis.py --to trellis.safetensors

Levels start as the quantiles of a Gaussian in random order. Then, again and again, random numbers
are coded, and each level becomes the mean of those that it stands for. Prints the squared error of
each kind of step on numbers that were not fitted to. Stored codes refer to the shipped levels:
another file is another format.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import NormalDist

import numpy as np
from safetensors.numpy import save

from glie.kernels._trellis import search
from glie.kernels.parallel import over_ranges
from glie.kernels.trellis import STATES

STEPS = 72
KINDS = ((1, 2), (1, 1), (2, 1), (3, 1), (4, 1))  # bits and numbers of a step


def coded(values: np.ndarray, shift: int, table: np.ndarray) -> np.ndarray:
    """The states for rows of numbers (n, STEPS * width)."""
    width = len(table)
    tables = np.zeros((STEPS, 2, STATES), np.float32)
    tables[:, :width] = table
    states = np.empty((len(values), STEPS), np.uint8)
    ones = np.ones(values.shape[1], np.float32)
    given = (values, ones, np.full(STEPS, shift), np.full(STEPS, width), tables)
    over_ranges(lambda a, b: search(*given, a, b, states), len(values), chunk=256)
    return states


def error(values: np.ndarray, states: np.ndarray, table: np.ndarray) -> float:
    """Mean squared error, without the first steps, which start from an empty register."""
    found = np.moveaxis(table[:, states], 0, 2).reshape(len(values), -1)
    return float(((values - found)[:, 8 * len(table) :] ** 2).mean())


def fitted(shift: int, width: int, rounds: int, rows: int, seed: int) -> tuple[np.ndarray, float]:
    rng = np.random.default_rng(seed)
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / STATES) for i in range(STATES)])
    scale = {0.5: 0.7, 1: 0.85}.get(shift / width, 0.97)
    table = np.stack([scale * rng.permutation(quantiles) for _ in range(width)]).astype(np.float32)
    for _ in range(rounds):
        values = rng.standard_normal((rows, STEPS * width)).astype(np.float32)
        states = coded(values, shift, table)
        counts = np.bincount(states.ravel(), minlength=STATES)
        for output in range(width):
            sums = np.bincount(states.ravel(), values[:, output::width].ravel(), minlength=STATES)
            table[output] = np.where(counts > 0, sums / np.maximum(counts, 1), table[output])
    unseen = np.random.default_rng(10**6).standard_normal((rows, STEPS * width))
    unseen = unseen.astype(np.float32)
    return table, error(unseen, coded(unseen, shift, table), table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, required=True, help="file to write")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=2, help="starts, of which the best is kept")
    arguments = parser.parse_args()
    levels = np.zeros((len(KINDS), 2, STATES), np.float32)
    for kind, (shift, width) in enumerate(KINDS):
        tries = [
            fitted(shift, width, arguments.rounds, arguments.rows, seed)
            for seed in range(arguments.seeds)
        ]
        table, least = min(tries, key=lambda made: made[1])
        levels[kind, :width] = table
        print(f"{shift / width:g} bits a number: squared error {least:.4f}", flush=True)
    arguments.to.write_bytes(save({"levels": levels}))


if __name__ == "__main__":
    main()
