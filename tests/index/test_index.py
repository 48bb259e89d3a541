"""The index: what goes in comes out, whatever was added, deleted and compacted on the way."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

import glie
import glie.index.writer as implementation
from glie.filters import from_json
from glie.identity import EncoderId
from glie.index.folder import Folder
from glie.index.index import Batch
from glie.index.segment import Segment
from glie.kernels.maxsim import maxsim_reference
from glie.kernels.quantize import Packed
from glie.storage import json_digest
from tests.conftest import make_arrays, unit


def query(seed: int = 9, dim: int = 16) -> np.ndarray[Any, Any]:
    return unit(np.random.default_rng(seed).normal(size=(5, dim)))


def expected_scores(codes: glie.Codes, q: np.ndarray[Any, Any]) -> list[float]:
    scores = []
    for vectors, counts in zip(codes.vectors, codes.counts, strict=True):
        stored = Packed.of(vectors[counts > 0], "bf16").vectors()
        scores.append(float((q @ stored.T).max(axis=1).sum()))
    return scores


def test_search_is_exact_maxsim_over_the_stored_codes(index: glie.Index, pages: glie.Pages) -> None:
    q = query()
    hits = index.search([q], top=30)[0]
    scores = expected_scores(glie.Codec(k=4).compress(pages), q)
    order = np.argsort(-np.array(scores), kind="stable")
    assert hits.ids == [pages.ids[i] for i in order]
    np.testing.assert_allclose(hits.scores, np.array(scores)[order], rtol=1e-5, atol=1e-6)
    assert hits.metadata[0] == {"document": f"{order[0] % 3}.pdf", "page": order[0]}
    assert hits.cost.pages_scanned == 30
    assert hits.cost.pages_regenerated == 0
    assert hits.cost.bytes_read == 30 * 4 * (16 * 2 + 2)


def test_reopened_index_answers_the_same(index: glie.Index) -> None:
    again = glie.Index.open(index.path)
    assert again.ids == index.ids
    assert len(again) == 30
    assert again.codec.k == 4
    assert again.search([query()])[0].ids == index.search([query()])[0].ids


def test_a_batch_of_queries_gives_one_hits_each(index: glie.Index) -> None:
    queries = [query(seed) for seed in range(7)]
    together = index.search(queries, top=3)
    for q, hits in zip(queries, together, strict=True):
        assert hits.ids == index.search([q], top=3)[0].ids
    assert index.search([]) == []
    assert index.search(queries[0], top=3)[0].ids == together[0].ids  # one array is one query


def test_returned_metadata_is_the_callers_own(index: glie.Index) -> None:
    index.search([query()], top=1)[0].metadata[0]["page"] = {"not", "json"}
    hit = index.search([query()], top=1)[0]
    assert isinstance(hit.metadata[0]["page"], int)
    index.metadata(hit.ids[0])["page"] = "changed"
    index.delete(["a.pdf#1" if hit.ids[0] != "a.pdf#1" else "a.pdf#2"])
    index.compact()
    assert glie.Index.open(index.path).metadata(hit.ids[0]) == hit.metadata[0]


def test_a_change_within_a_change_is_refused(index: glie.Index) -> None:
    def batches() -> Iterator[Batch]:
        yield Batch(glie.Pages(make_arrays(1), ids=["outer"]))
        index.add(glie.Pages(make_arrays(1), ids=["inner"]))

    with pytest.raises(glie.InputError, match="being changed already"):
        index.add(batches())
    assert len(index) == len(glie.Index.open(index.path)) == 30
    index.add(glie.Pages(make_arrays(1), ids=["inner"]))
    assert len(index) == 31


def test_an_index_stays_where_it_is_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    index = glie.Index.create("here", glie.Codec(k=2))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    index.add(glie.Pages(make_arrays(1)))
    assert len(glie.Index.open(tmp_path / "here")) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_wrong_arguments_are_named(index: glie.Index, pages: glie.Pages, tmp_path: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: index.add(5), "add: expected Pages or Batches, found int"),  # type: ignore[arg-type]
        (lambda: index.add([pages]), "add: expected Pages or Batches, found Pages"),  # type: ignore[list-item]
        (lambda: index.search(None), "found NoneType"),
        (lambda: index.search([query()], ids=5), "ids: expected a list of strings"),  # type: ignore[arg-type]
        (lambda: index.search([query()], ids=[["a"]]), "ids: expected a list of strings"),  # type: ignore[list-item]
        (lambda: index.search([query()], where="x"), "where: expected a dict"),  # type: ignore[arg-type]
        (lambda: index.delete("a.pdf#1"), "found the single string"),
        (lambda: glie.Index.create(tmp_path / "n", 4), "codec: expected a glie.Codec"),  # type: ignore[arg-type]
        (lambda: glie.Index.create(tmp_path / "n", encoder=5), "encoder: expected a name"),  # type: ignore[arg-type]
        (lambda: glie.Codec().compress([1]), "compress: expected glie.Pages"),  # type: ignore[arg-type]
    ]
    for call, message in wrong:
        with pytest.raises(glie.InputError, match=message):
            call()
    assert not (tmp_path / "n").exists()
    two: Any = np.int64(2)
    assert index.search([query()], top=two)[0].ids == index.search([query()], top=2)[0].ids
    assert len(index.search([query()], where={"page": 4.0})[0]) == 1


def test_files_of_others_are_left_alone(index: glie.Index) -> None:
    (index.path / "segments" / "notes.txt").write_text("mine")
    index.add(glie.Pages(make_arrays(1), ids=["x"]))
    assert (index.path / "segments" / "notes.txt").exists()


def test_an_empty_addition_is_no_commit(index: glie.Index) -> None:
    before = index.info().generation
    index.add(glie.Pages([]))
    assert index.info().generation == before


def test_ties_keep_the_order_of_insertion(tmp_path: Path) -> None:
    page = make_arrays(1)[0]
    index = glie.Index.create(tmp_path / "ties", glie.Codec(k=4))
    for name in ("c", "a", "d", "b"):
        index.add(glie.Pages([page, unit(-page)], ids=[name, f"other-{name}"]))
    hits = index.search([page[:3]], top=4)[0]
    assert hits.ids == ["c", "a", "d", "b"]
    assert len(set(hits.scores)) == 1
    assert index.search([page[:3]], top=2)[0].ids == ["c", "a"]


def test_restricted_to_ids_and_metadata(index: glie.Index) -> None:
    everything = index.search([query()], top=30)[0].ids
    chosen = ["a.pdf#7", "a.pdf#3", "a.pdf#12"]
    assert index.search([query()], ids=chosen)[0].ids == [i for i in everything if i in chosen]
    found = index.search([query()], top=30, where={"document": "1.pdf"})[0]
    assert found.ids == [i for i in everything if (int(i[6:]) - 1) % 3 == 1]
    assert found.cost.pages_scanned == 10
    both = index.search([query()], top=30, where={"document": ["0.pdf", "1.pdf"], "page": 4})[0]
    assert both.ids == ["a.pdf#5"]
    assert index.search([query()], where={"document": "none.pdf"})[0].ids == []
    assert index.search([query()], where={"page": True})[0].ids == []  # True is not 1
    assert index.search([query()], ids=[])[0].ids == []
    with pytest.raises(glie.IdError, match="page 'nope' is not in the index"):
        index.search([query()], ids=["nope"])


def test_filters_on_metadata(index: glie.Index) -> None:
    everything = index.search([query()], top=30)[0]

    def found(where: Any) -> list[str]:
        return index.search([query()], top=30, where=where)[0].ids

    for where in (
        {"page": {">=": 7, "<": 12}},
        {"or": [{"page": {"<": 3}}, {"document": {"prefix": "2"}}]},
        {"not": {"document": ["0.pdf", "1.pdf"]}, "page": {"!=": 8}},
        {"absent": {"exists": False}},
    ):
        kept = [hit.id for hit in everything if from_json(where).matches(hit.metadata)]
        assert kept
        assert found(where) == found(from_json(where)) == kept
    index.delete(["a.pdf#8", "a.pdf#9"])
    assert set(found({"page": {">=": 7, "<": 10}})) == {"a.pdf#10"}
    with pytest.raises(glie.InputError, match="'page' >: expected a number"):
        found({"page": {">": None}})


def test_records_are_read_once_a_field(index: glie.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    real = Segment.records

    def records(segment: Segment) -> Any:
        nonlocal read
        read += 1
        return real(segment)

    monkeypatch.setattr(Segment, "records", records)
    for where in ({"page": {"<": 9}, "document": "1.pdf"}, {"document": "1.pdf", "page": {"<": 9}}):
        assert len(index.search([query()], where=where)[0]) == 3
        assert read == 1
    index.search([query()], where={})
    assert read == 1
    index.search([query()], where={"page": {"<": 10}})
    assert read == 1  # other filters of the same fields need no record
    index.search([query()], where={"origin": "text"})
    assert read == 2


def test_odd_requests(index: glie.Index, tmp_path: Path) -> None:
    assert len(index.search([query()], top=1000)[0]) == 30
    empty = glie.Index.create(tmp_path / "empty", glie.Codec(k=2))
    assert empty.search([query()])[0].ids == []
    assert (len(empty), empty.ids, empty.dim) == (0, [], None)
    for top in (0, -1, 2.5, "3", True):
        with pytest.raises(glie.InputError, match="top: expected a whole number"):
            index.search([query()], top=top)  # type: ignore[arg-type]
    assert index.search([query() * 3], normalize=True)[0].ids == index.search([query()])[0].ids
    with pytest.raises(glie.VectorError, match=r"query '0', row 0: norm 3.*normalize=True"):
        index.search([query() * 3])
    with pytest.raises(glie.VectorError, match=r"have 8 numbers, those of .* have 16"):
        index.search([query(dim=8)])


def test_pages_with_fewer_clusters_are_scored_on_those_alone(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "few", glie.Codec(k=4))
    index.add(glie.Pages([[[-1.0, 0.0]], [[0.0, 1.0], [0.0, -1.0]]], ids=["back", "side"]))
    hits = index.search([[[1.0, 0.0]]], top=2)[0]
    assert hits.ids == ["side", "back"]
    assert hits.scores == [0.0, -1.0]


def test_delete_and_compact(index: glie.Index, pages: glie.Pages) -> None:
    gone = index.search([query()], top=5)[0].ids
    assert index.delete(gone[:2]) == 2
    assert index.delete([]) == 0
    left = [i for i in pages.ids if i not in gone[:2]]
    assert index.ids == left
    assert index.search([query()], top=3)[0].ids == gone[2:]
    before = index.info()
    assert (before.pages, before.deleted) == (28, 2)
    answers = index.search([query()], top=28)[0]
    index.compact()
    after = index.info()
    assert (after.pages, after.deleted, after.segments) == (28, 0, 1)
    assert after.bytes < before.bytes
    assert index.ids == left
    again = index.search([query()], top=28)[0]
    assert (again.ids, again.scores, again.metadata) == (
        answers.ids,
        answers.scores,
        answers.metadata,
    )
    with pytest.raises(glie.IdError, match=r"page 'a\.pdf#99' is not in the index"):
        index.delete([left[0], "a.pdf#99"])
    assert index.ids == left
    index.delete(left)
    assert (len(index), index.search([query()])[0].ids) == (0, [])
    index.compact()
    index.add(pages)
    assert index.ids == pages.ids


def test_ids_stay_unique(index: glie.Index, pages: glie.Pages) -> None:
    with pytest.raises(glie.IdError, match=r"page 'a\.pdf#1' is already in the index"):
        index.add(pages.slice(0, 1))
    index.delete(["a.pdf#1"])
    index.add(pages.slice(0, 1))
    assert index.ids[-1] == "a.pdf#1"


def test_replacing_is_one_step(index: glie.Index) -> None:
    new = glie.Pages(make_arrays(2, seed=5), ids=["a.pdf#1", "new"])
    generation = index.info().generation
    index.add(new, replacing=["a.pdf#1", "a.pdf#2"])
    assert index.info().generation == generation + 1
    assert len(index) == 30
    assert "a.pdf#2" not in index
    assert "new" in index


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([{}], "found 1 for 2 pages"),
        ([{}, {"a": {1, 2}}], "metadata of page 'y': not JSON"),
        ([{}, {"a": float("nan")}], "metadata of page 'y': not JSON"),
        ([{}, {1: 2}], "metadata of page 'y': not JSON: expected string keys"),
        ([{}, ["a"]], "metadata of page 'y': expected a dict"),
        ([{}, {"a": "x" * 2_000_000}], "metadata of page 'y': 2000016 bytes of JSON"),
        ([{}, {"a": "\ud800"}], "metadata of page 'y': not JSON"),
        ([{}, {"a": {1: 2}}], "metadata of page 'y': not JSON: expected string keys, found 1"),
        ([{}, nested(100)], "metadata of page 'y': not JSON: nested more than 64 deep"),
        ({"a": 1}, "metadata: expected a list with one for each page, found dict"),
        (5, "metadata: expected a list with one for each page, found int"),
    ],
)
def test_bad_metadata_changes_nothing(index: glie.Index, metadata: Any, message: str) -> None:
    with pytest.raises(glie.InputError, match=message):
        index.add(glie.Pages(make_arrays(2), ids=["x", "y"]), metadata=metadata)
    assert len(index) == len(glie.Index.open(index.path)) == 30


def test_wrong_dimension_changes_nothing(index: glie.Index) -> None:
    with pytest.raises(glie.VectorError, match="have 8 numbers, those of the index have 16"):
        index.add(glie.Pages(make_arrays(1, dim=8), ids=["x"]))
    assert len(index) == 30


def test_ids_and_metadata_of_any_unicode(tmp_path: Path) -> None:
    names = ["a\nb", "é\u2028ü", "🦉#1", "\t", '"quoted"', "\x00", "日本語.pdf#12"]
    metadata = [{"name": name, "nested": {"list": [1, None, 2.5]}} for name in names]
    index = glie.Index.create(tmp_path / "unicode", glie.Codec(k=2))
    index.add(glie.Pages(make_arrays(len(names)), ids=names), metadata=metadata)
    again = glie.Index.open(index.path)
    assert again.ids == names
    assert [again.metadata(name) for name in names] == metadata


def test_images_are_kept_through_everything(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "pictures", glie.Codec(k=2))
    arrays = make_arrays(6)
    index.add(glie.Pages(arrays[:3], ids=list("abc")), images=[b"A", None, b"C"])
    index.add(glie.Pages(arrays[3:], ids=list("def")))
    index.delete(["a"])
    index.compact()
    assert [index.image(i) for i in "bcdef"] == [None, b"C", None, None, None]
    with pytest.raises(glie.InputError, match="image of page 'g': expected bytes or None"):
        index.add(glie.Pages(arrays[:1], ids=["g"]), images=["path.png"])  # type: ignore[list-item]


def test_streaming_writes_bounded_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long addition is stored as it is read, and is one commit all the same."""
    monkeypatch.setattr(implementation, "SEGMENT_BYTES", 2000)
    index = glie.Index.create(tmp_path / "stream", glie.Codec(k=2))
    folder = index.path / "segments"
    seen: list[int] = []

    def batches() -> Iterator[Batch]:
        for b in range(20):
            seen.append(len(list(folder.glob("*.seg"))))
            assert len(glie.Index.open(index.path)) == 0
            ids = [f"{b}-{i}" for i in range(10)]
            yield Batch(glie.Pages(make_arrays(10, seed=b), ids=ids), [{"b": b}] * 10)

    index.add(batches())
    assert seen[-1] > 5
    assert len(index) == 200
    assert index.metadata("13-4") == {"b": 13}
    assert index.ids == [f"{b}-{i}" for b in range(20) for i in range(10)]


