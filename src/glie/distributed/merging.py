"""The answers of shards as one: which pages are to be scored, and the best of them.

Positions are pairs of a shard and a position in it. Equal scores are ordered by shard, then by
position, which is the order of insertion in an index of the same pages shard by shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.distributed.asked import Asked, First, Ranked, Scored, Second, Wanted
from glie.kernels.top_k import top_k
from glie.lexical.bm25 import Statistics
from glie.search.hybrid import WordScores, parts_of
from glie.search.results import Parts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Best(NamedTuple):
    """The best pages for one query, best first."""

    pages: list[tuple[str, int]]  # shard and position
    scores: Floats
    parts: Parts | None = None


def taken(best: Best, rows: Sequence[int]) -> Best:
    """Some of the best pages."""
    parts = None if best.parts is None else Parts(*(part[rows] for part in best.parts))
    return Best([best.pages[row] for row in rows], best.scores[rows], parts)


class Listed(NamedTuple):
    """The best pages of all shards for one query, by their codes."""

    shards: list[str]
    owners: Ints  # row in `shards`
    positions: Ints
    scores: Floats

    def of(self, shard: str, first: int, last: int) -> Ints:
        """The positions of a shard among the pages first..last, best first."""
        owned = np.flatnonzero(self.owners[first:last] == self.shards.index(shard))
        return self.positions[first + owned]


def listed(answers: Mapping[str, First], q: int, count: int) -> Listed:
    """The `count` best pages of all shards for one query."""
    shards = list(matching(answers, q))
    each = [answers[shard].each[q] for shard in shards]
    owners = np.repeat(np.arange(len(shards)), [len(ranked.positions) for ranked in each])
    positions = _joined([ranked.positions for ranked in each], np.int64)
    scores = _joined([ranked.scores for ranked in each], np.float32)
    # within a shard equal scores come by position already, and shards come in order
    best = top_k(scores, count)
    return Listed(shards, owners[best], positions[best], scores[best])


def matching(answers: Mapping[str, First], q: int) -> list[str]:
    """The shards that may have hits. Required phrases count only if a page of any shard has them,
    and then others have none."""
    found: dict[str, Ranked] = {shard: first.each[q] for shard, first in answers.items()}
    having = [shard for shard, ranked in found.items() if ranked.matching]
    return having or list(found)


def cut_short(answers: Mapping[str, First], count: int, counts: Mapping[str, int]) -> list[str]:
    """The shards that may have more of the `count` best pages than they have listed: as many as
    they were asked for (`counts`), and all of these are among the best."""
    found = set[str]()
    for q in range(max((len(first.each) for first in answers.values()), default=0)):
        full = {
            shard
            for shard, first in answers.items()
            if counts[shard] < count and len(first.each[q].positions) == counts[shard]
        }
        if full - found:
            mine = listed(answers, q, count)
            owned = np.bincount(mine.owners, minlength=len(mine.shards))
            found |= {s for s, n in zip(mine.shards, owned, strict=True) if n == counts[s]} & full
    return [shard for shard in answers if shard in found]


def wanted(
    answers: Mapping[str, First], asked: Asked
) -> tuple[list[Listed], dict[str, list[Wanted | None]]]:
    """The best pages by their codes for each query, and what to ask of each shard about them."""
    lists = [listed(answers, q, asked.count) for q in range(len(asked))]
    ask: dict[str, list[Wanted | None]] = {shard: [] for shard in answers}
    for q, mine in enumerate(lists):
        statistics = _statistics(answers, q)
        last = asked.count if asked.texts is not None else asked.shortlist
        for shard in answers:
            asks = None
            if shard in mine.shards:
                positions = mine.of(shard, 0, last)
                if statistics is not None or len(positions):
                    asks = Wanted(positions, statistics)
            ask[shard].append(asks)
    return lists, {shard: rows for shard, rows in ask.items() if any(row for row in rows)}


def _statistics(answers: Mapping[str, First], q: int) -> Statistics | None:
    parts = [first.each[q].statistics for first in answers.values()]
    known = [part for part in parts if part is not None]
    return Statistics.total(known) if known else None


def best_by_codes(mine: Listed, top: int) -> Best:
    """The best pages without a second stage."""
    rows = zip(mine.owners[:top], mine.positions[:top], strict=True)
    return Best([(mine.shards[owner], int(p)) for owner, p in rows], mine.scores[:top])


def best_reranked(
    mine: Listed, answers: Mapping[str, Second], q: int, asked: Asked, top: int
) -> Best:
    """The best pages after the second stage: the shortlist by its new scores, then the others."""
    scores, stays = mine.scores.copy(), np.ones(len(mine.scores), bool)
    for row, shard in enumerate(mine.shards):
        places = np.flatnonzero(mine.owners[: asked.shortlist] == row)
        found = answers[shard].each[q] if shard in answers else None
        if found is None:
            stays[mine.owners == row] = not len(places)  # it did not answer in time
            continue
        order = np.argsort(found.positions)
        rows = np.searchsorted(found.positions[order], mine.positions[places])
        scores[places] = found.late[order][rows]
    order = np.arange(len(scores))
    # equal scores keep the order of the first stage
    order[: asked.shortlist] = np.argsort(-scores[: asked.shortlist], kind="stable")
    order = order[stays[order]]
    ranked = Listed(mine.shards, mine.owners[order], mine.positions[order], scores[order])
    return best_by_codes(ranked, top)


def best_hybrid(
    mine: Listed, answers: Mapping[str, Second], q: int, asked: Asked, top: int
) -> Best:
    """The best pages by meaning and words together, among the best of all shards by either."""
    found = _scored(answers, q)
    assert asked.queries is not None
    chosen = np.zeros(sum(len(scored.positions) for _, scored in found), bool)
    chosen[_best_by_words(found, asked.by_words)] = True  # of each shard there are as many
    at = 0
    for shard, scored in found:
        positions = mine.of(shard, 0, len(mine.positions))
        chosen[at + np.searchsorted(scored.positions, positions)] = True
        at += len(scored.positions)
    rows = np.flatnonzero(chosen)
    pages, late = _pages(found, rows), _joined([s.late for _, s in found], np.float32)[rows]
    words = WordScores(
        _joined([s.words for _, s in found], np.float32)[rows],
        max((scored.most for _, scored in found), default=0.0),
        _joined([s.with_text for _, s in found], np.bool_)[rows],
    )
    sums = parts_of(late, asked.queries.slice(q, q + 1), words, np.arange(len(rows)))
    both = sums.meaning + sums.words
    best = top_k(both, top)
    parts = Parts(sums.meaning[best], sums.words[best])
    return Best([pages[row] for row in best.tolist()], both[best], parts)


def best_lexical(answers: Mapping[str, Second], q: int, top: int) -> Best:
    """The best pages by words alone."""
    found = _scored(answers, q)
    best = _best_by_words(found, top)
    most = max((scored.most for _, scored in found), default=0.0)
    shares: Floats = _joined([s.words for _, s in found], np.float32)[best]
    shares = shares / np.float32(max(most, 1e-9))
    return Best(_pages(found, best), shares, Parts(np.zeros_like(shares), shares))


def _scored(answers: Mapping[str, Second], q: int) -> list[tuple[str, Scored]]:
    each = [(shard, second.each[q]) for shard, second in answers.items()]
    return [(shard, scored) for shard, scored in each if scored is not None]


def _best_by_words(found: Sequence[tuple[str, Scored]], count: int) -> Ints:
    """The rows of the best pages of all shards by words, best first."""
    rows, at = list[Ints](), 0
    for _, scored in found:
        # by position, as in one index; the pages themselves may be in the order of their scores
        order = np.argsort(scored.positions)
        places = np.searchsorted(scored.positions[order], np.sort(scored.by_words))
        rows.append(at + order[places])
        at += len(scored.positions)
    places = _joined(rows, np.int64)
    scores = _joined([scored.words for _, scored in found], np.float32)
    return places[top_k(scores[places], count)]


def _pages(found: Sequence[tuple[str, Scored]], rows: Ints) -> list[tuple[str, int]]:
    pages = [(shard, int(p)) for shard, scored in found for p in scored.positions]
    return [pages[row] for row in rows.tolist()]


def _joined(parts: Sequence[npt.NDArray[np.generic]], dtype: type) -> npt.NDArray:  # type: ignore[type-arg]
    return np.concatenate([np.empty(0, dtype), *parts])
