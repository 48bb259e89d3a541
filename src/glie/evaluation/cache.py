"""Sets as vectors: encoded once, kept in a folder, read again block by block.

The folder is described in docs/format.md. It is finished when it has its vectors.json; before
that, a journal names the shards that are, and an interrupted run goes on behind the last one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import numpy as np
import numpy.typing as npt

from glie.codec.fitted import encoder_entry, same_encoder
from glie.documents import ocr_available, picture_text
from glie.encoders.base import Encoder, reads
from glie.errors import DatasetError, DocumentError, EncoderError, GlieError, InputError
from glie.evaluation.datasets import UNREADABLE, Dataset, left_out
from glie.index.folder import write_durably
from glie.index.format import checksum
from glie.pages import Pages, Queries, VectorSets

FORMAT = "glie-vectors"
VERSION = 1
DESCRIPTION = "vectors.json"
JOURNAL = "unfinished.jsonl"
QUESTIONS = "queries.safetensors"
LOCK = "lock"

SHARD_PAGES = 64  # what a killed run has to encode again, at most
SHARD_BYTES = 32 * 2**20  # of float32, and a batch, where pages have many vectors
TEXTS_PER_BATCH, IMAGES_PER_BATCH = 32, 8  # a decoded image takes 10 MB and more

NO_OCR = 'with no text but an image (pip install "glie[ocr]" to read it)'


class Half(NamedTuple):
    """Packed vectors in half the bytes. What is read back differs from what an encoder gave by
    2**-11 of a vector's length at most, a quarter of what bfloat16 codes lose."""

    vectors: npt.NDArray[np.float16]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, sets: VectorSets) -> Half:
        return cls(sets.vectors.astype(np.float16), sets.offsets)

    def to_bytes(self) -> bytes:
        from safetensors.numpy import save

        data: bytes = save(self._asdict())
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Half:
        """The reverse; a ValueError says what is wrong."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            half = cls(**load(data))
        except (SafetensorError, TypeError, KeyError) as error:
            raise ValueError(f"not a file of vectors and offsets: {error}") from None
        vectors, offsets = half
        whole = vectors.dtype == np.float16 and vectors.ndim == 2
        whole = whole and offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 0
        ends = (offsets[0], offsets[-1]) if whole else None
        if ends != (0, len(vectors)) or (np.diff(offsets) < 1).any():
            raise ValueError("its offsets are not those of its vectors")
        return half


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Encoded:
    """The pages and questions of a set as vectors. Pages are read as they are asked for, so that
    a corpus may be larger than memory."""

    name: str
    encoder: dict[str, Any]  # name and revision
    page_ids: list[str]
    lengths: npt.NDArray[np.int64]  # vectors of each page
    dim: int
    queries: Queries
    relevant: dict[str, dict[str, int]]  # by query, then page: 1 or a grade
    warnings: tuple[str, ...]  # what was left out, in loading and in encoding
    shard_pages: tuple[int, ...]  # pages of each shard
    read_shard: Callable[[int], Half]

    def blocks(self) -> Iterator[Pages]:
        """All pages, in order, in blocks of bounded size."""
        for shard in range(len(self.shard_pages)):
            yield self._block(shard)

    def pages(self) -> Pages:
        """All pages in memory."""
        return self.take(range(len(self.page_ids)))

    def take(self, rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> Pages:
        """Some pages, by row, in the order asked for; only the blocks they are in are read."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self.page_ids):
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} of {len(self.page_ids)} pages")
        offsets = np.concatenate([[0], np.cumsum(self.lengths[wanted])])
        vectors = np.empty((int(offsets[-1]), self.dim), dtype=np.float32)
        shard_of = np.searchsorted(self._firsts, wanted, side="right") - 1
        for shard in np.unique(shard_of):
            block, first = self._block(int(shard)), self._firsts[shard]
            for place in np.flatnonzero(shard_of == shard):
                vectors[offsets[place] : offsets[place + 1]] = block[int(wanted[place] - first)]
        return Pages.packed(vectors, offsets, [self.page_ids[row] for row in wanted])

    @functools.cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.shard_pages)]).astype(np.int64)

    def _block(self, shard: int) -> Pages:
        first, last = self._firsts[shard : shard + 2]
        return Pages.restored(*self.read_shard(shard), self.page_ids[first:last])

    def __repr__(self) -> str:
        return f"Encoded({self.name!r}, {len(self.page_ids)} pages, {len(self.queries)} queries)"


