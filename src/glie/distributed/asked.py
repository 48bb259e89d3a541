"""What one shard answers. A search asks every shard twice, so that the result is that of one index:

1. `first`: the best pages by their codes, and what BM25 has to know of the words.
2. `second`: the scores of those pages that are among the best of all shards, reconstructed, and of
   the words by the statistics of all shards.

Positions are those of one committed state of the shard.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.filters import Filter
from glie.index.index import Index
from glie.index.snapshot import Selection, Snapshot
from glie.index.words import Words
from glie.lexical.bm25 import Statistics
from glie.lexical.query import Query
from glie.pages import Queries
from glie.search.hybrid import best_by_words, late_scores
from glie.search.options import SearchOptions
from glie.search.rerank import rerank
from glie.search.results import Cost, Ranking

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

NO_COST = Cost(0, 0, 0, 0.0)


@dataclasses.dataclass(frozen=True)
class Asked:
    """The questions, as every shard gets them."""

    queries: Queries | None  # None: words alone are searched
    texts: tuple[Query, ...] | None  # the words of each query; None: they are not searched
    count: int  # pages to rank by their codes: of all shards or, as a shard gets it, of its own
    by_words: int  # pages to rank by their words
    shortlist: int
    ids: list[str] | None = None  # of this shard
    where: Filter | None = None
    exact: bool | None = None

    def __len__(self) -> int:
        return len(self.texts or ()) if self.queries is None else len(self.queries)


class Ranked(NamedTuple):
    """The best pages of a shard for one query, by their codes."""

    positions: Ints
    scores: Floats
    statistics: Statistics | None  # of the words, if they are searched
    matching: bool  # whether a page has the required phrases; True if there are none


class First(NamedTuple):
    each: list[Ranked]
    cost: Cost


class Wanted(NamedTuple):
    """What is to be scored for one query."""

    positions: Ints  # the pages among the best of all shards, in the order of their scores
    statistics: Statistics | None  # of all shards


class Scored(NamedTuple):
    """Pages of a shard with their scores for one query."""

    positions: Ints  # ascending if words were searched
    late: Floats  # MaxSim over their reconstructed vectors
    words: Floats  # BM25
    with_text: Mask
    by_words: Ints  # the positions of those that are here for their words
    most: float  # what a page full of the question's words would score


class Second(NamedTuple):
    each: list[Scored | None]  # None: nothing was asked of this query
    cost: Cost


def state_of(index: Index) -> Snapshot:
    """The state that an open index shows."""
    return index._state


def first(index: Index, asked: Asked) -> First:
    """The best pages of a shard by their codes."""
    began, state = time.perf_counter(), state_of(index)
    options = SearchOptions(asked.count, ids=asked.ids, where=asked.where, exact=asked.exact)
    if asked.texts is None:
        assert asked.queries is not None
        found = state.select(options, index.codec).rank(asked.queries, asked.count)
        rows = zip(found.positions, found.scores, strict=True)
        return First([Ranked(p, s, None, True) for p, s in rows], found.cost)
    words, each, costs = _words(index), list[Ranked](), list[Cost]()
    within = state.allowed(options.ids, options.filter)
    for q, text in enumerate(asked.texts):
        positions, scores = np.empty(0, np.int64), np.empty(0, np.float32)
        matching = True
        if text.required:
            having = words.allowed(dataclasses.replace(text, excluded=(), only_quotes=True), within)
            matching = having is not None and bool(having.any())
        if asked.queries is not None:
            mine = _selection(state, options, index, words.allowed(text, within))
            found = mine.rank(asked.queries.slice(q, q + 1), asked.count)
            positions, scores = found.positions[0], found.scores[0]
            costs.append(found.cost)
        each.append(Ranked(positions, scores, words.statistics(text.terms), matching))
    return First(each, total(costs, time.perf_counter() - began))


def second(index: Index, asked: Asked, wanted: Sequence[Wanted | None]) -> Second:
    """The scores of pages of a shard."""
    if asked.texts is None:
        return _reranked(index, asked, wanted)
    began, state, words = time.perf_counter(), state_of(index), _words(index)
    options = SearchOptions(asked.count, ids=asked.ids, where=asked.where, exact=asked.exact)
    within = state.allowed(options.ids, options.filter)
    each, reconstructed = list[Scored | None](), 0
    for q, (text, mine) in enumerate(zip(asked.texts, wanted, strict=True)):
        if mine is None:
            each.append(None)
            continue
        allowed = words.allowed(text, within)
        found = words.scores(text, allowed, mine.statistics)
        by_words = best_by_words(found, asked.by_words)
        listed, late = by_words, np.zeros(len(by_words), np.float32)
        if asked.queries is not None:
            listed = np.union1d(mine.positions, by_words)
            selection = _selection(state, options, index, allowed)
            query = asked.queries.slice(q, q + 1)
            late, made = late_scores(selection, query, listed, asked.shortlist)
            reconstructed += made
        scores, with_text = found.scores[listed], found.with_text[listed]
        each.append(Scored(listed, late, scores, with_text, by_words, found.most))
    return Second(each, Cost(0, reconstructed, 0, time.perf_counter() - began))


def _reranked(index: Index, asked: Asked, wanted: Sequence[Wanted | None]) -> Second:
    """The pages of the shortlist by their reconstructed vectors. The queries share the work."""
    assert asked.queries is not None
    listed = [np.empty(0, np.int64) if mine is None else mine.positions for mine in wanted]
    scores = [np.zeros(len(positions), np.float32) for positions in listed]
    options = SearchOptions(asked.count, exact=asked.exact)
    source = state_of(index).select(options, index.codec)
    assert source.cache is not None
    given = Ranking(listed, scores, NO_COST)
    found = rerank(asked.queries, given, source.codes_at, source.cache, asked.shortlist)
    empty = np.empty(0, np.float32), np.empty(0, bool), np.empty(0, np.int64), 0.0
    rows = zip(found.positions, found.scores, strict=True)
    return Second([Scored(positions, late, *empty) for positions, late in rows], found.cost)


def _selection(
    state: Snapshot, options: SearchOptions, index: Index, allowed: Mask | None
) -> Selection:
    return state.select(options, index.codec, allowed)


def _words(index: Index) -> Words:
    """The words of a shard; those of one without text are none."""
    state = state_of(index)
    return state.words or Words(index.language, [], state.bounds, None)


def total(costs: Sequence[Cost], seconds: float) -> Cost:
    """The cost of several searches that took so long together."""
    return Cost(
        pages_scanned=sum(cost.pages_scanned for cost in costs),
        pages_regenerated=sum(cost.pages_regenerated for cost in costs),
        bytes_read=sum(cost.bytes_read for cost in costs),
        seconds=seconds,
        pages_estimated=sum(cost.pages_estimated for cost in costs),
    )
