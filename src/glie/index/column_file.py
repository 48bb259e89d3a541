"""The file of a segment's columns: its metadata field by field, for filters, and its ids.

Everything in it is made from the records, so damage is no error: the records are read instead.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.errors import CorruptIndexError
from glie.filters.columns import EXACT, AnyColumn, Column, NumberColumn, columns_of
from glie.filters.tree import is_number
from glie.index.format import VERSION, damaged, map_file, padded, read_header
from glie.storage import checksum

COLUMNS_MAGIC = b"GLIECOL\0"
COLUMNS_HEADER = struct.Struct("<8sII6Q56xQ")
FEWEST_PAGES = 1024  # of a segment with columns; records of fewer are read in 10 ms
FIELD_BYTES = 8  # a page that one field may take
ALL_BYTES = 12  # that all fields may take together; the largest are left out
MOST_FIELDS = 256
MOST_VALUES_BYTES = 64 << 20  # of one field, inflated
TYPES = ("u1", "u2", "u4", "u8", "f8")
# Reading the records of a segment costs as much as so many scans of its ids.
LOOKUPS = 10_000


class _Packed(NamedTuple):
    """A field as it is stored."""

    type: str  # of TYPES
    least: int | None  # what is added to whole numbers
    runs: int  # how many runs of equal numbers; 0: a number for each page
    values: tuple[int, int] | None  # bytes of the values, deflated and inflated; None: numbers
    data: bytes


def columns_bytes(records: Sequence[bytes], segment: int) -> bytes:
    """A file of columns, of record lines, for the segment with this checksum."""
    parsed = [json.loads(line) for line in records]
    ids = np.array([id_hash(page_id) for page_id, _ in parsed], "<u4").tobytes()
    columns = columns_of(metadata for _, metadata in parsed)
    packed = {name: _pack(column) for name, column in columns.items()}
    fields, data = list[dict[str, Any]](), b""
    for name, field in sorted(packed.items(), key=lambda item: len(item[1].data)):
        fits = len(field.data) <= FIELD_BYTES * len(records) and len(fields) < MOST_FIELDS
        if fits and len(data) + len(field.data) <= ALL_BYTES * len(records):
            entry = field._asdict() | {"at": len(data), "bytes": len(field.data)}
            del entry["data"]
            fields.append({"name": name, **entry, "checksum": checksum(field.data)})
            data += field.data
    left_out = sorted(set(packed) - {field["name"] for field in fields})
    # a field that is not named is on no page, unless there were too many to name
    named = {"fields": fields, "left_out": left_out if len(left_out) <= MOST_FIELDS else None}
    directory = json.dumps(named, ensure_ascii=False).encode()
    sections = [part + bytes(padded(len(part)) - len(part)) for part in (ids, directory, data)]
    sums = checksum(sections[0]), checksum(sections[1])
    head = COLUMNS_HEADER.pack(
        COLUMNS_MAGIC, VERSION, 0, len(records), segment, len(directory), len(data), *sums, 0
    )[:-8]
    return head + struct.pack("<Q", checksum(head)) + b"".join(sections)


def id_hash(page_id: str) -> int:
    """What is stored of an id."""
    return checksum(page_id.encode(errors="surrogatepass")) & 0xFFFFFFFF


class ColumnFile:
    """A memory-mapped file of columns. Opening it reads only the header; a column is read, and its
    checksum compared, when a filter first asks for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = map_file(path)
        fields = read_header(path, data, COLUMNS_HEADER, COLUMNS_MAGIC)
        _, version, _, self.pages, self.segment, length, size, *sums, self.checksum = fields
        if self.checksum != checksum(data[: COLUMNS_HEADER.size - 8]):
            raise damaged(path, "its header does not match its checksum")
        sizes = [padded(4 * self.pages), padded(length), padded(size)]
        self.bytes: int = COLUMNS_HEADER.size + sum(sizes)
        if version != VERSION or self.bytes != len(data):
            raise damaged(
                path, f"it has version {version} and {len(data)} bytes for {self.pages} pages"
            )
        ids, directory, self._data = np.split(data[COLUMNS_HEADER.size :], np.cumsum(sizes)[:-1])
        self._ids, self._directory = (ids, sums[0]), (directory[:length], directory, sums[1])
        self._size = size
        self._hashes: npt.NDArray[np.uint32] | None = None
        self._described: dict[str, Any] | None = None
        self._columns: dict[str, AnyColumn] = {}
        self.lookups = 0  # of ids, so far

    def rows(self, page_id: str) -> list[int]:
        """The rows that an id can be at; the record says whether it is."""
        if self._hashes is None:
            section, expected = self._ids
            if checksum(section) != expected:
                raise damaged(self.path, "its ids do not match their checksum")
            self._hashes = section[: 4 * self.pages].view("<u4")
        self.lookups += 1
        found: list[int] = np.flatnonzero(self._hashes == np.uint32(id_hash(page_id))).tolist()
        return found

    def columns(self, names: Collection[str]) -> dict[str, AnyColumn]:
        """The columns of those of some fields that are stored, or are on no page."""
        found = {}
        for name in names:
            if name not in self._columns and self._has(name):
                self._columns[name] = self._read(name)
            if name in self._columns:
                found[name] = self._columns[name]
        return found

    def read_all(self) -> None:
        """Read and check everything."""
        self.rows("")
        self.columns(self.names)

    @property
    def names(self) -> list[str]:
        """The fields that are stored."""
        return [field["name"] for field in self._fields()["fields"]]

    def _has(self, name: str) -> bool:
        left_out = self._fields()["left_out"]
        return name in self.names if left_out is None else name not in left_out

    def _fields(self) -> dict[str, Any]:
        if self._described is None:
            text, section, expected = self._directory
            if checksum(section) != expected:
                raise damaged(self.path, "its directory does not match its checksum")
            self._described = self._checked(text.tobytes())
        return self._described

    def _checked(self, text: bytes) -> dict[str, Any]:
        """The directory, every entry of which points into the data."""
        try:
            described = json.loads(text)
            if not isinstance(described["left_out"], list | None):
                raise TypeError
            for field in described["fields"]:
                numbers = [field["at"], field["bytes"], field["runs"], field["checksum"]]
                numbers += field["values"] or []
                fits = 0 <= field["at"] <= field["at"] + field["bytes"] <= self._size
                if not fits or any(type(number) is not int or number < 0 for number in numbers):
                    raise ValueError
                if type(field["least"]) not in (int, type(None)) or field["type"] not in TYPES:
                    raise ValueError
                if abs(field["least"] or 0) > 2 * EXACT or not isinstance(field["name"], str):
                    raise ValueError
                are_floats = field["least"] is None and field["values"] is None
                if (field["type"] == "f8") != are_floats:
                    raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise damaged(self.path, "its directory cannot be read") from None
        found: dict[str, Any] = described
        return found

    def _read(self, name: str) -> AnyColumn:
        field = next((one for one in self._fields()["fields"] if one["name"] == name), None)
        if field is None:
            return Column(np.zeros(self.pages, np.uint8), [])
        data = self._data[field["at"] : field["at"] + field["bytes"]].tobytes()
        if checksum(data) != field["checksum"]:
            raise damaged(self.path, f"column {name!r} does not match its checksum")
        try:
            return self._unpacked(data, field)
        except (ValueError, TypeError, RecursionError, zlib.error):
            raise damaged(self.path, f"column {name!r} cannot be read") from None

    def _unpacked(self, data: bytes, field: dict[str, Any]) -> AnyColumn:
        deflated, inflated = field["values"] or (0, 0)
        runs, stored = field["runs"], np.dtype(f"<{field['type']}")
        count = runs or self.pages
        if len(data) != deflated + 4 * runs + count * stored.itemsize:
            raise ValueError
        numbers = np.frombuffer(data, stored, count, deflated + 4 * runs)
        if runs:
            starts = np.frombuffer(data, "<u4", runs, deflated).astype(np.int64)
            lengths = np.diff(starts, append=self.pages)
            if starts[0] != 0 or (lengths < 1).any():
                raise ValueError
            numbers = np.repeat(numbers, lengths)
        if field["values"] is None:
            return NumberColumn(numbers, field["least"])
        if not 0 < inflated <= MOST_VALUES_BYTES:
            raise ValueError
        values = json.loads(zlib.decompressobj().decompress(data[:deflated], inflated))
        if not isinstance(values, list) or int(numbers.max(initial=0)) > len(values):
            raise ValueError
        return Column(numbers, values)


