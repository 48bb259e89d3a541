"""Words and meaning together: the best pages of both, scored by a weighted sum of two shares.

- Meaning: MaxSim, such that the best page has 1 and the hundredth 0. This makes encoders alike,
  whose products lie in ranges of their own.
- Words: BM25, as a share of what a page full of the question's words would score. This is not
  relative to other pages, so words that are on no page decide nothing.

docs/experiments.md, Words and meaning: how this was chosen.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codes import used_rows
from glie.kernels.maxsim import maxsim
from glie.kernels.top_k import top_k
from glie.pages import Queries
from glie.search.results import Cost, Parts, Ranking
from glie.search.two_stage import Source

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

WEIGHT_OF_WORDS = 2.0  # beside meaning, which counts once
BEST = 100  # pages, whose scores the scale of meaning is made of
LEAST_RANGE = 0.05  # of these, as a share of the highest score there can be: few pages may be alike
BY_WORDS = 50  # pages that are candidates for their words alone


class WordScores(NamedTuple):
    """BM25 of one question."""

    scores: Floats  # of the page at each position; 0 if a search may not find it
    most: float  # what a page full of the question's words would score
    with_text: Mask  # the positions of pages that have text


def lexical(questions: Sequence[WordScores], top: int) -> Ranking:
    """The `top` best pages of each question by their words; none without a word of it."""
    began = time.perf_counter()
    positions, scores, parts = list[Ints](), list[Floats](), list[Parts]()
    for words in questions:
        found = best_by_words(words, top)
        shares = words.scores[found] / max(words.most, 1e-9)
        positions.append(found)
        scores.append(shares)
        parts.append(Parts(np.zeros_like(shares), shares))
    pages = sum(int(np.count_nonzero(words.scores)) for words in questions)
    return Ranking(positions, scores, Cost(pages, 0, 0, time.perf_counter() - began), parts)


def hybrid(
    source: Source, queries: Queries, questions: Sequence[WordScores], top: int, shortlist: int
) -> Ranking:
    """The `top` best pages of each question by meaning and words together, among the best by
    either."""
    found = source.rank(queries, max(top, shortlist, BEST))
    began = time.perf_counter()
    positions, scores, parts = list[Ints](), list[Floats](), list[Parts]()
    reconstructed = 0
    for q, words in enumerate(questions):
        query = queries.slice(q, q + 1)
        listed = np.union1d(found.positions[q], best_by_words(words, max(top, BY_WORDS)))
        late, made = late_scores(source, query, listed, shortlist)
        reconstructed += made
        sums = parts_of(late, query, words, listed)
        both = sums.meaning + sums.words
        best = top_k(both, top)
        positions.append(listed[best])
        scores.append(both[best])
        parts.append(Parts(sums.meaning[best], sums.words[best]))
    cost = dataclasses.replace(
        found.cost,
        pages_regenerated=found.cost.pages_regenerated + reconstructed,
        seconds=found.cost.seconds + time.perf_counter() - began,
    )
    return Ranking(positions, scores, cost, parts)


def best_by_words(words: WordScores, count: int) -> Ints:
    """The positions of the best pages by words alone, best first."""
    found = np.flatnonzero(words.scores)  # no score is below 0
    return found[top_k(words.scores[found], min(count, len(found)))]


def late_scores(
    source: Source, query: Queries, positions: Ints, shortlist: int
) -> tuple[Floats, int]:
    """MaxSim over the reconstructed vectors of pages, or over their codes if nothing reconstructs
    them; and how many were reconstructed."""
    if not len(positions):
        return np.zeros(0, np.float32), 0
    codes = source.codes_at(positions)
    if source.cache is None or not shortlist:
        rows = codes.vectors.reshape(-1, codes.dim)
        starts, ends = used_rows(codes.counts, np.arange(len(codes)))
        return maxsim(query.vectors, query.offsets, rows, starts, ends)[0], 0
    found, cached = source.cache.scores(query, codes)
    return found[0], len(codes) - cached


def parts_of(late: Floats, query: Queries, words: WordScores, positions: Ints) -> Parts:
    """What meaning and words add to the score of each page; both sum to 1 at most."""
    if not len(late):
        return Parts(late, late)
    ranked = np.sort(late)[::-1][:BEST]
    highest = float(np.linalg.norm(query.vectors, axis=1).sum())
    apart = max(float(ranked[0] - ranked[-1]), LEAST_RANGE * highest)
    meaning = (late - ranked[-1]) / np.float32(apart)
    shares = words.scores[positions] / np.float32(max(words.most, 1e-9))
    has_text = words.with_text[positions]
    if has_text.any():  # a page without text is not held to have none of the words
        near = late >= ranked[-1]
        usual = shares[has_text & near] if (has_text & near).any() else shares[has_text]
        shares = np.where(has_text, shares, np.float32(np.median(usual)))
    both = np.float32(1 + WEIGHT_OF_WORDS)
    return Parts(meaning / both, shares * np.float32(WEIGHT_OF_WORDS) / both)
