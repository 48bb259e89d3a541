"""The bytes on disk: a literal file, round trips, and files that were tampered with."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec.codes import Blobs
from glie.index.segment import Segment, StoredCodes, record_line, segment_bytes
from glie.index.side_files import Images, images_bytes, read_tombstones, tombstone_bytes
from glie.kernels.quantize import DTYPES, Packed
from glie.storage import checksum

CODES = StoredCodes(
    Packed.of(np.array([[[1, 0], [0, -1]]], np.float32), "bf16"),
    np.array([[0.5, 1.0]], np.float16),
    np.array([[3, 2]], np.uint16),
)
RECORD = b'["a.pdf#1", {"page": 1}]'
TIGHT = StoredCodes(
    Packed(np.array([[[0b11_01], [0b00_10]]], np.uint8), "int2", 2),
    np.array([[128 / 255, 1.0]], np.float16),
    np.array([[300, 2]], np.uint16),
    Blobs.of([b"xyz"]),
)


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


def literal_tight_segment() -> bytes:
    """The second example of docs/format.md, byte by byte."""
    records = zlib.compress(RECORD + b"\n", 9)
    sections = [
        bytes.fromhex("0d02"),
        bytes.fromhex("80ff"),
        bytes.fromhex("2c010200"),
        bytes.fromhex("0300"),
        b"xyz",
        records,
        struct.pack("<QQ", 0, len(records)),
    ]
    header = b"GLIESEG\0" + struct.pack("<II", 2, 4) + struct.pack("<Q", 1)
    header += struct.pack("<III", 2, 2, 256) + bytes([1, 2, 2, 0])
    header += struct.pack("<Q", len(records))
    for section in sections:
        header += struct.pack("<Q", checksum(section))
    header += struct.pack("<Q", 3) + bytes(8)
    header += struct.pack("<Q", checksum(header))
    assert len(header) == 128
    return header + b"".join(section + bytes(-len(section) % 64) for section in sections)


def literal_block_segment() -> bytes:
    """The example of version 3, byte by byte."""
    records = zlib.compress(RECORD + b"\n", 9)
    codes = [
        bytes.fromhex("0d02"),
        bytes.fromhex("80ff"),
        bytes.fromhex("2c010200"),
        bytes.fromhex("03003101"),
        b"xyz",
    ]
    blocks = b"".join(struct.pack("<Q", checksum(section)) for section in codes)
    sections = [*codes, records, struct.pack("<QQ", 0, len(records)), blocks]
    header = b"GLIESEG\0" + struct.pack("<II", 3, 4) + struct.pack("<Q", 1)
    header += struct.pack("<III", 2, 2, 64) + bytes([1, 2, 2, 2])
    header += struct.pack("<Q", len(records))
    for section in sections:
        header += struct.pack("<Q", checksum(section))
    header += struct.pack("<Q", 3)
    header += struct.pack("<Q", checksum(header))
    assert len(header) == 128
    body = b"".join(section + bytes(-len(section) % 64) for section in sections)
    return header + body + header


SIZED = TIGHT._replace(sizes=np.array([305], np.uint16))
LITERALS = [literal_segment, literal_tight_segment, literal_block_segment]
Literal = Callable[[], bytes]
each = pytest.mark.parametrize("literal", LITERALS)


def assert_same_codes(mine: StoredCodes, expected: StoredCodes) -> None:
    assert mine.vectors[1:] == expected.vectors[1:]
    np.testing.assert_array_equal(mine.vectors.rows, expected.vectors.rows)
    np.testing.assert_array_equal(mine.norms, expected.norms)
    np.testing.assert_array_equal(mine.counts, expected.counts)
    assert mine.norms.dtype == np.float16
    assert mine.counts.dtype == np.uint16
    assert (mine.residual is None) == (expected.residual is None)
    np.testing.assert_array_equal(mine.page_sizes, expected.page_sizes)
    if mine.residual is not None and expected.residual is not None:
        np.testing.assert_array_equal(mine.residual.data, expected.residual.data)
        np.testing.assert_array_equal(mine.residual.offsets, expected.residual.offsets)


def test_a_segment_is_these_bytes() -> None:
    assert segment_bytes(SIZED, [RECORD]) == literal_block_segment()
    assert record_line("a.pdf#1", {"page": 1}) == RECORD


@pytest.mark.parametrize(
    ("literal", "codes"), list(zip(LITERALS, [CODES, TIGHT, SIZED], strict=True))
)
def test_the_literal_file_reads_back(tmp_path: Path, literal: Literal, codes: StoredCodes) -> None:
    path = tmp_path / "a.seg"
    path.write_bytes(literal())
    segment = Segment(path)
    assert_same_codes(segment.codes, codes)
    assert segment.code_bytes == codes.bytes
    assert segment.sizes.tolist() == codes.page_sizes.tolist()
    assert segment.record(0) == ("a.pdf#1", {"page": 1})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("residual", [None, [b"", b"some", b"", b"x" * 65535, b"more", b"", b"e"]])
@pytest.mark.parametrize("norms", ["none", "bytes", "exact"])
@pytest.mark.parametrize("counts", ["small", "rounded", "exact"])
def test_any_codes_read_back_exactly(
    tmp_path: Path, dtype: str, residual: list[bytes] | None, norms: str, counts: str
) -> None:
    """Norms and counts are stored in as few bytes as hold them."""
    rng = np.random.default_rng(0)
    sizes = {"small": [31, 7, 0], "rounded": [2048, 44, 0], "exact": [45, 33, 0]}[counts]
    lengths = {"none": [1, 1, 0], "bytes": [1, 99 / 255, 0], "exact": [0.7, 0.1, 0]}[norms]
    exact = np.array([sum(sizes) + 2] * 7, np.uint16)
    codes = StoredCodes(
        Packed.of(rng.normal(size=(7, 3, 5)).astype(np.float32), dtype),
        np.array([lengths] * 7, np.float16),
        np.array([sizes] * 7, np.uint16),
        None if residual is None else Blobs.of(residual),
        exact if counts == "rounded" else None,
    )
    path = tmp_path / "a.seg"
    path.write_bytes(segment_bytes(codes, [RECORD] * 7))
    segment = Segment(path)
    assert_same_codes(segment.codes, codes)
    assert_same_codes(StoredCodes.joined([codes.take(np.array([i])) for i in range(7)]), codes)
    each = {"none": 0, "bytes": 1, "exact": 2}[norms] + (2 if counts == "exact" else 1)
    if dtype == "bf16" and residual is None:
        each = 4
    row = {"bf16": 10, "int8": 5, "int4": 3, "int2": 2, "int1": 1}[dtype]
    extra = 0 if residual is None else 14 + sum(map(len, residual))
    assert segment.code_bytes == codes.bytes == 7 * 3 * (row + each) + extra


def test_a_page_takes_exactly_1040_bytes_at_k_4_and_128_dimensions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = []
    for pages in (64, 128):
        vectors = [rng.normal(size=(9, 128)) for _ in range(pages)]
        index = glie.Index.create(tmp_path / f"{pages}.glie", glie.Codec(k=4))
        index.add(glie.Pages(vectors, normalize=True))
        codes = Segment(next((tmp_path / f"{pages}.glie" / "segments").glob("*.seg"))).codes
        sizes.append(codes.bytes)
    assert sizes == [64 * 1040, 128 * 1040]
    assert index.info().code_bytes_per_page == 1040


def read_all(path: Path) -> None:
    segment = Segment(path)
    _ = segment.codes
    list(segment.records())


@each
def test_every_flipped_byte_is_noticed(tmp_path: Path, literal: Literal) -> None:
    data = literal()
    path = tmp_path / "a.seg"
    unused = set(range(128, len(data)))  # padding between sections holds nothing
    at = 128
    codes = {literal_segment: (8, 4, 4), literal_tight_segment: (2, 2, 4, 2, 3)}
    for size in (*codes.get(literal, (2, 2, 4, 4, 3)), len(zlib.compress(RECORD + b"\n", 9)), 16):
        unused -= set(range(at, at + size))
        at += size + -size % 64
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 0x41]) + data[i + 1 :])
        if i in unused:
            continue
        with pytest.raises(glie.CorruptIndexError, match=r"a\.seg: damaged"):
            read_all(path)


@each
def test_every_truncation_and_extension_is_noticed(tmp_path: Path, literal: Literal) -> None:
    data = literal()
    path = tmp_path / "a.seg"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(glie.CorruptIndexError):
            Segment(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(glie.CorruptIndexError, match="bytes, its header says"):
        Segment(path)


def forged(data: bytes, at: int, field: bytes) -> bytes:
    """A file whose header is changed, and its checksum made to fit."""
    head = data[:at] + field + data[at + len(field) : 120]
    return head + struct.pack("<Q", checksum(head)) + data[128:]


@each
@pytest.mark.parametrize("at", [16, 24, 28, 40])
def test_absurd_sizes_allocate_nothing(tmp_path: Path, literal: Literal, at: int) -> None:
    path = tmp_path / "a.seg"
    path.write_bytes(forged(literal(), at, struct.pack("<I", 2**32 - 1)))
    with pytest.raises(glie.CorruptIndexError, match="bytes, its header says"):
        Segment(path)


@pytest.mark.parametrize(
    ("at", "field", "message"),
    [
        (8, b"\4\0\0\0", "version 4, type 4 is unknown; upgrade glie"),
        (8, b"\1\0\0\0", "version 1, type 4 is unknown"),
        (12, b"\0\0\0\0", "version 2, type 0 is unknown"),
        (12, b"\6\0\0\0", "version 2, type 6 is unknown"),
        (16, bytes(8), "its header has a size of zero"),
        (28, bytes(4), "its header has a size of zero"),
        (32, bytes(4), "its header has a size of zero"),
        (36, b"\3", "norms, counts, residual lengths and page sizes have 3, 2, 2 and 0"),
        (37, b"\0", "norms, counts, residual lengths and page sizes have 1, 0, 2 and 0"),
        (38, b"\1", "norms, counts, residual lengths and page sizes have 1, 2, 1 and 0"),
        (38, b"\0", "norms, counts, residual lengths and page sizes have 1, 2, 0 and 0"),
        (39, b"\1", "version 2, type 4 is unknown"),
        (104, struct.pack("<Q", 2**60), "bytes, its header says"),
        (104, struct.pack("<Q", 4), "its residual bytes do not match their checksum"),
        (112, b"\1", "version 2, type 4 is unknown"),
    ],
)
def test_a_forged_header_is_refused(tmp_path: Path, at: int, field: bytes, message: str) -> None:
    """Its checksum is right, what it covers is not."""
    path = tmp_path / "a.seg"
    path.write_bytes(forged(literal_tight_segment(), at, field))
    with pytest.raises(glie.CorruptIndexError, match=message):
        read_all(path)


def test_residual_lengths_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    data = literal_tight_segment()
    lengths = struct.pack("<H", 2)
    at = 128 + 3 * 64
    data = data[:at] + lengths + data[at + 2 :]
    path = tmp_path / "a.seg"
    path.write_bytes(forged(data, 48 + 3 * 8, struct.pack("<Q", checksum(lengths))))
    with pytest.raises(glie.CorruptIndexError, match="not as many as their lengths say"):
        read_all(path)


def test_tombstones(tmp_path: Path) -> None:
    deleted = np.random.default_rng(0).random(37) < 0.3
    data = tombstone_bytes(deleted, 7)
    assert len(data) == 32 + 5
    path = tmp_path / "a.del"
    path.write_bytes(data)
    np.testing.assert_array_equal(read_tombstones(path, 7), deleted)
    with pytest.raises(glie.CorruptIndexError, match="it belongs to another segment"):
        read_tombstones(path, 8)
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        with pytest.raises(glie.CorruptIndexError):
            read_tombstones(path, 7)


def test_images(tmp_path: Path) -> None:
    blobs = [b"first", None, b"third" * 100]
    data = images_bytes(blobs, 7)
    path = tmp_path / "a.img"
    path.write_bytes(data)
    assert [Images(path, 7).image(row) for row in range(3)] == blobs
    with pytest.raises(glie.CorruptIndexError, match="it belongs to another segment"):
        Images(path, 8)
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        try:
            images = Images(path, 7)
            found = [images.image(row) for row in range(images.pages)]
        except glie.CorruptIndexError:
            continue
        assert found == blobs, i