def open_columns(path: Path, pages: int, segment: int) -> ColumnFile:
    """Open the columns of a segment; refuse those of another."""
    file = ColumnFile(path)
    if (file.pages, file.segment) != (pages, segment):
        raise damaged(path, "it belongs to another segment")
    return file


def stored_columns(file: ColumnFile | None, names: Collection[str]) -> dict[str, AnyColumn]:
    """The columns that a file has; none of a file that is missing or damaged."""
    try:
        return {} if file is None else file.columns(names)
    except CorruptIndexError:
        return {}


def _pack(column: Column) -> _Packed:
    """A column in the fewest bytes."""
    values, numbers = column.values, column.numbers
    if all(is_number(value) and abs(value) <= EXACT for value in values):
        if all(type(value) is int for value in values):
            least = min(values) - 1
            each = np.array([0, *(value - least for value in values)], np.uint64)
            return _runs(_narrow(each[numbers]), least, b"", None)
        each = np.array([np.nan, *values], "<f8")
        return _runs(each[numbers], None, b"", None)
    text = json.dumps(values, ensure_ascii=False).encode()
    deflated = zlib.compress(text, 9)
    return _runs(_narrow(numbers), None, deflated, (len(deflated), len(text)))


def _narrow(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whole numbers in the fewest bytes."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _runs(
    numbers: npt.NDArray[Any], least: int | None, before: bytes, values: tuple[int, int] | None
) -> _Packed:
    """Numbers as runs of equal ones, if that is shorter; `before` are the values they stand for."""
    kind = numbers.dtype.str.lstrip("<|=")
    bits = numbers.view(f"u{numbers.itemsize}")  # a NaN equals itself
    starts = np.flatnonzero(np.append(True, bits[1:] != bits[:-1]))
    plain = numbers.astype(f"<{kind}").tobytes()
    if len(starts) * (4 + numbers.itemsize) >= len(plain):
        return _Packed(kind, least, 0, values, before + plain)
    held = starts.astype("<u4").tobytes() + numbers[starts].astype(f"<{kind}").tobytes()
    return _Packed(kind, least, len(starts), values, before + held)
