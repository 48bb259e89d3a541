"""An index of a million pages: disk, memory, time to build and to open, and time of a query through
the candidate index and by the exact scan, in turns.

    python benchmarks/million.py [--pages 10000,100000,1000000] [--from INDEX] [--k 4]
        [--dtype int2] [--questions FILE.npz] [--asked 200] [--to FOLDER] [--plot FILE.png]
    python benchmarks/million.py --from INDEX --as-stored [--pages ...] [--questions FILE.npz] ...
    python benchmarks/million.py --bytes-per-page 520 [--pages ...] ...

Pages are variants of the stored pages of an index (`--from`) or, without one, of synthetic pages:
each vector of a page is moved towards a vector of another page, and noise is added. Questions come
from a file with one (n, D) array each, or are made in the same way, of more distant vectors. The
index is made in a temporary folder, which is removed. Building and serving run in separate
processes, so that their memory is counted separately. The plot shows the time of a query by number
of pages and, for the largest index, recall of the exact top 10 by time, for more probes and
candidates.

With --as-stored, pages have the codec of INDEX, such as one of 520 bytes: their anchors are
variants as above, their codewords those of two pages, half of each. Searches rerank, as they do by
default. Time to build is then without compressing. --bytes-per-page makes such an INDEX of
synthetic pages.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from common import load_pages, machine, publish

import glie
from glie.candidates.ivf import candidates_for, probes_for
from glie.codec.codes import Blobs, Codes
from glie.codec.readout.pairs import read_pairs, residual_blob
from glie.codec.readout.residual import Residual
from glie.index.index import Batch
from glie.kernels.quantize import Packed
from glie.pages import Floats, Queries
from glie.search.scan import scan_candidates

SHARE = 0.75  # of another page's vector, added to a vector
NOISE = 0.02  # standard deviation of the noise, added to each number
PAGES_PER_BATCH = 4096
QUERY_VECTORS = 16
TOP = 10
GOALS = {100_000: "15 ms", 1_000_000: "30 ms"}  # reranked
EFFORTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2)  # times the default probes and candidates
SOURCE_PAGES = 500  # synthetic
MB = 1 << 20
Result = TypeVar("Result")
Texts = Callable[[range], list[str]]


def real_codes(path: Path | None, k: int) -> Floats:
    """The stored vectors (P, k, D) of an index, or of synthetic pages."""
    if path is None:
        return glie.Codec(k=k).compress(load_pages(None, 500)).vectors
    state = glie.Index.open(path)._state
    codes = state.codes_at(np.arange(state.bounds[-1]))
    if codes.k < k:
        raise SystemExit(f"{path}: {codes.k} vectors a page, expected at least {k}")
    return codes.vectors[(codes.counts > 0).sum(axis=1) >= k, :k]


def unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


def offsets(
    codes: Floats, shape: tuple[int, int], share: float, rng: np.random.Generator
) -> Floats:
    """What is added to vectors: a share of another vector, and noise."""
    pages, k, dim = codes.shape
    others = codes[rng.integers(pages, size=shape), rng.integers(k, size=shape)]
    noise = rng.standard_normal((*shape, dim), dtype=np.float32) * np.float32(NOISE)
    return np.asarray(np.float32(share) * others + noise)


def variants(codes: Floats, count: int, seed: int) -> Floats:
    """`count` variants of the pages."""
    rng = np.random.default_rng(seed)
    moves = offsets(codes, (count, codes.shape[1]), SHARE, rng)
    return unit(codes[rng.integers(len(codes), size=count)] + moves)


def made_questions(codes: Floats, count: int) -> list[Floats]:
    """Questions of vectors near those of one page, about as near as in real questions (a cosine
    of 0.6)."""
    rng = np.random.default_rng(1)
    shape = count, QUERY_VECTORS
    moves = offsets(codes, shape, 1.3, rng)
    about = rng.integers(len(codes), size=(count, 1))
    return list(unit(codes[about, rng.integers(codes.shape[1], size=shape)] + moves))


def made_source(path: Path, bytes_per_page: int) -> Path:
    """An index of synthetic pages at a budget, with the shipped codebook."""
    index = glie.Index.create(path, glie.Codec(bytes_per_page=bytes_per_page).frozen)
    index.add(load_pages(None, SOURCE_PAGES))
    return path


class Stored:
    """Pages of an index with a codebook, and variants of their codes."""

    def __init__(self, source: Path) -> None:
        state = glie.Index.open(source)._state
        self.codec = glie.Index.open(source).codec.frozen
        if not isinstance(self.codec.readout, Residual):
            raise SystemExit(f"{source}: its codec is {self.codec}, expected one with codewords")
        codes = state.codes_at(np.arange(state.bounds[-1]))
        full = np.flatnonzero((codes.counts > 0).all(axis=1))
        if not len(full):
            raise SystemExit(f"{source}: no page has {codes.k} anchors")
        self.codes = codes.take(full)
        book, first = len(self.codec.readout.codebook), self.codec.config.first_layer
        self.pairs, self.bounds = read_pairs(self.codes, book, first)
        self.universe = codes.k * book

    def variants(self, ids: Sequence[str], seed: int) -> Codes:
        rng = np.random.default_rng(seed)
        vectors = variants(self.codes.vectors, len(ids), seed)
        packed = Packed.of(vectors, self.codec.dtype)
        origin = rng.integers(len(self.codes), size=(len(ids), 2))
        blobs = [self._mixed(one, other, rng) for one, other in origin.tolist()]
        return dataclasses.replace(
            self.codes.take(origin[:, 0]),
            vectors=packed.vectors(),
            packed=packed,
            residual=Blobs.of(blobs),
            ids=list(ids),
        )

    def _mixed(self, one: int, other: int, rng: np.random.Generator) -> bytes:
        """The residual of a page with half of the pairs of another in place of its own."""
        mine, theirs = (self.pairs[self.bounds[p] : self.bounds[p + 1]] for p in (one, other))
        both = np.concatenate([rng.permutation(mine), rng.permutation(theirs)[: len(mine) // 2]])
        pairs = np.unique(both[len(both) - len(mine) :])
        return residual_blob(pairs, self.universe, self.codec.config.first_layer)


def build_as_stored(
    path: Path, source: Path, pages: int, texts: Texts | None = None
) -> dict[str, float]:
    """Variants of the pages of an index, with its codec. `texts` says what is on some of them."""
    stored = Stored(source)
    place = np.ones((1, stored.codes.dim), np.float32) / np.sqrt(np.float32(stored.codes.dim))

    def batches() -> Iterator[Batch]:
        for first in range(0, pages, PAGES_PER_BATCH):
            count = min(PAGES_PER_BATCH, pages - first)
            ids = [f"p{first + i}" for i in range(count)]
            words = None if texts is None else texts(range(first, first + count))
            yield Batch(glie.Pages([place] * count, ids=ids), texts=words)

    def compress(self: glie.Codec, pages: glie.Pages) -> Codes:
        return stored.variants(pages.ids, seed=int(pages.ids[0][1:]))

    glie.Codec.compress = compress  # type: ignore[method-assign]
    return build(path, batches(), stored.codec, pages)


def build_plain(path: Path, codes: Floats, pages: int, dtype: str) -> dict[str, float]:
    def batches() -> Iterator[Batch]:
        for first in range(0, pages, PAGES_PER_BATCH):
            count = min(PAGES_PER_BATCH, pages - first)
            ids = [f"p{first + i}" for i in range(count)]
            yield Batch(glie.Pages(variants(codes, count, seed=first), ids=ids))

    return build(path, batches(), glie.Codec(k=codes.shape[1], dtype=dtype), pages)


def build(path: Path, batches: Iterator[Batch], codec: glie.Codec, pages: int) -> dict[str, float]:
    began, own = time.perf_counter(), OwnMemory()
    index = glie.Index.create(path, codec)
    index.add(batches)
    seconds = time.perf_counter() - began
    own.stop.set()
    facts = index.info()
    return {
        "seconds": seconds,
        "memory": resident("VmHWM"),  # the peak
        "own memory": own.peak,
        "bytes": facts.lean_bytes / pages,
        "candidates": facts.candidate_bytes / pages,
    }


class OwnMemory(threading.Thread):
    """The most memory of this process that is not a mapped file, looked at ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.stop = 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stop.wait(0.1):
            self.peak = max(self.peak, resident("RssAnon"))


