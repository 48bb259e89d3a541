"""Questions made of page vectors, for those who have pages and no questions.

A run of consecutive vectors of a page (a phrase, or a strip of patches) stands for a question
that the page answers. Noise takes each vector as far from its source as a question's token is
from its best match; without it the task would be to recognise exact copies.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from glie.pages import Pages, Queries

SHORTEST, LONGEST = 4, 20  # vectors a question
NOISE = 0.7  # its length beside the vector's own 1: a cosine of 0.82


def pseudo_queries(
    pages: Pages, owners: npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[Queries, list[list[int]]]:
    """`count` questions and, for each, the row of its page, one of `owners`, who take turns."""
    turns = -(-count // max(len(owners), 1))
    asked = np.concatenate([owners[:0], *(rng.permutation(owners) for _ in range(turns))])[:count]
    runs = []
    for owner in asked:
        rows = pages[int(owner)]
        length = min(int(rng.integers(SHORTEST, LONGEST + 1)), len(rows))
        first = int(rng.integers(0, len(rows) - length + 1))
        noise = rng.normal(0, NOISE * pages.dim**-0.5, (length, pages.dim))
        runs.append(rows[first : first + length] + noise)
    return Queries(runs, normalize=True), [[int(owner)] for owner in asked]
