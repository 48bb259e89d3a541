"""One search of a folder of shards: asked in two rounds, answered as one index would."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from glie.codec.codec import Codec
from glie.distributed import merging
from glie.distributed.asked import Asked, state_of, total
from glie.distributed.fleet import Answers, Fleet
from glie.distributed.merging import Best
from glie.distributed.view import View
from glie.errors import ClusterError, InputError
from glie.identity import EncoderId
from glie.lexical.query import Query
from glie.search.hybrid import BEST, BY_WORDS
from glie.search.options import LATE, LEXICAL, SearchOptions, checked_queries
from glie.search.results import Cost, Hits

FIRST_SHARE = 0.6  # of the deadline, for the first of two rounds
SHARES_RANKED = 2  # of the pages to be ranked, a shard ranks so many times its share ...
AND_MORE = 32  # ... and so many more; all of them, if it turns out to have more than that


class Pages(Protocol):
    """What a search has to know of all shards together."""

    @property
    def path(self) -> Path: ...

    @property
    def codec(self) -> Codec: ...

    @property
    def encoder(self) -> EncoderId | None: ...

    @property
    def dim(self) -> int | None: ...

    @property
    def has_text(self) -> bool: ...

    def __len__(self) -> int: ...

    def parse(self, question: str) -> Query: ...

    def by_shard(self, ids: Iterable[str]) -> dict[str, list[str]]: ...

    def shard_of(self, page_or_document: str) -> str: ...


class Search:
    """One search of the states that a ShardedIndex shows."""

    def __init__(
        self,
        pages: Pages,
        state: View,
        fleet: Fleet,
        queries: Any,
        options: SearchOptions,
        began: float,
        seconds: float,
    ) -> None:
        """Check what is asked. `began` is a time of time.monotonic()."""
        self._path, self._state, self._fleet = pages.path, state, fleet
        self._shard_of = pages.shard_of
        self._began, self._seconds = began, seconds
        self._top = options.top
        texts = _texts(pages, options)
        lexical = texts is not None and options.mode == LEXICAL
        checked = None
        if not lexical:
            weighted = pages.encoder is not None and pages.encoder.weighted
            checked = checked_queries(
                queries, pages.dim, pages.path, normalize=options.normalize, weighted=weighted
            )
            if texts is not None and len(texts) != len(checked):
                raise InputError(f"text: found {len(texts)} for {len(checked)} queries")
        shortlist = options.shortlist
        if shortlist is None:
            shortlist = pages.codec.shortlist_for(len(pages))
        if not pages.codec.regenerates:
            shortlist = 0
        count = max(self._top, shortlist, BEST if texts is not None else 0)
        by_words = self._top if lexical else max(self._top, BY_WORDS)
        self._asked = Asked(
            checked, texts, count, by_words, shortlist, None, options.filter, options.exact
        )
        self._ids = None if options.ids is None else pages.by_shard(options.ids)
        self._counts = {
            shard: min(count, AND_MORE + -(-SHARES_RANKED * count * len(index) // len(pages)))
            for shard, index in state.indexes.items()
            if len(pages)
        }
        self._missing: dict[str, str] = {}

    def hits(self) -> list[Hits]:
        asked, costs = self._asked, list[Cost]()
        if not len(asked):
            return []
        shards = self._state.indexes if self._ids is None else self._ids
        share = FIRST_SHARE if asked.texts is not None or asked.shortlist else 1.0
        first = self._ask("first", dict.fromkeys(shards, ()), share)
        if not first.values and shards:
            raise self._no_answer()
        costs += [answer.cost for answer in first.values.values()]
        few = merging.cut_short(first.values, asked.count, self._counts)
        if few:
            self._counts |= dict.fromkeys(few, asked.count)
            more = self._ask("first", dict.fromkeys(few, ()), (1 + share) / 2).values
            costs += [answer.cost for answer in more.values()]
            first.values.update(more)
        lists, ask = merging.wanted(first.values, asked)
        second: dict[str, Any] = {}
        if asked.texts is not None or asked.shortlist:
            answers = self._ask("second", {shard: (mine,) for shard, mine in ask.items()}, 1.0)
            second = answers.values
            costs += [answer.cost for answer in second.values()]
            if answers.missing and not second:
                raise self._no_answer()
        best = [self._distinct(q, mine, second) for q, mine in enumerate(lists)]
        cost = total(costs, time.monotonic() - self._began)
        cost = dataclasses.replace(cost, missing=tuple(sorted(self._missing)))
        return [self._as_hits(found, cost) for found in best]

    def _no_answer(self) -> ClusterError:
        why = next(iter(self._missing.values()))
        return ClusterError(
            f"{self._path}: no shard has answered in {self._seconds:g} s ({why}); "
            "`glie cluster status` shows the replicas"
        )

    def _distinct(self, q: int, mine: merging.Listed, second: dict[str, Any]) -> Best:
        """The best pages, each once: two shards hold a page whose move was interrupted."""
        top = self._top
        while True:
            found = self._best(q, mine, second, top)
            kept = self._kept(found.pages)
            if len(kept) == len(found.pages) <= self._top:
                return found
            if len(kept) >= self._top or len(found.pages) < top:
                return merging.taken(found, kept[: self._top])
            top *= 2

    def _kept(self, pages: list[tuple[str, int]]) -> list[int]:
        """The rows of pages that count: of a page in two shards the one where its name says."""
        kept, seen, indexes = list[int](), set[str](), self._state.indexes
        for row, (shard, at) in enumerate(pages):
            page_id = state_of(indexes[shard]).record(at)[0]
            home = self._shard_of(page_id)
            if page_id not in seen and (shard == home or page_id not in indexes[home]):
                seen.add(page_id)
                kept.append(row)
        return kept

    def _best(self, q: int, mine: merging.Listed, second: dict[str, Any], top: int) -> Best:
        asked = self._asked
        if asked.queries is None:
            return merging.best_lexical(second, q, top)
        if asked.texts is not None:
            return merging.best_hybrid(mine, second, q, asked, top)
        if not asked.shortlist:
            return merging.best_by_codes(mine, top)
        return merging.best_reranked(mine, second, q, asked, top)

    def _ask(self, method: str, more: Mapping[str, tuple[Any, ...]], share: float) -> Answers:
        """Ask these shards, until a share of the deadline has passed."""
        due = self._began + share * self._seconds
        left = max(due - time.monotonic(), 0.001)
        requests = {}
        for shard, arguments in more.items():
            ids = None if self._ids is None else self._ids[shard]
            asked = dataclasses.replace(self._asked, ids=ids, count=self._counts[shard])
            requests[shard] = (left, self._state.versions[shard], asked, *arguments)
        answers = self._fleet.ask(method, requests, due)
        self._missing |= answers.missing
        return answers

    def _as_hits(self, found: Best, cost: Cost) -> Hits:
        records = [state_of(self._state.indexes[shard]).record(at) for shard, at in found.pages]
        columns = [] if found.parts is None else [[float(x) for x in part] for part in found.parts]
        ids, metadata = [name for name, _ in records], [entry for _, entry in records]
        return Hits(ids, [float(score) for score in found.scores], metadata, cost, *columns)


def _texts(pages: Pages, options: SearchOptions) -> tuple[Query, ...] | None:
    """The words of each query; None if they are not searched."""
    has_text = pages.has_text
    if options.mode == LATE or (options.mode is None and (options.text is None or not has_text)):
        return None
    if options.text is None:
        raise InputError(f"mode {options.mode!r}: expected text, the words of each query")
    if not has_text:
        raise InputError(
            f"{pages.path}: no page has text, so words cannot be searched; search with mode 'late'"
        )
    return tuple(text if isinstance(text, Query) else pages.parse(text) for text in options.text)
