"""What is each engine's own: settings, errors on the way to it, versions."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie import engines
from glie.engines import Collection, points
from glie.engines.base import COMPACT, MULTIVECTOR, NUMBERS_PER_REQUEST, first_line, in_steps
from glie.engines.entries import rows_of
from glie.progress import Progress, ignore
from tests.conftest import make_arrays
from tests.engines.test_contract import COUNT, assert_same, make_index, queries


@pytest.fixture
def index(tmp_path: Path) -> glie.Index:
    return make_index(tmp_path)


class Listener(BaseHTTPRequestHandler):
    """Takes requests down, and answers each as it is told."""

    asked: list[tuple[str, str, str | None, Any]]
    version = "1.16.0"
    status = 200

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.asked.append((self.command, self.path, self.headers.get("api-key"), body))
        answer: Any = {"result": True, "status": "ok", "time": 0.0}
        if self.path == "/":
            answer = {"title": "qdrant", "version": self.version}
        elif self.path.endswith("/exists"):
            answer["result"] = {"exists": False}
        elif self.path.split("?")[0].endswith("/index"):
            answer["result"] = {"operation_id": 0, "status": "completed"}
        elif self.status != 200:
            answer = {"status": {"error": "Wrong input: no such thing"}, "time": 0.0}
        data = json.dumps(answer).encode()
        self.send_response(200 if self.path == "/" else self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Quietly."""


