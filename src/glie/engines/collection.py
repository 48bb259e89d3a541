"""Collection: the methods of an index, over pages that an engine stores."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.store import from_files, to_files
from glie.engines import compact
from glie.engines.base import COMPACT, LAYOUTS, MULTIVECTOR, Engine, Entry, Restriction, Row
from glie.engines.entries import codes_of, rows_of
from glie.errors import EngineError, IdError, InputError
from glie.filters import distinct_ids
from glie.identity import EncoderId, Identified, check_match
from glie.pages import Pages, Queries
from glie.search.options import (
    SearchKeywords,
    SearchOptions,
    check_number,
    checked_queries,
)
from glie.search.page_cache import PageCache
from glie.search.results import Cost, Hits, Ranking, hits_of
from glie.search.scan import CodeBlock, scan
from glie.search.two_stage import two_stage

FORMAT = "glie-collection"
VERSIONS = {MULTIVECTOR: 1, COMPACT: 2}  # of the header, by layout: older glie reads the first
LAYOUT = COMPACT  # of new collections
# of the layout MULTIVECTOR:
CANDIDATE_PAGES = 20_000  # an engine scores fewer pages all by MaxSim
# pages that an engine scores by MaxSim: the largest of
PREFETCH = 1000
PREFETCH_ROOT = 3  # times the square root of the number of pages, and
PREFETCH_EACH = 5  # times the number of pages to find
IDS_PER_REQUEST = 2048
SPARE = 8  # pages fetched in addition: an engine may round scores differently


class Collection:
    """Pages in an engine, searched like an index. The engine finds candidates; scoring them exactly
    and reranking the shortlist happens here."""

    def __init__(
        self,
        engine: Engine,
        codec: Codec,
        dim: int,
        encoder: EncoderId | Mapping[str, Any] | str | None,
        layout: str = LAYOUT,
    ) -> None:
        self.engine = engine
        self.layout = layout  # how its pages are stored
        self.codec = codec
        self.dim = dim
        self.encoder = EncoderId.of(encoder)  # of the vectors, if it was given
        self._pages: int | None = None  # their number, once counted
        self.cache = PageCache.of(codec)

    @classmethod
    def create(
        cls,
        engine: Engine,
        codec: Codec,
        dim: int,
        *,
        encoder: Identified | Mapping[str, Any] | str | None = None,
        layout: str | None = None,
        **settings: Any,
    ) -> Collection:
        """Open the collection for pages of this codec, or create it. Pass engine settings when you
        create the collection: `settings` go to the engine. New ones are "compact" unless `layout`
        is "multivector": then the engine scores pages by MaxSim, and a page takes several times the
        bytes. A collection with another codec, dimension, encoder or layout is refused."""
        if layout not in (None, *LAYOUTS):
            raise InputError(f"layout: expected {' or '.join(LAYOUTS)}, found {layout!r}")
        codec = codec.frozen
        entry = EncoderId.of(encoder) or codec.encoder
        if entry is not None:
            codec.check_encoder(entry)
        if not engine.exists():
            engine.create(dim, layout or LAYOUT, settings)
        header = engine.read_header()
        if engine.dim() != dim:
            raise EngineError(
                f"{engine.place}: it holds vectors of {engine.dim()} numbers, not {dim}; choose "
                "another name"
            )
        if layout not in (None, engine.layout()):
            raise EngineError(
                f"{engine.place}: its pages are stored as {engine.layout()}, not {layout}; choose "
                "another name"
            )
        if header is None:
            if engine.count():
                raise _foreign(engine)
            made = cls(engine, codec, dim, entry, engine.layout())
            engine.write_header(made._header())  # new, or its creation was interrupted
            return made
        there = cls._of(engine, header)
        if not there.codec.frozen.same_as(codec):
            raise EngineError(
                f"{engine.place}: it holds codes of another codec; choose another name"
            )
        what = f"{engine.place}: its vectors were made with"
        check_match(there.encoder, entry, what, "choose another name", EngineError)
        return there

    @classmethod
    def open(cls, engine: Engine) -> Collection:
        """Open an existing collection."""
        if not engine.exists():
            raise EngineError(f"{engine.place}: not there; `glie export` makes it")
        header = engine.read_header()
        if header is None:
            raise _foreign(engine)
        return cls._of(engine, header)

    @classmethod
    def _of(cls, engine: Engine, header: bytes) -> Collection:
        try:
            found = json.loads(header)
            name, version = found["format"], found["version"]
            if name != FORMAT:
                raise ValueError(f"format {name!r}")
            if version not in VERSIONS.values():
                known = " and ".join(map(str, VERSIONS.values()))
                raise EngineError(
                    f"{engine.place}: written in version {version!r}, this glie reads {known}; "
                    "upgrade glie"
                )
            files = {name: base64.b64decode(data) for name, data in found["codec"].items()}
            dim, encoder = int(found["dim"]), EncoderId.of(found["encoder"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineError(
                f"{engine.place}: its header cannot be read ({error}); export the index again, to "
                "another name"
            ) from None
        return cls(engine, from_files(files, engine.place), dim, encoder, engine.layout())

    def _header(self) -> bytes:
        files = to_files(self.codec)
        codec = {name: base64.b64encode(data).decode() for name, data in files.items()}
        encoder = None if self.encoder is None else self.encoder.to_dict()
        version = VERSIONS[self.layout]
        header = {"format": FORMAT, "version": version, "dim": self.dim, "encoder": encoder}
        return json.dumps({**header, "codec": codec}).encode()

    @property
    def path(self) -> str:
        """The place of the collection, for messages."""
        return self.engine.place

    def __len__(self) -> int:
        """The number of pages; approximate in a large collection."""
        if self._pages is None:
            self._pages = self.engine.count()
        return self._pages

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and metadata of every page, in any order."""
        return self.engine.records()

    def upsert(
        self,
        pages: Pages | Codes,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        *,
        replacing: Iterable[str] = (),
    ) -> None:
        """Store pages, or codes of the collection's codec, replacing pages with the same ids. Pages
        with the ids in `replacing`, such as the earlier ones of a document, are deleted: by
        PostgreSQL in the same transaction, by the other engines afterwards."""
        codes = self.codec.compress(pages) if isinstance(pages, Pages) else pages
        rows, arriving = self.rows(codes, metadata), set(codes.ids)
        leaving = [page_id for page_id in distinct_ids(replacing) if page_id not in arriving]
        self._check_ids(leaving)
        self.put(rows, leaving)

    def rows(self, codes: Codes, metadata: Sequence[Mapping[str, Any]] | None) -> list[Row]:
        """Codes as rows to store."""
        if not isinstance(codes, Codes):
            raise InputError(f"upsert: expected Pages or Codes, found {type(codes).__name__}")
        found, expected = (codes.k, codes.dim, codes.stored.dtype), (self.codec.k, self.dim)
        if len(codes) and found != (*expected, self.codec.dtype):
            raise InputError(
                f"upsert: codes of {found[0]} x {found[1]} in {found[2]}; {self.path} holds "
                f"{expected[0]} x {expected[1]} in {self.codec.dtype}"
            )
        return rows_of(codes, metadata)

    def put(self, rows: Sequence[Row], leaving: Sequence[str] = ()) -> None:
        """Store rows, and delete the pages `leaving`."""
        self.engine.put(rows, leaving)
        self._pages = None

    def delete(self, ids: Iterable[str]) -> int:
        """Delete pages by id. If an id is unknown, nothing is deleted and IdError is raised."""
        leaving = distinct_ids(ids)
        self._check_ids(leaving)
        for some in _in_requests(leaving):
            self.engine.delete(some)
        self._pages = None
        return len(leaving)

    def _check_ids(self, ids: Sequence[str]) -> None:
        for some in _in_requests(ids):
            known = self.engine.digests(some)
            for page_id in some:
                if page_id not in known:
                    raise IdError(f"page {page_id!r} is not in {self.path}")

    def search(
        self,
        queries: Any,
        top: int = 10,
        *,
        filter: Any = None,
        prefetch: int | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[Hits]:
        """The `top` best pages for each query, with the keyword arguments of `Index.search`.

        `filter` is one of the engine's own (a Qdrant Filter, SQL for LanceDB and PostgreSQL),
        besides `ids` and `where`. With `exact=True` every page is scored. By default that is done
        for few pages only; of more, the `prefetch` pages are scored whose means are nearest.
        """
        options = SearchOptions(top, **keywords)
        if prefetch is not None:
            check_number("prefetch", prefetch, 1)
        weighted = self.encoder is not None and self.encoder.weighted
        checked = checked_queries(
            queries, self.dim, self.path, normalize=options.normalize, weighted=weighted
        )
        ids = None if options.ids is None else list(options.ids)
        if ids:
            self._check_ids(ids)
        among = Restriction(ids, options.filter, filter)
        exact = options.exact
        if exact is None:
            few = compact.PREFETCH if self.layout == COMPACT else CANDIDATE_PAGES
            exact = prefetch is None and len(self) < few
        shortlist = options.shortlist
        if shortlist is None:
            shortlist = self.codec.shortlist_for(len(self))
        source = _Selection(self, among, exact, prefetch)
        ranking = two_stage(source, checked, options.top, shortlist)
        found = source.found
        return hits_of(ranking, lambda position: (found[position].id, found[position].metadata))

    def _prefetch(self, count: int) -> int:
        """How many pages are scored by MaxSim to find `count`."""
        if self.layout == COMPACT:
            return compact.candidates_for(len(self), count)
        return max(PREFETCH, round(PREFETCH_ROOT * math.sqrt(len(self))), PREFETCH_EACH * count)

    def _found(
        self, questions: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> tuple[Ranking, list[Entry]]:
        """The best pages for each query by their stored vectors: the engine's candidates, scored
        exactly. Equal scores are ordered by id."""
        began = time.perf_counter()
        lists: list[list[Entry]] = [[] for _ in questions.ids]
        if among.ids != []:  # else no page can match
            lists = self._nearest(questions, count + SPARE, prefetch, among)
        distinct_entries = {entry.id: entry for entries in lists for entry in entries}
        found = sorted(distinct_entries.values(), key=lambda entry: entry.id)
        position = {entry.id: at for at, entry in enumerate(found)}
        codes = self._codes(found)
        rankings = []
        for q, entries in enumerate(lists):
            mine = np.array(sorted(position[entry.id] for entry in entries), np.int64)
            block = CodeBlock(codes.stored, codes.counts, 0, mine)
            rankings.append(scan(questions.slice(q, q + 1), [block], count))
        cost = Cost(
            pages_scanned=sum(ranking.cost.pages_scanned for ranking in rankings),
            pages_regenerated=0,
            bytes_read=sum(len(entry.code) for entry in found),
            seconds=time.perf_counter() - began,
        )
        positions = [ranking.positions[0] for ranking in rankings]
        return Ranking(positions, [ranking.scores[0] for ranking in rankings], cost), found

    def _nearest(
        self, questions: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> list[list[Entry]]:
        if not len(questions):
            return []
        if self.layout == MULTIVECTOR:
            return self.engine.nearest(questions, count, prefetch, among)
        return compact.nearest(self.engine, self.codec, self.dim, questions, count, prefetch, among)

    def _codes(self, entries: Sequence[Entry]) -> Codes:
        return codes_of(entries, self.codec, self.dim, self.path)

    def close(self) -> None:
        """Close files and connections."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Collection({self.path!r}, k={self.codec.k})"


@dataclasses.dataclass
class _Selection:
    """The pages that one search may find. Positions number the pages that the engine found."""

    collection: Collection
    among: Restriction
    exact: bool
    prefetch: int | None
    found: list[Entry] = dataclasses.field(default_factory=list)

    @property
    def cache(self) -> PageCache | None:
        return self.collection.cache

    def rank(self, queries: Queries, count: int) -> Ranking:
        width = None if self.exact else self.prefetch or self.collection._prefetch(count)
        ranking, self.found = self.collection._found(queries, count, width, self.among)
        return ranking

    def codes_at(self, positions: npt.NDArray[np.int64]) -> Codes:
        return self.collection._codes([self.found[position] for position in positions])


def _in_requests(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[at : at + IDS_PER_REQUEST] for at in range(0, len(ids), IDS_PER_REQUEST))


def _foreign(engine: Engine) -> EngineError:
    return EngineError(f"{engine.place}: not made by glie; choose another name")