def test_many_small_additions_leave_few_segments(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "small", glie.Codec(k=2))
    for i, array in enumerate(make_arrays(100)):
        index.add(glie.Pages([array], ids=[str(i)]))
    assert index.ids == [str(i) for i in range(100)]
    assert index.info().segments <= 8
    assert len(list((index.path / "segments").iterdir())) == index.info().segments


def test_a_failed_stream_leaves_the_index_as_it_was(index: glie.Index) -> None:
    def batches() -> Iterator[Batch]:
        yield Batch(glie.Pages(make_arrays(5), ids=list("vwxyz")))
        raise RuntimeError("the encoder broke")

    with pytest.raises(RuntimeError):
        index.add(batches())
    assert len(index) == len(glie.Index.open(index.path)) == 30
    index.add(glie.Pages(make_arrays(1), ids=["v"]))
    assert len(list((index.path / "segments").iterdir())) == index.info().segments


def test_create_refuses_what_it_would_overwrite(index: glie.Index, tmp_path: Path) -> None:
    with pytest.raises(glie.IndexFolderError, match="already an index"):
        glie.Index.create(index.path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(glie.IndexFolderError, match="not empty and not an index"):
        glie.Index.create(tmp_path / "full")
    with pytest.raises(glie.IndexFolderError, match="a file; an index is a folder"):
        glie.Index.create(tmp_path / "full" / "letter.txt")
    with pytest.raises(glie.IndexFolderError, match="does not exist"):
        glie.Index.open(tmp_path / "none")
    with pytest.raises(glie.IndexFolderError, match="is not an index"):
        glie.Index.open(tmp_path / "full")


def test_create_finishes_an_interrupted_creation(tmp_path: Path) -> None:
    (tmp_path / "half" / "segments").mkdir(parents=True)
    assert len(glie.Index.create(tmp_path / "half")) == 0


def test_a_damaged_manifest_is_noticed(index: glie.Index) -> None:
    path = index.path / "manifest.json"
    text = path.read_text()
    for damaged in (
        text.replace('"pages": 30', '"pages": 29'),
        text[:-5],
        "",
        "[]",
        text.replace('"version": 1', '"version": 2'),
        text.replace("glie-index", "other"),
    ):
        path.write_text(damaged)
        with pytest.raises(glie.CorruptIndexError, match=r"manifest\.json"):
            glie.Index.open(index.path)
    path.write_text(text)
    assert len(glie.Index.open(index.path)) == 30


@pytest.mark.parametrize(
    "change",
    [
        {"codec": None},
        {"codec": {}},
        {"codec": {"k": "4"}},
        {"encoder": {"revision": "1"}},
        {"dim": "128"},
        {"dim": -1},
        {"generation": 1.5},
        {"segments": [{"number": 1}]},
        {"segments": [{"number": "../../x", "pages": 1, "checksum": 1}]},
        {"segments": 3},
        {"more": 1},
    ],
)
def test_a_forged_manifest_is_refused(index: glie.Index, change: dict[str, Any]) -> None:
    """The checksum is right, what it covers is not."""
    path = index.path / "manifest.json"
    body = {**json.loads(path.read_text()), **change}
    del body["checksum"]
    path.write_text(json.dumps({**body, "checksum": json_digest(body, ascii=False)}))
    with pytest.raises(glie.CorruptIndexError):
        glie.Index.open(index.path)


def test_a_newer_version_is_refused_with_the_remedy(index: glie.Index) -> None:
    path = index.path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 5}))
    with pytest.raises(
        glie.CorruptIndexError, match="version 5, this glie reads 1 to 4; upgrade glie"
    ):
        glie.Index.open(index.path)


