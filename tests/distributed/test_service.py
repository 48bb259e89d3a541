"""Shards served by actors on a Ray cluster of three nodes, one of which is killed."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]
import pytest

import glie
from glie.distributed import ShardedIndex, service
from glie.distributed.cluster import import_ray, running
from glie.distributed.shards import Shards
from glie.errors import BusyError, ClusterError
from tests.cli.conftest import Run, run  # noqa: F401
from tests.conftest import make_arrays
from tests.distributed.corpus import DIM, QUESTIONS, assert_same, both, encoded

REPLICAS = 2


class Served(NamedTuple):
    one: glie.Index
    many: ShardedIndex
    ray: Any

    @property
    def shards(self) -> Shards:
        return Shards.read(self.many.path)


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Any]]:
    """A head that holds no replica, and three nodes. Everything has ended afterwards."""
    import_ray()
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 * 2**20}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", made.address)
        yield [made.add_node(num_cpus=1, **small) for _ in range(3)]
    made.shutdown()


@pytest.fixture(scope="module")
def served(nodes: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pages = glie.Codec(bytes_per_page=200, adapt=True)
    corpus_codec = pages.adapted(glie.Pages(make_arrays(60, dim=DIM)), more=True)
    one, many = both(tmp_path_factory.mktemp("served"), corpus_codec, 2)
    ray: Any = running()
    service.serve(Shards.read(many.path), ray, service.Serving(REPLICAS))
    yield Served(one, ShardedIndex.open(many.path), ray)
    ray.shutdown()


class Load:
    """Threads that ask questions as long as the block runs."""

    def __init__(self, many: ShardedIndex, check: Callable[[glie.Hits], object]) -> None:
        self.problems: list[str] = []
        self.asked = 0
        self._many, self._check = many, check
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]

    def _run(self) -> None:
        while not self._stop.is_set():
            question = QUESTIONS[self.asked % len(QUESTIONS)]
            try:
                self._many = self._many.latest()
                hits = self._many.search([encoded(question)], text=[question])[0]
                self.problems += [f"missing {hits.cost.missing}"] if hits.cost.missing else []
                self._check(hits)
            except Exception as error:
                self.problems.append(f"{type(error).__name__}: {error}")
            self.asked += 1

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def until(reached: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def ready(served: Served) -> dict[str, int]:
    """How many replicas of each shard answer."""
    rows = service.status(served.shards, served.ray)
    states = [row.shard for row in rows if row.state == "ready"]
    return {shard: states.count(shard) for shard in served.shards.names}


def test_hits_and_scores_are_those_of_one_index(served: Served) -> None:
    for options in ({}, {"shortlist": 0}, {"text": QUESTIONS}, {"where": {"year": 2001}}):
        assert_same(served.one, served.many, **options)
    assert_same(served.one, served.many, text=QUESTIONS, mode="lexical")
    rows = service.status(served.shards, served.ray)
    assert {row.state for row in rows} == {"ready"}
    assert sum(row.answered for row in rows) >= 2 * 9
    for shard in served.shards.names:
        mine = [row.node for row in rows if row.shard == shard]
        assert len({*mine}) == len(mine) == REPLICAS  # one node may be lost
        assert {row.pages for row in rows if row.shard == shard} == {len(served.many.shards[shard])}


def test_a_change_is_seen_at_once_and_by_others(served: Served) -> None:
    other = ShardedIndex.open(served.many.path)
    page = "added.txt#1"
    served.many.add(glie.Pages(make_arrays(1, dim=DIM), ids=[page]), texts=["zebra"])
    found = served.many.search(None, text=["zebra"], mode="lexical")[0]
    assert found.ids == [page]
    other.refresh()
    assert other.search(None, text=["zebra"], mode="lexical")[0].ids == [page]
    served.many.delete([page])
    assert served.many.search(None, text=["zebra"], mode="lexical")[0].ids == []
    assert_same(served.one, served.many)


def test_too_much_is_refused_at_once(served: Served, tmp_path: Path) -> None:
    many = ShardedIndex.create(tmp_path / "small", 1, glie.Codec(k=2))
    many.add(glie.Pages(make_arrays(5)))
    shards = Shards.read(many.path)
    service.serve(shards, served.ray, service.Serving(1, searches=1, waiting=0))
    (row,) = service.status(shards, served.ray)
    asks = ShardedIndex.open(many.path)
    actor = served.ray.get_actor(f"glie/{shards.id}/{row.name}", namespace="glie")
    blocked = threading.Event()
    try:
        os.kill(row.pid, signal.SIGSTOP)
        asking = [
            threading.Thread(target=_tolerant, args=[asks, make_arrays(1), blocked])
            for _ in range(4)
        ]
        for thread in asking:
            thread.start()
        time.sleep(0.5)  # all four calls lie before the actor
    finally:
        os.kill(row.pid, signal.SIGCONT)
    for thread in asking:
        thread.join()
    assert blocked.is_set()
    assert served.ray.get(actor.facts.remote())["busy"] > 0
    assert len(asks.search(make_arrays(1))[0]) == 5  # it goes on
    assert service.stop(shards, served.ray) == 1


def _tolerant(many: ShardedIndex, queries: Any, blocked: threading.Event) -> None:
    try:
        many.search(queries, deadline=30)
    except BusyError:
        blocked.set()


def test_a_deadline_names_the_shard_that_hangs(served: Served) -> None:
    rows = [row for row in service.status(served.shards, served.ray) if row.shard == "0001"]
    for row in rows:
        os.kill(row.pid, signal.SIGSTOP)
    try:
        hits = served.many.search([encoded("w1")], 300, deadline=1.5)[0]
    finally:
        for row in rows:
            os.kill(row.pid, signal.SIGCONT)
    assert hits.cost.missing == ("0001",)
    assert {served.many.shard_of(name) for name in hits.ids} == {"0000"}
    # one replica that hangs is not noticed
    os.kill(rows[0].pid, signal.SIGSTOP)
    try:
        assert_same(served.one, served.many)
    finally:
        os.kill(rows[0].pid, signal.SIGCONT)


def test_a_new_version_rolls_under_load(served: Served) -> None:
    old = served.shards.place("0001")
    new = old.parent / "0001.new"
    shutil.copytree(old, new)
    index = glie.Index.open(new)
    gone = index.ids[:3]
    index.delete(gone)
    with Load(served.many, lambda hits: None) as load:
        until(lambda: load.asked > 20)
        assert service.replace(served.shards, "0001", new) == old
        asked = load.asked
        until(lambda: load.asked > asked + 60)
        shutil.rmtree(old)
        until(lambda: load.asked > asked + 80)
    assert load.problems == []
    served.many.refresh()
    assert not {*gone} & {*served.many.ids}
    served.one.delete(gone)
    assert_same(served.one, served.many, text=QUESTIONS)
    for wrong, why in (("0009", "not in"), ("0000", "already the folder of a shard")):
        with pytest.raises(glie.InputError, match=why):
            service.replace(served.shards, wrong, new)
    glie.Index.create(old.parent / "other", glie.Codec(k=2))
    with pytest.raises(glie.InputError, match="another codec"):
        service.replace(served.shards, "0000", old.parent / "other")
    with pytest.raises(glie.InputError, match="move it there first"):
        service.replace(served.shards, "0000", served.one.path)


def test_a_node_that_is_killed_fails_no_query(served: Served, nodes: list[Any]) -> None:
    """Its replicas start again on another node, none beside its twin."""
    before = service.status(served.shards, served.ray)
    victim = nodes[0]
    lost = [row for row in before if row.node == victim.node_id]
    assert lost
    expected = {
        tuple(hits.ids)
        for hits in served.one.search([encoded(q) for q in QUESTIONS], text=QUESTIONS)
    }

    def check(hits: glie.Hits) -> None:
        assert tuple(hits.ids) in expected

    with Load(served.many, check) as load:
        until(lambda: load.asked > 20)
        raylet = psutil.Process(victim.all_processes["raylet"][0].process.pid)
        for process in [raylet, *raylet.children(recursive=True)]:
            os.kill(process.pid, signal.SIGKILL)
        until(lambda: all(mine == REPLICAS for mine in ready(served).values()), 120)
        rows = service.status(served.shards, served.ray)
        asked = load.asked
        until(lambda: load.asked > asked + 20)
    assert load.problems == []
    assert {row.pid for row in lost}.isdisjoint({row.pid for row in rows})
    for shard in served.shards.names:
        mine = [row.node for row in rows if row.shard == shard]
        assert len({*mine}) == len(mine) == REPLICAS
    assert_same(served.one, served.many, text=QUESTIONS)


def test_the_command_line(
    served: Served,
    run: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path = served.many.path
    shown = run("cluster", "status", path, "--json").json
    assert [row["state"] for row in shown["replicas"]] == ["ready"] * 2 * REPLICAS
    assert "ready" in run("cluster", "status", path).out
    new = path / "0000.new"
    shutil.copytree(path / "0000", new)
    said = run("cluster", "replace", path, "0000", new).out
    assert said == "shard 0000 is 0000.new now; 0000 is no longer used\n"
    with Load(served.many, lambda hits: None) as load:  # actors are replaced by others
        again = run("cluster", "serve", path, "--replicas", 1, "--json").json
        until(lambda: load.asked > 20)
    assert load.problems == []
    assert [row["state"] for row in again["replicas"]] == ["ready"] * 2
    served.many.refresh()
    assert_same(served.one, served.many)
    monkeypatch.setattr(service, "SECONDS_TO_START", 2.0)
    too_much = run("cluster", "serve", path, "--replicas", 1, "--cpus", 50)
    assert too_much.code == 1
    assert "no room for 1 replicas of 50 CPUs each" in too_much.err
    assert_same(served.one, served.many)  # those that run go on
    assert run("cluster", "stop", path).out == "2 replicas stopped\n"
    assert "not served; `glie cluster serve` does" in run("cluster", "status", path).out
    with pytest.raises(ClusterError, match=r"not served on the cluster; `glie cluster serve"):
        ShardedIndex.open(path).search([encoded("w1")])
    refused = run("cluster", "serve", tmp_path)
    assert refused.code == 1
    assert "no shards there" in refused.err
