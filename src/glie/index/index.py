"""Index: pages in, answers out, on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.errors import IdError, InputError, VectorError
from glie.index.folder import Folder, Manifest, SegmentEntry, check_encoder
from glie.index.format import (
    MAX_RECORD_BYTES,
    Images,
    Segment,
    StoredCodes,
    damaged,
    images_bytes,
    read_tombstones,
    record_line,
    segment_bytes,
    to_bfloat16,
    tombstone_bytes,
)
from glie.pages import Pages, Queries
from glie.search import CodeBlock, Hits, rank

Ints = npt.NDArray[np.int64]

SEGMENT_BYTES = 64 << 20  # a segment is closed at this size; so much is held in memory
PAGES_PER_STEP = 512  # compressed at a time
OPEN_ATTEMPTS = 20  # a writer may replace files between reading the manifest and opening them


@dataclasses.dataclass(frozen=True)
class IndexInfo:
    """What an index is and what it weighs."""

    pages: int
    deleted: int
    segments: int
    generation: int
    k: int
    dim: int | None
    encoder: str | None
    code_bytes_per_page: int | None
    bytes: int
    vectors: int  # that the pages had before compression
    uncompressed_bytes: int  # those vectors at 2 bytes a number


class Batch(NamedTuple):
    """Some of the pages of a long addition, with their metadata and images."""

    pages: Pages
    metadata: Sequence[Mapping[str, Any]] | None = None
    images: Sequence[bytes | None] | None = None


class _Open:
    """One committed state with its files mapped: what a reader sees, whatever a writer does."""

    def __init__(self, folder: Folder, manifest: Manifest) -> None:
        self.manifest = manifest
        self.segments = [Segment(folder.file(e.number, "seg")) for e in manifest.segments]
        self.images = [
            None if e.images is None else Images(folder.file(e.images, "img"))
            for e in manifest.segments
        ]
        self.deleted = [
            np.zeros(e.pages, bool)
            if e.tombstones is None
            else read_tombstones(folder.file(e.tombstones, "del"))
            for e in manifest.segments
        ]
        for entry, segment, images, deleted in zip(
            manifest.segments, self.segments, self.images, self.deleted, strict=True
        ):
            sizes = {entry.pages, segment.pages, len(deleted), images.pages if images else 0}
            if sizes - {0} != {entry.pages} or entry.checksum != segment.checksum:
                raise damaged(segment.path, "it is not the file that the manifest names")
            if (segment.k, segment.dim) != (manifest.codec["k"], manifest.dim):
                raise damaged(segment.path, f"its codes are {segment.k} x {segment.dim}")
        self.bounds = np.cumsum([0] + [s.pages for s in self.segments], dtype=np.int64)
        self._positions: dict[str, int] | None = None

    @classmethod
    def latest(cls, folder: Folder) -> _Open:
        for attempt in range(OPEN_ATTEMPTS):
            manifest = Manifest.read(folder.path)
            try:
                return cls(folder, manifest)
            except FileNotFoundError as error:
                missing = Path(str(error.filename))
                if attempt and manifest == Manifest.read(folder.path):
                    raise damaged(missing, "the file is missing") from None
        raise damaged(folder.path, "its files change faster than they can be opened")

    def live(self, segment: int) -> Ints:
        """The rows of a segment that are not deleted."""
        return np.flatnonzero(~self.deleted[segment])

    def place(self, position: int) -> tuple[int, int]:
        """Segment and row of a position in insertion order."""
        segment = int(np.searchsorted(self.bounds, position, side="right")) - 1
        return segment, position - int(self.bounds[segment])

    def record(self, position: int) -> tuple[str, dict[str, Any]]:
        segment, row = self.place(position)
        return self.segments[segment].record(row)

    def records(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Position, id and metadata of every live page, in order."""
        for number, segment in enumerate(self.segments):
            first, dead = int(self.bounds[number]), self.deleted[number]
            for row, (page_id, metadata) in enumerate(segment.records()):
                if not dead[row]:
                    yield first + row, page_id, metadata

    @property
    def positions(self) -> dict[str, int]:
        """Where each live id is; read once, when first asked for."""
        if self._positions is None:
            self._positions = {page_id: position for position, page_id, _ in self.records()}
        return self._positions


