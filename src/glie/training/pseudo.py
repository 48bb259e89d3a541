"""Questions made of page vectors, for those who have pages and no questions.

A run of consecutive vectors of a page (a phrase, or a strip of patches) stands for a question
that the page answers. Noise takes each vector as far from its source as a question's token is
from its best match; without it the task would be to recognise exact copies.
"""

from __future__ import annotations

import numpy as np

from glie.pages import Pages, Queries

SHORTEST, LONGEST = 4, 20  # vectors a question
NOISE = 0.7  # its length beside the vector's own 1: a cosine of 0.82


def pseudo_queries(
    pages: Pages, count: int, rng: np.random.Generator
) -> tuple[Queries, list[list[int]]]:
    """`count` questions and, for each, the row of its page. Pages take turns."""
    turns = -(-count // len(pages))
    orders = [rng.permutation(len(pages)) for _ in range(turns)]
    owners = np.concatenate([np.empty(0, np.int64), *orders])[:count]
    runs = []
    for owner in owners:
        rows = pages[int(owner)]
        length = min(int(rng.integers(SHORTEST, LONGEST + 1)), len(rows))
        first = int(rng.integers(0, len(rows) - length + 1))
        noise = rng.normal(0, NOISE * pages.dim**-0.5, (length, pages.dim))
        runs.append(rows[first : first + length] + noise)
    return Queries(runs, normalize=True), [[int(owner)] for owner in owners]
