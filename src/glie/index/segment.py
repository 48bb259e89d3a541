"""Segment files: the codes and records of some pages."""

from __future__ import annotations

import functools
import itertools
import json
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.anchors import MAX_VECTORS
from glie.codec.codes import Blobs, Codes
from glie.codec.sizes import count_bytes, counts_of, norm_bytes, norms_of
from glie.errors import CorruptIndexError, InputError
from glie.filters.columns import Column, columns_of
from glie.index.blocks import block_checksums
from glie.index.format import (
    BLOCK,
    BLOCKS,
    CODES,
    MAX_RECORD_BYTES,
    MAX_RESIDUAL_BYTES,
    MOST_RECORDS,
    RESIDUAL,
    SECTIONS,
    SEGMENT_HEADER,
    SEGMENT_MAGIC,
    SEGMENT_VERSION,
    TYPES,
    OtherVersionError,
    damaged,
    map_file,
    padded,
    read_header,
)
from glie.kernels.quantize import BFLOAT16, Packed, row_bytes
from glie.pages import MAX_ID
from glie.storage import checksum

CACHED_BLOCKS = 32  # of records, inflated


class StoredCodes(NamedTuple):
    """The codes of some pages, packed as on disk."""

    vectors: Packed  # (P, k, B)
    norms: npt.NDArray[np.float16]  # (P, k)
    counts: npt.NDArray[np.uint16]  # (P, k)
    residual: Blobs | None = None
    sizes: npt.NDArray[np.uint16] | None = None  # (P,) vectors a page; None: as the counts say

    @classmethod
    def of(cls, codes: Codes, sizes: npt.NDArray[Any] | None = None) -> StoredCodes:
        """Pack codes, of pages with so many vectors: counts may be rounded. A page with too long a
        residual is refused."""
        if codes.residual is not None and codes.residual.lengths.max(initial=0) > (
            MAX_RESIDUAL_BYTES
        ):
            longest = int(codes.residual.lengths.argmax())
            raise InputError(
                f"residual of page {codes.ids[longest]!r}: {codes.residual.lengths[longest]} "
                f"bytes, at most {MAX_RESIDUAL_BYTES} are stored; split the page"
            )
        exact = None if sizes is None else sizes.astype(np.uint16)
        return cls(codes.stored, codes.norms, codes.counts, codes.residual, exact)

    @classmethod
    def joined(cls, parts: Sequence[StoredCodes]) -> StoredCodes:
        """Concatenate the codes of at least one part."""
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
            np.concatenate([part.page_sizes for part in parts]),
        )

    def take(self, rows: npt.NDArray[Any]) -> StoredCodes:
        """The codes of some pages, by row."""
        return StoredCodes(
            self.vectors.take(rows),
            self.norms[rows],
            self.counts[rows],
            None if self.residual is None else self.residual.take(rows),
            None if self.sizes is None else self.sizes[rows],
        )

    def read(self, ids: Sequence[str]) -> Codes:
        """Unpack the codes, for pages with these ids."""
        return Codes.read(self.vectors, self.norms, self.counts, ids, self.residual)

    @property
    def plain(self) -> bool:
        """Whether they have the simplest form: bfloat16, without residuals."""
        return self.vectors.dtype == BFLOAT16 and self.residual is None

    @property
    def page_sizes(self) -> npt.NDArray[np.uint16]:
        """How many vectors each page had; never more than a page may have."""
        return _added_up(self.counts) if self.sizes is None else self.sizes

    @property
    def sections(self) -> dict[str, npt.NDArray[Any]]:
        """The codes as sections of a segment file. Norms and counts take the fewest bytes that hold
        them exactly. No norms are stored if each used slot has norm 1."""
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
            sections["page lengths"] = self.residual.lengths.astype("<u2")[:, None]
            sections["residual bytes"] = self.residual.data
        return sections

    @property
    def bytes(self) -> int:
        """Their size in a segment file."""
        return sum(section.nbytes for section in self.sections.values())


