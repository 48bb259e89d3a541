"""Shards on a Ray cluster of several nodes on this machine, beside one index of the same pages: the
same hits, what the fan-out costs, and what users notice when a node is killed, when a shard is
replaced, when too much is asked, and over time.

    python benchmarks/cluster.py --from INDEX --questions FILE.jsonl --to FOLDER [--texts FOLDER]
        [--pages 100000] [--shards 4] [--replicas 2] [--nodes 3] [--asked 200] [--threads 2]
        [--minutes 10] [--parts same,cost,kill,replace,busy,memory]

Pages are variants of the pages of INDEX, as in benchmarks/million.py --as-stored; with --texts, the
words of a page are those of one of the text files in FOLDER. Questions are lines of JSON with a
`text`, which the encoder of INDEX encodes. Nodes are raylets of ray.cluster_utils.Cluster; the head
holds no replica. Folders that are there already in --to are used again.

The overhead is the time of a search without its slowest shard in each of the two rounds, as that
replica has measured it. Empty is a call that does nothing, of one replica of every shard at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
from common import machine
from million import PAGES_PER_BATCH, Stored

import glie
from glie.distributed import service
from glie.distributed.cluster import running
from glie.distributed.fleet import Answers, Fleet
from glie.distributed.sharded import ShardedIndex
from glie.distributed.shards import Shards
from glie.encoders import load_encoder
from glie.index.index import Batch
from glie.pages import Floats

TOP = 10
SLOW = 0.25  # seconds: a query that took longer is counted as a slow one
PARTS = "same,cost,kill,replace,busy,memory"


def build(folder: Path, source: Path, pages: int, shards: int, texts: list[str]) -> None:
    """Shards of variants, and one index of all of them, shard by shard."""
    if (folder / "one.glie").exists():
        return
    stored = Stored(source)
    place = np.ones((1, stored.codes.dim), np.float32) / np.sqrt(np.float32(stored.codes.dim))

    def compress(self: Any, given: Any) -> Any:
        return stored.variants(given.ids, seed=int(given.ids[0][1:]))

    glie.Codec.compress = compress  # type: ignore[assignment, method-assign]
    encoder = glie.Index.open(source).encoder
    made = Shards.create(folder / "pages.shards", shards, stored.codec, encoder=encoder)
    each = pages // shards
    for number, name in enumerate(made.names):

        def batches(first: int = number * each) -> Iterator[Batch]:
            rng = np.random.default_rng(first)
            for at in range(first, first + each, PAGES_PER_BATCH):
                ids = [f"p{n}" for n in range(at, min(at + PAGES_PER_BATCH, first + each))]
                words = [texts[row] for row in rng.integers(len(texts), size=len(ids))]
                facts = [{"document": page_id, "page": 1} for page_id in ids]
                yield Batch(glie.Pages([place] * len(ids), ids=ids), facts, None, words or None)

        glie.Index.open(made.place(name)).add(batches())
    making = folder / "one.making"
    one = glie.Index.create(making, stored.codec.frozen, encoder=encoder)
    for name in made.names:
        one.merge(glie.Index.open(made.place(name)))
    making.rename(folder / "one.glie")


@dataclasses.dataclass
class Asked:
    """One search of a load."""

    at: float
    seconds: float
    problem: str  # an error, or the shards that are missing


class Load:
    """Threads that ask questions one after the other, as long as the block runs."""

    def __init__(
        self,
        pages: ShardedIndex,
        questions: Sequence[Floats],
        threads: int,
        pause: float = 0,
        refused: float = 0,
    ) -> None:
        """They pause after each question, and when they are refused."""
        self.rows: list[Asked] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=[pages, questions, n, pause, refused])
            for n in range(threads)
        ]

    def _run(
        self,
        pages: ShardedIndex,
        questions: Sequence[Floats],
        first: int,
        pause: float,
        refused: float,
    ) -> None:
        at = first * 7
        while not self._stop.is_set():
            at, began, problem = at + 1, time.perf_counter(), ""
            try:
                pages = pages.latest()
                cost = pages.search([questions[at % len(questions)]], TOP)[0].cost
                problem = ",".join(cost.missing)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            self.rows.append(Asked(time.time(), time.perf_counter() - began, problem))
            self._stop.wait(refused if problem.startswith("BusyError") else pause)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def say(self, what: str, since: float = 0) -> None:
        rows = [row for row in self.rows if row.at - row.seconds >= since] or self.rows
        seconds = [row.seconds for row in rows]
        p50, p99, most = 1000 * np.percentile(seconds, [50, 99, 100])
        bad = [row.problem for row in rows if row.problem]
        slow = sum(second > SLOW for second in seconds)
        print(
            f"{what}: {len(rows):,} queries, {len(bad)} failed or incomplete, {slow} took longer "
            f"than {1000 * SLOW:.0f} ms; p50 / p99 / most {p50:.0f} / {p99:.0f} / {most:.0f} ms",
            flush=True,
        )
        for problem in dict.fromkeys(bad[:3]):
            print(f"    {problem}")


def same(one: glie.Index, many: ShardedIndex, questions: list[Floats], texts: list[str]) -> None:
    """Compare the hits and scores of both. Candidates of both are compared with every page."""
    print("| search | the same 10 hits in this order | of the top 10 | largest difference |")
    print("| --- | --- | --- | --- |")
    ways: dict[str, dict[str, Any]] = {
        "exact, reranked": {"exact": True},
        "exact, codes alone": {"exact": True, "shortlist": 0},
        "candidates of the shards, reranked": {"exact": False},
        "candidates of the one index, reranked": {"exact": False},
        "words and meaning": {"exact": True, "text": texts},
        "words alone": {"text": texts, "mode": "lexical"},
    }
    for name, options in ways.items():
        if "text" in options and not one.has_text:
            continue
        equal, shares, apart = 0, list[float](), 0.0
        other: Any = one if "the one index" in name else many
        for q, question in enumerate(questions):
            mine: dict[str, Any] = (
                {"deadline": 600.0} if other is many else {}
            )  # candidates are fitted
            given = {**options, "text": [texts[q]]} if "text" in options else options
            a = one.search([question], TOP, **{**given, "exact": True})[0]
            b = other.search([question], TOP, **given, **mine)[0]
            equal += a.ids == b.ids
            known = dict(zip(a.ids, a.scores, strict=True))
            found = dict(zip(b.ids, b.scores, strict=True))
            both = known.keys() & found.keys()
            shares.append(len(both) / max(len(a), 1))
            apart = max([apart, *(abs(known[name] - found[name]) for name in both)])
        share = equal / len(questions)
        print(f"| {name} | {share:.1%} | {np.mean(shares):.2%} | {apart:.1e} |", flush=True)


def cost(one: glie.Index, many: ShardedIndex, questions: list[Floats]) -> None:
    """The time of a search beside that of its slowest shards, and of one index."""
    ask, slowest, rounds = Fleet.ask, [0.0], [0]

    def watched(self: Fleet, method: str, requests: Any, deadline: float) -> Answers:
        found = ask(self, method, requests, deadline)
        slowest[0] += max(value.cost.seconds for value in found.values.values())
        rounds[0] += 1
        return found

    Fleet.ask = watched  # type: ignore[method-assign]
    names = "one index", "shards", "slowest", "overhead", "empty"
    rows: dict[str, list[float]] = {name: [] for name in names}
    for question in questions[:20]:
        many.search([question], TOP)
        one.search([question], TOP)
    hedged = many._fleet().hedged
    for question in questions:
        slowest[0] = 0.0
        began = time.perf_counter()
        many.search([question], TOP)
        whole = time.perf_counter() - began
        began = time.perf_counter()
        one.search([question], TOP)
        rows["one index"].append(time.perf_counter() - began)
        rows["shards"].append(whole)
        rows["slowest"].append(slowest[0])
        rows["overhead"].append(whole - slowest[0])
        began = time.perf_counter()
        wait([many._fleet().all(shard)[0].call("sign") for shard in many.shards])
        rows["empty"].append(time.perf_counter() - began)
    Fleet.ask = ask  # type: ignore[method-assign]
    print("| ms a query | p50 | p99 |\n| --- | --- | --- |")
    for name, seconds in rows.items():
        p50, p99 = 1000 * np.percentile(seconds, [50, 99])
        print(f"| {name} | {p50:.1f} | {p99:.1f} |")
    print(f"{many._fleet().hedged - hedged} calls hedged of {len(questions)} queries", flush=True)


def kill(
    many: ShardedIndex, shards: Shards, ray: Any, node: Any, questions: list[Floats], threads: int,
    replicas: int,
) -> None:  # fmt: skip
    """SIGKILL a node under load: its raylet and all processes that it started."""
    import psutil  # type: ignore[import-untyped]

    with Load(many, questions, threads) as load:
        time.sleep(10)
        raylet = node.all_processes["raylet"][0].process
        processes = [psutil.Process(raylet.pid)]
        processes += processes[0].children(recursive=True)
        lost = sum(row.node == node.node_id for row in service.status(shards, ray))
        killed = time.time()
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        rows = restored_replicas(shards, ray, replicas)
        restored = time.time() - killed
        time.sleep(10)
    before = Load(many, questions, 0)
    before.rows = [row for row in load.rows if row.at < killed]
    before.say("before")
    load.say(f"a node with {lost} of {len(rows)} replicas killed", since=killed - 1)
    nodes = {shard: [row.node for row in rows if row.shard == shard] for shard in shards.names}
    apart = all(len({*mine}) == len(mine) for mine in nodes.values())
    print(f"replicas restored after {restored:.0f} s, on different nodes: {apart}", flush=True)


def restored_replicas(shards: Shards, ray: Any, replicas: int) -> list[service.ReplicaStatus]:
    """Wait until every shard has so many replicas that answer."""
    for _ in range(600):
        rows = service.status(shards, ray)
        ready = [row.shard for row in rows if row.state == "ready"]
        if all(ready.count(shard) >= replicas for shard in shards.names):
            return rows
        time.sleep(0.5)
    raise SystemExit("not all replicas are restored")


def replace(
    many: ShardedIndex, shards: Shards, ray: Any, questions: list[Floats], threads: int,
    replicas: int,
) -> None:  # fmt: skip
    """Replace every shard by a new version under load, then all actors."""
    with Load(many, questions, threads) as load:
        time.sleep(3)
        for shard in shards.names:
            old = Shards.read(shards.path).place(shard)
            new = shards.path / f"{shard}.{int(time.time())}"
            shutil.copytree(old, new)
            index = glie.Index.open(new)
            index.delete(index.ids[:10])
            service.replace(Shards.read(shards.path), shard, new)
            time.sleep(3)
            shutil.rmtree(old)
        after = Shards.read(shards.path)
        time.sleep(3)
        service.serve(after, ray, service.Serving(replicas))
        time.sleep(3)
    load.say(f"{len(shards.names)} shards replaced, then all replicas started again")
    pages = len(ShardedIndex(after))
    print(f"{pages:,} pages now, {10 * len(shards.names)} fewer than before", flush=True)


def busy(many: ShardedIndex, questions: list[Floats]) -> None:
    """Ask far more than can be answered."""
    with Load(many, questions, 80, refused=0.2) as load:
        time.sleep(20)
    answered = [row.seconds for row in load.rows if not row.problem]
    refused = [row.seconds for row in load.rows if row.problem.startswith("BusyError")]
    others = len(load.rows) - len(answered) - len(refused)
    p50, p99 = 1000 * np.percentile(answered, [50, 99])
    print(
        f"80 threads: {len(answered):,} answered in p50 / p99 {p50:.0f} / {p99:.0f} ms, "
        f"{len(refused):,} refused as busy, {others} failed or incomplete",
        flush=True,
    )


def memory(
    many: ShardedIndex, shards: Shards, ray: Any, questions: list[Floats], minutes: float
) -> None:
    """Bytes of this process and of the replicas over time, under a steady load."""
    import psutil

    print("| minute | replicas, MB each | this process, MB | queries |\n| --- | --- | --- | --- |")
    began = time.time()
    with Load(many, questions, 1, pause=0.1) as load:
        while True:
            passed = (time.time() - began) / 60
            sizes = [row.memory / 2**20 for row in service.status(shards, ray) if row.memory]
            mine = psutil.Process().memory_info().rss / 2**20
            print(
                f"| {passed:.1f} | {min(sizes):.0f} to {max(sizes):.0f} | {mine:.0f} | "
                f"{len(load.rows):,} |",
                flush=True,
            )
            if passed >= minutes:
                break
            time.sleep(min(60.0, 60 * (minutes - passed) + 0.1))
    load.say(f"{minutes:g} minutes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", type=Path, dest="source", required=True)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--parts", default=PARTS)
    parser.add_argument("--to", type=Path, required=True, help="folder for the pages; it is kept")
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.questions.read_text().splitlines()]
    words = [line["text"] for line in lines[: given.asked]]
    encoder = load_encoder(glie.Index.open(given.source).encoder.name)  # type: ignore[union-attr]
    questions = [np.asarray(array) for array in encoder.encode_queries(words)]
    texts = [path.read_text() for path in sorted(given.texts.glob("*.txt"))] if given.texts else []
    build(given.to, given.source, given.pages, given.shards, texts)
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 * 2**20}
    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
    )
    workers = [nodes.add_node(num_cpus=2, **small) for _ in range(given.nodes)]
    os.environ["RAY_ADDRESS"] = nodes.address
    ray: Any = running()
    try:
        path = given.to / "pages.shards"
        shards = Shards.read(path)
        began = time.perf_counter()
        service.serve(shards, ray, service.Serving(given.replicas))
        started = time.perf_counter() - began
        one, many = glie.Index.open(given.to / "one.glie"), ShardedIndex.open(path)
        facts = many.info()
        print(
            f"{facts.pages:,} pages of {facts.lean_bytes / facts.pages:.0f} bytes, {one.codec}, in "
            f"{given.shards} shards of {given.replicas} replicas on {given.nodes} nodes, started "
            f"in {started:.0f} s; {len(questions)} questions; {machine()}",
            flush=True,
        )
        run: dict[str, Callable[[], None]] = {
            "same": lambda: same(one, many, questions, words),
            "cost": lambda: cost(one, many, questions),
            "memory": lambda: memory(many, shards, ray, questions, given.minutes),
            "kill": lambda: kill(
                many, shards, ray, workers[0], questions, given.threads, given.replicas
            ),
            "replace": lambda: replace(many, shards, ray, questions, given.threads, given.replicas),
            "busy": lambda: busy(many, questions),
        }
        for part in given.parts.split(","):
            run[part]()
    finally:
        ray.shutdown()
        nodes.shutdown()


if __name__ == "__main__":
    main()
