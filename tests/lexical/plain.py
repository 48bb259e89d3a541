"""BM25 as it is written down, page by page: what the fast one is compared with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def plain_bm25(texts: Sequence[str | None], asked: str) -> tuple[list[float], float]:
    """The score of each page, and of one full of the words. Words are what stands between spaces;
    pages without text do not count."""
    pages = [Counter(text.split()) for text in texts if text]
    mean = sum(page.total() for page in pages) / max(len(pages), 1)
    scores, most = [0.0] * len(texts), 0.0
    for term, times in Counter(asked.split()).items():
        having = sum(term in page for page in pages)
        weight = times * math.log(1 + (len(pages) - having + 0.5) / (having + 0.5))
        most += weight
        for row, text in enumerate(texts):
            page = Counter((text or "").split())
            if page[term]:
                penalty = 1.2 * (0.25 + 0.75 * page.total() / mean)
                scores[row] += weight * page[term] / (page[term] + penalty)
    return scores, most
