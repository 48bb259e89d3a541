"""The files of an index: bytes to arrays and back, nothing else. docs/format.md says every byte.

Whatever a file holds, reading it gives the stored values or raises CorruptIndexError: sizes are
checked before anything is allocated, and each section's checksum before it is used.
"""

from __future__ import annotations

import functools
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from glie.errors import CorruptIndexError, IndexFolderError

VERSION = 1
ALIGNMENT = 64
RECORDS_PER_BLOCK = 64
MAX_RECORD_BYTES = 1 << 20  # of a line with its newline
CACHED_BLOCKS = 32
BFLOAT16 = 1  # the only type of stored vectors so far

SEGMENT_MAGIC = b"GLIESEG\0"
SEGMENT_HEADER = struct.Struct("<8sIIQIIIIQ5Q32sQ")
TOMBSTONE_MAGIC = b"GLIEDEL\0"
TOMBSTONE_HEADER = struct.Struct("<8sIIQQ")
IMAGES_MAGIC = b"GLIEIMG\0"
IMAGES_HEADER = struct.Struct("<8sIIQQ")


class StoredCodes(NamedTuple):
    """The codes of some pages, as they lie on disk."""

    vectors: npt.NDArray[np.uint16]  # (P, k, D), bfloat16 bits
    norms: npt.NDArray[np.float16]  # (P, k)
    counts: npt.NDArray[np.uint16]  # (P, k)

    def take(self, rows: npt.NDArray[Any]) -> StoredCodes:
        return StoredCodes(self.vectors[rows], self.norms[rows], self.counts[rows])


def checksum(data: Any) -> int:
    """XXH3, 64 bits, of anything with a buffer."""
    return xxhash.xxh3_64_intdigest(data)


