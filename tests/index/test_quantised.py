"""An index of codes in a few bits a number, with residual: what goes in comes out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec.codes import Blobs, Codes
from glie.codec.readout.residual import Residual
from glie.index.memory import CodesInMemory, search_codes
from glie.index.segment import StoredCodes
from glie.kernels.quantize import BITS, DTYPES, row_bytes
from glie.pages import Queries
from glie.storage import json_digest
from tests.codec.networks import random_codec
from tests.conftest import Floats, make_arrays

FEW_BITS = tuple(BITS)


class WithResidual(glie.Codec):
    """Keeps a few bytes of each page that say which it is."""

    def code(self, pages: glie.Pages, free: Codes) -> Codes:
        blobs = [residual_codes(page_id) for page_id in pages.ids]
        return dataclasses.replace(super().code(pages, free), residual=Blobs.of(blobs))


def residual_codes(page_id: str) -> bytes:
    return page_id.encode() * (int(page_id) % 3)


def plain(query: Floats, vectors: Floats) -> float:
    return float((query @ vectors.T).max(axis=1).sum())


def codes_of(index: glie.Index) -> Codes:
    """The stored codes of the live pages, under their ids."""
    state = index._state
    positions = np.array(sorted(state.positions.values()))
    return dataclasses.replace(state.codes_at(positions), ids=index.ids)


def assert_same(mine: Codes, expected: Codes) -> None:
    assert mine.ids == expected.ids
    for name in ("vectors", "norms", "counts"):
        one, other = getattr(mine, name), getattr(expected, name)
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), name
    assert mine.packed is not None
    if expected.packed is not None:
        assert mine.packed.rows.tobytes() == expected.packed.rows.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_the_life_of_an_index(tmp_path: Path, dtype: str, fitted: bool, residual: bool) -> None:
    """Added in parts, deleted, merged, compacted, verified, opened again and searched."""
    codec = (random_codec(16, 1, 3) if fitted else glie.Codec(3)).stored_as(dtype)
    index = glie.Index.create(tmp_path / "life.glie", codec)
    if residual:
        index.codec = WithResidual.from_config(codec.config, codec.readout)
    arrays = [*make_arrays(19, high=90), np.eye(16, dtype=np.float32)[:2]]
    pages = glie.Pages(arrays, ids=[str(i) for i in range(20)])
    for first, last in ((0, 12), (12, 13), (13, 14), (14, 20)):
        index.add(pages.slice(first, last), [{"page": i} for i in range(first, last)])
    index.delete(["3", "15"])
    for change in (index.refresh, index.compact, index.verify):
        change()
        again = glie.Index.open(index.path)
        live = [i for i in range(20) if i not in (3, 15)]
        assert again.ids == [str(i) for i in live]
        found = codes_of(again)
        expected = index.codec.compress(pages).take(np.array(live))
        if dtype == "bf16":
            expected = StoredCodes.of(expected).read(expected.ids)
        assert_same(found, expected)
        assert (found.residual is not None) == residual
        if found.residual is not None:
            blobs = [blob.tobytes() for blob in found.residual]
            assert blobs == [residual_codes(page_id) for page_id in again.ids]
        queries = make_arrays(3, seed=8, low=2, high=6)
        made = codec.regenerate(found) if codec.decoder else None
        hits = again.search(queries, top=5, shortlist=18)
        for query, mine in zip(queries, hits, strict=True):
            scores = {}
            for i, page_id in enumerate(again.ids):
                vectors = found.vectors[i][found.counts[i] > 0] if made is None else made[i]
                scores[page_id] = plain(query, vectors)
            best = sorted(scores.values(), reverse=True)[:5]
            np.testing.assert_allclose(mine.scores, best, rtol=1e-5, atol=1e-5)
            assert all(
                abs(scores[i] - s) < 1e-4 for i, s in zip(mine.ids, mine.scores, strict=True)
            )
        assert again.search(queries, top=3, shortlist=0)[0].scores == pytest.approx(
            search_codes(Queries(queries), found, None, 3).scores[0].tolist(), abs=1e-6
        )
        assert again.metadata("13") == {"page": 13}
        assert again.search([]) == []
    files = [path.read_bytes()[8] for path in (index.path / "segments").glob("*.seg")]
    assert files == [3]


@pytest.mark.parametrize("dtype", FEW_BITS)
def test_what_a_page_weighs(tmp_path: Path, dtype: str) -> None:
    pages = glie.Pages(make_arrays(20, dim=12, low=31, high=31))
    for codec, sizes in ((glie.Codec(4), 1), (random_codec(12, 0), 2)):
        index = glie.Index.create(tmp_path / f"{sizes}", codec.stored_as(dtype))
        assert index.info().code_bytes_per_page is None
        index.add(pages)
        each = 4 * (row_bytes(12, dtype) + sizes)
        info = index.info()
        assert (info.code_bytes_per_page, info.dtype, info.vectors) == (each, dtype, 620)
        cost = index.search(make_arrays(1, dim=12), shortlist=0)[0].cost
        assert cost.bytes_read == 20 * 4 * (row_bytes(12, dtype) + 1)
        codes = index.codec.compress(pages)
        assert CodesInMemory([codes.take(np.arange(7)), codes]).bytes_per_page == each


def test_residual_is_read_for_the_shortlist_alone(tmp_path: Path) -> None:
    codec = random_codec(16, 1).stored_as("int2")
    index = glie.Index.create(tmp_path / "a", codec)
    index.codec = WithResidual.from_config(codec.config, codec.readout)
    index.add(glie.Pages(make_arrays(20), ids=[str(i) for i in range(20)]))
    query = make_arrays(1, seed=3)
    scan = index.search(query, shortlist=0)[0]
    hits = index.search(query, top=4, shortlist=4)[0]
    extra = sum(len(residual_codes(page_id)) for page_id in hits.ids)
    assert hits.cost.bytes_read == scan.cost.bytes_read + extra


def test_codes_in_memory_are_searched_as_an_index_would(tmp_path: Path) -> None:
    pages = glie.Pages(make_arrays(20), ids=[str(i) for i in range(20)])
    queries = make_arrays(4, seed=8)
    for dtype in DTYPES:
        codec = random_codec(16, 2).stored_as(dtype)
        index = glie.Index.create(tmp_path / dtype, codec)
        index.add(pages)
        codes = codec.compress(pages)
        parts = CodesInMemory([codes.take(np.arange(7)), codes.take(np.arange(7, 20))])
        for stored in (codes, parts):
            found = search_codes(Queries(queries), stored, codec.regenerate, 6, 9)
            for hits, positions, scores in zip(
                index.search(queries, top=6, shortlist=9),
                found.positions,
                found.scores,
                strict=True,
            ):
                assert hits.ids == [str(position) for position in positions]
                assert hits.scores == scores.tolist()
            assert found.cost.bytes_read == hits.cost.bytes_read


def test_residual_that_is_too_long_changes_nothing(tmp_path: Path) -> None:
    class TooMuch(glie.Codec):
        def code(self, pages: glie.Pages, free: Codes) -> Codes:
            return dataclasses.replace(free, residual=Blobs.of([b"", bytes(65536)]))

    index = glie.Index.create(tmp_path / "a")
    index.codec = TooMuch()
    with pytest.raises(glie.InputError, match="residual of page 'y': 65536 bytes, at most 65535"):
        index.add(glie.Pages(make_arrays(2), ids=["x", "y"]))
    assert len(glie.Index.open(index.path)) == 0


def test_a_segment_of_another_type_is_refused(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "a", glie.Codec(2, dtype="int2"))
    index.add(glie.Pages(make_arrays(3)))
    path = index.path / "manifest.json"
    body = json.loads(path.read_text())
    del body["checksum"]
    for dtype, message in (("int4", "its codes are stored in int2"), ("bf16", "stored in int2")):
        body["codec"]["dtype"] = dtype
        path.write_text(json.dumps({**body, "checksum": json_digest(body, ascii=False)}))
        with pytest.raises(glie.CorruptIndexError, match=message):
            glie.Index.open(index.path)
    body["segments"], body["codec"]["dtype"] = [], "int3"
    path.write_text(json.dumps({**body, "checksum": json_digest(body, ascii=False)}))
    with pytest.raises(glie.CorruptIndexError, match="dtype: expected one of bf16"):
        glie.Index.open(index.path)


def test_a_glie_without_these_types_would_say_so(tmp_path: Path) -> None:
    """The manifest of an index in bfloat16 names no type; any other is a setting by itself, and a
    reader refuses settings that it does not know."""
    for dtype in DTYPES:
        index = glie.Index.create(tmp_path / dtype, glie.Codec(2, dtype=dtype))
        settings = json.loads((index.path / "manifest.json").read_text())["codec"]
        assert settings.pop("dtype", "bf16") == dtype
        assert settings.keys() == {"k", "restarts", "iterations", "seed"}
    with pytest.raises(glie.InputError, match="newer is unknown to this version of glie"):
        glie.CodecConfig.from_dict({"k": 2, "newer": 1})


def test_a_large_index_reranks_more_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glie.codec.readout.base.SHORTLIST_PAGES", 10)
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=300, adapt=False))
    index.add(glie.Pages(make_arrays(40, dim=128)))
    query = make_arrays(1, dim=128)
    monkeypatch.setattr(Residual, "shortlist", 4)
    assert index.search(query, top=3)[0].cost.pages_regenerated == 8
    assert index.search(query, top=3, shortlist=5)[0].cost.pages_regenerated == 5