def test_damaged_missing_and_swapped_segments_are_noticed(
    index: glie.Index, tmp_path: Path
) -> None:
    segment = next((index.path / "segments").glob("*.seg"))
    data = segment.read_bytes()
    middle = 128 + 100  # inside the vectors
    segment.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    with pytest.raises(glie.CorruptIndexError, match="its vectors do not match their checksum"):
        glie.Index.open(index.path).search([query()])
    with pytest.raises(glie.CorruptIndexError, match="damaged"):
        glie.Index.open(index.path).verify()
    segment.unlink()
    with pytest.raises(glie.CorruptIndexError, match="the file is missing"):
        glie.Index.open(index.path)
    other = glie.Index.create(tmp_path / "other", glie.Codec(k=4))
    other.add(glie.Pages(make_arrays(30, seed=7)))
    shutil.copy(next((other.path / "segments").glob("*.seg")), segment)
    with pytest.raises(glie.CorruptIndexError, match="not the file that the manifest names"):
        glie.Index.open(index.path)
    segment.write_bytes(data)
    glie.Index.open(index.path).verify()


def test_one_writer_at_a_time(index: glie.Index) -> None:
    other = glie.Index.open(index.path)
    with index.writing():
        index.delete(["a.pdf#1"])
        with pytest.raises(glie.LockedError, match=r"process \d+ on .* is writing; try again"):
            other.delete(["a.pdf#2"])
        assert len(glie.Index.open(index.path)) == 29  # reading goes on
    other.delete(["a.pdf#2"])  # it takes in the first deletion before its own
    assert len(other) == 28
    assert not (index.path / "writer.json").exists()
    assert len(index) == 29
    index.refresh()
    assert len(index) == 28