def to_bfloat16(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The bits of the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(vectors, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def record_line(page_id: str, metadata: dict[str, Any]) -> bytes:
    """One page's id and metadata as a line of JSON. Raises ValueError or TypeError for others."""
    return json.dumps([page_id, metadata], ensure_ascii=False, allow_nan=False).encode()


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def segment_bytes(codes: StoredCodes, records: Sequence[bytes]) -> bytes:
    """A whole segment file: header, vectors, norms, counts, records, table of record blocks."""
    pages, k, dim = codes.vectors.shape
    blocks = [
        zlib.compress(b"".join(line + b"\n" for line in records[i : i + RECORDS_PER_BLOCK]), 9)
        for i in range(0, pages, RECORDS_PER_BLOCK)
    ]
    table = np.cumsum([0] + [len(block) for block in blocks], dtype="<u8")
    sections = [
        codes.vectors.astype("<u2", copy=False).tobytes(),
        codes.norms.astype("<f2", copy=False).tobytes(),
        codes.counts.astype("<u2", copy=False).tobytes(),
        b"".join(blocks),
        table.tobytes(),
    ]
    header = SEGMENT_HEADER.pack(
        SEGMENT_MAGIC, VERSION, BFLOAT16, pages, k, dim, RECORDS_PER_BLOCK, 0, len(sections[3]),
        *(checksum(section) for section in sections), bytes(32), 0,
    )  # fmt: skip
    header = header[:-8] + struct.pack("<Q", checksum(header[:-8]))
    return header + b"".join(
        section + bytes(_padded(len(section)) - len(section)) for section in sections
    )


def segment_checksum(data: bytes) -> int:
    """The checksum that stands in a segment's header, and in the manifest."""
    return int.from_bytes(data[SEGMENT_HEADER.size - 8 : SEGMENT_HEADER.size], "little")


class Segment:
    """One segment file, memory-mapped: opening reads the header only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = _map(path)
        header = _header(path, data, SEGMENT_HEADER, SEGMENT_MAGIC)
        _, version, dtype, pages, k, dim, per_block, zero, records_bytes, *rest = header
        self.checksum = rest[-1]
        if self.checksum != checksum(data[: SEGMENT_HEADER.size - 8]):
            raise damaged(path, "the header does not match its checksum")
        if version != VERSION or dtype != BFLOAT16 or zero or rest[5] != bytes(32):
            raise damaged(path, f"version {version}, type {dtype} is unknown; upgrade glie")
        if not pages or not k or not dim or not per_block:
            raise damaged(path, "the header has a zero where a size should be")
        self.pages, self.k, self.dim = int(pages), int(k), int(dim)
        self.per_block = int(per_block)
        blocks = -(-pages // per_block)
        self._checksums = rest[:5]
        sizes = [pages * k * dim * 2, pages * k * 2, pages * k * 2, records_bytes, blocks * 8 + 8]
        self._places: list[tuple[int, int]] = []
        position = SEGMENT_HEADER.size
        for size in sizes:
            self._places.append((position, position + size))
            position += _padded(size)
        if position != len(data):
            raise damaged(path, f"{len(data)} bytes long, the header says {position}")
        self.bytes = position
        self._data = data
        self._blocks: dict[int, list[bytes]] = {}  # the last that were inflated

    @functools.cached_property
    def codes(self) -> StoredCodes:
        """The codes, checked against their checksums the first time."""
        shape = (self.pages, self.k)
        return StoredCodes(
            self._section(0, "vectors").view("<u2").reshape(*shape, self.dim),
            self._section(1, "norms").view("<f2").reshape(shape),
            self.counts,
        )

    @functools.cached_property
    def counts(self) -> npt.NDArray[np.uint16]:
        """The counts alone, checked the first time."""
        return self._section(2, "counts").view("<u2").reshape(self.pages, self.k)

    @functools.cached_property
    def _table(self) -> npt.NDArray[np.uint64]:
        table = self._section(4, "record table").view("<u8")
        start, end = self._places[3]
        if table[0] != 0 or table[-1] != end - start or np.any(table[1:] < table[:-1]):
            raise damaged(self.path, "the record table points outside the records")
        return table

    @functools.cached_property
    def _records(self) -> npt.NDArray[np.uint8]:
        return self._section(3, "records")

    def line(self, row: int) -> bytes:
        """The stored line of one page, as it is."""
        block = row // self.per_block
        if block not in self._blocks:
            if len(self._blocks) >= CACHED_BLOCKS:
                self._blocks.clear()
            self._blocks[block] = self._inflated(block)
        return self._blocks[block][row % self.per_block]

    def record(self, row: int) -> tuple[str, dict[str, Any]]:
        """The id and metadata of one page; a fresh copy, the caller's to change."""
        return self._parsed(self.line(row))

    @functools.cached_property
    def ids(self) -> list[str]:
        """The ids of all pages, in order."""
        return [page_id for page_id, _ in self.records()]

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The ids and metadata of all pages, in order."""
        for block in range(len(self._table) - 1):
            yield from map(self._parsed, self._inflated(block))

    def _inflated(self, block: int) -> list[bytes]:
        start, end = int(self._table[block]), int(self._table[block + 1])
        expected = min(self.per_block, self.pages - block * self.per_block)
        try:
            # bounded, whatever the stream claims to hold
            text = zlib.decompressobj().decompress(
                self._records[start:end].tobytes(), expected * MAX_RECORD_BYTES
            )
        except zlib.error as error:
            raise damaged(self.path, f"record block {block} cannot be read: {error}") from None
        lines = text.split(b"\n")
        if len(lines) != expected + 1 or lines[-1]:
            raise damaged(self.path, f"record block {block} does not hold {expected} records")
        return lines[:-1]

    def _parsed(self, line: bytes) -> tuple[str, dict[str, Any]]:
        try:
            page_id, metadata = json.loads(line)
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self.path, f"a record cannot be read: {error}") from None
        if not isinstance(page_id, str) or not isinstance(metadata, dict):
            raise damaged(self.path, "a record is not an id and its metadata")
        return page_id, metadata

    def _section(self, number: int, name: str) -> npt.NDArray[np.uint8]:
        start, end = self._places[number]
        section = self._data[start:end]
        if checksum(section) != self._checksums[number]:
            raise damaged(self.path, f"its {name} do not match their checksum")
        return section


def tombstone_bytes(deleted: npt.NDArray[np.bool_]) -> bytes:
    """A tombstone file: one bit a page of a segment, set where it is deleted."""
    bits = np.packbits(deleted, bitorder="little").tobytes()
    head = TOMBSTONE_HEADER.pack(TOMBSTONE_MAGIC, VERSION, 0, len(deleted), 0)[:-8]
    return head + struct.pack("<Q", checksum(head + bits)) + bits


def read_tombstones(path: Path) -> npt.NDArray[np.bool_]:
    data = _map(path)
    _, version, zero, pages, expected = _header(path, data, TOMBSTONE_HEADER, TOMBSTONE_MAGIC)
    size = TOMBSTONE_HEADER.size
    if version != VERSION or zero or len(data) != size + -(-pages // 8):
        raise damaged(path, f"version {version}, {len(data)} bytes for {pages} pages")
    if checksum(data[: size - 8].tobytes() + data[size:].tobytes()) != expected:
        raise damaged(path, "it does not match its checksum")
    return np.unpackbits(data[size:], count=pages, bitorder="little").astype(bool)


def images_bytes(images: Sequence[bytes | None]) -> bytes:
    """A file of page images: header, then an offset and a checksum a page, then the images."""
    blobs = [image or b"" for image in images]
    table = np.zeros((len(blobs) + 1, 2), dtype="<u8")
    table[1:, 0] = np.cumsum([len(blob) for blob in blobs])
    table[:-1, 1] = [checksum(blob) for blob in blobs]
    entries = table.tobytes()
    head = IMAGES_HEADER.pack(IMAGES_MAGIC, VERSION, 0, len(blobs), checksum(entries))
    return head + entries + b"".join(blobs)


class Images:
    """The images of a segment's pages, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = _map(path)
        _, version, zero, self.pages, expected = _header(path, data, IMAGES_HEADER, IMAGES_MAGIC)
        start = IMAGES_HEADER.size
        self._first = start + (self.pages + 1) * 16
        if version != VERSION or zero or self._first > len(data):
            raise damaged(path, f"version {version}, {len(data)} bytes for {self.pages} pages")
        self._data = data
        table = data[start : self._first]
        if checksum(table) != expected:
            raise damaged(path, "its table does not match its checksum")
        self.bytes = len(data)
        self._table = table.view("<u8").reshape(-1, 2)
        if self._first + int(self._table[-1, 0]) != len(data):
            raise damaged(path, f"{len(data)} bytes long, its table says otherwise")

    def image(self, row: int) -> bytes | None:
        start, end = (self._first + int(at) for at in self._table[row : row + 2, 0])
        blob = self._data[start:end].tobytes()
        if checksum(blob) != int(self._table[row, 1]):
            raise damaged(self.path, f"image {row} does not match its checksum")
        return blob or None


def damaged(path: Path, what: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path}: damaged: {what}; restore the file from a backup, or index the documents again"
    )


def _map(path: Path) -> npt.NDArray[np.uint8]:
    try:
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    except ValueError:  # numpy's answer to an empty file
        raise damaged(path, "the file is empty") from None
    except FileNotFoundError:  # the caller knows whether that is a fault
        raise
    except OSError as error:
        raise IndexFolderError(f"{path}: cannot be read: {error.strerror}") from None


def _header(
    path: Path, data: npt.NDArray[np.uint8], layout: struct.Struct, magic: bytes
) -> tuple[Any, ...]:
    if len(data) < layout.size:
        raise damaged(path, f"{len(data)} bytes are too few for a header")
    fields = layout.unpack(data[: layout.size].tobytes())
    if fields[0] != magic:
        raise damaged(path, f"it starts with {fields[0]!r}, expected {magic!r}")
    return fields
