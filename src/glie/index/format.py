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

from glie.codec.codes import Blobs, Codes
from glie.codec.sizes import count_bytes, counts_of, norm_bytes, norms_of
from glie.errors import CorruptIndexError, IndexFolderError, InputError
from glie.kernels.pq import PARTS, PostingLists, PQCodes, posting_lists
from glie.kernels.quantize import BFLOAT16, Packed, row_bytes
from glie.pages import MAX_ID
from glie.storage import checksum

VERSION = 1  # of all files but some segments and some manifests, pictures and tombstones
OF_A_SEGMENT = 2  # of pictures and tombstones that say of which segment they are
ALIGNMENT = 64
MAX_RECORD_BYTES = 1 << 20  # of a line with its newline
MAX_RESIDUAL_BYTES = np.iinfo(np.uint16).max  # of a page
CACHED_BLOCKS = 32

SEGMENT_MAGIC = b"GLIESEG\0"
TYPES = {BFLOAT16: 1, "int8": 2, "int4": 3, "int2": 4, "int1": 5}
SEGMENT_HEADER = struct.Struct("<8sIIQIIIBBBBQ9QQ")
CODES = ("vectors", "norms", "counts")
RESIDUAL = ("residual lengths", "residual bytes")
RECORDS = ("records", "record table")
# The sections of a segment, in order, by its version. Version 1 is for codes in bfloat16 without
# residual, and what was written before there was another.
SECTIONS = {1: (*CODES, *RECORDS), 2: (*CODES, *RESIDUAL, *RECORDS)}
RECORDS_PER_BLOCK = {1: 64, 2: 256}  # 256 take a fifth less; finding a page in them takes longer
TOMBSTONE_MAGIC = b"GLIEDEL\0"
TOMBSTONE_HEADER = struct.Struct("<8sIIQQ")
IMAGES_MAGIC = b"GLIEIMG\0"
IMAGES_HEADER = struct.Struct("<8sIIQQ")
PQ_MAGIC = b"GLIESIG\0"
PQ_HEADER = struct.Struct("<8sIIQQQQQQ")


class OtherVersionError(CorruptIndexError):
    """Whole, and written by another version of glie: there is nothing to repair."""


class StoredCodes(NamedTuple):
    """The codes of some pages, their vectors as they lie on disk."""

    vectors: Packed  # (P, k, B)
    norms: npt.NDArray[np.float16]  # (P, k)
    counts: npt.NDArray[np.uint16]  # (P, k)
    residual: Blobs | None = None

    @classmethod
    def of(cls, codes: Codes) -> StoredCodes:
        if codes.residual is not None and codes.residual.lengths.max(initial=0) > (
            MAX_RESIDUAL_BYTES
        ):
            longest = int(codes.residual.lengths.argmax())
            raise InputError(
                f"residual of page {codes.ids[longest]!r}: {codes.residual.lengths[longest]} "
                f"bytes, at most {MAX_RESIDUAL_BYTES} are stored; split the page"
            )
        return cls(codes.stored, codes.norms, codes.counts, codes.residual)

    @classmethod
    def joined(cls, parts: Sequence[StoredCodes]) -> StoredCodes:
        """The codes of several sets of pages, at least one, one set after the other."""
        residual = None
        if any(part.residual is not None for part in parts):
            residual = Blobs.joined(
                [part.residual or Blobs.of([b""] * len(part.counts)) for part in parts]
            )
        return cls(
            parts[0].vectors._replace(rows=np.concatenate([part.vectors.rows for part in parts])),
            np.concatenate([part.norms for part in parts]),
            np.concatenate([part.counts for part in parts]),
            residual,
        )

    def take(self, rows: npt.NDArray[Any]) -> StoredCodes:
        return StoredCodes(
            self.vectors.take(rows),
            self.norms[rows],
            self.counts[rows],
            None if self.residual is None else self.residual.take(rows),
        )

    def read(self, ids: Sequence[str]) -> Codes:
        return Codes.read(self.vectors, self.norms, self.counts, ids, self.residual)

    @property
    def plain(self) -> bool:
        """Whether a segment of version 1 holds them."""
        return self.vectors.dtype == BFLOAT16 and self.residual is None

    @property
    def sections(self) -> dict[str, npt.NDArray[Any]]:
        """What is stored. In version 2 norms and counts take the fewest bytes that hold them
        exactly: no norm is stored where each is 1, or 0 in a slot that is not used."""
        norms, counts = self.norms.astype("<f2", copy=False), self.counts.astype("<u2", copy=False)
        sections = {"vectors": self.vectors.rows, "norms": norms, "counts": counts}
        if self.plain:
            return sections
        in_bytes = norm_bytes(norms), count_bytes(counts)
        if np.array_equal(norms, counts > 0):
            sections["norms"] = in_bytes[0][:0]
        elif np.array_equal(norms, norms_of(in_bytes[0])):
            sections["norms"] = in_bytes[0]
        if np.array_equal(counts, counts_of(in_bytes[1])):
            sections["counts"] = in_bytes[1]
        if self.residual is not None:
            sections["residual lengths"] = self.residual.lengths.astype("<u2")
            sections["residual bytes"] = self.residual.data
        return sections

    @property
    def bytes(self) -> int:
        return sum(section.nbytes for section in self.sections.values())


