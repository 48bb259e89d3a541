"""Documents by a real Ray cluster of two workers, one of which is killed on the way."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import glie
from glie import engines, renamed
from glie.distributed import ShardedIndex
from glie.distributed import cluster as on_cluster
from glie.distributed import ingest as on_ingest
from glie.distributed.ingest import first_shard, ingest_on_ray, take_unfinished
from glie.engines import Collection
from glie.errors import DocumentError
from glie.ingest import IngestProgress, Reading, Report, ingest
from tests.cli.conftest import Run, run  # noqa: F401
from tests.conftest import Floats, unit
from tests.encoders.test_encoders import Network
from tests.test_docs import run_examples

DOCUMENTS = 10
ENTRY = {"name": "words", "revision": "1"}


@dataclasses.dataclass
class Words:
    """A vector for each word, the same wherever it is met; dies once, or always, of "poison"."""

    fuse: str | None = None  # a file that is there once a worker has died
    revision: str = "1"
    name: str = "words"

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        texts = [str(page.text) for page in pages]
        burnt = self.fuse is None or (self.fuse != "always" and Path(self.fuse).exists())
        if not burnt and any("poison" in text for text in texts):
            if self.fuse != "always":
                Path(str(self.fuse)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.encode_queries(texts)

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        return [np.stack([self._vector(word) for word in text.split()]) for text in texts]

    def _vector(self, word: str) -> Floats:
        rng = np.random.default_rng(xxhash.xxh3_64_intdigest(word.encode()))
        return unit(rng.normal(size=16))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers, for all tests of this file; nothing of it is left afterwards."""
    with on_cluster.cluster(2) as ray:
        yield ray
    assert not ray.is_initialized()
    mine = ["ps", "-o", "comm=", "--ppid", str(os.getpid())]
    left = subprocess.run(mine, capture_output=True, text=True, check=False).stdout.split()
    assert not {"raylet", "gcs_server"} & set(left)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    for number in range(DOCUMENTS):
        text = " ".join(f"word{number}x{i}" for i in range(600)) + " shared"
        (folder / f"{number}.txt").write_text(text + " poison" * (number == 3))
    return folder


def make_index(path: Path, codec: glie.Codec | None = None) -> glie.Index:
    return glie.Index.create(path, codec or glie.Codec(k=4), encoder=ENTRY)


def contents(index: glie.Index | Collection) -> dict[str, Any]:
    return dict(index.records())


def answers(index: glie.Index | Collection) -> list[tuple[list[str], list[float]]]:
    queries = Words().encode_queries([f"word{n}x5 word{n}x6 shared" for n in range(DOCUMENTS)])
    return [(hits.ids, hits.scores) for hits in index.search(queries, top=5)]


@pytest.fixture
def expected(tmp_path: Path, reports: Path) -> glie.Index:
    """What one process makes."""
    index = make_index(tmp_path / "expected.glie")
    ingest(index, Words(), [reports])
    return index


def on_two(
    target: glie.Index | Collection, reports: Path, fuse: object = None, **options: Any
) -> Report:
    load = functools.partial(Words, None if fuse is None else str(fuse))
    shards = reports.parent / "shards"
    return ingest_on_ray(target, Words(), [reports], shards=shards, workers=2, load=load, **options)


def test_the_older_module_name() -> None:
    sys.modules.pop("glie.on_ray", None)
    renamed._warned.discard("glie.on_ray")
    with pytest.warns(DeprecationWarning, match="glie.on_ray is now called"):
        from glie.on_ray import ingest_on_ray as older
    assert older is ingest_on_ray


def test_a_worker_that_is_killed_loses_and_doubles_nothing(
    cluster: Any, tmp_path: Path, reports: Path, expected: glie.Index
) -> None:
    index, fuse = make_index(tmp_path / "my.glie"), tmp_path / "fuse"
    steps: list[IngestProgress] = []
    report = on_two(index, reports, fuse, progress=steps.append)
    assert fuse.exists()  # it did die
    assert report.documents_added == DOCUMENTS
    assert report.pages_added == len(index) == len(expected)
    assert contents(index) == contents(expected)
    assert answers(index) == answers(expected)
    index.verify()
    assert not (tmp_path / "shards").exists()
    assert steps[-1].documents_read == steps[-1].documents == DOCUMENTS
    assert steps[-1].done == len(index)
    # one has changed, one has come, one is empty now, one is gone, and the rest is as it was
    (reports / "0.txt").write_text("another text")
    (reports / "new.txt").write_text("one more")
    (reports / "1.txt").write_text(" ")
    (reports / "2.txt").unlink()
    for target in (index, expected):
        report = on_two(target, reports) if target is index else ingest(target, Words(), [reports])
        assert (report.documents_added, report.documents_gone) == (1, ["2.txt"])
        assert report.documents_unchanged == DOCUMENTS - 3
    assert contents(index) == contents(expected)
    assert answers(index) == answers(expected)