class _Writer:
    """Gathers pages and writes them as segments of bounded size."""

    def __init__(self, folder: Folder, next_number: int) -> None:
        self.folder = folder
        self.next_number = next_number
        self.entries: list[SegmentEntry] = []
        self._codes: list[StoredCodes] = []
        self._records: list[bytes] = []
        self._images: list[bytes | None] = []
        self._bytes = 0

    def add(
        self, codes: StoredCodes, records: Sequence[bytes], images: Sequence[bytes | None]
    ) -> None:
        self._codes.append(codes)
        self._records.extend(records)
        self._images.extend(images)
        self._bytes += sum(part.nbytes for part in codes)
        self._bytes += sum(map(len, records)) + sum(len(image or b"") for image in images)
        if self._bytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._records:
            return
        codes = StoredCodes(*(np.concatenate(parts) for parts in zip(*self._codes, strict=True)))
        number = self.take_number()
        self.folder.write(number, "seg", segment_bytes(codes, self._records))
        has_images = any(self._images)
        if has_images:
            self.folder.write(number, "img", images_bytes(self._images))
        entry = SegmentEntry(
            number,
            pages=len(self._records),
            checksum=Segment(self.folder.file(number, "seg")).checksum,
            images=number if has_images else None,
        )
        self.entries.append(entry)
        self._codes, self._records, self._images, self._bytes = [], [], [], 0

    def copy(self, state: _Open, number: int, gone: Container[int] = ()) -> None:
        """Take over the live pages of a stored segment, except those at the positions `gone`."""
        segment, images = state.segments[number], state.images[number]
        first = int(state.bounds[number])
        rows = [row for row in state.live(number).tolist() if first + row not in gone]
        for at in range(0, len(rows), PAGES_PER_STEP):
            part = rows[at : at + PAGES_PER_STEP]
            self.add(
                segment.codes.take(np.array(part)),
                [record_line(*segment.record(row)) for row in part],
                [images.image(row) if images else None for row in part],
            )

    def take_number(self) -> int:
        self.next_number += 1
        return self.next_number - 1