def record_line(page_id: str, metadata: dict[str, Any]) -> bytes:
    """One page's id and metadata as a line of JSON. Raises ValueError or TypeError for others."""
    return json.dumps([page_id, metadata], ensure_ascii=False, allow_nan=False).encode()


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def segment_bytes(codes: StoredCodes, records: Sequence[bytes]) -> bytes:
    """A whole segment file: its header and its sections."""
    pages, k, _ = codes.vectors.rows.shape
    version = 1 if codes.plain else 2
    per_block = RECORDS_PER_BLOCK[version]
    blocks = [
        zlib.compress(b"".join(line + b"\n" for line in records[i : i + per_block]), 9)
        for i in range(0, pages, per_block)
    ]
    table = np.cumsum([0] + [len(block) for block in blocks], dtype="<u8")
    stored = codes.sections
    sections = {name: section.tobytes() for name, section in stored.items()}
    sections |= {"records": b"".join(blocks), "record table": table.tobytes()}
    ordered = [sections.get(name, b"") for name in SECTIONS[version]]
    widths, tail = [0, 0, 0], [checksum(section) for section in ordered]
    if version == 2:
        widths = [len(sections["norms"]) // (pages * k), stored["counts"].itemsize]
        widths.append(0 if codes.residual is None else stored["residual lengths"].itemsize)
        tail.append(len(sections.get("residual bytes", b"")))
    header = SEGMENT_HEADER.pack(
        SEGMENT_MAGIC, version, TYPES[codes.vectors.dtype], pages, k, codes.vectors.dim, per_block,
        *widths, 0, len(sections["records"]), *tail, *[0] * (9 - len(tail)), 0,
    )  # fmt: skip
    header = header[:-8] + struct.pack("<Q", checksum(header[:-8]))
    return header + b"".join(
        section + bytes(_padded(len(section)) - len(section)) for section in ordered
    )


def segment_checksum(data: bytes) -> int:
    """The checksum that stands in a segment's header, and in the manifest."""
    return int.from_bytes(data[SEGMENT_HEADER.size - 8 : SEGMENT_HEADER.size], "little")


class Segment:
    """One segment file, memory-mapped: opening reads the header only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = map_file(path)
        header = _header(path, data, SEGMENT_HEADER, SEGMENT_MAGIC)
        _, version, kind, pages, k, dim, per_block, *widths, zero, records_bytes = header[:12]
        *tail, self.checksum = header[12:]
        if self.checksum != checksum(data[: SEGMENT_HEADER.size - 8]):
            raise damaged(path, "the header does not match its checksum")
        names = SECTIONS.get(version, ())
        self._checksums = dict(zip(names, tail, strict=False))
        residual_bytes, *zeros = tail[len(names) :]
        if version == 1:
            known = kind == TYPES[BFLOAT16] and not any((*widths, residual_bytes))
            widths = [2, 2, 0]
        else:
            known = version == 2 and kind in TYPES.values()
        if not known or zero or any(zeros):
            raise OtherVersionError(
                f"{path}: version {version}, type {kind} is unknown; upgrade glie"
            )
        norm, count, length = widths
        lengths = (0, 2) if not residual_bytes else (2,)
        if norm > 2 or count not in (1, 2) or length not in lengths:
            raise damaged(path, f"norms, counts and lengths of {norm}, {count} and {length} bytes")
        if not pages or not k or not dim or not per_block:
            raise damaged(path, "the header has a zero where a size should be")
        if per_block > max(RECORDS_PER_BLOCK.values()):  # a block is inflated as a whole
            raise damaged(path, f"{per_block} records a block")
        self.dtype = next(name for name, number in TYPES.items() if number == kind)
        self.pages, self.k, self.dim = int(pages), int(k), int(dim)
        self.per_block = int(per_block)
        sizes = {
            "vectors": pages * k * row_bytes(dim, self.dtype),
            "norms": pages * k * norm,
            "counts": pages * k * count,
            "residual lengths": pages * length,
            "residual bytes": residual_bytes,
            "records": records_bytes,
            "record table": -(-pages // per_block) * 8 + 8,
        }
        self.code_bytes = sum(sizes[name] for name in (*CODES, *RESIDUAL))
        self._places: dict[str, tuple[int, int]] = {}
        position = SEGMENT_HEADER.size
        for name in names:
            self._places[name] = position, position + sizes[name]
            position += _padded(sizes[name])
        if position != len(data):
            raise damaged(path, f"{len(data)} bytes long, the header says {position}")
        self.bytes = position
        self._data = data
        self._blocks: dict[int, list[bytes]] = {}  # the last that were inflated

    @functools.cached_property
    def codes(self) -> StoredCodes:
        """The codes, checked against their checksums the first time."""
        return StoredCodes(self.vectors, self._norms, self.counts, self._residual)

    @functools.cached_property
    def vectors(self) -> Packed:
        rows = self._section("vectors").reshape(self.pages, self.k, -1)
        return Packed(rows, self.dtype, self.dim)

    @functools.cached_property
    def stored_counts(self) -> npt.NDArray[Any]:
        """The counts as they are stored, in one byte or two: 0 is 0 in either."""
        return self._numbers("counts", "<u2")

    @functools.cached_property
    def counts(self) -> npt.NDArray[np.uint16]:
        """The counts alone, checked the first time."""
        stored = self.stored_counts
        return counts_of(stored) if stored.itemsize == 1 else stored

    @property
    def _norms(self) -> npt.NDArray[np.float16]:
        if self._size("norms") == 0:
            return (self.counts > 0).astype(np.float16)
        stored = self._numbers("norms", "<f2")
        return norms_of(stored) if stored.itemsize == 1 else stored

    def _numbers(self, name: str, wide: str) -> npt.NDArray[Any]:
        """One number a slot, of one byte or two."""
        section = self._section(name)
        narrow = len(section) == self.pages * self.k
        return (section if narrow else section.view(wide)).reshape(self.pages, self.k)

    @property
    def _residual(self) -> Blobs | None:
        if not self._size("residual lengths"):
            return None
        lengths = self._section("residual lengths").view("<u2")
        residual = Blobs.by_lengths(self._section("residual bytes"), lengths)
        if residual.offsets[-1] != len(residual.data):
            raise damaged(self.path, "the residual is not as long as its lengths say")
        return residual

    @functools.cached_property
    def _table(self) -> npt.NDArray[np.uint64]:
        table = self._section("record table").view("<u8")
        if table[0] != 0 or table[-1] != self._size("records") or np.any(table[1:] < table[:-1]):
            raise damaged(self.path, "the record table points outside the records")
        return table

    @functools.cached_property
    def _records(self) -> npt.NDArray[np.uint8]:
        return self._section("records")

    def line(self, row: int) -> bytes:
        """The stored line of one page, as it is."""
        block = row // self.per_block
        lines = self._blocks.get(block)  # another thread may clear them at any moment
        if lines is None:
            if len(self._blocks) >= CACHED_BLOCKS:
                self._blocks.clear()
            lines = self._blocks[block] = self._inflated(block)
        return lines[row % self.per_block]

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
        return self._lines(block, self._records[start:end].tobytes())[0]

    def _lines(self, block: int, data: bytes | memoryview) -> tuple[list[bytes], int]:
        """The lines of the block of records that these bytes begin with, and how long it is."""
        expected = min(self.per_block, self.pages - block * self.per_block)
        stream = zlib.decompressobj()
        try:
            # bounded, whatever the stream claims to hold
            text = stream.decompress(data, expected * MAX_RECORD_BYTES)
        except zlib.error as error:
            raise damaged(self.path, f"record block {block} cannot be read: {error}") from None
        lines = text.split(b"\n")
        if not stream.eof or len(lines) != expected + 1 or lines[-1]:
            raise damaged(self.path, f"record block {block} does not hold {expected} records")
        return lines[:-1], len(data) - len(stream.unused_data)

    def whole_lines(self) -> Iterator[bytes | None]:
        """The stored line of each page, None where it is damaged. A block of records has a
        checksum of its own, zlib's, so a damaged one takes no other with it, and where a block
        ends the next begins, whatever became of the table."""
        start, end = self._places["records"]
        records = self._data[start:end].data
        try:
            table: list[int] | None = self._table.tolist()
        except CorruptIndexError:
            table = None
        at: int | None = 0
        for first in range(0, self.pages, self.per_block):
            block = first // self.per_block
            at = at if table is None else table[block]
            try:
                if at is None:
                    raise damaged(self.path, "nobody knows where the block begins")
                found, length = self._lines(block, records[at:])
                for line in found:
                    self._parsed(line)
                at += length
            except CorruptIndexError:
                yield from [None] * min(self.per_block, self.pages - first)
                at = None
            else:
                yield from found

    def _parsed(self, line: bytes) -> tuple[str, dict[str, Any]]:
        try:
            page_id, metadata = json.loads(line)
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self.path, f"a record cannot be read: {error}") from None
        if not isinstance(page_id, str) or not isinstance(metadata, dict):
            raise damaged(self.path, "a record is not an id and its metadata")
        if len(page_id) > MAX_ID:
            raise damaged(self.path, f"an id of {len(page_id):,} characters")
        return page_id, metadata

    def _size(self, name: str) -> int:
        start, end = self._places.get(name, (0, 0))
        return end - start

    def _section(self, name: str) -> npt.NDArray[np.uint8]:
        start, end = self._places[name]
        section = self._data[start:end]
        if checksum(section) != self._checksums[name]:
            raise damaged(self.path, f"its {name} do not match their checksum")
        return section


def _mark(segment: int) -> int:
    """What a file that goes with a segment carries of that segment's checksum."""
    return segment & 0xFFFFFFFF


def _check_mark(path: Path, version: int, mark: int, segment: int) -> None:
    """Refuse the file of another segment; the first version says nothing of its own."""
    if version not in (VERSION, OF_A_SEGMENT):
        raise damaged(path, f"version {version} is unknown; upgrade glie")
    if mark != (_mark(segment) if version == OF_A_SEGMENT else 0):
        raise damaged(path, "it is of another segment")


def tombstone_bytes(deleted: npt.NDArray[np.bool_], segment: int) -> bytes:
    """A tombstone file: one bit a page of the segment with this checksum, set where it is
    deleted."""
    bits = np.packbits(deleted, bitorder="little").tobytes()
    head = TOMBSTONE_HEADER.pack(TOMBSTONE_MAGIC, OF_A_SEGMENT, _mark(segment), len(deleted), 0)
    return head[:-8] + struct.pack("<Q", checksum(head[:-8] + bits)) + bits


def read_tombstones(path: Path, segment: int) -> npt.NDArray[np.bool_]:
    data = map_file(path)
    _, version, mark, pages, expected = _header(path, data, TOMBSTONE_HEADER, TOMBSTONE_MAGIC)
    size = TOMBSTONE_HEADER.size
    if len(data) != size + -(-pages // 8):
        raise damaged(path, f"{len(data)} bytes for {pages} pages")
    _check_mark(path, version, mark, segment)
    if checksum(data[: size - 8].tobytes() + data[size:].tobytes()) != expected:
        raise damaged(path, "it does not match its checksum")
    return np.unpackbits(data[size:], count=pages, bitorder="little").astype(bool)


def images_bytes(images: Sequence[bytes | None], segment: int) -> bytes:
    """A file of images of the pages of the segment with this checksum: header, then an offset and
    a checksum a page, then the images."""
    blobs = [image or b"" for image in images]
    table = np.zeros((len(blobs) + 1, 2), dtype="<u8")
    table[1:, 0] = np.cumsum([len(blob) for blob in blobs])
    table[:-1, 1] = [checksum(blob) for blob in blobs]
    entries = table.tobytes()
    head = IMAGES_HEADER.pack(
        IMAGES_MAGIC, OF_A_SEGMENT, _mark(segment), len(blobs), checksum(entries)
    )
    return head + entries + b"".join(blobs)


class Images:
    """The images of a segment's pages, memory-mapped."""

    def __init__(self, path: Path, segment: int) -> None:
        self.path = path
        data = map_file(path)
        _, version, mark, self.pages, expected = _header(path, data, IMAGES_HEADER, IMAGES_MAGIC)
        start = IMAGES_HEADER.size
        self._first = start + (self.pages + 1) * 16
        if self._first > len(data):
            raise damaged(path, f"{len(data)} bytes for {self.pages} pages")
        _check_mark(path, version, mark, segment)
        self._data = data
        table = data[start : self._first]
        if checksum(table) != expected:
            raise damaged(path, "its table does not match its checksum")
        self.bytes = len(data)
        self._table = table.view("<u8").reshape(-1, 2)
        if self._first + int(self._table[-1, 0]) != len(data):
            raise damaged(path, f"{len(data)} bytes long, its table says otherwise")

    def image(self, row: int) -> bytes | None:
        if not self.is_whole(row):
            raise damaged(self.path, f"image {row} does not match its checksum")
        return self._blob(row).tobytes() or None

    def is_whole(self, row: int) -> bool:
        return checksum(self._blob(row)) == int(self._table[row, 1])

    def _blob(self, row: int) -> npt.NDArray[np.uint8]:
        start, end = (self._first + int(at) for at in self._table[row : row + 2, 0])
        return self._data[start:end]


class LostImages:
    """In the place of a damaged file of images: who asks for one is told, nobody else."""

    def __init__(self, fault: CorruptIndexError) -> None:
        self._fault = fault
        self.bytes = 0

    def image(self, row: int) -> bytes | None:
        raise self._fault


def pq_bytes(pq_codes: PQCodes, segment: int, candidates: int) -> bytes:
    """A file of PQ codes: of the segment and by the candidate index of these checksums."""
    pages, k = pq_codes.lists.shape
    lists = pq_codes.lists.astype("<u2", copy=False).tobytes()
    lists += bytes(_padded(len(lists)) - len(lists))
    codes = pq_codes.codes.tobytes()
    head = PQ_HEADER.pack(
        PQ_MAGIC, VERSION, k, pages, segment, candidates, checksum(lists), checksum(codes), 0
    )[:-8]
    return head + struct.pack("<Q", checksum(head)) + lists + codes


class PQFile:
    """The PQ codes of a segment, memory-mapped: opening reads the header only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = map_file(path)
        fields = _header(path, data, PQ_HEADER, PQ_MAGIC)
        _, version, self.k, self.pages, self.segment, self.candidates, *sums, self.checksum = fields
        size = PQ_HEADER.size
        if self.checksum != checksum(data[: size - 8]):
            raise damaged(path, "the header does not match its checksum")
        self._codes_at = size + _padded(self.pages * self.k * 2)
        self.bytes: int = self._codes_at + self.pages * self.k * PARTS
        if version != VERSION or self.bytes != len(data):
            raise damaged(path, f"version {version}, {len(data)} bytes for {self.pages} pages")
        self._checksums, self._data = sums, data
        self._lists: PostingLists | None = None

    @functools.cached_property
    def pq_codes(self) -> PQCodes:
        """Checked the first time."""
        lists = self._data[PQ_HEADER.size : self._codes_at]
        codes = self._data[self._codes_at :]
        if [checksum(lists), checksum(codes)] != self._checksums:
            raise damaged(self.path, "its PQ codes do not match their checksum")
        shape = self.pages, self.k
        numbers = lists[: 2 * self.pages * self.k].view("<u2")
        return PQCodes(numbers.reshape(shape), codes.reshape(*shape, PARTS))

    def posting_lists(self, lists: int) -> PostingLists:
        """The pages by list; so many lists does the candidate index have."""
        if self._lists is None:
            if self.pq_codes.lists.max(initial=0) >= lists:
                raise damaged(self.path, f"it names a list that is not one of {lists}")
            self._lists = posting_lists(self.pq_codes, lists)
        return self._lists


def damaged(path: Path, what: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path}: damaged: {what}; restore the file from a backup, or keep what is whole with "
        "`glie verify --repair`",
        what,
    )


def map_file(path: Path) -> npt.NDArray[np.uint8]:
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
