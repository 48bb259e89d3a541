"""The files beside a segment: tombstones, page images and PQ codes."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from glie.errors import CorruptIndexError
from glie.index.format import (
    IMAGES_HEADER,
    IMAGES_MAGIC,
    OF_A_SEGMENT,
    PQ_HEADER,
    PQ_MAGIC,
    TOMBSTONE_HEADER,
    TOMBSTONE_MAGIC,
    VERSION,
    damaged,
    map_file,
    padded,
    read_header,
)
from glie.kernels.pq import PARTS, PostingLists, PQCodes, posting_lists
from glie.storage import checksum


def _mark(segment: int) -> int:
    """The part of a segment's checksum that images and tombstones carry: its lower 32 bits."""
    return segment & 0xFFFFFFFF


def _check_mark(path: Path, version: int, mark: int, segment: int) -> None:
    """Refuse a file of another segment. Files of version 1 do not name theirs."""
    if version not in (VERSION, OF_A_SEGMENT):
        raise damaged(path, f"version {version} is unknown; upgrade glie")
    if mark != (_mark(segment) if version == OF_A_SEGMENT else 0):
        raise damaged(path, "it belongs to another segment")


def tombstone_bytes(deleted: npt.NDArray[np.bool_], segment: int) -> bytes:
    """A tombstone file for the segment with this checksum: a bit for each page, set if the page is
    deleted."""
    bits = np.packbits(deleted, bitorder="little").tobytes()
    head = TOMBSTONE_HEADER.pack(TOMBSTONE_MAGIC, OF_A_SEGMENT, _mark(segment), len(deleted), 0)
    return head[:-8] + struct.pack("<Q", checksum(head[:-8] + bits)) + bits


def read_tombstones(path: Path, segment: int) -> npt.NDArray[np.bool_]:
    """Which pages of the segment with this checksum are deleted."""
    data = map_file(path)
    _, version, mark, pages, expected = read_header(path, data, TOMBSTONE_HEADER, TOMBSTONE_MAGIC)
    size = TOMBSTONE_HEADER.size
    if len(data) != size + -(-pages // 8):
        raise damaged(path, f"it has {len(data)} bytes for {pages} pages")
    _check_mark(path, version, mark, segment)
    if checksum(data[: size - 8].tobytes() + data[size:].tobytes()) != expected:
        raise damaged(path, "it does not match its checksum")
    return np.unpackbits(data[size:], count=pages, bitorder="little").astype(bool)


def images_bytes(images: Sequence[bytes | None], segment: int) -> bytes:
    """A file of page images for the segment with this checksum: header, then an offset and a
    checksum for each page, then the images."""
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
    """A memory-mapped file of page images."""

    def __init__(self, path: Path, segment: int) -> None:
        self.path = path
        data = map_file(path)
        _, version, mark, self.pages, expected = read_header(
            path, data, IMAGES_HEADER, IMAGES_MAGIC
        )
        start = IMAGES_HEADER.size
        self._first = start + (self.pages + 1) * 16
        if self._first > len(data):
            raise damaged(path, f"it has {len(data)} bytes for {self.pages} pages")
        _check_mark(path, version, mark, segment)
        self._data = data
        table = data[start : self._first]
        if checksum(table) != expected:
            raise damaged(path, "its table does not match its checksum")
        self.bytes = len(data)
        self._table = table.view("<u8").reshape(-1, 2)
        if self._first + int(self._table[-1, 0]) != len(data):
            raise damaged(path, f"it has {len(data)} bytes, its table says otherwise")

    def image(self, row: int) -> bytes | None:
        """The image of one page; None if it has none."""
        if not self.is_whole(row):
            raise damaged(self.path, f"image {row} does not match its checksum")
        return self._blob(row).tobytes() or None

    def is_whole(self, row: int) -> bool:
        """Whether the image of a page is undamaged."""
        return checksum(self._blob(row)) == int(self._table[row, 1])

    def _blob(self, row: int) -> npt.NDArray[np.uint8]:
        start, end = (self._first + int(at) for at in self._table[row : row + 2, 0])
        return self._data[start:end]


class LostImages:
    """Stands for a damaged file of images: asking for an image raises, opening does not."""

    def __init__(self, fault: CorruptIndexError) -> None:
        self._fault = fault
        self.bytes = 0

    def image(self, row: int) -> bytes | None:
        raise self._fault


def pq_bytes(pq_codes: PQCodes, segment: int, candidates: int) -> bytes:
    """A file of PQ codes, for the segment and the IVF-PQ with these checksums."""
    pages, k = pq_codes.lists.shape
    lists = pq_codes.lists.astype("<u2", copy=False).tobytes()
    lists += bytes(padded(len(lists)) - len(lists))
    codes = pq_codes.codes.tobytes()
    head = PQ_HEADER.pack(
        PQ_MAGIC, VERSION, k, pages, segment, candidates, checksum(lists), checksum(codes), 0
    )[:-8]
    return head + struct.pack("<Q", checksum(head)) + lists + codes


class PQFile:
    """A memory-mapped file of PQ codes. Opening it reads only the header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = map_file(path)
        fields = read_header(path, data, PQ_HEADER, PQ_MAGIC)
        _, version, self.k, self.pages, self.segment, self.candidates, *sums, self.checksum = fields
        size = PQ_HEADER.size
        if self.checksum != checksum(data[: size - 8]):
            raise damaged(path, "its header does not match its checksum")
        self._codes_at = size + padded(self.pages * self.k * 2)
        self.bytes: int = self._codes_at + self.pages * self.k * PARTS
        if version != VERSION or self.bytes != len(data):
            raise damaged(
                path, f"it has version {version} and {len(data)} bytes for {self.pages} pages"
            )
        self._checksums, self._data = sums, data
        self._lists: PostingLists | None = None

    @functools.cached_property
    def pq_codes(self) -> PQCodes:
        """The PQ codes; their checksums are compared the first time."""
        lists = self._data[PQ_HEADER.size : self._codes_at]
        codes = self._data[self._codes_at :]
        if [checksum(lists), checksum(codes)] != self._checksums:
            raise damaged(self.path, "its PQ codes do not match their checksum")
        shape = self.pages, self.k
        numbers = lists[: 2 * self.pages * self.k].view("<u2")
        return PQCodes(numbers.reshape(shape), codes.reshape(*shape, PARTS))

    def posting_lists(self, lists: int) -> PostingLists:
        """The pages in each of the `lists` posting lists."""
        if self._lists is None:
            if self.pq_codes.lists.max(initial=0) >= lists:
                raise damaged(self.path, f"a list number is too high, expected less than {lists}")
            self._lists = posting_lists(self.pq_codes, lists)
        return self._lists
