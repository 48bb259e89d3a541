"""The cache of an encoded set: a folder of vectors, described in docs/format.md.

The folder is complete when it has its vectors.json. Until then, a journal lists the finished
shards, and an interrupted run continues after the last one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from glie.encoders.base import Encoder
from glie.errors import DatasetError, GlieError
from glie.evaluation.datasets import Dataset, left_out
from glie.evaluation.encoded import Encoded, Half
from glie.identity import EncoderId
from glie.pages import Queries
from glie.storage import digest, flush_durably, json_digest, replace_file

FORMAT = "glie-vectors"
VERSION = 1
DESCRIPTION = "vectors.json"
JOURNAL = "unfinished.jsonl"
QUESTIONS = "queries.safetensors"
LOCK = "lock"


def is_cached(folder: Path) -> bool:
    """Whether a folder holds vectors of a set, complete or not."""
    return any((folder / name).exists() for name in (DESCRIPTION, JOURNAL))


def is_finished(folder: Path) -> bool:
    """Whether a folder holds the vectors of all pages and questions of a set."""
    return (folder / DESCRIPTION).exists()


def read(folder: Path) -> Encoded:
    """The set in a folder that `encode` wrote."""
    return _read(folder)[0]


def read_again(folder: Path, key: str, warnings: Sequence[str]) -> Encoded:
    """The same, if it has this key, with these warnings instead of the stored ones."""
    found, found_key = _read(folder, warnings)
    if found_key != key:
        raise _damaged(folder / DESCRIPTION, "it describes another set or encoder")
    return found


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the journal: a finished shard. A shard without pages has no file."""

    pages: list[list[Any]]  # id and number of vectors of each page
    dim: int
    left_out: dict[str, list[str]]
    next: int
    bytes: int = 0
    checksum: str = ""


def reasons_of(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """The pages that were left out, by reason."""
    reasons: dict[str, list[str]] = {}
    for entry in entries:
        for reason, names in entry.left_out.items():
            reasons.setdefault(reason, []).extend(names)
    return reasons


def warnings_of(reasons: Mapping[str, Sequence[str]]) -> list[str]:
    """Warnings about the pages that were left out."""
    return [line for why, names in reasons.items() for line in left_out(names, "page", why)]


class Journal:
    """The finished shards of a folder, including those of an earlier run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[Entry] = []
        with _disk(folder):
            path = folder / JOURNAL
            lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
            for line in lines:
                try:
                    values = json.loads(line)
                    if values.pop("line") != json_digest(values):
                        break
                    entry = Entry(**values)
                    if entry.pages:
                        _checked_bytes(self._place(), entry.bytes, entry.checksum)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError, GlieError):
                    break  # pages from here on are encoded again
                self.entries.append(entry)
            self._write(b"".join(map(self._line, self.entries)), "wb")

    def keep(self, entry: Entry, half: Half) -> None:
        if entry.pages:
            data = half.to_bytes()
            _write_file(self._place(), data)
            entry = dataclasses.replace(entry, bytes=len(data), checksum=digest(data))
        with _disk(self.folder):
            self._write(self._line(entry), "ab")
        self.entries.append(entry)

    def _place(self) -> Path:
        return _shard_file(self.folder, sum(bool(entry.pages) for entry in self.entries))

    def _line(self, entry: Entry) -> bytes:
        values = dataclasses.asdict(entry)
        return json.dumps({**values, "line": json_digest(values)}).encode() + b"\n"

    def _write(self, data: bytes, mode: str) -> None:
        with open(self.folder / JOURNAL, mode) as file:
            file.write(data)
            flush_durably(file)


def finish(
    journal: Journal, key: str, dataset: Dataset, encoder: Encoder, queries: Queries
) -> None:
    """Write the description of a complete set, which makes it readable."""
    folder = journal.folder
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
        "encoder": EncoderId.of(encoder).to_dict(),
        "dim": with_pages[0].dim,
        "pages": [page for entry in with_pages for page in entry.pages],
        "shards": shards,
        "queries": {"ids": queries.ids, "bytes": len(data), "checksum": digest(data)},
        "relevant": dataset.relevant,
        "warnings": dataset.warnings,
        "left_out": reasons_of(journal.entries),
    }
    body["checksum"] = json_digest(body)
    _write_file(folder / DESCRIPTION, json.dumps(body).encode())
    with _disk(folder):
        (folder / JOURNAL).unlink()


@contextmanager
def writing(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the write lock of a folder; calls `waiting` if another process holds it."""
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


def _shard_file(folder: Path, number: int) -> Path:
    return folder / f"pages-{number:05d}.safetensors"


def _read(folder: Path, warnings: Sequence[str] | None = None) -> tuple[Encoded, str]:
    """The set in a folder, and its key. `warnings` replace the stored warnings."""
    path = folder / DESCRIPTION
    if not path.exists():
        raise DatasetError(
            f"{folder}: not finished (no {DESCRIPTION}); encode the set again with the same "
            "cache, which continues where it stopped"
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
    if body.pop("checksum", None) != json_digest(body):
        raise _damaged(path, "it does not match its checksum")
    try:
        return _described(folder, body, warnings), str(body["key"])
    except DatasetError:  # of another file
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise _damaged(path, f"it does not describe cached vectors ({error})") from None


def _described(folder: Path, body: dict[str, Any], warnings: Sequence[str] | None) -> Encoded:
    entry = EncoderId.of(body["encoder"])
    if entry is None:
        raise ValueError("no encoder")
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
    if min(counts) < 1 or lengths.min() < 1 or dim < 1:
        raise ValueError("it counts nothing where something should be")
    for number in range(len(counts)):  # report a missing file now, not after an hour
        path = _shard_file(folder, number)
        if not path.exists():
            raise _damaged(path, "it is missing")
        rows = sum(lengths[firsts[number] : firsts[number + 1]].tolist())
        if rows * dim * 2 > path.stat().st_size:  # before memory is allocated for so many
            raise _damaged(path, f"it is too small for {rows} vectors of {dim} numbers")
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
        (*said, *warnings_of(body["left_out"])),
        counts,
        shard,
    )


def _write_file(path: Path, data: bytes) -> None:
    """Write a file atomically and durably."""
    with _disk(path):
        replace_file(path, data)


def _checked_bytes(path: Path, size: int, expected: str) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) != size:
        raise _damaged(path, f"{len(data)} bytes, expected {size}")
    if digest(data) != expected:
        raise _damaged(path, "it does not match its checksum")
    return data


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
