"""Milliseconds a query over stored codes, beside numpy on the same codes and beside MaxSim on the
uncompressed vectors where they fit in memory.

    python benchmarks/search.py [--pages FILE.npz] [--sizes 10000,100000] [--k 4] [--rounds 7]

The codes are those of real or synthetic pages, repeated with noise up to each size and stored in
an index on disk. A query has 20 vectors.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from common import interleaved, load_pages, machine

import glie
from glie.kernels.maxsim import maxsim
from glie.pages import Floats, Queries

QUERY_VECTORS = 20


def noisy(codes: Floats, pages: int, seed: int) -> Floats:
    """Codes of more pages: real ones, each number moved a little, back on the sphere."""
    rng = np.random.default_rng(seed)
    chosen = codes[rng.integers(len(codes), size=pages)]
    chosen = chosen + rng.normal(size=chosen.shape).astype(np.float32) * 0.02
    return np.asarray(chosen / np.linalg.norm(chosen, axis=2, keepdims=True), dtype=np.float32)


def numpy_search(query: Floats, codes: Floats, top: int) -> list[int]:
    """Product, maximum, sum, partition: what one would write first."""
    pages, k, dim = codes.shape
    scores = (query @ codes.reshape(-1, dim).T).reshape(len(query), pages, k).max(2).sum(0)
    best = np.argpartition(-scores, top)[:top]
    return [int(i) for i in best[np.argsort(-scores[best])]]


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
    query = sample[0][rng.choice(len(sample[0]), QUERY_VECTORS, replace=False)]
    batch = [
        page[rng.choice(len(page), QUERY_VECTORS, replace=False)]
        for page in (sample[i % len(sample)] for i in range(32))
    ]
    print(f"k = {arguments.k}, D = {sample.dim}, {QUERY_VECTORS} vectors a query; {machine()}")
    print("| pages | method | ms a query | times glie's |")
    print("| --- | --- | --- | --- |")
    for pages in map(int, arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            report(pages, noisy(codes, pages, 1), query, batch, sample, Path(folder), arguments)


def report(
    pages: int,
    codes: Floats,
    query: Floats,
    batch: list[Floats],
    sample: glie.Pages,
    folder: Path,
    arguments: argparse.Namespace,
) -> None:
    index = glie.Index.create(folder / "bench.glie", glie.Codec(k=arguments.k))
    # the vectors of a code are its own clusters, so each page stores its code unchanged
    index.add(glie.Pages(codes, ids=[f"p{i}" for i in range(pages)]))
    stored = np.concatenate([segment.vectors.vectors() for segment in index._state.segments])
    assert index.search([query], top=10)[0].ids == [
        f"p{i}" for i in numpy_search(query, stored, 10)
    ]
    contenders = {
        "glie, the index on disk (bf16)": lambda: index.search([query], top=10),
        "numpy, the same codes in memory (f32)": lambda: numpy_search(query, stored, 10),
        f"glie, {len(batch)} queries at once": lambda: index.search(batch, top=10),
    }
    divisors: dict[str, float] = {f"glie, {len(batch)} queries at once": len(batch)}
    full = min(pages, 2_000)  # more do not fit: 528 KB a page
    whole = glie.Pages([sample[i % len(sample)] for i in range(full)])
    questions = Queries([query])
    uncompressed = f"MaxSim on uncompressed vectors, from {full:,} pages"
    contenders[uncompressed] = lambda: maxsim(
        questions.vectors, questions.offsets, whole.vectors, whole.offsets[:-1], whole.offsets[1:]
    )
    divisors[uncompressed] = full / pages  # scaled up to the same number of pages
    seconds = interleaved(contenders, arguments.rounds)
    mine = seconds["glie, the index on disk (bf16)"]
    for name, taken in seconds.items():
        each = taken / divisors.get(name, 1)
        print(f"| {pages:,} | {name} | {each * 1000:.2f} | {each / mine:.2f} |", flush=True)


if __name__ == "__main__":
    main()