def encode(
    dataset: Dataset | Encoded,
    encoder: Encoder | None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Encoded:
    """The vectors of a set, of one that is encoded already as it is. With a `cache` folder they
    are written there, and read from there the next time; without, they are kept in memory, rounded
    in the same way, so that a cache changes no result."""
    if isinstance(dataset, Encoded):
        if encoder is not None:
            check_encoder(dataset, {"name": encoder.name, "revision": encoder.revision})
        return dataset
    if encoder is None:
        raise InputError(f"{dataset.name}: an encoder is needed; only cached vectors need none")
    if cache is None:
        memory = _Memory()
        queries = _encode_into(memory, dataset, encoder, progress)
        return _joined(dataset, encoder, memory.entries, queries, memory.halves.__getitem__)
    key = _key(dataset, encoder)
    name = re.sub(r"[^\w.-]+", "_", dataset.name).strip(".")[:80]
    folder = Path(cache) / f"{name}-{key[:16]}"
    if not (folder / DESCRIPTION).exists():
        with _writing(folder, lambda: progress(f"{dataset.name}: another process is encoding it")):
            if not (folder / DESCRIPTION).exists():
                _write(folder, key, dataset, encoder, progress)
    found, found_key = _read(folder, dataset.warnings)
    if found_key != key:
        raise _damaged(folder / DESCRIPTION, "it describes another set or encoder")
    return found


def check_encoder(encoded: Encoded, encoder: Mapping[str, Any]) -> None:
    """Refuse to mix the vectors of two encoders."""
    mine = encoded.encoder
    if not same_encoder(mine, encoder):
        raise EncoderError(
            f"{encoded.name}: vectors of encoder {mine['name']!r} (revision {mine['revision']}), "
            f"not of {encoder['name']!r} (revision {encoder['revision']}); use that one, or encode "
            "the set again"
        )


def is_cached(folder: Path) -> bool:
    """Whether a folder holds vectors of a set, of all its pages or of some."""
    return any((folder / name).exists() for name in (DESCRIPTION, JOURNAL))


def read(folder: Path) -> Encoded:
    """The set in a folder that `encode` wrote."""
    return _read(folder)[0]


# what is encoded, and from what


def _key(dataset: Dataset, encoder: Encoder) -> str:
    """A digest of all that decides the vectors, and of what they are asked and judged by."""
    given = reads(encoder)
    by_ocr = given == "text" and not all(dataset.pages.values()) and ocr_available()
    digest = hashlib.sha256()
    head = FORMAT, VERSION, encoder.name, encoder.revision, given, by_ocr
    digests = ((page, picture.digest) for page, picture in dataset.images.items())
    parts = head, dataset.pages.items(), digests, dataset.queries.items(), dataset.relevant.items()
    for part in parts:
        for item in part:
            digest.update(json.dumps(item).encode() + b"\n")
        digest.update(b"\n")
    return digest.hexdigest()


class _Shard(NamedTuple):
    pages: Pages
    left_out: dict[str, list[str]]  # since the shard before, by reason
    next: int  # the page of the set to go on with


def _shards(
    dataset: Dataset, encoder: Encoder, start: int, progress: Callable[[str], None]
) -> Iterator[_Shard]:
    """Encode the pages of a set from one of them on, a shard at a time. What is encoded when
    something goes wrong, or is interrupted, comes as a last shard before the error does."""
    ids, what = list(dataset.pages), reads(encoder)
    batch_size = IMAGES_PER_BATCH if what == "image" else TEXTS_PER_BATCH
    names: list[str] = []
    arrays: list[Any] = []
    reasons: dict[str, list[str]] = {}
    for at in range(start, len(ids), batch_size):
        progress(f"{dataset.name}: encoding pages, {at} of {len(ids)}")
        batch = ids[at : at + batch_size]
        dropped: dict[str, list[str]] = {}
        try:
            given = {page: _given(dataset, page, what, dropped) for page in batch}
            given = {page: content for page, content in given.items() if content is not None}
            vectors = encoder.encode_pages(list(given.values())) if given else []
            made = Pages(vectors, list(given))
        except (Exception, KeyboardInterrupt):
            if arrays:
                yield _Shard(Pages(arrays, names), reasons, at)
            raise
        names += made.ids
        arrays += list(made)
        for reason, pages in dropped.items():
            reasons.setdefault(reason, []).extend(pages)
        size = sum(array.nbytes for array in arrays)
        if arrays and (len(arrays) + batch_size > SHARD_PAGES or size >= SHARD_BYTES):
            yield _Shard(Pages(arrays, names), reasons, at + len(batch))
            names, arrays, reasons = [], [], {}
    if arrays or reasons:
        yield _Shard(Pages(arrays, names), reasons, len(ids))


def _given(dataset: Dataset, page: str, what: str, dropped: dict[str, list[str]]) -> Any:
    """What an encoder gets of a page: its text, read off its image where there is no other, or
    its image. None, and a reason, if there is no such thing."""
    text, picture = dataset.pages[page], dataset.images.get(page)
    if what == "text" and text:
        return text
    why, shown = f"without {'an image' if what == 'image' else 'text'}", page
    if picture is not None and what == "text" and not ocr_available():
        why = NO_OCR
    elif picture is not None:
        try:
            image = picture.open()
            content = image if what == "image" else picture_text(image)
            if content:
                return content
            why = "without text that OCR can read"
        except DocumentError as error:
            why, shown = UNREADABLE, str(error)
    dropped.setdefault(why, []).append(shown)
    return None


# where it goes


@dataclasses.dataclass(frozen=True)
class _Entry:
    """What is known of a shard: a line of the journal. One without pages has no file."""

    pages: list[list[Any]]  # id and number of vectors of each
    dim: int
    left_out: dict[str, list[str]]
    next: int
    bytes: int = 0
    checksum: str = ""


class _Memory:
    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.halves: list[Half] = []

    def keep(self, entry: _Entry, half: Half) -> None:
        if entry.pages:
            self.halves.append(half)
        self.entries.append(entry)


class _Journal:
    """The shards of a folder that are finished, of an earlier run too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[_Entry] = []
        with _disk(folder):
            path = folder / JOURNAL
            lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
            for line in lines:
                try:
                    entry = _Entry(**json.loads(line))
                    if entry.pages:
                        _checked_bytes(self._place(), entry.bytes, entry.checksum)
                except (ValueError, TypeError, GlieError):
                    break  # from here on, pages are encoded again
                self.entries.append(entry)
            self._write(b"".join(map(self._line, self.entries)), "wb")

    def keep(self, entry: _Entry, half: Half) -> None:
        if entry.pages:
            data = half.to_bytes()
            _write_file(self._place(), data)
            entry = dataclasses.replace(entry, bytes=len(data), checksum=_digest(data))
        with _disk(self.folder):
            self._write(self._line(entry), "ab")
        self.entries.append(entry)

    def _place(self) -> Path:
        return _shard_file(self.folder, sum(bool(entry.pages) for entry in self.entries))

    def _line(self, entry: _Entry) -> bytes:
        return json.dumps(dataclasses.asdict(entry)).encode() + b"\n"

    def _write(self, data: bytes, mode: str) -> None:
        with open(self.folder / JOURNAL, mode) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _encode_into(
    store: _Memory | _Journal, dataset: Dataset, encoder: Encoder, progress: Callable[[str], None]
) -> Queries:
    """Encode what the store does not have yet, and the questions."""
    start = store.entries[-1].next if store.entries else 0
    for pages, dropped, following in _shards(dataset, encoder, start, progress):
        if len(pages):
            _check_dim(encoder, store.entries, pages.dim)
        lengths = [list(pair) for pair in zip(pages.ids, pages.lengths.tolist(), strict=True)]
        store.keep(_Entry(lengths, pages.dim, dropped, following), Half.of(pages))
    progress(f"{dataset.name}: encoding questions")
    texts = list(dataset.queries.values())
    queries = Queries(encoder.encode_queries(texts) if texts else [], list(dataset.queries))
    if not any(entry.pages for entry in store.entries):
        warnings = (*dataset.warnings, *_warnings(_left_out(store.entries)))
        raise DatasetError(f"{dataset.name}: no page is left to encode; {'; '.join(warnings)}")
    if len(queries):
        _check_dim(encoder, store.entries, queries.dim)
    return queries


def _check_dim(encoder: Encoder, entries: Sequence[_Entry], dim: int) -> None:
    before = next((entry.dim for entry in entries if entry.pages), dim)
    if dim != before:
        raise EncoderError(
            f"encoder {encoder.name!r}: its vectors have {before} and {dim} numbers; all must agree"
        )


def _left_out(entries: Sequence[_Entry]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for entry in entries:
        for reason, names in entry.left_out.items():
            reasons.setdefault(reason, []).extend(names)
    return reasons


def _warnings(reasons: Mapping[str, Sequence[str]]) -> list[str]:
    return [line for why, names in reasons.items() for line in left_out(names, "page", why)]


def _joined(
    dataset: Dataset,
    encoder: Encoder,
    entries: Sequence[_Entry],
    queries: Queries,
    read_shard: Callable[[int], Half],
) -> Encoded:
    with_pages = [entry for entry in entries if entry.pages]
    return Encoded(
        dataset.name,
        {"name": encoder.name, "revision": encoder.revision},
        [page for entry in with_pages for page, _ in entry.pages],
        np.array([length for entry in with_pages for _, length in entry.pages], dtype=np.int64),
        with_pages[0].dim,
        Queries.restored(*Half.of(queries), queries.ids),
        dataset.relevant,
        (*dataset.warnings, *_warnings(_left_out(entries))),
        tuple(len(entry.pages) for entry in with_pages),
        read_shard,
    )


# the folder


def _shard_file(folder: Path, number: int) -> Path:
    return folder / f"pages-{number:05d}.safetensors"


def _write(
    folder: Path,
    key: str,
    dataset: Dataset,
    encoder: Encoder,
    progress: Callable[[str], None],
) -> None:
    journal = _Journal(folder)
    queries = _encode_into(journal, dataset, encoder, progress)
    data = Half.of(queries).to_bytes()
    _write_file(folder / QUESTIONS, data)
    with_pages = [entry for entry in journal.entries if entry.pages]
    shards = [
        {"pages": len(entry.pages), "bytes": entry.bytes, "checksum": entry.checksum}
        for entry in with_pages
    ]
    body: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": dataset.name,
        "key": key,
        "encoder": {"name": encoder.name, "revision": encoder.revision},
        "dim": with_pages[0].dim,
        "pages": [page for entry in with_pages for page in entry.pages],
        "shards": shards,
        "queries": {"ids": queries.ids, "bytes": len(data), "checksum": _digest(data)},
        "relevant": dataset.relevant,
        "warnings": dataset.warnings,
        "left_out": _left_out(journal.entries),
    }
    body["checksum"] = _digest(_canonical(body))
    _write_file(folder / DESCRIPTION, json.dumps(body).encode())
    with _disk(folder):
        (folder / JOURNAL).unlink()


def _read(folder: Path, warnings: Sequence[str] | None = None) -> tuple[Encoded, str]:
    """What a folder holds, and its key. `warnings` replace those of the set that it was made of."""
    path = folder / DESCRIPTION
    if not path.exists():
        raise DatasetError(
            f"{folder}: not finished (no {DESCRIPTION}); encode the set again, with the same "
            "cache, and it goes on where it stopped"
        )
    try:
        body = json.loads(path.read_bytes())
        found, version = body["format"], body["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(path, "it is not the JSON of cached vectors") from None
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from None
    if found != FORMAT:
        raise DatasetError(f"{path}: format {found!r}, expected {FORMAT!r}")
    if version != VERSION:
        raise DatasetError(
            f"{path}: version {version!r}, this glie reads {VERSION}; upgrade glie, or delete the "
            f"folder {folder} and encode the set again"
        )
    if body.pop("checksum", None) != _digest(_canonical(body)):
        raise _damaged(path, "it does not match its checksum")
    try:
        return _described(folder, body, warnings), str(body["key"])
    except DatasetError:  # of another file
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(path, f"it does not describe cached vectors ({error})") from None


def _described(folder: Path, body: dict[str, Any], warnings: Sequence[str] | None) -> Encoded:
    entry = encoder_entry(body["encoder"])
    assert entry is not None
    lengths = np.array([length for _, length in body["pages"]], dtype=np.int64)
    shards, dim = body["shards"], int(body["dim"])
    counts = tuple(int(shard["pages"]) for shard in shards)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    asked = body["queries"]

    def vectors(path: Path, file: Mapping[str, Any], expected: Any) -> Half:
        data = _checked_bytes(path, file["bytes"], file["checksum"])
        try:
            half = Half.from_bytes(data)
        except ValueError as error:
            raise _damaged(path, str(error)) from None
        found = np.diff(half.offsets)
        if expected is not None and not np.array_equal(found, expected):
            raise _damaged(path, f"{DESCRIPTION} tells of other pages")
        if len(found) and half.vectors.shape[1] != dim:
            raise _damaged(path, f"vectors of {half.vectors.shape[1]} numbers, expected {dim}")
        return half

    def shard(number: int) -> Half:
        expected = lengths[firsts[number] : firsts[number + 1]]
        return vectors(_shard_file(folder, number), shards[number], expected)

    if sum(counts) != len(lengths) or not counts:
        raise ValueError("its shards are not those of its pages")
    for number in range(len(counts)):  # a missing file is told now, not after an hour
        if not _shard_file(folder, number).exists():
            raise _damaged(_shard_file(folder, number), "it is missing")
    questions = vectors(folder / QUESTIONS, asked, None)
    if len(questions.offsets) - 1 != len(asked["ids"]):
        raise ValueError(f"its questions are not those of {QUESTIONS}")
    said = body["warnings"] if warnings is None else warnings
    return Encoded(
        body["name"],
        entry,
        [page for page, _ in body["pages"]],
        lengths,
        dim,
        Queries.restored(*questions, asked["ids"]),
        body["relevant"],
        (*said, *_warnings(body["left_out"])),
        counts,
        shard,
    )


@contextmanager
def _writing(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Be the only one to write to a folder, after whoever does now."""
    with _disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            waiting()
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _write_file(path: Path, data: bytes) -> None:
    """Write a file that is whole as soon as it has its name."""
    new = path.with_name(f"{path.name}.new")
    with _disk(path):
        write_durably(new, data)
        new.replace(path)


def _checked_bytes(path: Path, size: int, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) != size:
        raise _damaged(path, f"{len(data)} bytes, expected {size}")
    if _digest(data) != digest:
        raise _damaged(path, "it does not match its checksum")
    return data


def _digest(data: bytes) -> str:
    return f"{checksum(data):016x}"


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _damaged(path: Path, what: str) -> DatasetError:
    return DatasetError(
        f"{path}: damaged: {what}; delete the folder {path.parent} and encode the set again"
    )


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror or error}") from None