def serve(path: Path, questions: list[Floats], shortlist: int | None) -> dict[str, float]:
    began = time.perf_counter()
    index = glie.Index.open(path)
    opened = time.perf_counter() - began
    index.search(questions[:1], TOP, shortlist=shortlist, exact=False)
    first = time.perf_counter() - began - opened
    asked = {"found": timed(index, questions, False, shortlist)}
    memory = resident()
    index.search(questions[:1], TOP, shortlist=shortlist, exact=True)
    both: dict[str, list[Any]] = {"found": [], "exact": []}
    for question in questions:
        for name, rows in both.items():
            rows.append(timed(index, [question], name == "exact", shortlist)[0])
    agreement = [
        len(set(one.ids) & set(two.ids)) / len(two.ids)
        for (_, one), (_, two) in zip(both["found"], both["exact"], strict=True)
    ]
    best = [
        one.ids[0] == two.ids[0]
        for (_, one), (_, two) in zip(both["found"], both["exact"], strict=True)
    ]
    costs = [hits.cost for _, hits in asked["found"]]
    pages = len(index)
    result = {
        "open": opened,
        "first": first,
        "memory": memory,
        "agreement": float(np.mean(agreement)),
        "best": float(np.mean(best)),
        "scanned": float(np.mean([cost.pages_scanned for cost in costs])) / pages,
        "estimated": float(np.mean([cost.pages_estimated for cost in costs])) / pages,
    }
    for name, rows in both.items():
        seconds = [seconds for seconds, _ in rows]
        result[f"{name} p50"], result[f"{name} p99"] = np.percentile(seconds, [50, 99])
    return result


