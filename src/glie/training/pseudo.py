"""Questions made of page vectors, for those who have pages and no questions.

A run of consecutive vectors of a page (a phrase, or a strip of patches) stands for a question
that the page answers, once each vector has been replaced by a near one of another page: the same
word in other company. Copies, even noisy ones, carry the company that an encoder saw, and a page is
found by that without fail; a question does not come from the page that answers it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from glie.pages import Pages, Queries

SHORTEST, LONGEST = 4, 20  # vectors a question
NEAREST = 10  # a stand-in is one of the so many nearest
POOL = 20_000  # vectors, drawn from all pages, that stand in


def pseudo_queries(
    pages: Pages, owners: npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[Queries, list[list[int]]]:
    """`count` questions and, for each, the row of its page, one of `owners`, who take turns."""
    turns = -(-count // max(len(owners), 1))
    asked = np.concatenate([owners[:0], *(rng.permutation(owners) for _ in range(turns))])[:count]
    drawn = rng.permutation(len(pages.vectors))[:POOL]
    pool = pages.vectors[drawn]
    page_of = np.searchsorted(pages.offsets, drawn, side="right") - 1
    questions = []
    for owner in asked:
        rows = pages[int(owner)]
        length = min(int(rng.integers(SHORTEST, LONGEST + 1)), len(rows))
        first = int(rng.integers(0, len(rows) - length + 1))
        nearness = rows[first : first + length] @ pool[page_of != owner].T
        choices = min(NEAREST, nearness.shape[1])
        near = np.argpartition(-nearness, choices - 1, axis=1)[:, :choices]
        chosen = near[np.arange(length), rng.integers(0, choices, length)]
        questions.append(pool[page_of != owner][chosen])
    return Queries(questions), [[int(owner)] for owner in asked]
