"""Shards searched and changed like one index: here, by replicas in this process."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.distributed import ShardedIndex, searching, service
from glie.distributed.fleet import Fleet, StaleError
from glie.distributed.replica import Held, Local, version_of
from glie.distributed.shards import Shards, document_of, is_sharded, shard_for
from glie.errors import ClusterError
from glie.index.index import Batch
from glie.retriever import Retriever, open_index
from tests.conftest import make_arrays
from tests.distributed.corpus import (
    DIM,
    PAGES,
    QUESTIONS,
    Corpus,
    assert_same,
    both,
    encoded,
    make_corpus,
)

Pair = tuple[glie.Index, ShardedIndex]
CODECS = ("anchors", "codewords")


@pytest.fixture(scope="module", params=CODECS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    codec = glie.Codec(k=4, dtype="int8")
    if request.param == "codewords":
        pages = glie.Pages(make_corpus().arrays)
        codec = glie.Codec(bytes_per_page=200, adapt=True).adapted(pages, more=True)
        assert codec.regenerates
    return both(tmp_path_factory.mktemp(request.param), codec)


@pytest.fixture
def many(tmp_path: Path) -> ShardedIndex:
    return both(tmp_path, glie.Codec(k=3))[1]


def among(one: glie.Index) -> dict[str, Any]:
    return {"ids": one.ids[::3]}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"exact": True, "shortlist": 0},
        {"shortlist": 7, "top": 30},
        {"where": {"year": [2001, 2003]}},
        {"where": {"document": "3.txt"}},
        {"where": {"year": 1999.5}, "top": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["late", "hybrid", "lexical"])
def test_hits_and_scores_are_those_of_one_index(
    pair: Pair, options: dict[str, Any], mode: str
) -> None:
    one, many = pair
    if options.get("top") == 1:  # nothing matches
        asked = {**options, "mode": mode, "text": QUESTIONS}
        queries = [encoded(text) for text in QUESTIONS]
        assert not any(len(hits) for hits in many.search(queries, **asked))
        return
    assert_same(one, many, **options, text=QUESTIONS, mode=mode)


def test_a_choice_of_pages(pair: Pair) -> None:
    one, many = pair
    assert_same(one, many, **among(one))
    assert_same(one, many, **among(one), text=QUESTIONS)
    with pytest.raises(glie.IdError, match="'x' is not in"):
        many.search([encoded("w1")], ids=["x"])


def test_a_shard_with_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards rank little more than their share of the best; one that has more is asked again."""
    monkeypatch.setattr(searching, "AND_MORE", 1)
    monkeypatch.setattr(searching, "SHARES_RANKED", 1)
    corpus, codec, query = make_corpus(), glie.Codec(k=4, dtype="int8"), [encoded("w0")]
    whole = glie.Index.create(tmp_path / "whole.glie", codec, language="en")
    corpus.add_to(whole)
    likest = whole.search(query, PAGES)[0].ids
    one = glie.Index.create(tmp_path / "one.glie", codec, language="en")
    for number in range(3):  # the first shard has the best third
        index = glie.Index.create(tmp_path / "my.shards" / str(number), codec, language="en")
        for made in (index, one):
            corpus.take(likest[number * PAGES // 3 :][: PAGES // 3]).add_to(made)
    many = ShardedIndex.open(tmp_path / "my.shards")
    asked, call = list[str](), Local.call

    def noted(self: Local, method: str, *arguments: Any) -> Future[Any]:
        asked.append(f"{method} {self.name}")
        return call(self, method, *arguments)

    monkeypatch.setattr(Local, "call", noted)
    for options in ({}, {"where": {"year": [2000, 2001]}}, {"text": ["w0 w9"]}):
        asked.clear()
        found, expected = (i.search(query, 30, **options)[0] for i in (many, one))
        assert found.ids == expected.ids
        assert found.scores == pytest.approx(expected.scores, abs=1e-6)
        assert asked.count("first 0/local") == 2
        assert asked.count("first 2/local") == 1


def test_candidates_find_nearly_the_same(pair: Pair) -> None:
    one, many = pair
    queries = [encoded(text) for text in QUESTIONS]
    expected = one.search(queries, exact=True)
    found = many.search(queries, exact=False)
    shares = [len({*a.ids} & {*b.ids}) / 10 for a, b in zip(expected, found, strict=True)]
    assert np.mean(shares) > 0.9


def test_it_has_the_facts_of_one_index(pair: Pair) -> None:
    one, many = pair
    assert (len(many), many.ids, many.dim) == (len(one), one.ids, DIM)
    assert dict(many.records()) == dict(one.records())
    assert (many.language, many.has_text, many.encoder) == ("english", True, None)
    mine, theirs = many.info(), one.info()
    for name in ("pages", "deleted", "vectors", "uncompressed_bytes", "pages_with_text", "k"):
        assert getattr(mine, name) == getattr(theirs, name), name
    assert mine.code_bytes_per_page == pytest.approx(theirs.code_bytes_per_page, abs=1)
    for question in QUESTIONS:
        assert many.common_terms(question) == one.common_terms(question)
    phrase = many.parse('"w0 w1"').required[0]
    has, had = many.having(phrase), one.having(phrase)
    assert [has(name) for name in one.ids] == [had(name) for name in one.ids]
    page = one.ids[7]
    assert page in many
    assert "x" not in many
    assert many.metadata(page) == one.metadata(page)
    assert many.image(page) is None
    assert many.like(page, 5).ids == one.like(page, 5).ids
    np.testing.assert_array_equal(many.codes([page]).vectors, one.codes([page]).vectors)
    with pytest.raises(glie.InputError, match="pages of one shard"):
        many.codes(many.ids)


def test_a_document_belongs_to_one_shard_for_ever() -> None:
    """What is written in folders: another hash would look for documents in the wrong shard."""
    names = ["0000", "0001", "0002"]
    found = [shard_for(f"{n}.pdf", names) for n in range(6)]
    assert found == ["0002", "0000", "0002", "0002", "0002", "0001"]
    assert document_of("a#b.pdf#12") == "a#b.pdf"
    assert document_of("plain") == "plain"


def test_replacing_a_document_touches_one_shard(many: ShardedIndex) -> None:
    before = {name: index.generation for name, index in many.shards.items()}
    pages = [name for name in many.ids if name.startswith("9.txt#")]
    new = Corpus([pages[0]], make_arrays(1, dim=DIM), ["fresh"], [{"document": "9.txt"}])
    new.add_to(many, replacing=pages)
    changed = [name for name, index in many.shards.items() if index.generation != before[name]]
    assert changed == [many.shard_of("9.txt")]
    assert [name for name in many.ids if name.startswith("9.txt#")] == [pages[0]]
    assert many.search(None, text=["fresh"], mode="lexical")[0].ids == [pages[0]]
    assert not list(many.path.glob(".arriving*"))


def test_a_page_that_lay_elsewhere_moves_to_its_shard(tmp_path: Path) -> None:
    """Shards of separate runs hold what they were given."""
    for name, seed in (("a", 1), ("b", 2)):
        index = glie.Index.create(tmp_path / name, glie.Codec(k=3))
        index.add(glie.Pages(make_arrays(9, seed=seed), ids=[f"{name}{i}" for i in range(9)]))
    many = ShardedIndex.open(tmp_path)
    assert is_sharded(tmp_path)
    assert not is_sharded(tmp_path / "a")
    assert len(many) == 18
    stays = next(f"a{i}" for i in range(9) if many.shard_of(f"a{i}") == "b")
    many.add(glie.Pages(make_arrays(1, seed=3), ids=[stays]), replacing=[stays])
    assert stays in many.shards["b"]
    assert stays not in many.shards["a"]
    assert len(many) == 18


def test_batches_and_large_additions(tmp_path: Path) -> None:
    many = ShardedIndex.create(tmp_path / "x", 2, glie.Codec(k=3))
    parts = [glie.Pages(make_arrays(5, seed=n), ids=[f"{n}/{i}" for i in range(5)]) for n in (1, 2)]
    many.add([Batch(part, [{"part": n}] * 5) for n, part in enumerate(parts)])
    assert sorted(many.ids) == sorted([*parts[0].ids, *parts[1].ids])
    assert many.metadata("2/3") == {"part": 1}
    assert all(len(index) for index in many.shards.values())


def test_a_change_that_is_refused_changes_nothing(many: ShardedIndex) -> None:
    ids = many.ids
    with pytest.raises(glie.IdError, match="already in"):
        many.add(glie.Pages(make_arrays(2, dim=DIM), ids=["new", ids[0]]))
    with pytest.raises(glie.VectorError, match="16 numbers"):
        many.add(glie.Pages(make_arrays(1), ids=["new"]))
    with pytest.raises(glie.IdError, match="'x' is not in"):
        many.delete([ids[0], "x"])
    with pytest.raises(glie.IdError, match="'x' is not in"):
        many.add(glie.Pages(make_arrays(1, dim=DIM), ids=["new"]), replacing=["x"])
    other = glie.Index.open(many.shards["0001"].path)
    with other.writing(), pytest.raises(glie.LockedError):
        many.delete(ids)
    assert ShardedIndex.open(many.path).ids == many.ids == ids
    assert not list(many.path.glob(".arriving*"))


def test_a_page_of_two_shards_is_deleted_from_both(many: ShardedIndex) -> None:
    """As when a process was killed that moved it from one to the other."""
    page = many.ids[0]
    elsewhere = next(name for name in many.shards if name != many.shard_of(page))
    part = glie.Index.create(many.path.parent / "part", many.codec, language="en")
    part.add(glie.Pages(make_arrays(1, dim=DIM), ids=[page]))
    glie.Index.open(many.shards[elsewhere].path).merge(part)
    many.refresh()
    assert many.ids.count(page) == 2
    for shortlist in (0, 50):  # found once, as its own shard has it
        vectors = many.shards[many.shard_of(page)].codes([page]).vectors[0]
        for top in (3, len(many)):
            hits = many.search([vectors], top, shortlist=shortlist, normalize=True)[0]
            assert len(hits.ids) == len({*hits.ids}) == min(top, len(many) - 1)
            assert hits.ids[0] == page
    found = many.search([make_arrays(1, dim=DIM)[0]], len(many))[0]
    alone = many.shards[many.shard_of(page)].search([make_arrays(1, dim=DIM)[0]], len(many))[0]
    assert found.scores[found.ids.index(page)] == alone.scores[alone.ids.index(page)]
    assert many.delete([page]) == 1
    assert page not in many


def test_changes_go_to_the_version_that_is_a_shard_now(many: ShardedIndex, tmp_path: Path) -> None:
    """Also those of a process that has opened the version before."""
    shards = Shards.read(many.path)
    old, new = shards.place("0001"), many.path / "0001.new"
    shutil.copytree(old, new)
    page = next(f"{n}.txt#9" for n in range(99, 200) if many.shard_of(f"{n}.txt") == "0001")
    with glie.Index.open(old).writing(), pytest.raises(glie.LockedError):
        service.replace(shards, "0001", new)
    assert service.replace(shards, "0001", new) == old
    many.add(glie.Pages(make_arrays(1, dim=DIM), ids=[page]))
    assert page in glie.Index.open(new)
    assert page not in glie.Index.open(old)
    many.delete([page])
    assert page not in glie.Index.open(new)
    copied = shutil.copytree(many.path, tmp_path / "copy.shards")
    assert Shards.read(copied).id != Shards.read(many.path).id  # served apart


def test_others_see_a_change(many: ShardedIndex) -> None:
    other = ShardedIndex.open(many.path)
    hits = other.search([encoded("w1")])[0]
    many.delete(hits.ids[:2])
    assert other.search([encoded("w1")])[0].ids == hits.ids  # the state it was opened in
    after = other.latest()
    assert after.search([encoded("w1")])[0].ids[0] == hits.ids[2]
    assert after.latest() is after
    assert after.generation == many.generation > other.generation


def test_a_state_that_is_gone_is_not_answered_from_another(many: ShardedIndex) -> None:
    """A replica that was restarted knows the latest state only: the search starts again in it."""
    old = ShardedIndex.open(many.path)
    shard = many.shard_of("9.txt")
    version = version_of(shard, old.shards[shard])
    hits = many.search([encoded("w1")], 300)[0]
    many.delete(hits.ids[:1])
    held = Held(many.path)
    with pytest.raises(StaleError):
        held.open(version if shard == many.shard_of(hits.ids[0]) else "nothing@1-0")
    assert old.search([encoded("w1")])[0].ids[0] == hits.ids[1]


def test_states_are_not_kept_for_ever(many: ShardedIndex) -> None:
    held, shard = Held(many.path), many.shard_of("9.txt")
    mine = [name for name in many.ids if many.shard_of(name) == shard]
    for page_id in mine[:8]:
        held.open(version_of(shard, many.shards[shard]))
        many.delete([page_id])
    assert 1 < len(held.versions) <= 5


def test_what_is_no_folder_of_shards(tmp_path: Path, many: ShardedIndex) -> None:
    with pytest.raises(glie.IndexFolderError, match=r"no shards there.*--keep-shards"):
        ShardedIndex.open(tmp_path / "nothing")
    with pytest.raises(glie.IndexFolderError, match="already a folder of shards"):
        ShardedIndex.create(many.path, 2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").touch()
    with pytest.raises(glie.IndexFolderError, match="not empty"):
        ShardedIndex.create(tmp_path / "full", 2)
    for wrong in (0, 10_000, "2"):
        with pytest.raises(glie.InputError, match="shards: expected 1 to"):
            ShardedIndex.create(tmp_path / "x", wrong)  # type: ignore[arg-type]
    note = many.path / "shards.json"
    whole = json.loads(note.read_text())
    note.write_text(json.dumps({**whole, "version": 2}))
    with pytest.raises(glie.IndexFolderError, match=r"version 2, this glie reads.*upgrade"):
        ShardedIndex.open(many.path)
    outside = [{"a": "../a"}, {"a": ".."}, {"a": ""}, {".": "0000"}, {"a": "0000", "b": "0000"}, {}]
    for broken in ("{", "[]", *(json.dumps({**whole, "shards": shards}) for shards in outside)):
        note.write_text(broken)
        with pytest.raises(glie.CorruptIndexError, match="damaged"):
            ShardedIndex.open(many.path)
    note.unlink()
    assert len(ShardedIndex.open(many.path)) == len(many)  # the folders beside it say enough
    shutil.rmtree(many.path / "0001")
    glie.Index.create(many.path / "0001", glie.Codec(k=5), language="en")
    with pytest.raises(glie.InputError, match=r"another codec than .*fit-sample"):
        ShardedIndex.open(many.path)
    shutil.rmtree(many.path / "0001")
    wider = glie.Index.create(many.path / "0001", glie.Codec(k=3), language="en")
    wider.add(glie.Pages(make_arrays(2, dim=2 * DIM)))
    with pytest.raises(glie.InputError, match="another number of dimensions than"):
        ShardedIndex.open(many.path)
    with pytest.raises(glie.IndexFolderError, match=r"a folder of 3 indexes, expected one .*0000"):
        glie.Index.open(many.path)
    note.write_text(json.dumps(whole))
    shutil.rmtree(many.path / "0001")
    with pytest.raises(glie.IndexFolderError, match="0001: does not exist"):
        ShardedIndex.open(many.path)


def test_what_cannot_be_asked(many: ShardedIndex, tmp_path: Path) -> None:
    with pytest.raises(glie.VectorError, match="numbers"):
        many.search(make_arrays(1))
    with pytest.raises(glie.InputError, match="deadline: expected seconds"):
        many.search([encoded("w1")], deadline=0)
    with pytest.raises(glie.InputError, match="expected text"):
        many.search([encoded("w1")], mode="hybrid")
    with pytest.raises(glie.InputError, match="found 2 for 1 queries"):
        many.search([encoded("w1")], text=["a", "b"])
    plain = ShardedIndex.create(tmp_path / "plain", 2, glie.Codec(k=2))
    plain.add(glie.Pages(make_arrays(4, dim=DIM)))
    with pytest.raises(glie.InputError, match="no page has text"):
        plain.search(None, text=["a"], mode="lexical")
    assert plain.search([]) == []


class Fails(Local):
    """A replica whose machine is lost."""

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        return self._pool.submit(lambda: 1 // 0)


def test_a_shard_that_fails_is_named(many: ShardedIndex) -> None:
    """The others answer."""
    shards = Shards.read(many.path)
    with ThreadPoolExecutor(2) as pool:
        replicas = {name: [Local(many.path, name, pool)] for name in shards.names}
        replicas["0001"] = [Fails(many.path, "0001", pool)]
        some = ShardedIndex(shards, Fleet(replicas), deadline=0.5)
        for options in ({}, {"shortlist": 0}, {"text": ["w1 w2"]}):
            hits = some.search([encoded("w1")], 300, **options)[0]
            assert hits.cost.missing == ("0001",)
            assert {many.shard_of(name) for name in hits.ids} == {"0000", "0002"}
        none = Fleet({name: [Fails(many.path, name, pool)] for name in shards.names})
        with pytest.raises(ClusterError, match=r"no shard has answered in 0.5 s .*cluster status"):
            ShardedIndex(shards, none, deadline=0.5).search([encoded("w1")])


def test_a_damaged_shard_is_named_without_waiting(many: ShardedIndex) -> None:
    (segment, *_) = (many.path / "0001" / "segments").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2 :] = b"?" * (len(data) - len(data) // 2)
    segment.write_bytes(data)
    some = ShardedIndex.open(many.path, deadline=600)  # it would not be waited for
    hits = some.search([encoded("w1")], 300)[0]
    assert hits.cost.missing == ("0001",)
    assert {many.shard_of(name) for name in hits.ids} == {"0000", "0002"}


def test_a_retriever_asks_a_folder_of_shards(pair: Pair) -> None:
    one, many = pair
    for place in (many.path, many):
        retriever = Retriever(place, lambda texts: [encoded(text) for text in texts])
        for question in QUESTIONS:
            expected = Retriever(one, lambda texts: [encoded(text) for text in texts])
            assert retriever.search(question, 5).ids == expected.search(question, 5).ids
        page = one.ids[3]
        assert retriever.search(like=page).ids == one.like(page).ids
        found = retriever.search("w3", documents=["3.txt"])
        assert {name.partition("#")[0] for name in found.ids} == {"3.txt"}
    assert isinstance(open_index(many.path), ShardedIndex)
    assert isinstance(open_index(one.path), glie.Index)
