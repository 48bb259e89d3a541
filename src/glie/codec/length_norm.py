"""How much a page gains by having more vectors, whatever it says.

MaxSim takes the best of a page's vectors for each vector of a question. The best of more is better
by chance alone, so long pages are favoured. The mean best cosine of n vectors with unrelated ones
grows about as n^slope, and the slope hardly depends on the corpus: 0.09 to 0.14 for `english`,
0.013 to 0.016 for gte-small. Part of that is taken back: docs/experiments.md, Length.
"""

from __future__ import annotations

import math

import numpy as np

from glie.pages import Pages

TAKEN_BACK = 0.4  # of the slope
MOST_PAGES, UNRELATED = 200, 400
PART = 4  # the best of all vectors of a page is compared with the best of a quarter
FEWEST_VECTORS = 16


def length_norm_of(pages: Pages, seed: int = 0) -> int:
    """The setting `length_norm` of a codec for pages like these; 0 if they are too short to say."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(pages.vectors))[:UNRELATED]
    unrelated = pages.vectors[drawn]
    best = []
    for page in rng.permutation(len(pages))[:MOST_PAGES].tolist():
        rows = pages[page]
        if len(rows) >= FEWEST_VECTORS:
            others = (drawn < pages.offsets[page]) | (drawn >= pages.offsets[page + 1])
            products = unrelated[others] @ rows.T
            part = rng.permutation(len(rows))[: len(rows) // PART]
            best.append((products.max(axis=1).sum(), products[:, part].max(axis=1).sum()))
    whole, quarter = np.sum(best, axis=0) if best else (0.0, 0.0)
    if not 0 < quarter < whole:
        return 0
    return round(1000 * TAKEN_BACK * math.log(whole / quarter) / math.log(PART))