def test_a_reader_keeps_its_snapshot(index: glie.Index) -> None:
    reader = glie.Index.open(index.path)
    before = reader.search([query()], top=30)[0]
    index.delete(before.ids[:10])
    index.compact()
    after = reader.search([query()], top=30)[0]
    assert (after.ids, after.scores) == (before.ids, before.scores)
    reader.refresh()
    assert reader.search([query()], top=30)[0].ids == before.ids[10:]


def _hold_lock(path: Path, held: Any, release: Any) -> None:
    with Folder(path).writing():
        held.set()
        release.wait(30)


def test_another_process_holds_the_lock(index: glie.Index) -> None:
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    process = context.Process(target=_hold_lock, args=(index.path, held, release))
    process.start()
    try:
        assert held.wait(60)
        with pytest.raises(glie.LockedError, match=f"process {process.pid} on"):
            index.delete(["a.pdf#1"])
        process.kill()  # a lock dies with its holder
        process.join(30)
        assert index.delete(["a.pdf#1"]) == 1
    finally:
        process.kill()
        process.join(30)


def test_encoder_is_recorded(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "a", encoder="minilm")
    assert index.encoder == EncoderId("minilm")
    assert glie.Index.open(tmp_path / "a").encoder == index.encoder
    assert glie.Index.create(tmp_path / "b").encoder is None
    with pytest.raises(glie.InputError, match="encoder: expected a name"):
        glie.Index.create(tmp_path / "c", encoder={"revision": "1"})


