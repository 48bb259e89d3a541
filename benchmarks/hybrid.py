"""What words add to the time of a search.

    python benchmarks/hybrid.py [--pages 100000] [--from INDEX] [--terms 150] [--asked 60]

An index is built of variants of the stored pages of INDEX, with its codec, as in million.py;
without INDEX, of synthetic pages at --bytes-per-page. A page has words whose frequencies follow
Zipf's law. A question has the vectors of a page moved away from it, and words of another page. Each
question is asked by meaning, by both, and by words, in turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from common import machine, publish
from million import MB, Stored, apart, build_as_stored, made_questions, made_source

import glie
from glie.pages import Floats

VOCABULARY = 400_000
QUESTION_WORDS = 8
MODES = ("late", "hybrid", "lexical")


class Words:
    """The words of made-up pages, drawn again from their number."""

    def __init__(self, terms: int) -> None:
        ranks = np.arange(1, VOCABULARY + 1)
        self.share = np.cumsum(1 / ranks) / np.sum(1 / ranks)
        self.terms = terms

    def of(self, page: int) -> list[str]:
        rng = np.random.default_rng([page, 2])
        return [f"w{n}" for n in np.searchsorted(self.share, rng.random(self.terms))]

    def __call__(self, pages: range) -> list[str]:
        return [" ".join(self.of(page)) for page in pages]


def build(path: Path, source: Path, pages: int, terms: int) -> dict[str, float]:
    built: dict[str, float] = build_as_stored(path, source, pages, Words(terms))
    built["words"] = glie.Index.open(path).info().text_bytes / pages
    return built


def serve(path: Path, questions: list[Floats], asked: list[str]) -> dict[str, tuple[float, float]]:
    """The median and the 99th percentile of the seconds of each mode."""
    index = glie.Index.open(path)
    taken: dict[str, list[float]] = {mode: [] for mode in MODES}
    for turn, (vectors, words) in enumerate(zip(questions, asked, strict=True)):
        for mode, seconds in taken.items():
            text = None if mode == "late" else [words]
            began = time.perf_counter()
            index.search([vectors], text=text, mode=mode, normalize=True)
            if turn:  # the first loads what all need
                seconds.append(time.perf_counter() - began)
    return {mode: (float(np.median(s)), float(np.percentile(s, 99))) for mode, s in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--from", type=Path, dest="source")
    parser.add_argument("--bytes-per-page", type=int, default=520, help="without --from")
    parser.add_argument("--terms", type=int, default=150)
    parser.add_argument("--asked", type=int, default=60)
    arguments = parser.parse_args()
    words, pages = Words(arguments.terms), arguments.pages
    with tempfile.TemporaryDirectory() as folder:
        path, source = Path(folder, "hybrid.glie"), arguments.source
        if source is None:
            source = made_source(Path(folder, "source.glie"), arguments.bytes_per_page)
        built = apart(build, path, source, pages, arguments.terms)
        print(
            f"{machine()}; {pages:,} pages built in {built['seconds']:.0f} s without compressing, "
            f"peak {built['memory'] / MB:,.0f} MB; {built['bytes']:.0f} bytes a page, of which "
            f"words {built['words']:.0f}, candidates {built['candidates']:.0f}"
        )
        questions = made_questions(Stored(source).codes.vectors, arguments.asked)
        named = np.random.default_rng(4).integers(pages, size=arguments.asked).tolist()
        asked = [" ".join(words.of(page)[:QUESTION_WORDS]) for page in named]
        taken = apart(serve, path, questions, asked)
    middle, _ = taken["late"]
    both = f"{pages:,} pages, vectors and words, p50"
    publish(both, 1000 * taken["hybrid"][0], peer="vectors alone", theirs=1000 * middle)
    print("| mode | ms a query, p50 | p99 | times late |")
    print("| --- | --- | --- | --- |")
    for mode, (median, slow) in taken.items():
        print(f"| {mode} | {1000 * median:.1f} | {1000 * slow:.1f} | {median / middle:.2f} |")


if __name__ == "__main__":
    main()
