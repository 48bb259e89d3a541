"""Pseudo-queries: queries made of page vectors, for fits without questions.

A pseudo-query is a run of consecutive vectors of a page (a phrase, or a strip of patches), each
replaced by a near vector of another page: the same word in another context. Copies, even noisy
ones, would carry the context of their page, and always find it; a real question is not written on
the page that answers it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from glie.pages import Pages, Queries

SHORTEST, LONGEST = 4, 20  # vectors a query
NEAREST = 10  # a vector is replaced by one of its so many nearest
POOL = 20_000  # vectors, drawn from all pages, to choose these from


def pseudo_queries(
    pages: Pages, owners: npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[Queries, list[list[int]]]:
    """`count` queries and, for each, the row of its page: one of `owners`, in turn."""
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
