"""Index: add pages to a folder, and search it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.errors import CorruptIndexError, IdError, IndexFolderError, InputError, VectorError
from glie.filters import Filter, distinct_ids
from glie.identity import EncoderId, Identified
from glie.index import health
from glie.index.adding import Batch, adapt, add_batches, batches_of
from glie.index.commit import next_manifest
from glie.index.compacting import Texts, is_compact, rewrite
from glie.index.folder import Folder, Manifest, TextEntry, finished
from glie.index.format import damaged
from glie.index.health import Health
from glie.index.info import IndexInfo, index_info
from glie.index.repairing import Repair, repair
from glie.index.searching import search_state
from glie.index.shrinking import smaller_codec, write_shrunk
from glie.index.snapshot import Snapshot
from glie.index.words import analyzer_of, language_named, language_of
from glie.index.writer import (
    PAGES_PER_STEP,
    SegmentWriter,
    merge_tail,
)
from glie.lexical.query import Phrase, Query, parse
from glie.lexical.terms import Analyzer
from glie.pages import Pages
from glie.progress import OnProgress, ignore
from glie.search.options import (
    SearchKeywords,
    SearchOptions,
    check_number,
)
from glie.search.results import Hits

__all__ = ["Batch", "Index", "IndexInfo"]

log = logging.getLogger(__name__)


class _Hold(threading.local):
    """How deep this thread holds the writer's lock. A forked child does not hold it."""

    process = 0
    depth = 0
    changing = False


