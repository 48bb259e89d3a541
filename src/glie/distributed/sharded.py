"""ShardedIndex: many indexes, searched and changed like one."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.distributed.asked import state_of
from glie.distributed.fleet import PAUSE, Fleet, StaleError
from glie.distributed.searching import Search
from glie.distributed.shards import Shards
from glie.distributed.view import View, fleet_for
from glie.errors import ClusterError, IdError, InputError, LockedError
from glie.filters import Filter, distinct_ids
from glie.identity import EncoderId, Identified
from glie.index.adding import Batch
from glie.index.index import Index
from glie.index.info import IndexInfo
from glie.index.words import analyzer_of, common
from glie.lexical.bm25 import Statistics
from glie.lexical.query import Phrase, Query, parse
from glie.lexical.terms import Analyzer
from glie.pages import Pages
from glie.search.options import (
    SearchKeywords,
    SearchOptions,
    check_number,
)
from glie.search.results import Hits

DEADLINE = 10.0  # seconds of a search


class ShardedIndex:
    """Many indexes in a folder, searched and changed like one glie.Index.

    The shards are searched by the replicas that `glie cluster serve` has started on a Ray cluster
    or, without them, in this process. Hits and scores are those of one index of all pages. Changes
    are made here, in the shards' folders; the replicas then open the new state.

    A search waits `deadline` seconds. Then it answers without the shards that have not, and names
    them in `hits.cost.missing`.
    """

    def __init__(
        self,
        shards: Shards,
        fleet: Fleet | None = None,
        *,
        deadline: float = DEADLINE,
    ) -> None:
        """`fleet` are the replicas that are asked; by default they are found when the first
        question is asked."""
        self.deadline = deadline
        self._view = View.of(shards)
        self._view.check_alike()
        self._fleet = functools.cache(lambda: fleet_for(shards) if fleet is None else fleet)
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        shards: int,
        codec: Codec | None = None,
        *,
        encoder: Identified | Mapping[str, Any] | str | None = None,
        language: str | None = None,
    ) -> ShardedIndex:
        """Make a folder of so many empty shards. `codec`, `encoder` and `language` are as for
        `Index.create`, but a codec does not adapt: give one that fits (`glie codec fit-sample`)."""
        entry = EncoderId.of(encoder)
        made = Shards.create(path, shards, codec or Codec(), encoder=entry, language=language)
        return cls(made)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, address: str | None = None, deadline: float = DEADLINE
    ) -> ShardedIndex:
        """Open a folder of shards. `address` is that of the Ray cluster which serves it; by default
        the one that RAY_ADDRESS names, or the one that runs on this machine. If there is none, the
        shards are searched in this process."""
        shards = Shards.read(path)
        fleet = None if address is None else fleet_for(shards, address)
        return cls(shards, fleet, deadline=deadline)

    # what it is

    @property
    def path(self) -> Path:
        return self._view.shards.path

    @property
    def shards(self) -> dict[str, Index]:
        """The indexes, by the name of the shard."""
        return dict(self._indexes)

    def shard_of(self, page_or_document: str) -> str:
        """The name of the shard that a new page, or document, belongs to."""
        return self._view.shards.shard_of(page_or_document)

    @property
    def _indexes(self) -> dict[str, Index]:
        return self._view.indexes

    @property
    def _one(self) -> Index:
        return next(iter(self._indexes.values()))

    @property
    def codec(self) -> Codec:
        return self._one.codec

    @property
    def encoder(self) -> EncoderId | None:
        return self._one.encoder

    @property
    def dim(self) -> int | None:
        return next((i.dim for i in self._indexes.values() if i.dim is not None), None)

    @property
    def has_text(self) -> bool:
        return any(index.has_text for index in self._indexes.values())

    @property
    def language(self) -> str | None:
        return self._one.language

    @property
    def analyzer(self) -> Analyzer:
        return analyzer_of(self.language)

    @property
    def generation(self) -> int:
        """The number of commits so far, in all shards."""
        return sum(index.generation for index in self._indexes.values())

    @property
    def ids(self) -> list[str]:
        """The ids of all pages, shard by shard."""
        return [page_id for index in self._indexes.values() for page_id in index.ids]

    def __len__(self) -> int:
        return sum(map(len, self._indexes.values()))

    def __contains__(self, page_id: object) -> bool:
        return isinstance(page_id, str) and self._shard_with(page_id) is not None

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and metadata of every page, shard by shard."""
        for index in self._indexes.values():
            yield from index.records()

    def metadata(self, page_id: str) -> dict[str, Any]:
        return self._holding(page_id).metadata(page_id)

    def image(self, page_id: str) -> bytes | None:
        return self._holding(page_id).image(page_id)

    def codes(self, ids: Sequence[str]) -> Codes:
        """The stored codes of some pages of one shard, such as one page."""
        by_shard = self.by_shard(distinct_ids(ids))
        if len(by_shard) != 1:
            raise InputError(f"codes: expected pages of one shard, found {len(by_shard)} shards")
        return self._indexes[next(iter(by_shard))].codes(ids)

    def info(self) -> IndexInfo:
        """Counts and measured sizes, of all shards together."""
        each = [index.info() for index in self._indexes.values()]
        added = {
            field.name: sum(getattr(info, field.name) for info in each)
            for field in dataclasses.fields(IndexInfo)
            if field.name in ADDED
        }
        pages = sum(info.pages for info in each)
        weighed = [info for info in each if info.code_bytes_per_page is not None]
        code_bytes = sum((info.code_bytes_per_page or 0) * info.pages for info in weighed)
        language = next((info.language for info in each if info.language), None)
        return dataclasses.replace(
            each[0],
            **added,
            dim=self.dim,
            language=language,
            code_bytes_per_page=round(code_bytes / pages) if pages else None,
        )

    # words

    def parse(self, question: str) -> Query:
        return parse(question, self.analyzer)

    def common_terms(self, question: str) -> set[str] | None:
        words = [state_of(index).words for index in self._indexes.values()]
        terms = self.analyzer.counted(question)
        return common(Statistics.total([w.statistics(terms) for w in words if w is not None]))

    def pages_having(self, terms: Iterable[str]) -> dict[str, int]:
        terms = list(terms)
        found = [index.pages_having(terms) for index in self._indexes.values()]
        return {term: sum(having[term] for having in found) for term in terms}

    def word_scores(self, page_id: str, query: Query) -> dict[str, float]:
        return self._holding(page_id).word_scores(page_id, query)

    def having(self, phrase: Phrase) -> Callable[[str], bool]:
        having = {shard: index.having(phrase) for shard, index in self._indexes.items()}
        return lambda page_id: having[self._found(page_id)](page_id)

    # states

    def refresh(self) -> None:
        """Show the latest committed state of every shard, and use the replicas that run now."""
        with self._lock:
            self._view = View.of(Shards.read(self.path), self._view)
        if self._fleet.cache_info().currsize:
            self._fleet().renew()

    def latest(self) -> ShardedIndex:
        """A ShardedIndex of the latest committed state; this one stays as it is. Threads can go on
        searching the old one."""
        view = copy.copy(self)
        view.refresh()
        return self if view._view.versions == self._view.versions else view

    # changes

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock of every shard over several changes."""
        with contextlib.ExitStack() as stack:
            for index in self._indexes.values():
                stack.enter_context(index.writing())
            yield

    def add(
        self,
        pages: Pages | Iterable[Batch],
        metadata: Sequence[Mapping[str, Any]] | None = None,
        *,
        images: Sequence[bytes | None] | None = None,
        texts: Sequence[str | None] | None = None,
        replacing: Iterable[str] = (),
        expected_pages: int | None = None,
    ) -> None:
        """Compress and store pages, as `Index.add` does. Pages of a document (`report.pdf#3`) go to
        the shard that its name decides, in one commit for each shard."""
        with self._view.shards.arriving() as place:
            made = Index.create(
                place / "all", self.codec, encoder=self.encoder, language=self.language or "none"
            )
            made.add(pages, metadata, images=images, texts=texts, expected_pages=expected_pages)
            self.merge(made, replacing=replacing)

    def merge(self, other: Index, *, replacing: Iterable[str] = ()) -> None:
        """Copy all pages of an index that has the same codec and encoder into their shards. Pages
        with the ids in `replacing` are deleted."""
        self.refresh()
        leaving = self._leaving(replacing)
        gone = {page_id for ids in leaving.values() for page_id in ids}
        arriving: dict[str, list[str]] = {}
        for page_id in other.ids:
            if page_id not in gone and page_id in self:
                raise IdError(
                    f"page {page_id!r} is already in {self.path}; delete it first, or pass "
                    "replacing=[...] to replace it"
                )
            arriving.setdefault(self.shard_of(page_id), []).append(page_id)
        with (
            self._changing({*arriving, *leaving}) as indexes,
            self._view.shards.arriving() as place,
        ):
            for shard, ids in arriving.items():
                part = other if len(arriving) == 1 else _part(other, ids, place / shard)
                indexes[shard].merge(part, replacing=leaving.pop(shard, []))
            for shard, ids in leaving.items():  # of documents that lay in other shards
                indexes[shard].delete(ids)
        self.refresh()

    def delete(self, ids: Iterable[str]) -> int:
        """Delete pages by id. An unknown id is an error, and nothing is deleted."""
        self.refresh()
        leaving = self._leaving(ids)
        with self._changing(leaving) as indexes:
            for shard, mine in leaving.items():
                indexes[shard].delete(mine)
        self.refresh()
        return len({page_id for mine in leaving.values() for page_id in mine})

    @contextlib.contextmanager
    def _changing(self, shards: Iterable[str]) -> Iterator[dict[str, Index]]:
        """The indexes of some shards, to change them: all can be written, or none is. Searches go
        on in the state that is shown."""
        with contextlib.ExitStack() as stack:
            for shard in sorted(shards):
                stack.enter_context(self._indexes[shard].writing())
            if Shards.read(self.path) != self._view.shards:
                raise LockedError(f"{self.path}: a shard was replaced just now; try again")
            yield {shard: copy.copy(self._indexes[shard]) for shard in shards}

    def _shard_with(self, page_id: str) -> str | None:
        """The shard that holds a page. Where its name says is looked first."""
        first = self.shard_of(page_id)
        if page_id in self._indexes[first]:
            return first
        return next((shard for shard, index in self._indexes.items() if page_id in index), None)

    def _found(self, page_id: str) -> str:
        shard = self._shard_with(page_id)
        if shard is None:
            raise IdError(f"page {page_id!r} is not in {self.path}")
        return shard

    def _holding(self, page_id: str) -> Index:
        return self._indexes[self._found(page_id)]

    def by_shard(self, ids: Iterable[str]) -> dict[str, list[str]]:
        """Pages by the shard that holds them; an unknown id is an error."""
        found: dict[str, list[str]] = {}
        for page_id in ids:
            found.setdefault(self._found(page_id), []).append(page_id)
        return found

    def _leaving(self, ids: Iterable[str]) -> dict[str, list[str]]:
        """Pages to delete, by shard. Two shards hold one if its move was interrupted."""
        found = self.by_shard(distinct_ids(ids))
        for page_id, first in [(page_id, shard) for shard in found for page_id in found[shard]]:
            for shard, index in self._indexes.items():
                if shard != first and page_id in index:
                    found.setdefault(shard, []).append(page_id)
        return found

    # search

    def search(
        self,
        queries: Any,
        top: int = 10,
        *,
        shortlist: int | None = None,
        ids: Iterable[str] | None = None,
        where: Mapping[str, Any] | Filter | None = None,
        normalize: bool = False,
        exact: bool | None = None,
        text: Sequence[str | Query] | None = None,
        mode: str | None = None,
        deadline: float | None = None,
    ) -> list[Hits]:
        """The `top` best pages for each query, as `Index.search` finds them in one index.

        `deadline` are the seconds until the search answers without the shards that have not, and
        names them in `hits.cost.missing`. Raises BusyError if too many searches wait already, and
        ClusterError if no shard has answered."""
        options = SearchOptions(top, shortlist, ids, where, normalize, exact, text, mode)
        seconds = self.deadline if deadline is None else deadline
        if not seconds > 0:
            raise InputError(f"deadline: expected seconds, more than 0, found {deadline!r}")
        began, view = time.monotonic(), copy.copy(self)  # it stays in its state
        while True:
            try:
                asks = Search(view, view._view, view._fleet(), queries, options, began, seconds)
                return asks.hits()
            except StaleError:  # another process has committed, and replicas were restarted
                if time.monotonic() - began > seconds:
                    raise ClusterError(
                        f"{self.path}: its replicas are in other states than its folder; do all "
                        "machines see the same folder?"
                    ) from None
                time.sleep(PAUSE)
                view.refresh()

    def like(self, page_id: str, top: int = 10, **keywords: Unpack[SearchKeywords]) -> Hits:
        """The `top` pages most like one of the index, without it, by its stored vectors alone."""
        check_number("top", top, 1)
        codes = self.codes([page_id])
        vectors = codes.vectors[0][codes.counts[0] > 0]
        keywords["normalize"] = True  # they are rounded
        hits = self.search([vectors], top + 1, **keywords)[0]
        return hits.take([row for row, found in enumerate(hits.ids) if found != page_id][:top])

    def __repr__(self) -> str:
        shards = len(self._indexes)
        return f"ShardedIndex({str(self.path)!r}, {shards} shards, {len(self)} pages)"


# the counts of an IndexInfo that add up
ADDED = {
    *("pages", "deleted", "segments", "generation", "bytes", "image_bytes", "codec_bytes"),
    *("vectors", "uncompressed_bytes", "candidate_bytes", "document_bytes", "text_bytes"),
    *("pages_with_text", "column_bytes"),
}


def _part(other: Index, ids: Sequence[str], place: Path) -> Index:
    """An index of some pages of another, whose files it shares where the disk allows that."""
    wanted = set(ids)

    def linked(source: str, to: str) -> str:
        try:
            os.link(source, to)
        except OSError:
            shutil.copy2(source, to)
        return to

    ignored = shutil.ignore_patterns("lock", "writer.json")  # its own
    shutil.copytree(other.path, place, copy_function=linked, ignore=ignored)
    part = Index.open(place)
    part.delete([page_id for page_id in other.ids if page_id not in wanted])
    return part
