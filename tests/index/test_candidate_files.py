"""Candidate files: written when they pay, kept through all changes, and always checked."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie import storage
from glie.candidates import build
from glie.candidates.build import encode_pages
from glie.codec import choose
from glie.codec.budget import OVERHEAD
from glie.codec.readout.residual import Residual
from glie.codec.readout.transform import Transform
from glie.index import adding, folder
from glie.index.adding import Batch
from glie.index.candidate_files import stored_vectors
from glie.index.format import PQ_HEADER
from glie.index.side_files import PQFile, pq_bytes
from glie.kernels.pq import CODE_BYTES, PQCodes
from glie.storage import checksum, json_digest
from tests.conftest import make_arrays

ENOUGH = 40  # pages, for a candidate index


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CANDIDATE_PAGES", ENOUGH)
    monkeypatch.setattr(build, "VECTORS_PER_STEP", 50)  # a segment is encoded in several steps


def pages(count: int, seed: int = 0) -> glie.Pages:
    return glie.Pages(
        make_arrays(count, seed=seed, low=1), ids=[f"{seed}-{i}" for i in range(count)]
    )


@pytest.fixture
def large(tmp_path: Path) -> glie.Index:
    """60 pages, enough for a candidate index, in two segments; three deleted."""
    index = glie.Index.create(tmp_path / "large.glie", glie.Codec(k=4, dtype="int4"))
    index.add(pages(50), metadata=[{"part": i % 5, "late": i >= 45} for i in range(50)])
    index.add(pages(10, seed=1), metadata=[{"part": 9}] * 10)
    index.delete(["0-3", "0-4", "1-2"])
    return index


def files(index: glie.Index, kind: str) -> list[Path]:
    return sorted((index.path / "segments").glob(f"*.{kind}"))


def check(index: glie.Index) -> None:
    """All is there, nothing more, and what it says is what the codes say."""
    index = glie.Index.open(index.path)
    index.verify()
    state = index._state
    assert state.manifest.candidates is not None
    assert len(files(index, "fnd")) == 1
    assert len(files(index, "sig")) == len(files(index, "seg")) == len(state.segments)
    for segment, file in zip(state.segments, state.candidates.pq_files, strict=True):
        for stored, made in zip(
            file.pq_codes,
            encode_pages(stored_vectors(segment), state.candidates.ivf_pq),
            strict=True,
        ):
            np.testing.assert_array_equal(stored, made)
    assert index.info().candidate_bytes == sum(
        path.stat().st_size for kind in ("fnd", "sig") for path in files(index, kind)
    )
    same_answers(index)


def same_answers(index: glie.Index, **restricted: Any) -> None:
    """With all pages as candidates, those of the exact scan."""
    queries = make_arrays(3, seed=9, low=2, high=6)
    one, two = (
        index.search(queries, top=len(index), exact=how, **restricted) for how in (True, False)
    )
    assert [(hits.ids, hits.scores) for hits in one] == [(hits.ids, hits.scores) for hits in two]


def version(index: glie.Index) -> int:
    return int(json.loads((index.path / "manifest.json").read_text())["version"])


def test_made_by_the_addition_that_makes_it_pay(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "a.glie", glie.Codec(k=4, dtype="int2"))
    index.add(pages(ENOUGH - 1))
    assert files(index, "sig") == files(index, "fnd") == []
    assert (version(index), index.info().candidate_bytes) == (1, 0)
    assert index.search(make_arrays(1))[0].cost.pages_estimated == 0
    index.add(pages(1, seed=1))
    assert version(index) == 2
    check(index)
    cost = index.search(make_arrays(1))[0].cost
    assert cost.pages_estimated > 0
    assert index.search(make_arrays(1), exact=True)[0].cost.pages_estimated == 0


def test_kept_through_additions_deletions_and_compaction(large: glie.Index) -> None:
    ivf_pq = files(large, "fnd")
    check(large)
    large.add(pages(5, seed=2), replacing=["0-7", "1-0"])
    check(large)
    large.compact()
    assert files(large, "fnd") == ivf_pq
    assert len(large) == 60
    check(large)
    large.delete(large.ids[20:])
    assert files(large, "fnd") == ivf_pq
    large.compact()  # too few pages are left for one to pay
    assert files(large, "fnd") == files(large, "sig") == []
    assert version(large) == 1
    assert len(glie.Index.open(large.path).search(make_arrays(1), top=99)[0]) == 20


def test_gone_when_there_is_little_left(large: glie.Index) -> None:
    large.delete([page_id for page_id in large.ids if page_id.startswith("0-")])
    assert len(large._state.segments) == 1
    large.compact()
    assert version(large) == 1
    assert not files(large, "fnd") + files(large, "sig")
    large.delete(large.ids)
    assert large.info().candidate_bytes == 0


def test_gone_with_the_last_page(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "x", glie.Codec(k=2))
    index.add(pages(50))
    index.delete(index.ids)
    assert version(index) == 1
    assert index.info().candidate_bytes == 0
    index.add(pages(5))
    same_answers(index)


def test_fitted_anew_when_outgrown(large: glie.Index) -> None:
    before = files(large, "fnd")
    large.add(pages(120, seed=3))
    assert files(large, "fnd") == before
    large.add(pages(40, seed=4))
    assert files(large, "fnd") != before
    check(large)


def test_a_reader_keeps_its_state(large: glie.Index) -> None:
    reader = glie.Index.open(large.path)
    queries = make_arrays(3, seed=5)
    expected = [hits.ids for hits in large.search(queries, exact=False)]
    large.add(pages(200, seed=3))  # which fits the candidate index anew
    large.compact()
    assert [hits.ids for hits in reader.search(queries, exact=False)] == expected
    reader.refresh()
    check(reader)
    assert len(reader) == 257


def test_restricted_searches(large: glie.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    some = large.ids[5:50:3]
    restrictions: list[dict[str, Any]] = [
        {"ids": some},
        {"where": {"part": [2, 9]}},
        {"where": {"late": True}},
    ]
    for restricted in restrictions:
        same_answers(large, **restricted)
        hits = large.search(make_arrays(1), top=99, **restricted)[0]
        assert hits.cost.pages_estimated == 0  # so few are scanned
        assert len(hits) == hits.cost.pages_scanned
    assert set(large.search(make_arrays(1), top=99, ids=some, exact=False)[0].ids) == set(some)
    monkeypatch.setattr(build, "CANDIDATE_PAGES", 10)
    assert large.search(make_arrays(1), top=3, ids=some)[0].cost.pages_estimated > 0
    assert large.search(make_arrays(1), where={"part": 77}, exact=False)[0].ids == []


def test_a_large_index_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As older versions have made them: scanned, until it is compacted or grows."""
    index = glie.Index.create(tmp_path / "old.glie", glie.Codec(k=4))
    with monkeypatch.context() as patch:
        patch.setattr(build, "CANDIDATE_PAGES", 10**9)
        index.add(pages(50))
    index = glie.Index.open(index.path)
    assert index.search(make_arrays(1))[0].cost.pages_estimated == 0
    assert index.search(make_arrays(1), exact=False)[0].cost.pages_estimated > 0
    same_answers(index)
    index.delete(["0-1"])
    assert files(index, "sig") == []  # a deletion is quick
    index.compact()
    check(index)
    index.compact()  # nothing to do
    check(index)


