"""Index: pages in, answers out, on disk."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glie.candidates import build
from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.shrink import shrunk, smaller
from glie.errors import CorruptIndexError, IdError, IndexFolderError, InputError, VectorError
from glie.filters import distinct_ids
from glie.identity import EncoderId, Identified
from glie.index import health
from glie.index.candidate_files import write_candidates
from glie.index.folder import Folder, Manifest
from glie.index.format import StoredCodes, damaged, tombstone_bytes
from glie.index.health import Health, Repair
from glie.index.snapshot import Snapshot
from glie.index.writer import (
    PAGES_PER_STEP,
    SegmentWriter,
    checked_images,
    merge_tail,
    record_lines,
)
from glie.pages import Pages
from glie.progress import OnProgress, Progress, ignore
from glie.renamed import renamed
from glie.search.options import SearchOptions, checked_queries
from glie.search.results import Hits, hits_of
from glie.search.two_stage import two_stage


@dataclasses.dataclass(frozen=True)
class IndexInfo:
    """What an index is and what it weighs."""

    pages: int
    deleted: int
    segments: int
    generation: int
    k: int
    dim: int | None
    dtype: str  # of the stored vectors
    codewords: int  # of a codebook that a page keeps, at most
    encoder: str | None
    budget: int | None  # bytes a page that it was made for, if it was
    code_bytes_per_page: int | None  # measured; None while there is none
    bytes: int  # of everything in the folder
    image_bytes: int  # of these, kept pictures
    codec_bytes: int  # of these, the fitted codec: the same for any number of pages
    vectors: int  # that the pages had before compression; rounded where counts are
    uncompressed_bytes: int  # those vectors at 2 bytes a number
    candidate_bytes: (
        int  # of `bytes`, the candidate index and its PQ codes; 0: every page is scanned
    )
    document_bytes: int  # of `bytes`, documents that were uploaded

    words = renamed("words", "codewords")
    finder_bytes = renamed("finder_bytes", "candidate_bytes")

    def to_dict(self) -> dict[str, Any]:
        """For JSON: today's names, and those of older versions beside them."""
        older = {"words": self.codewords, "finder_bytes": self.candidate_bytes}
        return {**dataclasses.asdict(self), **older}

    @property
    def lean_bytes(self) -> int:
        """Of all that a search needs and that grows with the pages: without the codec, without
        pictures and without documents."""
        return self.bytes - self.image_bytes - self.codec_bytes - self.document_bytes


PAGES_PER_SHRINK = 64  # at a time: their anchors are spread out to as many vectors as they had


FIRST_PAGES = 500  # that are held in memory, for a codec to adapt to


class Batch(NamedTuple):
    """Some of the pages of a long addition, with their metadata and images."""

    pages: Pages
    metadata: Sequence[Mapping[str, Any]] | None = None
    images: Sequence[bytes | None] | None = None


class _Hold(threading.local):
    """What this thread holds of the writer's lock. A forked child holds nothing of it."""

    process = 0
    depth = 0
    changing = False


