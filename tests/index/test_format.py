"""The bytes on disk: a literal file, round trips, and files that were tampered with."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.index.format import (
    Images,
    Segment,
    StoredCodes,
    checksum,
    images_bytes,
    read_tombstones,
    record_line,
    segment_bytes,
    tombstone_bytes,
)

CODES = StoredCodes(
    np.array([[[0x3F80, 0x0000], [0x0000, 0xBF80]]], np.uint16),  # (1, 0) and (0, -1)
    np.array([[0.5, 1.0]], np.float16),
    np.array([[3, 2]], np.uint16),
)
RECORD = b'["a.pdf#1", {"page": 1}]'


def literal_segment() -> bytes:
    """The example of docs/format.md, byte by byte."""
    vectors = bytes.fromhex("803f0000000080bf")
    norms = bytes.fromhex("0038003c")
    counts = bytes.fromhex("03000200")
    records = zlib.compress(RECORD + b"\n", 9)
    table = struct.pack("<QQ", 0, len(records))
    header = b"GLIESEG\0" + struct.pack("<II", 1, 1) + struct.pack("<Q", 1)
    header += struct.pack("<IIII", 2, 2, 64, 0) + struct.pack("<Q", len(records))
    for section in (vectors, norms, counts, records, table):
        header += struct.pack("<Q", checksum(section))
    header += bytes(32)
    header += struct.pack("<Q", checksum(header))
    assert len(header) == 128
    body = b""
    for section in (vectors, norms, counts, records, table):
        body += section + bytes(-len(section) % 64)
    return header + body


def test_a_segment_is_these_bytes() -> None:
    assert segment_bytes(CODES, [RECORD]) == literal_segment()
    assert record_line("a.pdf#1", {"page": 1}) == RECORD


def test_the_literal_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "a.seg"
    path.write_bytes(literal_segment())
    segment = Segment(path)
    for mine, expected in zip(segment.codes, CODES, strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert segment.record(0) == ("a.pdf#1", {"page": 1})


def test_a_page_takes_exactly_1040_bytes_at_k_4_and_128_dimensions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = []
    for pages in (64, 128):
        vectors = [rng.normal(size=(9, 128)) for _ in range(pages)]
        index = glie.Index.create(tmp_path / f"{pages}.glie", glie.Codec(k=4))
        index.add(glie.Pages(vectors, normalize=True))
        codes = Segment(next((tmp_path / f"{pages}.glie" / "segments").glob("*.seg"))).codes
        sizes.append(sum(part.nbytes for part in codes))
    assert sizes == [64 * 1040, 128 * 1040]
    assert index.info().code_bytes_per_page == 1040


def read_all(path: Path) -> None:
    segment = Segment(path)
    _ = segment.codes
    list(segment.records())


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    data = literal_segment()
    path = tmp_path / "a.seg"
    unused = set(range(128, len(data)))  # padding between sections holds nothing
    at = 128
    for size in (8, 4, 4, len(zlib.compress(RECORD + b"\n", 9)), 16):
        unused -= set(range(at, at + size))
        at += size + -size % 64
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 0x41]) + data[i + 1 :])
        if i in unused:
            continue
        with pytest.raises(glie.CorruptIndexError, match=r"a\.seg: damaged"):
            read_all(path)


def test_every_truncation_and_extension_is_noticed(tmp_path: Path) -> None:
    data = literal_segment()
    path = tmp_path / "a.seg"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(glie.CorruptIndexError):
            Segment(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(glie.CorruptIndexError, match="bytes long, the header says"):
        Segment(path)


def test_absurd_sizes_allocate_nothing(tmp_path: Path) -> None:
    header = bytearray(literal_segment())
    header[16:24] = struct.pack("<Q", 2**60)
    header[120:128] = struct.pack("<Q", checksum(bytes(header[:120])))
    path = tmp_path / "a.seg"
    path.write_bytes(header)
    with pytest.raises(glie.CorruptIndexError, match="bytes long, the header says"):
        Segment(path)


def test_tombstones(tmp_path: Path) -> None:
    deleted = np.random.default_rng(0).random(37) < 0.3
    data = tombstone_bytes(deleted)
    assert len(data) == 32 + 5
    path = tmp_path / "a.del"
    path.write_bytes(data)
    np.testing.assert_array_equal(read_tombstones(path), deleted)
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        with pytest.raises(glie.CorruptIndexError):
            read_tombstones(path)


def test_images(tmp_path: Path) -> None:
    blobs = [b"first", None, b"third" * 100]
    data = images_bytes(blobs)
    path = tmp_path / "a.img"
    path.write_bytes(data)
    assert [Images(path).image(row) for row in range(3)] == blobs
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        try:
            images = Images(path)
            found = [images.image(row) for row in range(images.pages)]
        except glie.CorruptIndexError:
            continue
        assert found == blobs, i