def trade(path: Path, questions: list[Floats]) -> list[tuple[float, float, float]]:
    """For each effort, the median seconds of a query and its recall of the exact top 10."""
    index = glie.Index.open(path)
    state = index._state
    blocks, ivf_pq = state.candidate_blocks(None), state.candidates.ivf_pq
    expected = [
        {state.position(page_id) for page_id in hits.ids}
        for _, hits in timed(index, questions, True)
    ]
    rows = []
    for effort in EFFORTS:
        probes = max(1, round(effort * probes_for(ivf_pq.lists, index.codec.k)))
        candidates = max(TOP, round(effort * candidates_for(len(index), TOP)))
        seconds, found = [], []
        for question, best in zip(questions, expected, strict=True):
            began = time.perf_counter()
            ranking = scan_candidates(
                Queries([question]), blocks, ivf_pq, TOP, probes=probes, candidates=candidates
            )
            seconds.append(time.perf_counter() - began)
            found.append(len(best & set(ranking.positions[0].tolist())) / len(best))
        rows.append((effort, float(np.median(seconds)), float(np.mean(found))))
    return rows


def draw(
    picture: Path,
    sizes: list[int],
    served: list[dict[str, float]],
    trades: list[tuple[float, float, float]],
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, label, colour in (
        ("exact", "every page", "#c8641b"),
        ("found", "candidates", "#0b6e99"),
    ):
        medians = [1000 * row[f"{name} p50"] for row in served]
        left.loglog(sizes, medians, marker="o", color=colour)
        left.annotate(
            label, (sizes[-1], medians[-1]), xytext=(-8, 6), textcoords="offset points",
            ha="right", color=colour, fontweight="bold",
        )  # fmt: skip
    left.margins(y=0.12)  # room for the labels
    left.set(xlabel="pages", ylabel="ms a query (median)")
    right.plot(
        [1000 * seconds for _, seconds, _ in trades], [100 * found for *_, found in trades],
        marker="o", color="#0b6e99",
    )  # fmt: skip
    for effort, seconds, found in trades:
        right.annotate(
            f"{effort:g}x", (1000 * seconds, 100 * found), xytext=(6, -12),
            textcoords="offset points", fontsize=9,
        )  # fmt: skip
    right.set(
        xlabel=f"ms a query (median), {sizes[-1]:,} pages",
        ylabel="% of the exact top 10",
        title="probes and candidates, times the default",
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e4e4e4", linewidth=0.6)
    figure.savefig(picture, dpi=150)


def timed(
    index: glie.Index, questions: list[Floats], exact: bool, shortlist: int | None = 0
) -> list[tuple[float, glie.Hits]]:
    """Seconds and hits of each question, asked one by one."""
    rows = []
    for question in questions:
        began = time.perf_counter()
        hits = index.search([question], TOP, shortlist=shortlist, exact=exact)[0]
        rows.append((time.perf_counter() - began, hits))
    return rows


def resident(what: str = "VmRSS") -> int:
    """Bytes of this process in memory, including mapped files, as Linux counts them."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{what}:")[2].split()[0])


def apart(run: Callable[..., Result], *arguments: object) -> Result:
    """Run in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(run, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", default="10000,100000,1000000")
    parser.add_argument("--from", type=Path, dest="source")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--dtype", default="int2")
    parser.add_argument("--as-stored", action="store_true", help="with the codec of --from")
    parser.add_argument("--bytes-per-page", type=int, help="of synthetic pages, as stored")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--to", type=Path, help="parent of the temporary folder")
    parser.add_argument("--plot", type=Path, help="file for the plot")
    arguments = parser.parse_args()
    made = tempfile.TemporaryDirectory(dir=arguments.to)
    synthetic = arguments.source is None
    if arguments.bytes_per_page is not None:
        source = made_source(Path(made.name) / "source.glie", arguments.bytes_per_page)
        arguments.source, arguments.as_stored = source, True
    if arguments.as_stored:
        if arguments.source is None:
            raise SystemExit("--as-stored: expected --from INDEX")
        stored = Stored(arguments.source)
        codes, what = stored.codes.vectors, repr(stored.codec)
    else:
        codes = real_codes(arguments.source, arguments.k)
        what = f"k = {arguments.k}, {arguments.dtype}"
    shortlist = None if arguments.as_stored else 0  # None: the default
    questions = (
        made_questions(codes, arguments.asked)
        if arguments.questions is None
        else list(load_pages(arguments.questions, arguments.asked))
    )
    print(
        f"{what}, D = {codes.shape[2]}, of {len(codes):,} "
        f"{'synthetic' if synthetic else 'stored'} pages; "
        f"{len(questions)} questions of {np.mean([len(q) for q in questions]):.0f} vectors; "
        f"{machine()}"
    )
    columns: dict[str, list[str]] = {}
    sizes = list(map(int, arguments.pages.split(",")))
    answers = []
    for pages in sizes:
        with tempfile.TemporaryDirectory(dir=arguments.to) as folder:
            path = Path(folder) / "million.glie"
            built = (
                apart(build_as_stored, path, arguments.source, pages)
                if arguments.as_stored
                else apart(build_plain, path, codes, pages, arguments.dtype)
            )
            served = apart(serve, path, questions, shortlist)
            goal = GOALS.get(pages, "") if arguments.as_stored else ""
            publish(
                f"{pages:,} pages by candidates, {what}, p50",
                1000 * served["found p50"],
                peer="exact scan",
                theirs=1000 * served["exact p50"],
                goal=goal,
            )
            answers.append(served)
            if arguments.plot is not None and pages == sizes[-1]:
                draw(arguments.plot, sizes, answers, apart(trade, path, questions))
        for name, value in report(pages, built, served).items():
            columns.setdefault(name, []).append(value)
        print(f"{pages:,} pages done", flush=True)
    made.cleanup()
    for number, (name, values) in enumerate(columns.items()):
        print(f"| {name} | {' | '.join(values)} |")
        if not number:
            print("| --- |" + " --- |" * len(values))


def report(pages: int, built: dict[str, float], served: dict[str, float]) -> dict[str, str]:
    def ms(name: str) -> str:
        return f"{served[f'{name} p50'] * 1000:.1f} / {served[f'{name} p99'] * 1000:.1f}"

    return {
        "pages": f"{pages:,}",
        "bytes a page on disk": f"{built['bytes']:.0f}",
        "of these, for the candidate index": f"{built['candidates']:.1f}",
        "seconds to build": f"{built['seconds']:.0f}",
        "most memory while building, MB": f"{built['memory'] / MB:,.0f}",
        "of these, without mapped files": f"{built['own memory'] / MB:,.0f}",
        "ms to open": f"{served['open'] * 1000:.1f}",
        "ms of the first query": f"{served['first'] * 1000:.0f}",
        "ms a query, p50 / p99": ms("found"),
        "exact scan, p50 / p99": ms("exact"),
        "memory while serving, MB": f"{served['memory'] / MB:,.0f}",
        "pages estimated": f"{served['estimated']:.1%}",
        "pages whose codes are read": f"{served['scanned']:.2%}",
        f"of the exact top {TOP}": f"{served['agreement']:.2%}",
        "the same best page": f"{served['best']:.1%}",
    }


if __name__ == "__main__":
    main()
