"""Engines: pages stored a second, bytes a page on disk, time of a query, and the share of the exact
top 10 in a prefetch of so many pages.

    python benchmarks/engines.py [--pages 20000,100000] [--engines qdrant-edge,lancedb]
        [--from INDEX] [--k 4] [--dtype int2] [--questions FILE.npz] [--asked 100]
        [--datatype float32] [--held PAGES] [--to FOLDER]
    python benchmarks/engines.py --from INDEX --as-stored --questions FILE.npz [--asked 100]
        [--pages 20000,100000] [--engines qdrant-edge,lancedb,postgres] [--layouts compact]
        [--url postgresql://...] [--keep FOLDER]

Pages and questions are those of benchmarks/million.py. In the first form engines score codes of
k vectors by themselves (the layout multivector). Its first table needs no engine: it compares
prefetching by the mean of a page's vectors with prefetching by the first one, on pages of INDEX.

The second form makes pages with the codec of INDEX, as benchmarks/million.py --as-stored does, and
compares default searches of that index and of engines that hold it, in turns. With --keep, indexes
and engines stay in a folder and are used again; --asked 0 only makes them. Bytes are disk blocks of
files, without write-ahead logs; of PostgreSQL, what it says that the table takes with its indexes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from common import load_pages, machine
from million import (
    TOP,
    apart,
    build_as_stored,
    build_plain,
    made_questions,
    real_codes,
    resident,
    unit,
    variants,
)

import glie
from glie import engines
from glie.engines.base import COMPACT, MULTIVECTOR
from glie.engines.postgres import Postgres
from glie.kernels.top_k import top_k
from glie.pages import Floats

WIDTHS = (100, 300, 1000, 3000, 10000)
BLOCK = 4096  # pages scored in a batch
LOG = "wal"


def held_by(blocks: Iterable[Floats], questions: list[Floats]) -> None:
    """Print the share of the best pages by MaxSim among the nearest by one vector a page."""
    exact: list[Floats] = []
    single: dict[str, list[Floats]] = {"mean": [], "first anchor": []}
    means = np.stack([query.mean(axis=0) for query in questions])
    tokens, starts = np.concatenate(questions), np.cumsum([0, *map(len, questions)])[:-1]
    for codes in blocks:
        products = codes.reshape(-1, codes.shape[2]) @ tokens.T
        best = products.reshape(len(codes), codes.shape[1], -1).max(axis=1)
        exact.append(np.add.reduceat(best, starts, axis=1).T)
        single["mean"].append(means @ unit(codes.mean(axis=1)).T)
        single["first anchor"].append(means @ codes[:, 0].T)
    scores = np.concatenate(exact, axis=1)
    print(f"| of the {TOP} best among {scores.shape[1]:,} | {' | '.join(map(str, WIDTHS))} |")
    print("| --- |" + " --- |" * len(WIDTHS))
    for name, parts in single.items():
        nearness, held = np.concatenate(parts, axis=1), np.zeros(len(WIDTHS))
        for mine, near in zip(scores, nearness, strict=True):
            best = set(top_k(mine, TOP).tolist())
            order = top_k(near, WIDTHS[-1]).tolist()
            held += [len(best & set(order[:width])) / TOP for width in WIDTHS]
        print(f"| {name} | {' | '.join(f'{share:.1%}' for share in held / len(scores))} |")


def taken(folder: Path, *, logs: bool = False) -> int:
    """Bytes on disk, by allocated blocks: of write-ahead logs, or of all else."""
    return sum(
        512 * path.stat().st_blocks
        for path in folder.rglob("*")
        if path.is_file() and (LOG in path.relative_to(folder).parts) == logs
    )


def measure(
    name: str, index: glie.Index, questions: list[Floats], folder: Path, settings: dict[str, str]
) -> None:
    began = time.perf_counter()
    engine = engines.connect(name, folder / name, "pages")
    pages, _ = engines.export(index, engine, layout=MULTIVECTOR, settings=settings)
    stored = time.perf_counter() - began
    count, expected = len(index), index.search(questions, TOP, shortlist=0, exact=True)
    print(
        f"{name}, {count:,} pages: {count / stored:,.0f} stored a second, "
        f"{taken(folder / name) / count:,.0f} bytes each",
        flush=True,
    )
    for width in (None, *(width for width in WIDTHS if width < count)):
        pages.search(questions[:1], TOP, shortlist=0, exact=width is None, prefetch=width)
        seconds, shares = [], []
        for question, best in zip(questions, expected, strict=True):
            began = time.perf_counter()
            hits = pages.search([question], TOP, shortlist=0, exact=width is None, prefetch=width)[
                0
            ]
            seconds.append(time.perf_counter() - began)
            shares.append(len(set(hits.ids) & set(best.ids)) / TOP)
        p50, p99 = 1000 * np.percentile(seconds, [50, 99])
        which = "every page" if width is None else f"{width:,}"
        print(f"| {which} | {p50:.1f} / {p99:.1f} | {np.mean(shares):.2%} |", flush=True)
    print(f"{resident() / 2**20:,.0f} MB in this process", flush=True)
    pages.close()


def kept(
    name: str, layout: str, index: glie.Index, questions: list[Floats], folder: Path, url: str
) -> None:
    """Compare default searches of an engine and of the index that it holds. If the engine lacks the
    collection, it is stored first, which is timed."""
    count = len(index)
    place = folder / name / f"{layout}_{count}"
    where = name, url if name == "postgres" else place, f"pages_{count}"
    engine = engines.connect(*where)
    said = f"{name}, {layout}, {count:,} pages"
    if not engine.exists():
        began = time.perf_counter(), time.process_time()
        engines.export(index, engine, layout=layout)
        wall, used = time.perf_counter() - began[0], time.process_time() - began[1]
        said += f", {count / wall:,.0f} stored a second ({1e6 * used / count:,.0f} us of CPU here)"
    if isinstance(engine, Postgres):
        weight = f"{engine.stored_bytes() / count:,.0f}"
        engine.close()
    else:
        engine.close()  # all is written
        logs = taken(place, logs=True) / count
        weight = f"{taken(place) / count:,.0f} and {logs:,.0f} of logs"
    print(f"{said}: {weight} bytes each", flush=True)
    if not questions:
        return
    pages = engines.open(*where)
    default = pages._prefetch(index.codec.shortlist_for(count))
    index.search(questions[:1], TOP)
    for width in (*(each for each in WIDTHS if 1000 <= each < default), None):
        pages.search(questions[:1], TOP, prefetch=width)
        shares: dict[str, list[float]] = {"top": [], "best": []}
        mine, theirs = list[list[float]](), list[list[float]]()
        for question in questions:
            best = timed(index.search, question, theirs)
            hits = timed(pages.search, question, mine, prefetch=width)
            shares["top"].append(len(set(hits.ids) & set(best.ids)) / len(best))
            shares["best"].append(hits.ids[0] == best.ids[0])
        p50, p99 = 1000 * np.percentile(mine, [50, 99], axis=0)
        peer = 1000 * np.median(theirs, axis=0)
        print(
            f"| {width or f'default: {default:,}'} | {p50[0]:.0f} / {p99[0]:.0f} | {p50[1]:.0f} | "
            f"{np.mean(shares['top']):.2%} | {np.mean(shares['best']):.1%} | the index: "
            f"{peer[0]:.0f}, {peer[1]:.0f} of CPU |",
            flush=True,
        )
    pages.close()


def timed(search: Any, question: Floats, costs: list[list[float]], **options: Any) -> glie.Hits:
    """The answer to a question; its seconds, and those of this process's CPU, join `costs`."""
    began = time.perf_counter(), time.process_time()
    hits: glie.Hits = search([question], TOP, **options)[0]
    costs.append([time.perf_counter() - began[0], time.process_time() - began[1]])
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", default="20000,100000")
    parser.add_argument("--engines", default="qdrant-edge,lancedb")
    parser.add_argument("--from", type=Path, dest="source")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--dtype", default="int2")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--asked", type=int, default=100)
    parser.add_argument("--datatype", default="float32")
    parser.add_argument("--to", type=Path, help="parent of the temporary folder")
    parser.add_argument(
        "--held", type=int, default=0, help="print the first table for so many pages too"
    )
    parser.add_argument("--as-stored", action="store_true", help="with the codec of --from")
    parser.add_argument("--keep", type=Path, help="folder of what is made, to be used again")
    parser.add_argument("--layouts", default=COMPACT)
    parser.add_argument("--url", default="", help="address of PostgreSQL")
    arguments = parser.parse_args()
    if arguments.as_stored:
        if None in (arguments.source, arguments.questions):
            raise SystemExit("--as-stored: expected --from INDEX and --questions FILE.npz")
        questions = list(load_pages(arguments.questions, arguments.asked))
        with tempfile.TemporaryDirectory(dir=arguments.to) as name:
            folder = arguments.keep or Path(name)
            for count in map(int, arguments.pages.split(",")):
                path = folder / f"{count}.glie"
                if not path.exists():
                    apart(build_as_stored, path, arguments.source, count)
                index = glie.Index.open(path)
                print(f"{index.codec}; {len(questions)} questions; {machine()}")
                for engine in arguments.engines.split(","):
                    for layout in arguments.layouts.split(","):
                        kept(engine, layout, index, questions, folder, arguments.url)
        return
    codes = real_codes(arguments.source, arguments.k)
    questions = (
        made_questions(codes, arguments.asked)
        if arguments.questions is None
        else list(load_pages(arguments.questions, arguments.asked))
    )
    print(
        f"k = {arguments.k}, D = {codes.shape[2]}, {arguments.dtype}; {len(questions)} questions; "
        f"{machine()}"
    )
    held_by([codes], questions)
    if arguments.held:
        firsts = range(0, arguments.held, BLOCK)
        held_by((variants(codes, BLOCK, seed=first) for first in firsts), questions)
    for count in map(int, filter(None, arguments.pages.split(","))):
        with tempfile.TemporaryDirectory(dir=arguments.to) as name:
            folder = Path(name)
            build_plain(folder / "pages.glie", codes, count, arguments.dtype)
            index = glie.Index.open(folder / "pages.glie")
            for engine in arguments.engines.split(","):
                measure(engine, index, questions, folder, {"datatype": arguments.datatype})


if __name__ == "__main__":
    main()
