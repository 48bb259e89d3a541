"""Pages in engines: how fast they are stored, what they take on disk, what a query takes, and what
of the exact top 10 a prefetch of so many pages holds.

    python benchmarks/engines.py [--pages 20000,100000] [--engines qdrant-edge,lancedb]
        [--from INDEX] [--k 4] [--dtype int2] [--questions FILE.npz] [--asked 100]
        [--datatype float32] [--to FOLDER]

Pages and questions are those of benchmarks/million.py. The first table has no engine in it: it
compares the mean of a page's vectors with its first one, in pages of INDEX as they are. Bytes are
those that files take up, without a write-ahead log, whose size is fixed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from common import load_pages, machine
from million import TOP, build, made_questions, real_codes, resident, unit

import glie
from glie import engines
from glie.pages import Floats

WIDTHS = (100, 300, 1000, 3000, 10000)
LOG = "wal"


def held_by(codes: Floats, questions: list[Floats]) -> None:
    """What of the best pages by MaxSim is among the nearest by one vector a page."""
    pages, k, dim = codes.shape
    single = {"mean": unit(codes.mean(axis=1)), "first anchor": codes[:, 0]}
    print(f"| of the {TOP} best among {pages:,} | {' | '.join(f'{w:,}' for w in WIDTHS)} |")
    print("| --- |" + " --- |" * len(WIDTHS))
    for name, vectors in single.items():
        held = np.zeros((len(questions), len(WIDTHS)))
        for q, query in enumerate(questions):
            scores = (codes.reshape(-1, dim) @ query.T).reshape(pages, k, -1).max(1).sum(1)
            best = set(np.argsort(-scores)[:TOP].tolist())
            order = np.argsort(-(vectors @ query.mean(axis=0)))
            held[q] = [len(best & set(order[:width].tolist())) / TOP for width in WIDTHS]
        print(f"| {name} | {' | '.join(f'{share:.1%}' for share in held.mean(axis=0))} |")


def taken(folder: Path) -> int:
    """Bytes on disk: what files take up, not how long they are."""
    return sum(
        512 * path.stat().st_blocks
        for path in folder.rglob("*")
        if path.is_file() and LOG not in path.relative_to(folder).parts
    )


def measure(
    name: str, index: glie.Index, questions: list[Floats], folder: Path, settings: dict[str, str]
) -> None:
    began = time.perf_counter()
    engine = engines.connect(name, folder / name, "pages")
    pages, _ = engines.export(index, engine, settings=settings)
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
    parser.add_argument("--to", type=Path, help="where the temporary folder is made")
    arguments = parser.parse_args()
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
    held_by(codes, questions)
    for count in map(int, arguments.pages.split(",")):
        with tempfile.TemporaryDirectory(dir=arguments.to) as name:
            folder = Path(name)
            build(folder / "pages.glie", codes, count, arguments.dtype)
            index = glie.Index.open(folder / "pages.glie")
            for engine in arguments.engines.split(","):
                measure(engine, index, questions, folder, {"datatype": arguments.datatype})


if __name__ == "__main__":
    main()