class AgainstADict(RuleBasedStateMachine):
    """Random additions, deletions, replacements and compactions, compared with a plain dict."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "index"
        self.index = glie.Index.create(self.path, glie.Codec(k=2))
        self.model: dict[str, tuple[np.ndarray[Any, Any], int]] = {}
        self.count = 0

    def _fresh(self, count: int) -> list[str]:
        self.count += count
        return [f"p{i}" for i in range(self.count - count, self.count)]

    @rule(target=names, count=st.integers(1, 5))
    def add(self, count: int) -> Any:
        ids = self._fresh(count)
        arrays = make_arrays(count, seed=self.count, dim=8, high=10)
        self.index.add(glie.Pages(arrays, ids=ids), metadata=[{"n": self.count}] * count)
        self.model |= {i: (a, self.count) for i, a in zip(ids, arrays, strict=True)}
        return ids[0]

    @rule(name=consumes(names))
    def delete(self, name: str) -> None:
        self.index.delete([name])
        del self.model[name]

    @rule(target=names, name=consumes(names))
    def replace(self, name: str) -> str:
        self.count += 1
        array = make_arrays(1, seed=self.count, dim=8)[0]
        self.index.add(
            glie.Pages([array], ids=[name]), metadata=[{"n": self.count}], replacing=[name]
        )
        del self.model[name]
        self.model[name] = (array, self.count)
        return name

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @rule()
    def reopen(self) -> None:
        self.index = glie.Index.open(self.path)

    @invariant()
    def same_as_the_model(self) -> None:
        assert self.index.ids == list(self.model)
        assert [m["n"] for _, m in self.index.records()] == [n for _, n in self.model.values()]
        q = query(dim=8)
        hits = self.index.search([q], top=3)[0]
        if not self.model:
            assert hits.ids == []
            return
        codes = glie.Codec(k=2).compress(glie.Pages([a for a, _ in self.model.values()]))
        expected = np.array(expected_scores(codes, q))
        best = np.argsort(-expected, kind="stable")[:3]
        np.testing.assert_allclose(hits.scores, expected[best], rtol=1e-5, atol=1e-6)

    def teardown(self) -> None:
        named = {
            f"{number:08d}.{kind}"
            for e in self.index._state.manifest.segments
            for number, kind in ((e.number, "seg"), (e.tombstones, "del"))
            if number is not None
        }
        assert {p.name for p in (self.path / "segments").iterdir()} == named
        shutil.rmtree(self.path.parent)


TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_the_reference_agrees_on_codes(pages: glie.Pages) -> None:
    codes = glie.Codec(k=4).compress(pages)
    q = query()
    starts = np.arange(30) * 4
    ends = starts + (codes.counts > 0).sum(axis=1)
    flat = Packed.of(codes.vectors.reshape(-1, 16), "bf16")
    scores = maxsim_reference(q, np.array([0, 5]), flat, starts, ends)[0]
    np.testing.assert_allclose(scores, expected_scores(codes, q), rtol=1e-5)


def test_codes_of_pages_in_any_order(index: glie.Index, pages: glie.Pages) -> None:
    wanted = ["a.pdf#9", "a.pdf#30", "a.pdf#2"]
    found, all_codes = index.codes(wanted), index.codec.compress(pages)
    assert list(found.ids) == wanted
    for row, page_id in enumerate(wanted):
        expected = all_codes.vectors[pages.ids.index(page_id)]
        np.testing.assert_allclose(found.vectors[row], expected, atol=0.01)  # bfloat16
    with pytest.raises(glie.IdError, match="'none' is not in the index"):
        index.codes(["none"])
    with pytest.raises(glie.InputError, match="at least one id"):
        index.codes([])


def test_a_view_of_the_latest_state(index: glie.Index) -> None:
    assert index.latest() is index  # nothing has changed
    before = index.generation
    glie.Index.open(index.path).delete(["a.pdf#1"])
    view = index.latest()
    assert ("a.pdf#1" in index, "a.pdf#1" in view) == (True, False)
    assert (index.generation, view.generation) == (before, before + 1)


def test_uploaded_documents_do_not_count_as_the_index(index: glie.Index) -> None:
    before = index.info()
    (index.path / "documents").mkdir()
    (index.path / "documents" / "a.txt").write_bytes(b"x" * 1000)
    after = index.info()
    assert (after.document_bytes, before.document_bytes) == (1000, 0)
    assert after.bytes == before.bytes + 1000
    assert after.lean_bytes == before.lean_bytes


def test_codes_are_read_in_steps(index: glie.Index, pages: glie.Pages) -> None:
    index.delete(["a.pdf#1", "a.pdf#9"])
    index.add(glie.Pages(make_arrays(2, seed=3), ids=["x", "y"]), [{"page": -1}, {"page": -2}])
    parts = list(index.stored(7))
    assert max(len(codes) for codes, _ in parts) == 7
    assert [page_id for codes, _ in parts for page_id in codes.ids] == index.ids
    assert [entry for _, metadata in parts for entry in metadata] == [
        metadata for _, metadata in index.records()
    ]
    codes, _ = parts[0]
    expected = glie.Codec(k=4).compress(pages)  # in bfloat16, as it is read back
    stored = dict(zip(codes.ids, codes.vectors, strict=True))
    np.testing.assert_array_equal(stored["a.pdf#3"], expected.stored.vectors()[2])