class Index:
    """A searchable folder of codes: one writer at a time, any number of readers.

    An Index shows the state it was opened in, plus its own changes; `refresh` takes in those of
    other processes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = Folder(path)
        self._state = Snapshot.latest(self._folder)
        self._ids: set[str] | None = None  # of the live pages, while this is the writer
        self._hold = _Hold()
        self.codec = self._folder.codec(self._state.manifest)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        codec: Codec | None = None,
        *,
        encoder: Identified | Mapping[str, Any] | str | None = None,
    ) -> Index:
        """A new, empty index, with its own copy of the codec. `encoder` is what made
        the vectors: an encoder, its name, or its name and revision. Indexing and searching then
        check it; a codec that was fitted for another is refused."""
        if codec is not None and not isinstance(codec, Codec):
            raise InputError(f"codec: expected a glie.Codec, found {codec!r}")
        Folder(path).make(codec or Codec(), EncoderId.of(encoder))
        return cls(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Index:
        """An existing index. Instant at any size: files are mapped, not read."""
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
        """D of the stored vectors; None while the index has never held a page."""
        return self._state.manifest.dim

    @property
    def generation(self) -> int:
        """How many changes were committed before what this shows."""
        return self._state.manifest.generation

    @property
    def ids(self) -> list[str]:
        """The live ids, in the order of insertion."""
        return list(self._state.positions)

    def __len__(self) -> int:
        return len(self._state)

    def __contains__(self, page_id: object) -> bool:
        return page_id in self._state.positions

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and metadata of every live page, in the order of insertion."""
        for _, page_id, metadata in self._state.records():
            yield page_id, metadata

    def stored(self, step: int = PAGES_PER_STEP) -> Iterator[tuple[Codes, list[dict[str, Any]]]]:
        """The stored codes and the metadata of all live pages, in the order of insertion, so many
        at a time."""
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
        """The page's kept image, as it was given to `add`; None when there is none."""
        state = self._state
        segment, row = state.place(state.position(page_id))
        images = state.images[segment]
        return images.image(row) if images else None

    def codes(self, ids: Sequence[str]) -> Codes:
        """What is stored of some pages, at least one, in the order of these ids."""
        state, wanted = self._state, distinct_ids(ids)
        if not wanted:
            raise InputError("codes: expected at least one id")
        positions = np.array([state.position(page_id) for page_id in wanted], np.int64)
        order = np.argsort(positions)
        stored = state.codes_at(positions[order]).take(np.argsort(order))
        return dataclasses.replace(stored, ids=wanted)

    def info(self) -> IndexInfo:
        """Counts and measured sizes."""
        state, manifest = self._state, self._state.manifest
        vectors = sum(
            int(segment.counts[state.live(number)].sum(dtype=np.int64))
            for number, segment in enumerate(state.segments)
        )
        dim, stored = manifest.dim, sum(segment.pages for segment in state.segments)
        code_bytes = sum(segment.code_bytes for segment in state.segments)
        return IndexInfo(
            pages=len(self),
            deleted=sum(entry.deleted for entry in manifest.segments),
            segments=len(manifest.segments),
            generation=manifest.generation,
            k=self.codec.k,
            dim=dim,
            dtype=self.codec.dtype,
            codewords=self.codec.config.codewords,
            encoder=None if manifest.encoder is None else manifest.encoder["name"],
            budget=self.codec.config.bytes_per_page or None,
            code_bytes_per_page=round(code_bytes / stored) if stored else None,
            bytes=self._folder.size(),
            image_bytes=sum(images.bytes for images in state.images if images),
            codec_bytes=self._folder.codec_size(),
            vectors=vectors,
            uncompressed_bytes=vectors * 2 * (dim or 0),
            candidate_bytes=state.candidates.bytes,
            document_bytes=self._folder.documents_size(),
        )

    def refresh(self) -> None:
        """Show the latest committed state."""
        if Manifest.read(self.path) != self._state.manifest:
            before = self._state.manifest.codec
            self._state = Snapshot.latest(self._folder, self._state)
            self._ids = None
            if self._state.manifest.codec != before:  # the folder was made anew
                self.codec = self._folder.codec(self._state.manifest)

    def latest(self) -> Index:
        """The latest committed state, as a view of its own; this one stays as it is. Several
        threads may search one view while another refreshes."""
        view = copy.copy(self)
        view.refresh()
        return view if view._state is not self._state else self

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock over several changes. `add`, `delete` and `compact` take it
        by themselves."""
        hold = self._hold
        if hold.process != os.getpid():
            hold.process, hold.depth, hold.changing = os.getpid(), 0, False
        with contextlib.ExitStack() as stack:
            if hold.depth == 0:
                Manifest.read(self.path)  # or say that it is no index, before making a lock there
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
        replacing: Iterable[str] = (),
    ) -> None:
        """Compress and store pages: all of them, or none if anything is wrong.

        `metadata` is one JSON object a page, `images` one encoded image or None a page. The ids
        in `replacing` are deleted in the same commit. For more pages than fit in memory, `pages`
        may be an iterable of Batch(pages, metadata, images), which is read as it is stored.
        """
        batches: Iterable[Batch]
        if isinstance(pages, Pages):
            batches, arriving = [Batch(pages, metadata, images)], len(pages)
        elif metadata is not None or images is not None:
            raise InputError("metadata, images: with an iterable of batches, put them in the Batch")
        elif not isinstance(pages, Iterable):
            raise InputError(f"add: expected Pages or Batches, found {type(pages).__name__}")
        else:
            batches, arriving = pages, PAGES_PER_STEP
        with self._change() as state:
            leaving, arrived = set(distinct_ids(replacing)), set[str]()
            gone = {state.position(page_id) for page_id in leaving}
            taken = self._live_ids(state)
            writer = SegmentWriter(self._folder, state.manifest.next_number)
            kept = merge_tail(state, writer, gone, arriving)
            dim, codec = state.manifest.dim, self.codec
            if codec.adapts and dim is None:
                if isinstance(pages, Pages):
                    first, more = [pages], False
                else:
                    batches, first, more = first_pages(batches)
                if any(len(some) for some in first):
                    codec = codec.for_pages(first, more=more)
            for batch in batches:
                if not isinstance(batch, Batch):
                    raise InputError(
                        f"add: expected Pages or Batches, found {type(batch).__name__}"
                    )
                new = batch.pages
                for page_id in new.ids:
                    if page_id in arrived or (page_id in taken and page_id not in leaving):
                        raise IdError(
                            f"page {page_id!r} is already in the index; delete it first, or pass "
                            "replacing=[...] to replace it"
                        )
                if len(new) and dim not in (None, new.dim):
                    raise VectorError(
                        f"pages: their vectors have {new.dim} numbers, those of the index have "
                        f"{dim}"
                    )
                arrived.update(new.ids)
                dim = new.dim if len(new) else dim
                lines = record_lines(new.ids, batch.metadata)
                blobs = checked_images(new.ids, batch.images)
                for at in range(0, len(new), PAGES_PER_STEP):
                    end = min(at + PAGES_PER_STEP, len(new))
                    codes = codec.compress(new.slice(at, end))
                    writer.add(StoredCodes.of(codes), lines[at:end], blobs[at:end])
            writer.flush()
            if arrived or gone:
                self._commit(state, writer, kept, gone, dim, codec)
                taken -= leaving
                taken |= arrived
                self._ids = taken

    def merge(self, other: Index, *, replacing: Iterable[str] = ()) -> None:
        """Take over the pages of an index with the same codec as they are stored, all in one
        commit, in which the ids in `replacing` are deleted."""
        if not self.codec.frozen.same_as(other.codec.frozen) or self.encoder != other.encoder:
            raise InputError(
                f"{other.path}: made with another codec or encoder than {self.path}; indexes that "
                "are merged share both"
            )
        with self._change() as state:
            theirs = other._state
            dim = state.manifest.dim
            if None not in (dim, other.dim) and dim != other.dim:
                raise VectorError(
                    f"{other.path}: its vectors have {other.dim} numbers, those of {self.path} "
                    f"have {dim}"
                )
            leaving, taken = set(distinct_ids(replacing)), self._live_ids(state)
            gone = {state.position(page_id) for page_id in leaving}
            for page_id in other.ids:
                if page_id in taken and page_id not in leaving:
                    raise IdError(f"page {page_id!r} is already in {self.path}")
            writer = SegmentWriter(self._folder, state.manifest.next_number)
            kept = merge_tail(state, writer, gone, len(other))
            for number in range(len(theirs.segments)):
                writer.copy(theirs, number)
            writer.flush()
            if len(other) or gone:
                self._commit(state, writer, kept, gone, dim or other.dim)
                self._ids = (taken - leaving) | set(other.ids)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete pages by id; an unknown id is an error, and then nothing is deleted."""
        with self._change() as state:
            leaving = distinct_ids(ids)
            gone = {state.position(page_id) for page_id in leaving}
            writer = SegmentWriter(self._folder, state.manifest.next_number)
            if gone:
                self._commit(state, writer, range(len(state.segments)), gone, state.manifest.dim)
            return len(gone)

    def compact(self) -> None:
        """Rewrite the segments without the deleted pages and as few files as possible; give a large
        index that was made without a candidate index its own."""
        with self._change() as state:
            stored, pay = state.candidates, build.candidates_pay(len(self))
            misfit = pay != stored.complete() or stored.fault is not None
            deleted = any(entry.deleted for entry in state.manifest.segments)
            if len(state.segments) < 2 and not deleted and not misfit:
                return
            writer = SegmentWriter(self._folder, state.manifest.next_number)
            for number in range(len(state.segments)):
                writer.copy(state, number)
            writer.flush()
            self._commit(state, writer, [], set(), state.manifest.dim)

    def shrunk(
        self,
        to: str | os.PathLike[str],
        *,
        bytes_per_page: int,
        progress: OnProgress = ignore,
    ) -> Index:
        """A new, smaller index of the same pages, made of what is stored: neither the encoder nor
        the page vectors are needed. Ids, metadata and images are the same; this index is only
        read. All pages are taken over, or none and nothing is left."""
        if not len(self):
            raise InputError(f"{self.path}: it holds no page; make a new index with that budget")
        state, facts = self._state, self.info()
        assert state.manifest.dim is not None
        codec = smaller(self.codec, bytes_per_page, state.manifest.dim)
        now = (facts.lean_bytes - facts.candidate_bytes) / (facts.pages + facts.deleted)
        if bytes_per_page >= now:
            raise InputError(
                f"bytes_per_page: found {bytes_per_page}, but a page of {self.path} takes "
                f"{now:,.0f}; expected fewer"
            )
        if os.path.lexists(to):
            raise IndexFolderError(f"{to}: already there; choose another name")
        done = 0

        def change(stored: StoredCodes) -> StoredCodes:
            nonlocal done
            codes = stored.read([str(page) for page in range(len(stored.counts))])
            done += len(codes)
            progress(Progress("pages", done, facts.pages))
            return StoredCodes.of(shrunk(codes, self.codec, codec))

        made = Index.create(to, codec, encoder=self.encoder)
        try:
            with made._change() as empty:
                writer = SegmentWriter(made._folder, empty.manifest.next_number)
                for number in range(len(state.segments)):
                    writer.copy(state, number, change=change, step=PAGES_PER_SHRINK)
                writer.flush()
                made._commit(empty, writer, [], set(), state.manifest.dim)
        except BaseException:
            shutil.rmtree(made.path, ignore_errors=True)
            raise
        return made

    def search(
        self,
        queries: Any,
        top: int = 10,
        *,
        shortlist: int | None = None,
        ids: Iterable[str] | None = None,
        where: Mapping[str, Any] | None = None,
        normalize: bool = False,
        exact: bool | None = None,
    ) -> list[Hits]:
        """The `top` best pages for each query, by exact MaxSim over every stored code and, of a
        fitted codec, over the regenerated vectors of the `shortlist` best (0: the codes alone).

        A large index scores only candidates, which its candidate index names: nearly always the same
        answers. `exact=True` scores every page; `exact=False` asks for candidates in any index
        (one without a candidate index makes it in memory first).

        `queries` is a list of (m, D) arrays of unit vectors, one a query, or Queries. `ids`
        restricts the search to these pages; `where` to pages whose metadata has these values
        (a list stands for any of its values). `normalize` takes query vectors off the sphere.
        """
        options = SearchOptions(top, shortlist, ids, where, normalize, exact)
        state = self._state
        checked = checked_queries(queries, self.dim, self.path, normalize=normalize)
        shortlist = self.codec.shortlist if options.shortlist is None else options.shortlist
        ranking = two_stage(state.select(options, self.codec), checked, options.top, shortlist)
        return hits_of(ranking, state.record)

    def verify(self) -> Health:
        """Read every byte and check it; raises CorruptIndexError when something is damaged.
        `Index.examine` tells all that is, of an index that cannot be opened too."""
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
        """Every file checked: what is damaged, and which pages that concerns."""
        return health.examine(Folder(path))

    @staticmethod
    def repair(path: str | os.PathLike[str]) -> Repair:
        """Commit a state of all that is whole; damaged files are set aside, in `damaged/`."""
        return health.repair(Folder(path))

    def _live_ids(self, state: Snapshot) -> set[str]:
        """The ids in use, kept from one addition to the next: reading them takes a moment."""
        if self._ids is None:
            self._ids = set(state.positions)
        return self._ids

    @contextlib.contextmanager
    def _change(self) -> Iterator[Snapshot]:
        """The state to change, under the lock, rid of what an interrupted change left behind."""
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
    ) -> None:
        """Write tombstones for the positions `gone` and make kept + written segments current, with
        the codec that has adapted, if it has."""
        entries = []
        by_segment: dict[int, list[int]] = {}
        for position in gone:
            segment, row = state.place(position)
            by_segment.setdefault(segment, []).append(row)
        for number in kept:
            entry = state.manifest.segments[number]
            if number in by_segment:
                deleted = state.deleted[number].copy()
                deleted[by_segment[number]] = True
                total = int(deleted.sum())
                if total == entry.pages:
                    continue  # nothing of it is left
                tombstones = writer.take_number()
                self._folder.write(tombstones, "del", tombstone_bytes(deleted, entry.checksum))
                entry = dataclasses.replace(entry, tombstones=tombstones, deleted=total)
            entries.append(entry)
        entries += writer.entries
        candidates = state.manifest.candidates if entries else None
        if writer.entries:
            candidates, entries = write_candidates(
                self._folder,
                entries,
                candidates,
                state.candidates.stored_ivf_pq,
                writer.take_number,
            )
        adapted = codec is not None and codec is not self.codec
        manifest = dataclasses.replace(
            state.manifest,
            codec=self._folder.keep(codec) if codec and adapted else state.manifest.codec,
            dim=dim,
            generation=state.manifest.generation + 1,
            next_number=writer.next_number,
            segments=tuple(entries),
            candidates=candidates,
        )
        self._ids = None
        try:
            self._folder.commit(manifest)
        finally:
            self.refresh()  # to what is on disk now, whether or not all went well
        self._folder.remove_strays(manifest)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self)} pages, k={self.codec.k})"


def first_pages(batches: Iterable[Batch]) -> tuple[Iterable[Batch], list[Pages], bool]:
    """The batches, none of them lost, the first FIRST_PAGES of their pages, however they are
    divided among them, and whether there are more."""
    source, held, first, room = iter(batches), list[Batch](), list[Pages](), FIRST_PAGES
    for batch in source:
        held.append(batch)
        if not isinstance(batch, Batch):
            break  # what is wrong with it, the caller says; and so of another dimension
        if len(batch.pages) and (not first or batch.pages.dim == first[0].dim):
            first.append(batch.pages.slice(0, min(room, len(batch.pages))))
            room -= len(batch.pages)
        if room < 0:
            break
    return itertools.chain(held, source), first, room < 0