def _added_up(counts: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """The vectors of each page, as its counts say: never more than a page may have."""
    sums = counts.sum(axis=1, dtype=np.int64)
    return np.asarray(sums.clip(max=MAX_VECTORS), np.uint16)


def record_line(page_id: str, metadata: dict[str, Any]) -> bytes:
    """Id and metadata of a page as a line of JSON; raises ValueError or TypeError if that fails."""
    return json.dumps([page_id, metadata], ensure_ascii=False, allow_nan=False).encode()


def segment_bytes(codes: StoredCodes, records: Sequence[bytes]) -> bytes:
    """A segment file: header, sections, and the header again."""
    pages, k, _ = codes.vectors.rows.shape
    blocks = [
        zlib.compress(b"".join(line + b"\n" for line in records[i : i + BLOCK]), 9)
        for i in range(0, pages, BLOCK)
    ]
    stored, exact = codes.sections, codes.page_sizes
    lengths = [stored["page lengths"]] if "page lengths" in stored else []
    widths = [stored["norms"].nbytes // (pages * k), stored["counts"].itemsize, 2 * len(lengths)]
    rounded = not np.array_equal(exact, codes.counts.sum(axis=1, dtype=np.int64))
    widths.append(2 if rounded else 0)
    if rounded:
        lengths.append(exact.astype("<u2")[:, None])
    if lengths:
        stored["page lengths"] = np.concatenate(lengths, axis=1)
    sections = {name: section.tobytes() for name, section in stored.items()}
    table = np.cumsum([0] + [len(block) for block in blocks], dtype="<u8")
    sections |= {"records": b"".join(blocks), "record table": table.tobytes()}
    starts = None if codes.residual is None else codes.residual.offsets
    sections[BLOCKS] = block_checksums(sections, pages, starts).tobytes()
    ordered = [sections.get(name, b"") for name in SECTIONS[SEGMENT_VERSION]]
    header = SEGMENT_HEADER.pack(
        SEGMENT_MAGIC, SEGMENT_VERSION, TYPES[codes.vectors.dtype], pages, k, codes.vectors.dim,
        BLOCK, *widths, len(sections["records"]), *map(checksum, ordered),
        len(sections.get("residual bytes", b"")), 0,
    )  # fmt: skip
    header = header[:-8] + struct.pack("<Q", checksum(header[:-8]))
    padding = (bytes(padded(len(section)) - len(section)) for section in ordered)
    body = itertools.chain.from_iterable(zip(ordered, padding, strict=True))
    return b"".join([header, *body, header])


def segment_checksum(data: bytes) -> int:
    """The checksum in the header of a segment file. The manifest has it too."""
    return int.from_bytes(data[SEGMENT_HEADER.size - 8 : SEGMENT_HEADER.size], "little")


class Segment:
    """A memory-mapped segment file. Opening it reads only the header; for a repair (`at_end`), the
    copy of the header behind the sections."""

    def __init__(self, path: Path, *, at_end: bool = False) -> None:
        self.path = path
        data = map_file(path)
        first = data[-SEGMENT_HEADER.size :] if at_end else data[: SEGMENT_HEADER.size]
        header = read_header(path, first, SEGMENT_HEADER, SEGMENT_MAGIC)
        _, version, kind, pages, k, dim, per_block, *widths, records_bytes = header[:12]
        *tail, self.checksum = header[12:]
        if self.checksum != checksum(first[:-8]):
            raise damaged(path, "its header does not match its checksum")
        self.version, names = version, SECTIONS.get(version, ())
        self._checksums = dict(zip(names, tail, strict=False))
        residual_bytes, *zeros = tail[len(names) :]
        if version == 1:
            known = kind == TYPES[BFLOAT16] and not any((*widths, residual_bytes))
            widths = [2, 2, 0, 0]
        else:
            zeros += widths[3:] if version == 2 else []
            known = version in SECTIONS and kind in TYPES.values()
        if not known or any(zeros):
            raise OtherVersionError(
                f"{path}: version {version}, type {kind} is unknown; upgrade glie"
            )
        norm, count, length, size = widths
        lengths = (0, 2) if not residual_bytes else (2,)
        if norm > 2 or count not in (1, 2) or length not in lengths or size not in (0, 2):
            raise damaged(
                path,
                f"norms, counts, residual lengths and page sizes have {norm}, {count}, {length} "
                f"and {size} bytes, expected 0 to 2, 1 or 2, 0 or 2, and 0 or 2",
            )
        if not pages or not k or not dim or not per_block:
            raise damaged(path, "its header has a size of zero")
        if per_block > MOST_RECORDS:  # a block is inflated as a whole
            raise damaged(
                path, f"it has {per_block} records per block, expected at most {MOST_RECORDS}"
            )
        self.dtype = next(name for name, number in TYPES.items() if number == kind)
        self.pages, self.k, self.dim = int(pages), int(k), int(dim)
        self.per_block = int(per_block)
        self._has_residual, self._has_sizes = bool(length), bool(size)
        sizes = {
            "vectors": pages * k * row_bytes(dim, self.dtype),
            "norms": pages * k * norm,
            "counts": pages * k * count,
            "page lengths": pages * (length + size),
            "residual bytes": residual_bytes,
            "records": records_bytes,
            "record table": -(-pages // per_block) * 8 + 8,
        }
        in_blocks = sum(sizes[name] > 0 for name in (*CODES, *RESIDUAL))
        sizes[BLOCKS] = -(-pages // BLOCK) * 8 * in_blocks
        self.code_bytes = sum(sizes[name] for name in (*CODES, *RESIDUAL)) - pages * size
        self._places: dict[str, tuple[int, int]] = {}
        position = SEGMENT_HEADER.size
        for name in names:
            self._places[name] = position, position + sizes[name]
            position += padded(sizes[name])
        position += SEGMENT_HEADER.size if BLOCKS in names else 0
        if position != len(data):
            raise damaged(path, f"it has {len(data)} bytes, its header says {position}")
        self.bytes = position
        self._data = data
        self._blocks: dict[int, list[bytes]] = {}  # the last ones that were inflated
        self._columns: dict[str, Column] = {}

    @functools.cached_property
    def codes(self) -> StoredCodes:
        """The codes; their checksums are compared the first time."""
        sizes = self.sizes if self._has_sizes else None
        return StoredCodes(self.vectors, self._norms, self.counts, self._residual, sizes)

    @functools.cached_property
    def vectors(self) -> Packed:
        rows = self._section("vectors").reshape(self.pages, self.k, -1)
        return Packed(rows, self.dtype, self.dim)

    @functools.cached_property
    def stored_counts(self) -> npt.NDArray[Any]:
        """The counts as stored, in one byte or two. 0 means an unused slot in both."""
        return self._numbers("counts", "<u2")

    @functools.cached_property
    def counts(self) -> npt.NDArray[np.uint16]:
        """The counts; their checksum is compared the first time."""
        stored = self.stored_counts
        return counts_of(stored) if stored.itemsize == 1 else stored

    @property
    def _norms(self) -> npt.NDArray[np.float16]:
        if self._size("norms") == 0:
            return (self.counts > 0).astype(np.float16)
        stored = self._numbers("norms", "<f2")
        return norms_of(stored) if stored.itemsize == 1 else stored

    def _numbers(self, name: str, wide: str) -> npt.NDArray[Any]:
        """A section with one number per slot, of one byte or two."""
        section = self._section(name)
        narrow = len(section) == self.pages * self.k
        return (section if narrow else section.view(wide)).reshape(self.pages, self.k)

    @property
    def sizes(self) -> npt.NDArray[np.uint16]:
        """How many vectors each page had before they were compressed. Before version 3, counts say
        it, which may be rounded."""
        return self._lengths[:, -1] if self._has_sizes else _added_up(self.counts)

    @property
    def _lengths(self) -> npt.NDArray[np.uint16]:
        """Of each page, the bytes of its residual and its size, where they are stored."""
        return self._section("page lengths").view("<u2").reshape(self.pages, -1)

    @property
    def _residual_lengths(self) -> npt.NDArray[np.int64]:
        return self._lengths[:, 0].astype(np.int64)

    @property
    def _residual(self) -> Blobs | None:
        if not self._has_residual:
            return None
        residual = Blobs.by_lengths(self._section("residual bytes"), self._residual_lengths)
        if residual.offsets[-1] != len(residual.data):
            raise damaged(self.path, "its residual bytes are not as many as their lengths say")
        return residual

    @functools.cached_property
    def _table(self) -> npt.NDArray[np.uint64]:
        table = self._section("record table").view("<u8")
        if table[0] != 0 or table[-1] != self._size("records") or np.any(table[1:] < table[:-1]):
            raise damaged(self.path, "its record table points outside the records")
        return table

    @functools.cached_property
    def _records(self) -> npt.NDArray[np.uint8]:
        return self._section("records")

    def line(self, row: int) -> bytes:
        """The stored line of one page."""
        block = row // self.per_block
        lines = self._blocks.get(block)  # another thread may clear them at any moment
        if lines is None:
            if len(self._blocks) >= CACHED_BLOCKS:
                self._blocks.clear()
            lines = self._blocks[block] = self._inflated(block)
        return lines[row % self.per_block]

    def record(self, row: int) -> tuple[str, dict[str, Any]]:
        """Id and metadata of one page. The caller may change them."""
        return self._parsed(self.line(row))

    @functools.cached_property
    def ids(self) -> list[str]:
        """The ids of all pages, in order."""
        return [page_id for page_id, _ in self.records()]

    @functools.cached_property
    def rows(self) -> dict[str, list[int]]:
        """The rows of each id; an index that was repaired may have one twice."""
        found: dict[str, list[int]] = {}
        for row, page_id in enumerate(self.ids):
            found.setdefault(page_id, []).append(row)
        return found

    def columns(self, names: Collection[str]) -> dict[str, Column]:
        """Some fields of the metadata of all pages; the records are read for those that are asked
        for the first time."""
        new = [name for name in names if name not in self._columns]
        if new:
            self._columns |= columns_of((metadata for _, metadata in self.records()), new)
        return {name: self._columns[name] for name in names}

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The ids and metadata of all pages, in order."""
        for block in range(len(self._table) - 1):
            yield from map(self._parsed, self._inflated(block))

    def _inflated(self, block: int) -> list[bytes]:
        start, end = int(self._table[block]), int(self._table[block + 1])
        return self._lines(block, self._records[start:end].tobytes())[0]

    def _lines(self, block: int, data: bytes | memoryview) -> tuple[list[bytes], int]:
        """The lines of the compressed block at the start of `data`, and the length of the block."""
        expected = min(self.per_block, self.pages - block * self.per_block)
        stream = zlib.decompressobj()
        try:
            # bounded, whatever the stream says
            text = stream.decompress(data, expected * MAX_RECORD_BYTES)
        except zlib.error as error:
            raise damaged(self.path, f"record block {block} cannot be read: {error}") from None
        lines = text.split(b"\n")
        if not stream.eof or len(lines) != expected + 1 or lines[-1]:
            raise damaged(self.path, f"record block {block} does not hold {expected} records")
        return lines[:-1], len(data) - len(stream.unused_data)

    def whole_lines(self) -> Iterator[bytes | None]:
        """The stored line of each page, None if it is damaged. Each block of records has its own
        checksum (zlib's), so damage to one does not affect the others. Without the table, the next
        block starts where the last one ended."""
        records = self._raw("records").data
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
                    raise damaged(self.path, f"the start of record block {block} is unknown")
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
            raise damaged(self.path, "a record is not an id with metadata")
        if len(page_id) > MAX_ID:
            raise damaged(
                self.path, f"an id has {len(page_id):,} characters, expected at most {MAX_ID:,}"
            )
        return page_id, metadata

    def _size(self, name: str) -> int:
        return len(self._raw(name))

    def _raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a section, unchecked."""
        start, end = self._places.get(name, (0, 0))
        return self._data[start:end]

    def _matches(self, name: str) -> bool:
        return bool(checksum(self._raw(name)) == self._checksums[name])

    def _section(self, name: str) -> npt.NDArray[np.uint8]:
        if not self._matches(name):
            raise damaged(self.path, f"its {name} do not match their checksum")
        return self._raw(name)