@pytest.fixture
def listener() -> Iterator[tuple[str, type[Listener]]]:
    """An address and what is listening there."""
    handler = type("Handler", (Listener,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_an_address_a_key_and_settings_reach_the_server(
    listener: tuple[str, type[Listener]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, server = listener
    monkeypatch.setenv("QDRANT_API_KEY", "secret")
    engine = engines.connect("qdrant", address, "reports")
    assert not engine.exists()
    settings = {
        "shard_number": 6,
        "replication_factor": 2,
        "on_disk": True,
        "quantization_config": {"scalar": {"type": "int8"}},
    }
    engine.create(128, MULTIVECTOR, settings)
    engine.close()
    assert {key for *_, key, _ in server.asked} == {"secret"}
    made = next(body for verb, path, _, body in server.asked if (verb, path[:20]) == MADE)
    assert (made["shard_number"], made["replication_factor"]) == (6, 2)
    assert made["quantization_config"]["scalar"]["type"] == "int8"
    codes, mean = made["vectors"]["codes"], made["vectors"]["page"]
    assert codes["multivector_config"] == {"comparator": "max_sim"}
    assert (codes["distance"], codes["size"], codes["hnsw_config"]["m"]) == ("Dot", 128, 0)
    assert (codes["on_disk"], mean["on_disk"], mean["size"]) == (True, True, 128)
    indexed = [body for _, path, _, body in server.asked if path.split("?")[0].endswith("/index")]
    assert [body["field_name"] for body in indexed] == ["terms"]
    server.asked.clear()
    engines.connect("qdrant", address.removeprefix("http://"), "x", api_key="other").close()
    assert [key for *_, key, _ in server.asked] == ["other"]


MADE = ("PUT", "/collections/reports")


@pytest.mark.parametrize(
    ("version", "settings", "datatype"),
    [
        ("1.18.2", {}, "float16"),
        ("1.19.0", {}, "turbo4"),
        ("1.19.0", {"datatype": "float32"}, "float32"),
    ],
)
def test_vectors_of_the_smallest_type_that_the_server_has(
    version: str, settings: dict[str, Any], datatype: str, listener: tuple[str, type[Listener]]
) -> None:
    address, server = listener
    server.version = version
    engine = engines.connect("qdrant", address, "reports")
    engine.create(128, COMPACT, settings)
    engine.close()
    made = next(body for verb, path, _, body in server.asked if (verb, path[:20]) == MADE)
    assert list(made["vectors"]) == ["page"]
    assert made["vectors"]["page"]["datatype"] == datatype
    assert made["vectors"]["page"]["hnsw_config"]["m"] == 0


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_servers_that_refuse(listener: tuple[str, type[Listener]]) -> None:
    address, server = listener
    engine = engines.connect("qdrant", address, "reports", api_key="wrong")
    server.status = 403
    with pytest.raises(glie.EngineError, match=r"refuses the API key; give one .* QDRANT_API_KEY"):
        engine.exists()
    server.status = 400
    with pytest.raises(glie.EngineError, match=r"answers 400: Wrong input: no such thing$"):
        engine.create(4, COMPACT, {})
    server.status, server.version = 200, "1.9.2"
    with pytest.raises(glie.EngineError, match=r"Qdrant 1\.9\.2; expected 1\.13 or newer"):
        engines.connect("qdrant", address, "reports")
    with pytest.raises(glie.EngineError, match=r"no answer of Qdrant's .*give the address of"):
        engine.count()
    engine.close()


def test_a_server_that_is_not_there(listener: tuple[str, type[Listener]]) -> None:
    with pytest.raises(glie.EngineError, match=r"127\.0\.0\.1:9, .*cannot be reached .*start the"):
        engines.connect("qdrant", "http://127.0.0.1:9", "reports")


@pytest.mark.parametrize(
    ("name", "package", "least"),
    [
        ("qdrant", "qdrant_client", "1.20"),
        ("qdrant-edge", "qdrant_edge_py", "0.9"),
        ("lancedb", "lancedb", "0.34"),
    ],
)
def test_an_old_client_is_named(name: str, package: str, least: str, tmp_path: Path) -> None:
    facts = tmp_path / f"{package}-0.1.0.dist-info"
    facts.mkdir()
    said = f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 0.1.0\n"
    (facts / "METADATA").write_text(said)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import glie
try:
    glie.engines.connect({name!r}, {str(tmp_path / "x")!r}, "x")
except glie.EngineError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f'0.1.0 is too old: expected {least} or newer; pip install --upgrade "glie[{name}]"' in (
        done.stdout
    )


def test_settings_of_qdrant(index: glie.Index) -> None:
    engine = engines.connect("qdrant", ":memory:", "reports")
    settings = {"on_disk": True, "datatype": "float16", "on_disk_payload": True}
    pages, _ = engines.export(index, engine, settings=settings)
    params = engine._client.get_collection("reports").config.params  # type: ignore[attr-defined]
    assert {vector.on_disk for vector in params.vectors.values()} == {True}
    assert params.vectors["page"].datatype == "float16"
    assert_same(pages.search(queries()), index.search(queries()))  # whatever the engine rounds
    with pytest.raises(glie.InputError, match=r"settings: .*shards"):
        engines.connect("qdrant", ":memory:", "other").create(16, COMPACT, {"shards": 1})
    with pytest.raises(glie.InputError, match=r"options: .*keys"):
        engines.connect("qdrant", "http://127.0.0.1:9", "reports", keys="x")
    pages.close()


def test_settings_of_qdrant_edge(index: glie.Index, tmp_path: Path) -> None:
    engine = engines.connect("qdrant-edge", tmp_path, "reports")
    settings = {"on_disk": True, "datatype": "float16"}
    pages, _ = engines.export(index, engine, layout=MULTIVECTOR, settings=settings)
    config = json.loads((tmp_path / "reports" / "edge_config.json").read_text())["vectors"]
    assert {vector["memory"] for vector in config.values()} == {"cold"}
    assert {vector["datatype"] for vector in config.values()} == {"float16"}
    assert config["codes"]["hnsw_config"]["m"] == 0
    assert config["codes"]["multivector_config"] == {"comparator": "max_sim"}
    assert_same(pages.search(queries()), index.search(queries()))
    for number, datatype in enumerate(("turbo4", "turbo8", "turbo16", "float16", "float32")):
        small = engines.connect("qdrant-edge", tmp_path, datatype)
        given = {"datatype": datatype} if number else {}
        compact, _ = engines.export(index, small, settings=given)
        config = json.loads((tmp_path / datatype / "edge_config.json").read_text())["vectors"]
        assert list(config) == ["page"]
        assert config["page"]["datatype"] == datatype
        assert config["page"]["hnsw_config"]["m"] == 0
        assert_same(compact.search(queries()), index.search(queries()))  # few: all are scored
        assert set(compact.search(queries()[:1], prefetch=9)[0].ids) <= set(index.ids)
        compact.close()
    other = engines.connect("qdrant-edge", tmp_path, "other")
    with pytest.raises(glie.InputError, match=r"settings: .*shards"):
        other.create(16, COMPACT, {"shards": 1})
    with pytest.raises(glie.InputError, match="datatype: expected one of float32"):
        other.create(16, COMPACT, {"datatype": "int3"})
    (tmp_path / "file").write_text("x")
    with pytest.raises(glie.EngineError, match="is a file; expected a folder"):
        engines.connect("qdrant-edge", tmp_path / "file", "reports")
    with pytest.raises(glie.EngineError, match="another process has it open"):
        Collection.open(engines.connect("qdrant-edge", tmp_path, "reports"))
    pages.close()


def test_settings_of_lancedb(index: glie.Index, tmp_path: Path) -> None:
    engine = engines.connect("lancedb", tmp_path, "reports")
    pages, _ = engines.export(index, engine, layout=MULTIVECTOR, settings={"datatype": "float16"})
    schema = engine.table.schema  # type: ignore[attr-defined]
    assert schema.field("codes").type.value_type.value_type == "halffloat"
    assert_same(pages.search(queries()), index.search(queries()))
    assert_same(pages.search(queries(), prefetch=COUNT), index.search(queries()))
    other = engines.connect("lancedb", tmp_path, "other")
    with pytest.raises(glie.InputError, match="settings: shards unknown"):
        other.create(16, COMPACT, {"shards": 1})
    with pytest.raises(glie.InputError, match="datatype: expected float32 or float16"):
        other.create(16, COMPACT, {"datatype": "int3"})
    with pytest.raises(glie.EngineError, match="a file; expected a folder"):
        engines.connect("lancedb", __file__, "reports")


def test_many_means_have_an_index_in_lancedb(
    index: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glie.engines.lancedb.ROWS_PER_INDEX", {COMPACT: COUNT})
    monkeypatch.setattr("glie.engines.lancedb.ROWS_PER_LIST", 10)
    monkeypatch.setattr("glie.engines.lancedb.FEWEST_PROBES", 1)
    engine: Any = engines.connect("lancedb", tmp_path, "reports")
    pages, _ = engines.export(index, engine)
    assert "IvfSq" in {one.index_type for one in engine.table.list_indices()}
    for where in (None, {"even": True}):  # it probes enough lists
        found = pages.search(queries(), prefetch=COUNT, where=where)
        assert_same(found, index.search(queries(), where=where))


@pytest.mark.parametrize("name", ["qdrant-edge", "lancedb"])
def test_an_export_that_was_interrupted_leaves_nothing_behind(
    name: str, index: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glie.engines.exporting.PAGES_PER_STEP", 12)

    def stop(step: Progress) -> None:
        if step.done > 20:
            raise KeyboardInterrupt

    sizes = []
    for folder, progress in ((tmp_path / "whole", ignore), (tmp_path / "halves", stop)):
        engine = engines.connect(name, folder, "reports")
        with contextlib.suppress(KeyboardInterrupt):
            engines.export(index, engine, progress=progress)
        engine.close()
        if (name, progress) == (
            "qdrant-edge",
            stop,
        ):  # what is left if it is killed as it optimises
            left = folder / "reports" / "temp_segments" / "x"
            left.mkdir(parents=True)
            with open(left / "y", "wb") as file:
                file.truncate(10**9)
        again = engines.connect(name, folder, "reports")
        pages, _ = engines.export(index, again)
        assert_same(pages.search(queries()), index.search(queries()))
        pages.close()
        sizes.append(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    assert sizes[1] < 1.1 * sizes[0]


def test_versions_of_lancedb(index: glie.Index, tmp_path: Path) -> None:
    engine = engines.connect("lancedb", tmp_path, "reports")
    pages, _ = engines.export(index, engine)
    before = engine.version  # type: ignore[attr-defined]
    pages.delete(index.ids[:30])
    engines.export(index, engine)  # what is exported again does away with no version
    pages.delete(index.ids[:30])
    then = engines.open("lancedb", tmp_path, "reports", version=before)
    assert_same(then.search(queries()), index.search(queries()))
    with pytest.raises(glie.EngineError, match="for reading only"):
        then.upsert(glie.Pages(make_arrays(1)))
    assert len(engines.open("lancedb", tmp_path, "reports")) == 10


def test_collections_of_others_are_left_alone(index: glie.Index, tmp_path: Path) -> None:
    import lancedb
    import pyarrow as pa
    import qdrant_client

    client = qdrant_client.QdrantClient(path=str(tmp_path / "qdrant"))
    params = qdrant_client.models.VectorParams(size=16, distance="Dot")
    client.create_collection("plain", vectors_config=params)
    client.create_collection("named", vectors_config={"codes": params, "page": params})
    client.close()
    table = pa.table({"id": pa.array(["a"])})
    lancedb.connect(tmp_path / "lance").create_table("plain", table)
    for name, folder, collection in (
        ("qdrant", "qdrant", "plain"),
        ("qdrant", "qdrant", "named"),
        ("lancedb", "lance", "plain"),
    ):
        engine = engines.connect(name, tmp_path / folder, collection)
        with pytest.raises(glie.EngineError, match="not made by glie; choose another name"):
            engines.export(index, engine)
        with pytest.raises(glie.EngineError, match="not made by glie"):
            Collection.open(engine)
        engine.close()
    assert lancedb.connect(tmp_path / "lance").open_table("plain").count_rows() == 1


def test_what_others_put_among_the_pages(index: glie.Index) -> None:
    from qdrant_client import models

    engine: Any = engines.connect("qdrant", ":memory:", "reports")
    pages, _ = engines.export(index, engine)
    codes = {"page": [1.0] * 16}
    engine._client.upsert("reports", [models.PointStruct(id=77, vector=codes, payload={"a": 1})])
    with pytest.raises(glie.EngineError, match="a point in it is not a page of glie"):
        pages.search([np.eye(16)[:3]], top=COUNT + 1)
    engine._client.delete("reports", [77])
    point = points.point_id(index.ids[0])
    engine._client.set_payload("reports", {"code": "AAAA"}, points=[point])
    with pytest.raises(glie.EngineError, match="is not a code of its codec"):
        pages.search([np.eye(16)[:3]], top=COUNT)
    pages.close()


@pytest.mark.parametrize(("name", "place"), [("qdrant", ":memory:"), ("qdrant-edge", "{}")])
def test_a_header_in_parts(
    name: str, place: str, index: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "HEADER_BYTES", 100)
    engine = engines.connect(name, place.format(tmp_path), "reports")
    engines.export(index, engine)
    pages = Collection.open(engine)
    assert pages.codec.same_as(index.codec)
    assert len(pages) == COUNT  # and no part is one
    assert dict(engine.records()) == dict(index.records())
    engine.close()


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"{", "its header cannot be read"),
        (b'{"format": "other", "version": 1}', "format 'other'"),
        (b'{"format": "glie-collection", "version": 3}', "written in version 3, .*upgrade glie"),
        (b'{"format": "glie-collection", "version": 1, "codec": {}}', "cannot be read"),
    ],
)
def test_headers_that_cannot_be_read(header: bytes, said: str, tmp_path: Path) -> None:
    engine = engines.connect("lancedb", tmp_path, "reports")
    engine.create(16, COMPACT, {})
    engine.write_header(header)
    with pytest.raises(glie.EngineError, match=said):
        Collection.open(engine)


def test_requests_are_bounded() -> None:
    codes = glie.Codec(k=4).compress(glie.Pages(make_arrays(5, low=8)))
    rows = rows_of(codes, None)
    assert [len(some) for some in in_steps(rows)] == [5]
    many = [
        row._replace(vectors=np.empty((NUMBERS_PER_REQUEST // 32, 16), np.float32)) for row in rows
    ]
    assert [len(some) for some in in_steps(many)] == [2, 2, 1]
    assert list(in_steps([])) == []


def test_a_large_collection_is_searched_by_prefetch(
    index: glie.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.connect("qdrant", ":memory:", "reports")
    pages, _ = engines.export(index, engine, layout=MULTIVECTOR)
    monkeypatch.setattr("glie.engines.collection.CANDIDATE_PAGES", COUNT)
    monkeypatch.setattr("glie.engines.collection.PREFETCH", 3)
    monkeypatch.setattr("glie.engines.collection.PREFETCH_EACH", 2)
    monkeypatch.setattr("glie.engines.collection.PREFETCH_ROOT", 0.1)
    assert len(pages.search(queries(), top=10)[0]) == 10
    assert pages.search(queries()[:1], top=1)[0].cost.pages_scanned == 3
    assert pages.search(queries()[:1], top=1, exact=True)[0].cost.pages_scanned == 9
    monkeypatch.setattr("glie.engines.collection.PREFETCH_ROOT", 1)
    assert pages.search(queries()[:1], top=1)[0].cost.pages_scanned == 6  # the root of 40
    monkeypatch.setattr("glie.engines.collection.CANDIDATE_PAGES", COUNT + 1)
    assert pages.search(queries()[:1], top=1)[0].cost.pages_scanned == 9
    pages.close()


def test_a_codec_that_could_adapt_is_the_same_once_it_is_settled() -> None:
    """The shipped codebook may be given up for another one while there is no page yet."""
    codec = glie.Codec(bytes_per_page=520)
    assert codec.adapts
    assert not codec.frozen.adapts
    engine = engines.connect("qdrant", ":memory:", "reports")
    Collection.create(engine, codec.frozen, 128)
    assert len(Collection.create(engine, codec, 128)) == 0
    with pytest.raises(glie.CodecError, match="no codebook yet"):
        Collection.create(engine, glie.Codec(bytes_per_page=520, adapt=True), 128)
    engine.close()


def test_many_ids_are_many_requests(index: glie.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glie.engines.collection.IDS_PER_REQUEST", 7)
    pages, _ = engines.export(index, engines.connect("qdrant", ":memory:", "reports"))
    some = index.ids[:20]
    assert_same(pages.search(queries(), ids=some), index.search(queries(), ids=some))
    assert pages.delete(some) == 20
    assert len(pages) == COUNT - 20
    pages.close()


def test_what_is_for_those_who_debug_is_left_out() -> None:
    said = "no region for bucket 'b', /root/.cargo/src/aws.rs:319:13"
    assert first_line(ValueError(said + "\nmore")) == "no region for bucket 'b'"
    assert first_line(ValueError("cannot open a, /tmp/b")) == "cannot open a, /tmp/b"
    assert first_line(ValueError()) == "ValueError"