class Index:
    """A searchable folder of codes: one writer at a time, any number of readers.

    An Index shows the state it was opened in, plus its own changes; `refresh` takes in those of
    other processes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = Folder(path)
        self._state = _Open.latest(self._folder)
        self._lock_depth = threading.local()
        try:
            self.codec = Codec(config=CodecConfig.from_dict(self._state.manifest.codec))
        except InputError as error:
            raise damaged(self.path, str(error)) from None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        codec: Codec | None = None,
        *,
        encoder: Mapping[str, Any] | str | None = None,
    ) -> Index:
        """A new, empty index. `encoder` names what made the vectors, if that is to be checked."""
        settings = (codec or Codec()).config.to_dict()
        Folder(path).make(Manifest(settings, check_encoder(encoder)))
        return cls(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Index:
        """An existing index. Instant at any size: files are mapped, not read."""
        return cls(path)

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def encoder(self) -> dict[str, Any] | None:
        """Name and revision of the encoder whose vectors are stored, if it was given."""
        encoder = self._state.manifest.encoder
        return None if encoder is None else dict(encoder)

    @property
    def dim(self) -> int | None:
        """D of the stored vectors; None while the index has never held a page."""
        return self._state.manifest.dim

    @property
    def ids(self) -> list[str]:
        """The live ids, in the order of insertion."""
        return list(self._state.positions)

    def __len__(self) -> int:
        return sum(entry.pages - entry.deleted for entry in self._state.manifest.segments)

    def __contains__(self, page_id: object) -> bool:
        return page_id in self._state.positions

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and metadata of every live page, in the order of insertion."""
        for _, page_id, metadata in self._state.records():
            yield page_id, metadata

    def metadata(self, page_id: str) -> dict[str, Any]:
        """The metadata of one page."""
        state = self._state
        return state.record(_position(state, page_id))[1]

    def image(self, page_id: str) -> bytes | None:
        """The page's kept image, as it was given to `add`; None when there is none."""
        state = self._state
        segment, row = state.place(_position(state, page_id))
        images = state.images[segment]
        return images.image(row) if images else None

    def info(self) -> IndexInfo:
        """Counts and measured sizes."""
        state, manifest = self._state, self._state.manifest
        vectors = sum(
            int(segment.codes.counts[state.live(number)].sum(dtype=np.int64))
            for number, segment in enumerate(state.segments)
        )
        k, dim = self.codec.k, manifest.dim
        return IndexInfo(
            pages=len(self),
            deleted=sum(entry.deleted for entry in manifest.segments),
            segments=len(manifest.segments),
            generation=manifest.generation,
            k=k,
            dim=dim,
            encoder=None if manifest.encoder is None else manifest.encoder["name"],
            code_bytes_per_page=None if dim is None else k * (2 * dim + 4),
            bytes=self._folder.size(),
            vectors=vectors,
            uncompressed_bytes=vectors * 2 * (dim or 0),
        )

    def refresh(self) -> None:
        """Show the latest committed state."""
        if Manifest.read(self.path) != self._state.manifest:
            self._state = _Open.latest(self._folder)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock over several changes. `add`, `delete` and `compact` take it
        by themselves."""
        depth = getattr(self._lock_depth, "value", 0)
        with contextlib.ExitStack() as stack:
            if depth == 0:
                stack.enter_context(self._folder.writing())
                self.refresh()
            self._lock_depth.value = depth + 1
            try:
                yield
            finally:
                self._lock_depth.value = depth

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
        else:
            batches, arriving = pages, PAGES_PER_STEP
        with self._change() as state:
            gone = {_position(state, page_id) for page_id in _distinct(replacing)}
            taken = {i for i, position in state.positions.items() if position not in gone}
            writer = _Writer(self._folder, state.manifest.next_number)
            kept = _merge_tail(state, writer, gone, arriving)
            dim = state.manifest.dim
            for batch in batches:
                if not isinstance(batch, Batch):
                    raise InputError(
                        f"add: expected Pages or Batches, found {type(batch).__name__}"
                    )
                new = batch.pages
                _check_new(new, taken, dim)
                taken.update(new.ids)
                dim = new.dim if len(new) else dim
                lines = _record_lines(new.ids, batch.metadata)
                blobs = _checked_images(new.ids, batch.images)
                for at in range(0, len(new), PAGES_PER_STEP):
                    end = min(at + PAGES_PER_STEP, len(new))
                    codes = self.codec.compress(new.slice(at, end))
                    writer.add(_stored(codes), lines[at:end], blobs[at:end])
            writer.flush()
            self._commit(state, writer, kept, gone, dim)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete pages by id; an unknown id is an error, and then nothing is deleted."""
        with self._change() as state:
            gone = {_position(state, page_id) for page_id in _distinct(ids)}
            writer = _Writer(self._folder, state.manifest.next_number)
            if gone:
                self._commit(state, writer, range(len(state.segments)), gone, state.manifest.dim)
            return len(gone)

    def compact(self) -> None:
        """Rewrite the segments without the deleted pages and as few files as possible."""
        with self._change() as state:
            if len(state.segments) < 2 and not any(e.deleted for e in state.manifest.segments):
                return
            writer = _Writer(self._folder, state.manifest.next_number)
            for number in range(len(state.segments)):
                writer.copy(state, number)
            writer.flush()
            self._commit(state, writer, [], set(), state.manifest.dim)

    def search(
        self,
        queries: Any,
        top: int = 10,
        *,
        ids: Iterable[str] | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> list[Hits]:
        """The `top` best pages for each query, by exact MaxSim over every stored code.

        `queries` is a list of (m, D) arrays of unit vectors, one a query, or Queries. `ids`
        restricts the search to these pages; `where` to pages whose metadata has these values
        (a list stands for any of its values).
        """
        if not isinstance(top, int) or isinstance(top, bool) or top < 1:
            raise InputError(f"top: expected a whole number of at least 1, found {top!r}")
        state = self._state
        questions = Queries.of(queries)
        if len(questions) and state.manifest.dim not in (None, questions.dim):
            raise VectorError(
                f"queries: their vectors have {questions.dim} numbers, those of {self.path} have "
                f"{state.manifest.dim}; encode them with the encoder that made the index"
            )
        ranking = rank(questions, _blocks(state, _allowed(state, ids, where)), top)
        results = []
        for positions, scores in zip(ranking.positions, ranking.scores, strict=True):
            found = [state.record(int(position)) for position in positions]
            results.append(
                Hits(
                    [page_id for page_id, _ in found],
                    [float(score) for score in scores],
                    [metadata for _, metadata in found],
                    ranking.cost,
                )
            )
        return results

    def verify(self) -> None:
        """Read every byte and check it; raises CorruptIndexError at the first that is wrong."""
        state = _Open.latest(self._folder)
        for segment, images in zip(state.segments, state.images, strict=True):
            _ = segment.codes
            segment.records()
            for row in range(segment.pages if images else 0):
                assert images is not None
                images.image(row)

    @contextlib.contextmanager
    def _change(self) -> Iterator[_Open]:
        """The state to change, under the lock, rid of what an interrupted change left behind."""
        with self.writing():
            self._folder.remove_strays(self._state.manifest)
            yield self._state

    def _commit(
        self,
        state: _Open,
        writer: _Writer,
        kept: Iterable[int],
        gone: set[int],
        dim: int | None,
    ) -> None:
        """Write tombstones for the positions `gone` and make kept + written segments current."""
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
                self._folder.write(tombstones, "del", tombstone_bytes(deleted))
                entry = dataclasses.replace(entry, tombstones=tombstones, deleted=total)
            entries.append(entry)
        manifest = dataclasses.replace(
            state.manifest,
            dim=dim,
            generation=state.manifest.generation + 1,
            next_number=writer.next_number,
            segments=(*entries, *writer.entries),
        )
        self._folder.commit(manifest)
        self._state = _Open(self._folder, manifest)
        self._folder.remove_strays(manifest)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self)} pages, k={self.codec.k})"


