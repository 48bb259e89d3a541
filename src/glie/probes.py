"""Questions made of pages, for collections that come without any.

Noise on a page's own vectors is too easy: a real question's vector has a cosine of 0.4 to 0.7 with
the best vector of its page, and resembles vectors of other pages nearly as much. So each vector of
a made-up question lies between one of its page and one of another page, nearer to the other: only
its page has something of all of them.
"""

from __future__ import annotations

import numpy as np

from glie.pages import Pages, Queries

QUESTION_VECTORS = 12
OTHER = 1.5  # the weight of the other page's vector, where that of the page's own is 1


def probes(pages: Pages, count: int, rng: np.random.Generator) -> Queries:
    """So many questions, from all pages in turn."""
    turns = np.resize(rng.permutation(len(pages)), count)
    asked = []
    for page in turns.tolist():
        rows = pages[page]
        mine = rows[rng.choice(len(rows), QUESTION_VECTORS, replace=len(rows) < QUESTION_VECTORS)]
        others = pages.vectors[rng.choice(len(pages.vectors), QUESTION_VECTORS)]
        asked.append(mine + np.float32(OTHER) * others)
    return Queries(asked, normalize=True)
