"""What words add to the time of a search.

    python benchmarks/hybrid.py [--pages 100000] [--terms 150] [--rounds 21] [--bytes-per-page 520]

An index of made-up pages is built from batches: some vectors a page near one of its centres, and
words whose frequencies follow Zipf's law. A question has the vectors of one page with noise, and
words of the same page. Times are of one search, in turns, the median; the peak of memory is that of
the process that builds.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import interleaved, machine

import glie
from glie.index.adding import Batch
from glie.pages import Floats

DIM = 128
VECTORS = 24  # of a page
VOCABULARY = 400_000
STEP = 2000  # pages a batch
QUESTION_VECTORS, QUESTION_WORDS = 16, 8
NOISE = 0.5


class Made:
    """Made-up pages, drawn again from their number."""

    def __init__(self, terms: int) -> None:
        ranks = np.arange(1, VOCABULARY + 1)
        self.share = np.cumsum(1 / ranks) / np.sum(1 / ranks)
        self.terms = terms
        self.centres = np.random.default_rng(0).normal(size=(4096, DIM)).astype(np.float32)

    def vectors(self, page: int) -> Floats:
        rng = np.random.default_rng([page, 1])
        near = self.centres[rng.integers(len(self.centres), size=VECTORS)]
        rows = near + rng.normal(size=near.shape).astype(np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    def words(self, page: int) -> list[str]:
        rng = np.random.default_rng([page, 2])
        return [f"w{n}" for n in np.searchsorted(self.share, rng.random(self.terms))]

    def batches(self, pages: int) -> Iterator[Batch]:
        for at in range(0, pages, STEP):
            numbers = range(at, min(at + STEP, pages))
            made = glie.Pages([self.vectors(n) for n in numbers], [str(n) for n in numbers])
            yield Batch(made, texts=[" ".join(self.words(n)) for n in numbers])

    def question(self, page: int) -> tuple[Floats, str]:
        rng = np.random.default_rng([page, 3])
        rows = self.vectors(page)[rng.choice(VECTORS, QUESTION_VECTORS)]
        rows = rows + rng.normal(0, NOISE / DIM**0.5, rows.shape).astype(np.float32)
        chosen = rng.choice(self.words(page), QUESTION_WORDS)
        return np.asarray(rows), " ".join(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--terms", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--bytes-per-page", type=int, default=520)
    arguments = parser.parse_args()
    made = Made(arguments.terms)
    with tempfile.TemporaryDirectory() as folder:
        codec = glie.Codec(bytes_per_page=arguments.bytes_per_page)
        index = glie.Index.create(Path(folder, "made.glie"), codec, encoder="english")
        began = time.perf_counter()
        index.add(made.batches(arguments.pages))
        seconds = time.perf_counter() - began
        info = index.info()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{machine()}; {info.pages:,} pages built in {seconds:.0f} s, making them included, "
            f"peak {peak:,.0f} MB; {info.bytes / info.pages:.0f} bytes a page, words "
            f"{info.text_bytes / info.pages:.0f}, candidate files "
            f"{info.candidate_bytes / info.pages:.0f}"
        )
        rng = np.random.default_rng(4)
        asked = [made.question(int(n)) for n in rng.integers(arguments.pages, size=50)]
        turn = iter(range(10**9))

        def search(mode: str) -> None:
            vectors, words = asked[next(turn) // 3 % len(asked)]
            index.search([vectors], text=[words], mode=mode, normalize=True)

        times = interleaved(
            {mode: lambda mode=mode: search(mode) for mode in ("late", "hybrid", "lexical")},
            arguments.rounds,
        )
    print("| mode | ms a query | times late |")
    print("| --- | --- | --- |")
    for mode, taken in times.items():
        print(f"| {mode} | {1000 * taken:.1f} | {taken / times['late']:.2f} |")


if __name__ == "__main__":
    main()