def test_a_shrunk_index_has_its_own(large: glie.Index, tmp_path: Path) -> None:
    small = large.shrunk(tmp_path / "small.glie", bytes_per_page=50)
    assert small.ids == large.ids
    assert (small.codec.dtype, large.codec.dtype) == ("int2", "int4")
    check(small)
    check(large)


@pytest.mark.parametrize("failing", [".sig", ".fnd", ".new"])
def test_an_interrupted_write_changes_nothing(
    large: glie.Index, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    ids, manifest = large.ids, (large.path / "manifest.json").read_bytes()
    real = storage.write_durably

    def fails(path: Path, data: bytes) -> None:
        if path.suffix == failing:
            raise OSError(28, "No space left on device")
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_durably", fails)
        with pytest.raises(glie.IndexFolderError, match="No space left on device"):
            large.add(pages(200, seed=3))  # which would fit the candidate index anew
    assert (large.path / "manifest.json").read_bytes() == manifest
    assert large.ids == glie.Index.open(large.path).ids == ids
    same_answers(large)
    large.add(pages(200, seed=3))
    check(large)  # and nothing is left of the first attempt


@pytest.mark.parametrize("kind", ["sig", "fnd"])
def test_damage_is_named(large: glie.Index, kind: str) -> None:
    path = files(large, kind)[0]
    good = path.read_bytes()
    for at in (0, 9, 20, 30, 70, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(glie.CorruptIndexError, match=rf"{path.name}: damaged"):
            glie.Index.open(large.path).verify()
        same_answers(glie.Index.open(large.path))  # reading goes on without it
    for cut in (b"", good[:40], good[:-1]):
        path.write_bytes(cut)
        with pytest.raises(glie.CorruptIndexError, match=rf"{path.name}: damaged"):
            glie.Index.open(large.path).verify()
    path.unlink()
    with pytest.raises(glie.CorruptIndexError, match=rf"{path.name}: damaged: the file is missing"):
        glie.Index.open(large.path).verify()
    path.write_bytes(good)
    check(large)


def test_pq_codes_of_another_segment_are_refused(large: glie.Index) -> None:
    one, two = files(large, "sig")
    two.write_bytes(one.read_bytes())
    with pytest.raises(
        glie.CorruptIndexError, match="it belongs to another segment or another candidate index"
    ):
        glie.Index.open(large.path).verify()
    assert glie.Index.open(large.path).search(make_arrays(1))[0].cost.pages_estimated == 0


def test_a_list_that_does_not_exist_is_refused(large: glie.Index) -> None:
    """Its checksum is right, what it covers is not."""
    state, path = large._state, files(large, "sig")[0]
    file = state.candidates.pq_files[0]
    lists = file.pq_codes.lists.copy()
    lists[0, 0] = state.candidates.ivf_pq.lists
    path.write_bytes(pq_bytes(file.pq_codes._replace(lists=lists), file.segment, file.candidates))
    with pytest.raises(glie.CorruptIndexError, match="a list number is too high"):
        glie.Index.open(large.path).verify()
    assert glie.Index.open(large.path).search(make_arrays(1))[0].cost.pages_estimated == 0


@pytest.mark.parametrize(
    "change",
    [
        {"finder": None},
        {"finder": {"number": 1}},
        {"finder": {"number": -1, "checksum": 0, "pages": 1}},
        {"finder": {"number": 1, "checksum": "x", "pages": 1}},
        {"finder": [1, 2, 3]},
    ],
)
def test_a_forged_manifest_is_refused(large: glie.Index, change: dict[str, Any]) -> None:
    path = large.path / "manifest.json"
    body = {**json.loads(path.read_text()), **change}
    del body["checksum"]
    path.write_text(json.dumps({**body, "checksum": json_digest(body, ascii=False)}))
    with pytest.raises(glie.CorruptIndexError, match=r"manifest\.json"):
        glie.Index.open(large.path)


def test_every_byte_of_a_file_of_pq_codes(tmp_path: Path) -> None:
    """As docs/format.md says: two pages of one vector."""
    codes = np.arange(16, dtype=np.uint8).reshape(2, 1, 8)
    data = pq_bytes(PQCodes(np.array([[1], [258]], np.uint16), codes), 5, 6)
    lists = bytes([1, 0, 2, 1]) + bytes(60)
    head = b"GLIESIG\0" + struct.pack(
        "<IIQQQQQ", 1, 1, 2, 5, 6, checksum(lists), checksum(bytes(range(16)))
    )
    assert data == head + struct.pack("<Q", checksum(head)) + lists + bytes(range(16))
    assert len(head) + 8 == PQ_HEADER.size == 64
    path = tmp_path / "a.sig"
    path.write_bytes(data)
    file = PQFile(path)
    np.testing.assert_array_equal(file.pq_codes.lists, [[1], [258]])
    np.testing.assert_array_equal(file.pq_codes.codes, codes)


@pytest.mark.parametrize("given", ["pages", "expected"])
def test_pq_codes_are_part_of_a_budget_that_knows_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setattr(Residual, "fits", lambda *_: True)  # the shipped codebook
    plain, index = (
        glie.Index.create(tmp_path / name, glie.Codec(bytes_per_page=400))
        for name in ("plain", "index")
    )
    long = glie.Pages(make_arrays(ENOUGH, low=300, high=301, dim=128))
    plain.add(long.slice(0, ENOUGH - 1))
    if given == "pages":
        index.add(long)
    else:
        index.add(long.slice(0, ENOUGH - 1), expected_pages=ENOUGH)
    index = glie.Index.open(index.path)
    assert plain.codec.config.candidate_bytes == 0
    reserved = index.codec.config.candidate_bytes
    assert reserved >= CODE_BYTES * index.codec.k
    assert index.codec.config.bytes_per_page == 400
    assert index.codec.page_bytes(128) <= 400 - OVERHEAD - reserved
    assert plain.codec.page_bytes(128) > 400 - OVERHEAD - reserved
    with pytest.raises(glie.InputError, match="expected_pages: expected a whole number"):
        index.add(pages(1), expected_pages=-1)


@pytest.mark.parametrize(
    ("family", "readout"), [("codewords", Residual), ("coordinates", Transform)]
)
def test_and_of_the_budget_of_a_table_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, readout: type
) -> None:
    monkeypatch.setattr(choose, "FAMILIES", {family: choose.FAMILIES[family]})
    monkeypatch.setattr(adding, "FIRST_PAGES", 10)  # and more will come
    long = glie.Pages(make_arrays(30, low=300, high=301, dim=128))
    index = glie.Index.create(tmp_path / "index", glie.Codec(bytes_per_page=400))
    index.add([Batch(long.slice(0, 20)), Batch(long.slice(20, 30))], expected_pages=ENOUGH)
    codec = glie.Index.open(index.path).codec
    reserved = codec.config.candidate_bytes
    assert isinstance(codec.readout, readout)
    assert reserved >= CODE_BYTES * codec.k
    assert codec.page_bytes(128) <= 400 - OVERHEAD - reserved
