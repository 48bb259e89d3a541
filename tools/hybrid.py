"""Words and meaning together, at so many bytes a page in all: the table in docs/results.md.

    python tools/hybrid.py SET... [--bytes-per-page 260,520,1040] [--encoder NAME] [--cache DIR]
                           [--questions N]

For each set and budget, an index with the texts of the pages and one without are made in a
temporary folder and searched. nDCG@5 of: words alone (BM25), vectors alone at the budget, both at
the budget (postings included), the control that adds reciprocal ranks instead of scores, and
vectors uncompressed. Bytes are those of the files, a page.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import glie
from glie.cli.shared import encode_sets
from glie.evaluation import Encoded, load
from glie.evaluation.datasets import Dataset
from glie.index.memory import search_vectors
from glie.measures import DEPTH, each_measure

RANK_CONSTANT = 60  # of reciprocal rank fusion, as usual
Rankings = list[list[str]]


def made(folder: Path, encoded: Encoded, texts: Sequence[str] | None, size: int) -> glie.Index:
    codec = glie.Codec(bytes_per_page=size)
    index = glie.Index.create(folder, codec, encoder=encoded.encoder)
    index.add(encoded.pages(), texts=texts)
    index.compact()
    return index


def fused(one: Rankings, two: Rankings) -> Rankings:
    """Reciprocal rank fusion."""
    both = []
    for rankings in zip(one, two, strict=True):
        scores: dict[str, float] = {}
        for ranking in rankings:
            for rank, page in enumerate(ranking, start=1):
                scores[page] = scores.get(page, 0) + 1 / (RANK_CONSTANT + rank)
        both.append(sorted(scores, key=lambda page: -scores[page]))
    return both


def measure(dataset: Dataset, encoded: Encoded, budgets: Sequence[int], questions: int) -> None:
    picked = np.random.default_rng(0).permutation(len(encoded.queries))[:questions]
    asked = encoded.queries.take(np.sort(picked))
    words = [dataset.queries[query] for query in asked.ids]
    texts = [str(dataset.pages[page]) for page in encoded.page_ids]

    def ndcg(rankings: Rankings) -> float:
        relevant = {query: encoded.relevant[query] for query in asked.ids}
        found = dict(zip(asked.ids, rankings, strict=True))
        return float(each_measure(relevant, found, ["ndcg_at_5"])["ndcg_at_5"].mean())

    def row(method: str, size: float | None, rankings: Rankings) -> None:
        bytes_a_page = "" if size is None else f"{size:,.0f}"
        print(f"| {encoded.name} | {method} | {bytes_a_page} | {ndcg(rankings):.3f} |", flush=True)

    def size_of(index: glie.Index) -> float:
        return index.info().lean_bytes / len(index)

    with tempfile.TemporaryDirectory() as place:
        for size in budgets:
            plain = made(Path(place, f"late-{size}"), encoded, None, size)
            both = made(Path(place, f"both-{size}"), encoded, texts, size)
            late = [hits.ids for hits in plain.search(asked, DEPTH)]
            hybrid = [hits.ids for hits in both.search(asked, DEPTH, text=words)]
            lexical = [hits.ids for hits in both.search(None, DEPTH, text=words, mode="lexical")]
            beside = [hits.ids for hits in both.search(asked, DEPTH)]
            if size == budgets[0]:
                row("words (BM25)", both.info().text_bytes / len(both), lexical)
            row(f"vectors, {size:,} bytes", size_of(plain), late)
            row(f"both, {size:,} bytes", size_of(both), hybrid)
            row(f"both by rank (control), {size:,} bytes", size_of(both), fused(beside, lexical))
    found = search_vectors(asked, encoded.blocks(), DEPTH).positions
    full = [[encoded.page_ids[position] for position in positions] for positions in found]
    row("vectors, uncompressed", 2 * encoded.dim * float(encoded.lengths.mean()), full)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--bytes-per-page", default="260,520,1040")
    parser.add_argument("--encoder", default="english")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--questions", type=int, default=10_000, help="at most, drawn at random")
    arguments = parser.parse_args()
    budgets = [int(size) for size in arguments.bytes_per_page.split(",")]
    print("| set | method | bytes a page | nDCG@5 |")
    print("| --- | --- | --- | --- |")
    for name in arguments.sets:
        dataset = load(name)
        if not isinstance(dataset, Dataset):
            parser.error(f"{name}: vectors without texts; expected a set with its texts")
        encoded = encode_sets([dataset], arguments.encoder, arguments.cache)[0]
        measure(dataset, encoded, budgets, arguments.questions)


if __name__ == "__main__":
    main()