def _merge_tail(state: _Open, writer: _Writer, gone: set[int], arriving: int) -> list[int]:
    """Take small segments at the end into the new one, so that many small additions leave few
    files: one is merged while it is no larger than what joins it. Returns those that stay."""
    kept, joined = len(state.segments), arriving
    page_bytes = max((s.bytes // s.pages for s in state.segments), default=0)
    while kept and joined * page_bytes < SEGMENT_BYTES // 2:
        entry = state.manifest.segments[kept - 1]
        if entry.pages > joined:
            break
        joined += entry.pages
        kept -= 1
    for number in range(kept, len(state.segments)):
        writer.copy(state, number, gone)
    return list(range(kept))


def _stored(codes: Codes) -> StoredCodes:
    return StoredCodes(to_bfloat16(codes.vectors), codes.norms, codes.counts)


def _position(state: _Open, page_id: str) -> int:
    try:
        return state.positions[page_id]
    except (KeyError, TypeError):
        raise IdError(f"page {page_id!r} is not in the index") from None


def _distinct(ids: Iterable[str]) -> set[str]:
    if isinstance(ids, str):
        raise IdError(f"ids: expected a list of ids, found the single string {ids!r}")
    return set(ids)


def _check_new(batch: Pages, taken: set[str], dim: int | None) -> None:
    if len(batch) and dim not in (None, batch.dim):
        raise VectorError(
            f"pages: their vectors have {batch.dim} numbers, those of the index have {dim}"
        )
    for page_id in batch.ids:
        if page_id in taken:
            raise IdError(
                f"page {page_id!r} is already in the index; delete it first, or pass "
                "replacing=[...] to replace it"
            )


def _record_lines(ids: Sequence[str], metadata: Sequence[Mapping[str, Any]] | None) -> list[bytes]:
    if metadata is not None and len(metadata) != len(ids):
        raise InputError(f"metadata: found {len(metadata)} for {len(ids)} pages; expected one each")
    lines = []
    for i, page_id in enumerate(ids):
        value = {} if metadata is None else metadata[i]
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise InputError(f"metadata of page {page_id!r}: expected a dict with string keys")
        try:
            line = record_line(page_id, dict(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"metadata of page {page_id!r}: not JSON: {error}") from None
        if len(line) > MAX_RECORD_BYTES:
            raise InputError(
                f"metadata of page {page_id!r}: {len(line)} bytes of JSON, at most "
                f"{MAX_RECORD_BYTES} are stored"
            )
        lines.append(line)
    return lines


def _checked_images(
    ids: Sequence[str], images: Sequence[bytes | None] | None
) -> Sequence[bytes | None]:
    if images is None:
        return [None] * len(ids)
    if len(images) != len(ids):
        raise InputError(f"images: found {len(images)} for {len(ids)} pages; expected one each")
    for page_id, image in zip(ids, images, strict=True):
        if image is not None and not isinstance(image, bytes):
            raise InputError(f"image of page {page_id!r}: expected bytes or None")
    return images


def _allowed(
    state: _Open, ids: Iterable[str] | None, where: Mapping[str, Any] | None
) -> npt.NDArray[np.bool_] | None:
    """Which positions a search may return; None for all that live."""
    if ids is None and not where:
        return None
    allowed = np.full(int(state.bounds[-1]), ids is None)
    if ids is not None:
        allowed[[_position(state, page_id) for page_id in _distinct(ids)]] = True
    if where:
        wanted = {
            key: {_key(v) for v in (value if isinstance(value, (list, tuple, set)) else [value])}
            for key, value in where.items()
        }
        for position, _, metadata in state.records():
            if not all(
                key in metadata and _key(metadata[key]) in values for key, values in wanted.items()
            ):
                allowed[position] = False
    return allowed


def _key(value: Any) -> str:
    """Equal JSON values have equal keys, and True is not 1."""
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"where: {value!r} is not a JSON value: {error}") from None


def _blocks(state: _Open, allowed: npt.NDArray[np.bool_] | None) -> Iterator[CodeBlock]:
    for number, segment in enumerate(state.segments):
        first = int(state.bounds[number])
        rows = state.live(number)
        if allowed is not None:
            rows = rows[allowed[first + rows]]
        if len(rows):
            yield CodeBlock(segment.codes.vectors, segment.codes.counts, first, rows)
