"""The file of columns: filters and ids are answered as by the records, in few bytes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glie
from glie.filters import from_json
from glie.filters.columns import matching
from glie.index import column_file
from glie.index.column_file import COLUMNS_HEADER, ColumnFile, columns_bytes
from glie.index.folder import Manifest
from glie.index.segment import record_line
from glie.storage import checksum
from tests.conftest import make_arrays

QUERIES = make_arrays(1, seed=99, low=2, high=4)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([1.0, 0.5, -0.0, 2**53, -(2**53), 2**53 + 2, 2**70, 1e300, 255, 256, 70_000]),
    st.sampled_from(["", "a", "ab", "\u00e9", "2020-01-01", "2020-01-01T00:00:00Z"]),
    st.lists(st.integers(0, 2), max_size=2),
)
NUMBERS = st.one_of(st.integers(-3, 300), st.sampled_from([2**53, -(2**53), 70_000]))
FLOATS = st.one_of(NUMBERS, st.floats(-5, 5))
PAGES = st.sampled_from([VALUES, NUMBERS, FLOATS]).flatmap(
    lambda kind: st.lists(st.dictionaries(st.sampled_from("xy"), kind), min_size=1, max_size=12)
)
ASKED: list[dict[str, Any]] = [
    {"x": 1},
    {"x": 0.5},
    {"x": True},
    {"x": [None, 0, "a", 2**53, 2**53 + 1]},
    {"x": {">=": 0, "<": 2}},
    {"x": {">": 2**53 - 1}},
    {"x": {"<=": 10**400}},
    {"x": {">": 2**53 + 1}},
    {"x": {"<": -1e300}},
    {"x": {">": "2019-12-31"}},
    {"x": {"exists": False}},
    {"x": {"prefix": "a"}, "y": {"exists": True}},
    {"or": [{"x": 255}, {"y": {"!=": "a"}}, {"z": 1}]},
]


def written(path: Path, pages: list[dict[str, Any]]) -> ColumnFile:
    lines = [record_line(f"p{row}", metadata) for row, metadata in enumerate(pages)]
    path.write_bytes(columns_bytes(lines, 7))
    return ColumnFile(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PAGES, st.integers(1, 5))
def test_columns_agree_with_records(
    tmp_path: Path, pages: list[dict[str, Any]], times: int
) -> None:
    pages = [page for page in pages for _ in range(times)]  # runs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_file, "FIELD_BYTES", 1000)
        patch.setattr(column_file, "ALL_BYTES", 1000)
        file = written(tmp_path / "x.col", pages)
    assert set(file.names) == set().union(*pages)
    for asked in ASKED:
        where = from_json(asked)
        found = matching(where, file.columns(where.fields), len(pages))
        assert found.tolist() == [where.matches(page) for page in pages], asked
    for row in range(len(pages)):
        assert row in file.rows(f"p{row}")
    assert file.rows("none") == []


def test_the_example_of_the_format(tmp_path: Path) -> None:
    """The file that docs/format.md describes."""
    data = bytes([1, 3, 0])
    ids = struct.pack("<3I", *(checksum(name) & 0xFFFFFFFF for name in (b"p0", b"p1", b"p2")))
    field = {"name": "year", "type": "u1", "least": 2017, "runs": 0, "values": None, "at": 0}
    field |= {"bytes": 3, "checksum": checksum(data)}
    directory = json.dumps({"fields": [field], "left_out": []}).encode()
    sections = [part + bytes(-len(part) % 64) for part in (ids, directory, data)]
    head = b"GLIECOL\0" + struct.pack("<II4Q", 1, 0, 3, 7, len(directory), 3)
    head = (head + struct.pack("<2Q", *map(checksum, sections[:2]))).ljust(120, b"\0")
    expected = head + struct.pack("<Q", checksum(head)) + b"".join(sections)
    written(tmp_path / "x.col", [{"year": 2018}, {"year": 2020}, {}])
    assert (tmp_path / "x.col").read_bytes() == expected


def test_what_takes_many_bytes_is_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pages = [
        {"year": 2000 + i // 100, "document": f"reports/{i // 20}.pdf", "key": rng.bytes(9).hex()}
        for i in range(2000)
    ]
    file = written(tmp_path / "x.col", pages)
    assert file.names == ["year", "document"]
    assert file.columns(["key"]) == {}  # the records have it
    assert list(file.columns(["never"])) == ["never"]  # no page has it
    assert file.bytes < 6 * len(pages)
    many = written(tmp_path / "x.col", [{f"f{i}": "a" for i in range(600)} for _ in range(20)])
    assert len(many.names) <= 256
    assert many.columns(["never"]) == {}  # too many fields to say
    assert many.bytes < 20 * (column_file.ALL_BYTES + 4) + 256 * 150


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.col"
    file = written(path, [{"x": "a", "y": i} for i in range(40)])
    file.read_all()
    data = path.read_bytes()
    used = [*range(COLUMNS_HEADER.size + 160), len(data) - 64]
    for at in used:
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(glie.CorruptIndexError):
            ColumnFile(path).read_all()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("at", 10**6), ("at", -1), ("bytes", 1), ("runs", 1), ("runs", 10**9), ("type", "f8")),
        *(("type", "O"), ("least", 2**60), ("least", "a"), ("values", [3, 0]), ("values", "ab")),
        *(("values", [1, 2**40]), ("values", [20, 1]), ("name", 3), ("checksum", None)),
    ],
)
def test_a_forged_directory_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "x.col"
    written(path, [{"x": "ab"[i % 2]} for i in range(40)])
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data, 32)[0]
    first = COLUMNS_HEADER.size + 192
    described = json.loads(data[first : first + length])
    described["fields"][0][key] = value
    directory = json.dumps(described).encode()
    section = directory + bytes(-len(directory) % 64)
    head = bytearray(data[:120])
    struct.pack_into("<Q", head, 32, len(directory))
    struct.pack_into("<Q", head, 56, checksum(section))
    rest = data[first + length + (-length % 64) :]
    ids = data[COLUMNS_HEADER.size : first]
    path.write_bytes(bytes(head) + struct.pack("<Q", checksum(bytes(head))) + ids + section + rest)
    with pytest.raises(glie.CorruptIndexError):
        ColumnFile(path).read_all()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> glie.Index:
    """Two segments with columns, and a small one without."""
    monkeypatch.setattr(column_file, "FEWEST_PAGES", 5)
    made = glie.Index.create(tmp_path / "a.glie", glie.Codec(k=2))
    for first, count in (0, 20), (20, 9), (29, 3):
        ids = [f"p{i}" for i in range(first, first + count)]
        made.add(
            glie.Pages(make_arrays(40)[first : first + count], ids=ids),
            [{"n": int(name[1:]), "half": int(name[1:]) / 2} for name in ids],
        )
    return made


def columns_in(index: glie.Index) -> list[bool]:
    return [entry.columns is not None for entry in Manifest.read(index.path).segments]


def test_filters_and_ids_read_no_records(
    index: glie.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert columns_in(index) == [True, True, False]
    body = json.loads((index.path / "manifest.json").read_text())
    assert body["version"] == 4
    read = list[Path]()
    records = glie.index.segment.Segment.records

    def noted(self: Any) -> Any:
        read.append(self.path)
        return records(self)

    monkeypatch.setattr("glie.index.segment.Segment.records", noted)
    opened = glie.Index.open(index.path)
    (hits,) = opened.search(QUERIES, 40, where={"n": {">=": 18, "<": 31}, "half": {"<": 15}})
    assert set(hits.ids) == {f"p{i}" for i in range(18, 30)}
    assert opened.metadata("p19")["n"] == 19
    assert "p40" not in opened
    opened.delete(["p3"])
    assert ("p3" in opened, "p4" in opened) == (False, True)
    with pytest.raises(glie.IdError, match="already in the index"):
        opened.add(glie.Pages(make_arrays(1), ids=["p4"]))
    opened.add(glie.Pages(make_arrays(1), ids=["p3"]), [{"n": 3}])
    assert opened.metadata("p3") == {"n": 3}
    assert {path.name for path in read} <= {"00000003.seg", "00000005.seg"}  # the small ones


def test_many_ids_are_looked_up_in_a_dict(
    index: glie.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glie.index.snapshot.LOOKUPS", 2)
    opened = glie.Index.open(index.path)
    assert [opened.metadata(f"p{i}")["n"] for i in range(32)] == list(range(32))


def test_columns_follow_every_change(index: glie.Index, tmp_path: Path) -> None:
    index.delete(["p2"])
    index.compact()
    assert columns_in(index) == [True]
    assert index.info().column_bytes > 0
    (hits,) = index.search(QUERIES, 40, where={"n": [1, 2, 30]})
    assert set(hits.ids) == {"p1", "p30"}
    other = glie.Index.create(tmp_path / "b.glie", glie.Codec(k=2))
    other.merge(index)
    assert columns_in(other) == [True]
    assert other.search(QUERIES, 40, where={"n": {"<": 3}})[0].ids


def test_an_index_without_columns_gains_them_by_compact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = glie.Index.create(tmp_path / "a.glie", glie.Codec(k=2))
    index.add(glie.Pages(make_arrays(8)), [{"n": i} for i in range(8)])
    assert columns_in(index) == [False]
    assert json.loads((index.path / "manifest.json").read_text())["version"] == 1
    monkeypatch.setattr(column_file, "FEWEST_PAGES", 5)
    assert index.search(QUERIES, where={"n": {">": 5}})[0].ids
    index.compact()
    assert columns_in(index) == [True]
    generation = index.generation
    index.compact()
    assert index.generation == generation
