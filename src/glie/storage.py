"""Durable writes, checksums and canonical JSON: what every folder that glie writes is made with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Literal

import xxhash


def checksum(data: Any) -> int:
    """XXH3 of anything with a buffer, 64 bits."""
    return xxhash.xxh3_64_intdigest(data)


def digest(data: Any) -> str:
    """The checksum as 16 hexadecimal digits."""
    return f"{checksum(data):016x}"


def long_digest(data: Any) -> bytes:
    """16 bytes that no two different inputs share, but by an accident that does not happen."""
    return xxhash.xxh3_128_digest(data)


def digest_of(parts: Iterable[Any], *, bits: Literal[64, 128] = 64) -> str:
    """XXH3 of buffers end to end, in hexadecimal digits; one buffer is in memory at a time."""
    seen = xxhash.xxh3_64() if bits == 64 else xxhash.xxh3_128()
    for part in parts:
        seen.update(part)
    return seen.hexdigest()


def canonical_json(value: Any, *, ascii: bool = True) -> bytes:
    """JSON that is equal for equal values: keys sorted, no white space.

    `ascii=False` writes letters beyond ASCII as UTF-8 instead of `\\u` escapes. Manifests are
    digested in that form, settings of codecs and caches in the other.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=ascii, separators=(",", ":")).encode()


def json_digest(value: Any, *, ascii: bool = True) -> str:
    """The digest of a value's canonical JSON."""
    return digest(canonical_json(value, ascii=ascii))


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with open(path, "wb") as file:
        file.write(data)
        flush_durably(file)


def flush_durably(file: IO[bytes]) -> None:
    """Wait until all that was written to an open file is on disk."""
    file.flush()
    os.fsync(file.fileno())


def rename_durably(path: Path, place: Path) -> None:
    """Rename a file, over what is there, and wait until the rename is on disk."""
    path.replace(place)
    sync(place.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that its name only ever stands for all of the old bytes or all of the new."""
    new = path.with_name(f"{path.name}.new")
    write_durably(new, data)
    new.replace(path)


def make_durably(folder: Path) -> None:
    """Make a folder, unless it exists, and wait until it is on disk."""
    if not folder.is_dir():
        folder.mkdir()
        sync(folder.parent)


def sync(folder: Path) -> None:
    """Wait until a folder's entries are on disk, where the system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
