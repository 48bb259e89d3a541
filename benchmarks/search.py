"""Milliseconds a query over stored codes, compared with other libraries on the same codes; and
MaxSim on uncompressed vectors.

    python benchmarks/search.py [--pages FILE.npz] [--sizes 10000,100000] [--k 4] [--rounds 7]

The codes are those of real or synthetic pages, repeated with noise up to each size, and stored in
an index on disk. A query has 20 vectors. All but `glie` search the codes of the bfloat16 index in
float32; their ten best pages are compared with numpy's before they are timed. A library that is not
installed is left out, with a note.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import interleaved, load_pages, machine, publish

import glie
from glie.kernels.maxsim import maxsim
from glie.kernels.quantize import DTYPES
from glie.pages import Floats, Queries

QUERY_VECTORS = 20
TOP = 10
WHOLE_PAGES = 500  # uncompressed: 528 KB each
GOALS = {"bf16": 6, "int8": 12, "int2": 15, "int1": 20}  # times numpy, of GOAL_PAGES
GOAL_PAGES = "100,000"
Search = Callable[[Floats], list[int]]


def noisy(codes: Floats, pages: int, seed: int) -> Floats:
    """Codes of more pages: variants with a little noise, normalised."""
    rng = np.random.default_rng(seed)
    chosen = codes[rng.integers(len(codes), size=pages)]
    chosen = chosen + rng.normal(size=chosen.shape).astype(np.float32) * 0.02
    return np.asarray(chosen / np.linalg.norm(chosen, axis=2, keepdims=True), dtype=np.float32)


def best_of(scores: Any) -> list[int]:
    scores = np.asarray(scores)
    best = np.argpartition(-scores, TOP)[:TOP]
    return [int(i) for i in best[np.argsort(-scores[best])]]


def with_numpy(codes: Floats, _: Path) -> Search:
    """The simplest form: product, maximum, sum, partition."""
    pages, k, dim = codes.shape
    flat = codes.reshape(-1, dim)

    def search(query: Floats) -> list[int]:
        return best_of((query @ flat.T).reshape(len(query), pages, k).max(2).sum(0))

    return search


def with_torch(codes: Floats, _: Path) -> Search:
    """The same in blocks that fit the CPU cache."""
    import torch

    blocks = torch.split(torch.from_numpy(codes), 2048)

    def search(query: Floats) -> list[int]:
        tokens = torch.from_numpy(query).T
        scores = [(block @ tokens).amax(1).sum(1) for block in blocks]
        return best_of(torch.cat(scores))

    return search


def with_maxsim_cpu(codes: Floats, _: Path) -> Search:
    import maxsim_cpu

    return lambda query: best_of(maxsim_cpu.maxsim_scores(query, codes))


def with_lancedb(codes: Floats, folder: Path) -> Search:
    """A multivector column without an index: an exact search."""
    import lancedb
    import pyarrow

    pages, k, dim = codes.shape
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(codes.reshape(-1)), dim)
    offsets = pyarrow.array(np.arange(0, pages * k + 1, k, dtype=np.int32))
    columns = {
        "id": pyarrow.array(range(pages)),
        "vector": pyarrow.ListArray.from_arrays(offsets, vectors),
    }
    table = lancedb.connect(folder).create_table("pages", pyarrow.table(columns))

    def search(query: Floats) -> list[int]:
        found = table.search(query, vector_column_name="vector").distance_type("cosine")
        ids: list[int] = found.limit(TOP).select(["id", "_distance"]).to_arrow()["id"].to_pylist()
        return ids

    return search


def with_qdrant_edge(codes: Floats, folder: Path) -> Search:
    """Multivectors with MaxSim of dot products; every point is scored."""
    import qdrant_edge as edge

    folder.mkdir()
    vectors = edge.EdgeVectorParams(
        size=codes.shape[2],
        distance=edge.Distance.Dot,
        multivector_config=edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim),
    )
    shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors={"code": vectors}))
    for at in range(0, len(codes), 1000):
        points = [
            edge.Point(at + i, {"code": rows}, None)
            for i, rows in enumerate(codes[at : at + 1000].tolist())
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))

    def search(query: Floats) -> list[int]:
        asked = edge.QueryRequest(
            limit=TOP,
            query=edge.Query.Nearest(query.tolist(), "code"),
            params=edge.SearchParams(exact=True),
        )
        return [point.id for point in shard.query(asked)]

    return search


PEERS: dict[str, tuple[str, Callable[[Floats, Path], Search]]] = {
    "numpy": ("numpy", with_numpy),
    "torch, in blocks": ("torch", with_torch),
    "maxsim-cpu": ("maxsim_cpu", with_maxsim_cpu),
    "LanceDB, no index": ("lancedb", with_lancedb),
    "qdrant-edge, every point": ("qdrant_edge", with_qdrant_edge),
}


def installed() -> list[str]:
    """The libraries that are installed; prints a note about the others."""
    there = [name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module)]
    for name in PEERS.keys() - set(there):
        print(f"{name} is not installed (pip install 'glie[bench]') and left out")
    return there


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    sample = load_pages(arguments.pages, 60)
    codes = glie.Codec(k=arguments.k).compress(sample).vectors
    rng = np.random.default_rng(0)
    batch = [
        page[rng.choice(len(page), QUERY_VECTORS, replace=False)]
        for page in (sample[i % len(sample)] for i in range(32))
    ]
    peers = installed()
    print(f"k = {arguments.k}, D = {sample.dim}, {QUERY_VECTORS} vectors a query; {machine()}")
    print("| pages | method | ms a query | times glie's |")
    print("| --- | --- | --- | --- |")
    for pages in map(int, arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            searches = contenders(noisy(codes, pages, 1), batch, peers, Path(folder))
            report(f"{pages:,}", searches, {f"glie, {len(batch)} at once": len(batch)}, arguments)
    whole = glie.Pages([sample[i % len(sample)] for i in range(WHOLE_PAGES)])
    report(
        f"{WHOLE_PAGES}, whole ({whole.lengths.mean():,.0f} x {whole.dim})",
        uncompressed(whole, batch[0], peers),
        {},
        arguments,
    )


def contenders(
    codes: Floats, batch: list[Floats], peers: list[str], folder: Path
) -> dict[str, Callable[[], object]]:
    query = batch[0]
    expected: set[int] = set()
    runs: dict[str, Callable[[], object]] = {}
    for dtype in DTYPES:
        # a page of k vectors is its own code
        index = glie.Index.create(folder / f"{dtype}.glie", glie.Codec(codes.shape[1], dtype=dtype))
        index.add(glie.Pages(codes, ids=[str(i) for i in range(len(codes))]))
        if dtype == "bf16":  # what is stored, for all others
            codes = np.concatenate([part.vectors.vectors() for part in index._state.segments])
            expected = set(with_numpy(codes, folder)(query))
            hits = index.search([query], top=TOP, exact=True)[0]
            assert {int(page) for page in hits.ids} == expected

        runs[f"glie, {dtype} on disk"] = partial(index.search, [query], top=TOP, exact=True)
        if dtype == "bf16":
            at_once = partial(index.search, batch, top=TOP, exact=True)
            runs[f"glie, {len(batch)} at once"] = at_once
    for name in peers:
        ask = PEERS[name][1](codes, folder / name.split(",")[0])
        # rounding to 16 bits changes norms: it affects products, but not LanceDB's cosine
        assert len(expected & set(ask(query))) >= TOP - 2, name
        runs[name] = partial(ask, query)
    return runs


def uncompressed(
    pages: glie.Pages, query: Floats, peers: list[str]
) -> dict[str, Callable[[], object]]:
    """MaxSim over all vectors of pages of one length."""
    question = Queries([query])
    shortest = int(pages.lengths.min())
    cube = np.stack([page[:shortest] for page in pages])
    flat, starts = cube.reshape(-1, pages.dim), shortest * np.arange(len(pages))
    runs: dict[str, Callable[[], object]] = {
        "glie's kernel": lambda: best_of(
            maxsim(question.vectors, question.offsets, flat, starts, starts + shortest)[0]
        )
    }
    for name in ("numpy", "torch, in blocks", "maxsim-cpu"):
        if name in peers:
            ask = PEERS[name][1](cube, Path())
            runs[name] = partial(ask, query)
    return runs


def compared(pages: str, seconds: dict[str, float], divisors: dict[str, int]) -> None:
    """Rows of `make bench`: each type against numpy, and bfloat16 against every other library."""
    mine = {name: 1000 * taken for name, taken in seconds.items() if name.startswith("glie")}
    theirs = {name: 1000 * taken for name, taken in seconds.items() if name not in mine}
    first = next(iter(mine))
    for name, taken in mine.items():
        goals = GOALS if pages == GOAL_PAGES else {}
        goal = next((times for kind, times in goals.items() if f" {kind} " in name), "")
        numpy = {"peer": "numpy", "theirs": theirs["numpy"], "goal": goal and f"{goal} times"}
        if name in divisors:
            alone = {"peer": "one query", "theirs": mine[first], "goal": "3 times" if goals else ""}
            publish(f"scan {pages} pages: {name}", taken / divisors[name], **alone)
        else:
            publish(f"scan {pages} pages: {name}", taken, **numpy)
    for name, taken in theirs.items():
        if name != "numpy":
            publish(f"scan {pages} pages: {first}", mine[first], peer=name, theirs=taken)


def report(
    pages: str,
    runs: dict[str, Callable[[], object]],
    divisors: dict[str, int],
    arguments: argparse.Namespace,
) -> None:
    seconds = interleaved(runs, arguments.rounds)
    mine = next(iter(seconds.values()))
    compared(pages, seconds, divisors)
    for name, taken in seconds.items():
        each = taken / divisors.get(name, 1)
        print(f"| {pages} | {name} | {each * 1000:.2f} | {each / mine:.2f} |", flush=True)


if __name__ == "__main__":
    main()