def test_straight_into_an_engine(
    cluster: Any, tmp_path: Path, reports: Path, expected: glie.Index
) -> None:
    engine = engines.connect("qdrant", ":memory:", "reports")
    pages = Collection.create(engine, glie.Codec(k=4), 16, encoder=ENTRY)
    report = on_two(pages, reports, tmp_path / "fuse")
    assert report.pages_added == len(pages) == len(expected)
    assert contents(pages) == contents(expected)
    for (ids, scores), (theirs, others) in zip(answers(pages), answers(expected), strict=True):
        assert ids == theirs
        np.testing.assert_allclose(scores, others, atol=1e-4)
    (reports / "0.txt").write_text("a shorter text")
    report = on_two(pages, reports)
    ingest(expected, Words(), [reports])
    assert (report.documents_changed, report.documents_unchanged) == (1, DOCUMENTS - 1)
    assert contents(pages) == contents(expected)
    with pytest.raises(glie.InputError, match="keep_images"):
        on_two(pages, reports, keep_images=True)
    pages.close()


def test_a_codec_that_adapts_is_made_first(
    cluster: Any, tmp_path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = glie.Codec(bytes_per_page=200, adapt=True)
    monkeypatch.setattr("glie.ingest.FIRST_PAGES", 3)
    index = make_index(tmp_path / "my.glie", codec)
    report = on_two(index, reports)
    assert (report.documents_added, report.pages_added) == (DOCUMENTS, len(index))
    assert not index.codec.adapts
    assert {hits[0][0] for hits in answers(index)} <= set(index.ids)
    reading, shards = Reading(), tmp_path / "shards"
    made = first_shard(codec, Words(), [reports], shards, reading)
    engine = engines.connect("lancedb", tmp_path / "lance", "reports")
    pages = Collection.create(engine, made, 16, encoder=ENTRY)
    report = on_two(pages, reports)
    assert len(pages) == len(index)
    assert contents(pages) == contents(index)
    assert report.documents_unchanged > 0  # those of the first shard
    assert not shards.exists()
    (tmp_path / "blank.txt").write_text(" ")
    with pytest.raises(DocumentError, match="nothing to make a codec of"):
        first_shard(codec, Words(), [tmp_path / "blank.txt"], shards, reading)
    shutil.rmtree(shards)
    assert first_shard(glie.Codec(k=4), Words(), [reports], shards, reading).k == 4
    assert not shards.exists()


def test_a_document_that_kills_every_worker_is_named(
    cluster: Any, tmp_path: Path, reports: Path
) -> None:
    index = make_index(tmp_path / "my.glie")
    with pytest.raises(glie.GlieError, match=r"died 3 times over one of .*3\.txt.*run it again"):
        on_two(index, reports, "always")
    (reports / "3.txt").unlink()
    report = on_two(index, reports, "always")
    assert report.documents_added + report.documents_unchanged == DOCUMENTS - 1
    assert len({m["document"] for m in contents(index).values()}) == DOCUMENTS - 1
    assert not (tmp_path / "shards").exists()


def test_shards_of_a_run_that_was_cut_off(tmp_path: Path, reports: Path) -> None:
    """Some are whole, one was taken in but not removed, one is of another codec, one is damaged."""
    index, shards = make_index(tmp_path / "my.glie"), tmp_path / "shards"
    for name, codec in (("000001", None), ("000002", None), ("000003", glie.Codec(k=5))):
        number = int(name)
        shard = make_index(shards / name, codec)
        ingest(shard, Words(), [reports / f"{number}.txt"])
        if number == 1:
            index.merge(shard)
    shutil.copytree(shards / "000002", shards / "000004")
    next((shards / "000004").glob("segments/*.seg")).write_bytes(b"")
    before = len(index)
    take_unfinished(index, shards)
    assert {m["document"] for m in contents(index).values()} == {"1.txt", "2.txt"}
    assert len(index) == 2 * before
    assert list(shards.iterdir()) == []


def test_workers_load_the_recorded_revision(
    cluster: Any, tmp_path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the Hub the main branch of a model may have moved on since the index was made."""
    loaded: list[tuple[str, str | None]] = []

    def load(name: str, *, revision: str | None = None) -> Words:
        loaded.append((name, revision))
        return Words()

    def results(ray: Any, task: Any, *rest: Any) -> Iterator[dict[str, Any]]:
        assert on_ingest._encoder(task).name == "words"
        return iter(())

    monkeypatch.setattr("glie.encoders.recorded.load_encoder", load)
    monkeypatch.setattr(on_ingest, "_results", results)
    ingest_on_ray(make_index(tmp_path / "my.glie"), Words(), [reports], shards=tmp_path / "shards")
    assert loaded == [("words", "1")]


def test_what_goes_wrong_is_said(cluster: Any, tmp_path: Path, reports: Path) -> None:
    index = make_index(tmp_path / "my.glie")
    other = functools.partial(Words, None, "2")
    shards = tmp_path / "shards"
    options: dict[str, Any] = {"shards": shards, "workers": 2}
    with pytest.raises(
        glie.GlieError, match=r"worker: expected encoder 'words' \(revision 1\), not .*2\)"
    ):
        ingest_on_ray(index, Words(), [reports], load=other, **options)
    with pytest.raises(glie.EncoderError, match="made with encoder 'words'"):
        ingest_on_ray(index, Words(None, "2"), [reports], **options)
    with pytest.raises(glie.GlieError, match=r"ZeroDivisionError: .*; what is finished is kept"):
        ingest_on_ray(index, Words(), [reports], load=functools.partial(divmod, 1, 0), **options)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DocumentError, match="no documents there"):
        ingest_on_ray(index, Words(), [tmp_path / "empty"], **options)
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(glie.IndexFolderError, match="file: cannot be made"):
        ingest_on_ray(index, Words(), [reports], shards=blocked)
    with pytest.raises(glie.LockedError), index.writing():
        ingest_on_ray(glie.Index.open(index.path), Words(), [reports], **options)
    assert len(index) == 0
    assert not shards.exists()


def test_merging_indexes(tmp_path: Path, reports: Path) -> None:
    one, two = make_index(tmp_path / "1.glie"), make_index(tmp_path / "2.glie")
    ingest(one, Words(), [reports / "1.txt"])
    ingest(two, Words(), [reports / "2.txt"])
    two.delete(two.ids[:1])
    one.merge(two)
    assert set(two.ids) < set(one.ids)
    assert len(one) == 2 * len(two) + 1
    assert one.metadata(two.ids[0]) == two.metadata(two.ids[0])
    with pytest.raises(glie.IdError, match="already in"):
        one.merge(two)
    one.merge(two, replacing=two.ids)
    assert len(one) == 2 * len(two) + 1
    with pytest.raises(glie.InputError, match="another codec or encoder"):
        one.merge(make_index(tmp_path / "3.glie", glie.Codec(k=5)))
    with pytest.raises(glie.InputError, match="another codec or encoder"):
        one.merge(glie.Index.create(tmp_path / "4.glie", glie.Codec(k=4)))
    empty = make_index(tmp_path / "5.glie")
    empty.merge(one)
    assert (contents(empty), empty.dim) == (contents(one), 16)
    one.verify()
    empty.verify()


def test_the_command_line(
    cluster: Any,
    run: Run,  # noqa: F811
    reports: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a model in the ONNX format: every worker loads it, and needs no torch for it."""
    monkeypatch.chdir(reports.parent)
    for number in range(DOCUMENTS):
        (reports / f"{number}.txt").unlink()
    for number in range(3):
        words = (f"w{(number + (number + 2) * i) % 47}" for i in range(600))
        (reports / f"{number}.txt").write_text(" ".join(words))
    (reports / "bad.pdf").write_bytes(b"no PDF")
    given = ["reports", "--encoder", Network().save(reports.parent / "tiny")]
    lexical = ["--text", "layer", "--language", "de"]
    assert run("index", *given, *lexical, "--to", "one.glie").code == 3
    to = ["--to", "many.glie", "--workers", 2]
    many = run("cluster", "index", *given, *lexical, *to, "--json")
    assert many.code == 3
    assert "bad.pdf" in many.err
    one, other = glie.Index.open("one.glie"), glie.Index.open("many.glie")
    assert contents(one) == contents(other)
    assert one.language == other.language == "german"
    assert one.info().pages_with_text == other.info().pages_with_text == len(one)
    assert many.json["pages"] == many.json["pages_added"] == len(one)
    shards, few = [*given, *lexical, "--to", "my.shards"], ["--workers", 2, "--json"]
    kept = run("cluster", "index", *shards, "--keep-shards", 2, *few)
    assert kept.json["pages"] == len(one)
    kept_in = ShardedIndex.open("my.shards")
    assert sorted(kept_in.ids) == sorted(one.ids)
    assert {kept_in.shard_of(page) for page in one.ids} == {"0000", "0001"}
    assert all(page in kept_in.shards[kept_in.shard_of(page)] for page in one.ids)
    assert kept_in.info().pages_with_text == len(one)
    (reports / "0.txt").write_text("w1 w2 w3")
    assert run("cluster", "index", *shards, *few).json["documents_changed"] == 1
    refused = run("cluster", "index", *shards, "--keep-shards", 3)
    assert "it has 2 shards, not 3" in refused.err
    assert "`glie add my.shards DOCUMENTS`" in run("index", *shards).err
    run("index", *given, *lexical, "--to", "one.glie")
    assert sorted(ShardedIndex.open("my.shards").records()) == sorted(
        glie.Index.open("one.glie").records()
    )
    one = glie.Index.open("one.glie")
    run("cluster", "index", *given, *lexical, *to)
    there = ["--engine", "lancedb", "--url", "lance", "--collection", "pages"]
    stored = run("index", *given, "--ray", *there)  # the old spelling
    assert f"table 'pages' holds {len(one)} pages" in stored.out
    question = "w7 w8"
    expected = run("search", "one.glie", question, "--json").json["hits"]
    assert run("search", "many.glie", question, "--json").json["hits"] == expected
    run("index", *given, "--text", "none", "--to", "plain.glie")  # an engine holds no words
    expected = run("search", "plain.glie", question, "--json").json["hits"]
    found = run("search", *there, question, "--json").json["hits"]
    assert [hit["id"] for hit in found] == [hit["id"] for hit in expected]
    assert [path.name for path in reports.parent.glob("*.shards")] == [
        "my.shards"
    ]  # no parts are left


def test_the_example(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples("ray.md")


def test_the_note_of_a_cluster_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens at its address: shards are searched in this process, at once."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(on_cluster, "LOCAL", tmp_path / "note")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    tried = list[Any]()
    monkeypatch.setattr(on_cluster, "_init", lambda *given, **options: tried.append(options))
    assert on_cluster.running() is None
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        (tmp_path / "note").write_text(f"127.0.0.1:{other.getsockname()[1]}\n")
        assert on_cluster.running() is None
        assert tried == []
        other.listen()
        assert on_cluster.running() is not None
        assert tried == [{"address": "auto"}]


def test_a_cluster_that_is_not_there(
    tmp_path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked by another process: this one may be connected to a cluster."""
    code = f"""
import glie
from glie.distributed.ingest import ingest_on_ray
from tests.distributed.test_ingest import ENTRY, Words
index = glie.Index.create({str(tmp_path / "x.glie")!r}, encoder=ENTRY)
try:
    ingest_on_ray(index, Words(), [{str(reports)!r}], shards={str(tmp_path / "shards")!r})
except glie.GlieError as error:
    print(error)
"""
    away = {**os.environ, "RAY_ADDRESS": "127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=away, capture_output=True, text=True, check=True
    )
    assert "Ray at 127.0.0.1:9: cannot be reached" in done.stdout


def test_a_ray_that_does_not_start(
    tmp_path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that times out raises a plain Exception."""

    def init(**options: Any) -> None:
        raise Exception("The current node timed out during startup.\nMore lines")

    ended: list[bool] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("ray.shutdown", lambda: ended.append(True))
    index = make_index(tmp_path / "x.glie")
    with pytest.raises(glie.GlieError, match=r"does not start .*timed out.*`glie index` works"):
        ingest_on_ray(index, Words(), [reports], shards=tmp_path / "shards")
    assert ended == [True]