class Index:
    """A searchable folder of codes, for one writer at a time and any number of readers.

    An Index shows the state that it was opened in, plus its own changes. `refresh` shows the
    changes of other processes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = Folder(path)
        self._state = Snapshot.latest(self._folder)
        self._hold = _Hold()
        self.codec = self._folder.codec(self._state.manifest)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        codec: Codec | None = None,
        *,
        encoder: Identified | Mapping[str, Any] | str | None = None,
        language: str | None = None,
        inside: bool = False,
    ) -> Index:
        """Make an empty index, with its own copy of the codec. `encoder` is what makes the
        vectors: an encoder, its name, or its name and revision. Indexing and searching then
        check it. A codec that was fitted for another encoder is refused.

        Of a codebook that is registered on this machine (`glie codec make`), the index only names
        the digest; `inside` gives it a copy of that as well.

        `language` is that of the texts given to `add`, whose words are stemmed: a name or a code
        such as "de", or "none". By default it is English for glie's English encoders, and none for
        others."""
        if codec is not None and not isinstance(codec, Codec):
            raise InputError(f"codec: expected a glie.Codec, found {codec!r}")
        text = None if language is None else TextEntry(language_named(language))
        Folder(path).make(codec or Codec(), EncoderId.of(encoder), text, inside=inside)
        return cls(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Index:
        """Open an existing index. This is instant at any size: files are mapped, not read."""
        return cls(path)

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def encoder(self) -> EncoderId | None:
        """The encoder whose vectors are stored, if it was given."""
        return EncoderId.of(self._state.manifest.encoder)

    @property
    def dim(self) -> int | None:
        """D of the stored vectors; None if the index has never held a page."""
        return self._state.manifest.dim

    @property
    def has_text(self) -> bool:
        """Whether words can be searched: there is a page that was added with its text."""
        return self._state.words is not None

    @property
    def language(self) -> str | None:
        """The language whose stems the words of texts are reduced to; None: they are not."""
        return self._text.language

    @property
    def _text(self) -> TextEntry:
        return self._state.manifest.text or TextEntry(language_of(self.encoder))

    @property
    def analyzer(self) -> Analyzer:
        """What finds the terms of texts and questions."""
        return analyzer_of(self.language)

    def parse(self, question: str) -> Query:
        """What a person has typed: words, phrases in quotes, and what is excluded (-word)."""
        return parse(question, self.analyzer)

    def common_terms(self, question: str) -> set[str] | None:
        """The terms of a question that are on most pages: words that say little. None if too few
        pages have text to tell."""
        words = self._state.words
        return None if words is None else words.common(self.analyzer.counted(question))

    def pages_having(self, terms: Iterable[str]) -> dict[str, int]:
        """How many pages have each of some terms, as `parse` gives them."""
        words, terms = self._state.words, list(terms)
        return dict.fromkeys(terms, 0) if words is None else words.statistics(terms).having

    def word_scores(self, page_id: str, query: Query) -> dict[str, float]:
        """What each term of a question adds to the share of words in a page's score; they sum to
        that share, which is 1 for a page full of them."""
        words, position = self._state.words, self._state.position(page_id)
        if words is None:
            return {}
        alone = {
            term: words.scores(Query(term, Counter({term: often})), None)
            for term, often in query.terms.items()
        }
        most = max(sum(found.most for found in alone.values()), 1e-9)
        return {term: float(found.scores[position]) / most for term, found in alone.items()}

    def having(self, phrase: Phrase) -> Callable[[str], bool]:
        """Whether a page has all words of a phrase, in any order: a function of its id."""
        state = self._state
        if state.words is None:
            return lambda page_id: False
        having = state.words.having(phrase)
        return lambda page_id: bool(having[state.position(page_id)])

    @property
    def generation(self) -> int:
        """The number of commits so far."""
        return self._state.manifest.generation

    @property
    def ids(self) -> list[str]:
        """The ids of all pages, in the order of insertion."""
        return list(self._state.positions)

    def __len__(self) -> int:
        return len(self._state)

    def __contains__(self, page_id: object) -> bool:
        return page_id in self._state

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and metadata of every page, in the order of insertion."""
        for _, page_id, metadata in self._state.records():
            yield page_id, metadata

    def stored(self, step: int = PAGES_PER_STEP) -> Iterator[tuple[Codes, list[dict[str, Any]]]]:
        """The codes and metadata of all pages, in the order of insertion, in batches of at most
        `step` pages."""
        state = self._state
        for number, segment in enumerate(state.segments):
            rows = state.live(number)
            for at in range(0, len(rows), step):
                some = rows[at : at + step]
                records = [segment.record(row) for row in some.tolist()]
                codes = segment.codes.take(some).read([page_id for page_id, _ in records])
                yield codes, [metadata for _, metadata in records]

    def metadata(self, page_id: str) -> dict[str, Any]:
        """The metadata of one page."""
        state = self._state
        return state.record(state.position(page_id))[1]

    def image(self, page_id: str) -> bytes | None:
        """The image of a page, as it was given to `add`; None if it has none."""
        state = self._state
        segment, row = state.place(state.position(page_id))
        images = state.images[segment]
        return images.image(row) if images else None

    def codes(self, ids: Sequence[str]) -> Codes:
        """The stored codes of some pages, at least one, in the order of these ids."""
        state, wanted = self._state, distinct_ids(ids)
        if not wanted:
            raise InputError("codes: expected at least one id")
        positions = np.array([state.position(page_id) for page_id in wanted], np.int64)
        order = np.argsort(positions)
        stored = state.codes_at(positions[order]).take(np.argsort(order))
        return dataclasses.replace(stored, ids=wanted)

    def info(self) -> IndexInfo:
        """Counts and measured sizes."""
        return index_info(self._folder, self._state, self.codec)

    def refresh(self) -> None:
        """Show the latest committed state."""
        if Manifest.read(self.path) != self._state.manifest:
            before = self._state.manifest.codec
            self._state = Snapshot.latest(self._folder, self._state)
            if self._state.manifest.codec != before:  # it has adapted, or the folder was replaced
                self.codec = self._folder.codec(self._state.manifest)

    def latest(self) -> Index:
        """An Index of the latest committed state; this one stays as it is. Threads can go on
        searching the old one."""
        view = copy.copy(self)
        view.refresh()
        return view if view._state is not self._state else self

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock over several changes. A single `add`, `delete` or `compact` takes
        it by itself."""
        hold = self._hold
        if hold.process != os.getpid():
            hold.process, hold.depth, hold.changing = os.getpid(), 0, False
        with contextlib.ExitStack() as stack:
            if hold.depth == 0:
                Manifest.read(self.path)  # raises if this is no index, before a lock file is made
                stack.enter_context(self._folder.writing())
            hold.depth += 1
            try:
                yield
            finally:
                hold.depth -= 1

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
        """Compress and store pages: all of them, or none if anything is wrong.

        `metadata` is one JSON object per page, `images` one encoded image or None per page, `texts`
        the text of each page or None: its words can then be searched too. Of a text only postings
        are stored, which count in a budget. Pages with the ids in `replacing` are deleted in the
        same commit. For more pages than fit in memory, pass an iterable of
        `Batch(pages, metadata, images, texts)` as `pages`.

        A large index has PQ codes. With a codebook that comes with glie or was made for the encoder
        they count in the budget, if the first addition knows that the index will be large: by the
        number of its pages, or by `expected_pages`, which will come in all.
        """
        if expected_pages is not None:
            check_number("expected_pages", expected_pages, 0)
        batches = batches_of(pages, metadata, images, texts)
        with self._change() as state:
            leaving = set(distinct_ids(replacing))
            gone = {state.position(page_id) for page_id in leaving}
            writer = SegmentWriter(self._folder, state.manifest.next_number)
            arriving = len(pages) if isinstance(pages, Pages) else PAGES_PER_STEP
            kept = merge_tail(state, writer, gone, arriving)
            codec, analyzer = self.codec, self.analyzer
            if codec.adapts and state.manifest.dim is None:
                given = codec, pages, batches, analyzer, self.encoder
                codec, batches = adapt(*given, expected_pages=expected_pages)
            dim = state.manifest.dim
            arrived, dim = add_batches(batches, codec, writer, state, leaving, dim, analyzer)
            if arrived or gone:
                self._commit(state, writer, kept, gone, dim, codec)

    def merge(self, other: Index, *, replacing: Iterable[str] = ()) -> None:
        """Copy all pages of another index that has the same codec and encoder, in one commit. Pages
        with the ids in `replacing` are deleted in it."""
        if not self.codec.same_codes_as(other.codec) or self.encoder != other.encoder:
            raise InputError(
                f"{other.path}: made with another codec or encoder than {self.path}; indexes that "
                "are merged share both: `glie codec fit-sample` makes one codec for all (--codec)"
            )
        with self._change() as state:
            theirs = other._state
            dim, text = state.manifest.dim, state.manifest.text or other._text
            if other.has_text and text != other._text:
                raise InputError(
                    f"{other.path}: its words are in {other.language or 'no language'}, those of "
                    f"{self.path} in {text.language or 'none'}; indexes that are merged share it"
                )
            if None not in (dim, other.dim) and dim != other.dim:
                raise VectorError(
                    f"{other.path}: its vectors have {other.dim} numbers, those of {self.path} "
                    f"have {dim}"
                )
            leaving = set(distinct_ids(replacing))
            gone = {state.position(page_id) for page_id in leaving}
            for page_id in other.ids:
                if page_id not in leaving and page_id in state:
                    raise IdError(f"page {page_id!r} is already in {self.path}")
            writer = SegmentWriter(self._folder, state.manifest.next_number)
            kept = merge_tail(state, writer, gone, len(other))
            for number in range(len(theirs.segments)):
                writer.copy(theirs, number)
            writer.flush()
            if len(other) or gone:
                self._commit(state, writer, kept, gone, dim or other.dim, text=text)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete pages by id. An unknown id is an error, and nothing is deleted."""
        with self._change() as state:
            leaving = distinct_ids(ids)
            gone = {state.position(page_id) for page_id in leaving}
            writer = SegmentWriter(self._folder, state.manifest.next_number)
            if gone:
                self._commit(state, writer, range(len(state.segments)), gone, state.manifest.dim)
            return len(gone)

    def compact(self, texts: Texts | None = None, *, language: str | None = None) -> None:
        """Rewrite the index without deleted pages, in as few files as possible, and with candidate
        files if it is large enough.

        `texts` gives words to pages that have none, such as those of an older index: a function of
        a page's id and metadata that returns its text or None. Their bytes come on top of a budget.
        `language` is that of the texts, as in `create`; an index that has words keeps its own."""
        with self._change() as state:
            text = self._text if language is None else TextEntry(language_named(language))
            if self.has_text and text != self._text:
                raise InputError(
                    f"{self.path}: its words are in {self.language or 'no language'}, not in "
                    f"{language}; leave language out"
                )
            if is_compact(state) and (texts is None or not len(self)):
                return
            writer = SegmentWriter(self._folder, state.manifest.next_number)
            rewrite(state, writer, texts, analyzer_of(text.language))
            self._commit(state, writer, [], set(), state.manifest.dim, text=text)

    def keep_codebook(self) -> None:
        """Copy a codebook that this index shares with others into it, so that it can move alone.
        An index that has no shared codebook stays as it is."""
        with self._change() as state:
            manifest = state.manifest
            entry = self._folder.keep(self.codec, inside=True)
            if entry != manifest.codec:
                number = manifest.generation + 1
                self._folder.commit(dataclasses.replace(manifest, codec=entry, generation=number))
                self.refresh()

    def shrunk(
        self,
        to: str | os.PathLike[str],
        *,
        bytes_per_page: int,
        progress: OnProgress = ignore,
    ) -> Index:
        """Make a smaller index of the same pages from what is stored: it needs neither the encoder
        nor the page vectors. Ids, metadata, images and words stay the same, and this index is only
        read. It appears at `to` when it is complete.

        Names, words and a codebook inside count in the bytes. If that leaves too little for the
        codes, a page takes more: `info().above_budget` and a log line say why."""
        state = self._state
        codec = smaller_codec(self.codec, self.info(), state, bytes_per_page, self.path)
        if os.path.lexists(to):
            raise IndexFolderError(f"{to}: already there; choose another name")
        known = state.manifest.text
        language = None if known is None else known.language or "none"
        inside = self._folder.inside
        with finished(Path(to).absolute()) as place:
            made = Index.create(
                place, codec, encoder=self.encoder, language=language, inside=inside
            )
            with made._change() as empty:
                writer = SegmentWriter(made._folder, empty.manifest.next_number)
                write_shrunk(state, writer, self.codec, codec, progress)
                made._commit(empty, writer, [], set(), state.manifest.dim)
            del made, empty, writer  # Windows renames no folder whose files are mapped
        shrunk = Index.open(to)
        facts = shrunk.info()
        if facts.above_budget:
            log.warning("%s: %.0f bytes a page, %s", to, facts.bytes_per_page, facts.above_budget)
        return shrunk

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
    ) -> list[Hits]:
        """The `top` best pages for each query: ranked by MaxSim over the stored codes, the first
        `shortlist` reranked by MaxSim over their reconstructed vectors (0: codes alone).

        A large index scores only candidates, which nearly always gives the same results.
        `exact=True` scores every page. `exact=False` uses candidates in any index; one without
        candidate files makes them in memory first.

        `queries` is a list of (m, D) arrays of unit vectors, one for each query, or Queries. `ids`
        restricts the search to these pages, `where` to pages whose metadata matches: a value, a
        list of values, or more (`glie.filters`). `normalize` accepts vectors that are not
        normalised.

        `text` has the words of each query, as typed or as `parse` returns them. They are searched
        too (`mode="hybrid"`) if the pages were added with their texts. "In quotes" asks for pages
        with these words, and -word for pages without one. `mode="late"` searches vectors alone,
        `mode="lexical"` words alone; `queries` may then be None.
        """
        options = SearchOptions(top, shortlist, ids, where, normalize, exact, text, mode)
        return search_state(self._state, self.codec, self.path, queries, options)

    def like(self, page_id: str, top: int = 10, **keywords: Unpack[SearchKeywords]) -> Hits:
        """The `top` pages most like one of the index, without it, by its stored vectors alone."""
        check_number("top", top, 1)
        codes = self.codes([page_id])
        vectors = codes.vectors[0][codes.counts[0] > 0]
        keywords["normalize"] = True  # they are rounded
        hits = self.search([vectors], top + 1, **keywords)[0]
        others = [row for row, found in enumerate(hits.ids) if found != page_id]
        return hits.take(others[:top])

    def verify(self) -> Health:
        """Read and check every byte; raises CorruptIndexError if something is damaged.
        `Index.examine` lists all damage, also of an index that cannot be opened."""
        found = health.examine(self._folder)
        if found.whole:
            return found
        first, *others = found.damage
        error = damaged(self.path / first.file, first.what)
        if others:
            more = f"{error}; and there are {len(others)} more faults, which `glie verify` lists"
            error = CorruptIndexError(more, first.what)
        raise error

    @staticmethod
    def examine(path: str | os.PathLike[str]) -> Health:
        """Check every file: what is damaged, and which pages are affected."""
        return health.examine(Folder(path))

    @staticmethod
    def repair(path: str | os.PathLike[str]) -> Repair:
        """Commit a state of all that is undamaged; damaged files are kept in `damaged/`."""
        return repair(Folder(path))

    @contextlib.contextmanager
    def _change(self) -> Iterator[Snapshot]:
        """The state to change, under the lock, without the files of interrupted changes."""
        with self.writing():
            if self._hold.changing:
                raise InputError("the index is being changed already; finish that change first")
            self.refresh()
            self._folder.remove_strays(self._state.manifest)
            self._hold.changing = True
            try:
                yield self._state
            finally:
                self._hold.changing = False

    def _commit(
        self,
        state: Snapshot,
        writer: SegmentWriter,
        kept: Iterable[int],
        gone: set[int],
        dim: int | None,
        codec: Codec | None = None,
        *,
        text: TextEntry | None = None,
    ) -> None:
        """Commit a state of the segments `kept` without the pages at the positions `gone`, and of
        those that `writer` wrote. `codec` is the one that has adapted to the first pages. `text`:
        how the words of `writer` were made, if not in the way of this index."""
        adapted, text = None if codec is self.codec else codec, text or self._text
        manifest = next_manifest(self._folder, state, writer, kept, gone, dim, adapted, text)
        try:
            self._folder.commit(manifest)
        finally:
            self.refresh()  # to what is on disk now, also after an error
        self._folder.remove_strays(manifest)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self)} pages, k={self.codec.k})"
