"""Text encoders beside BM25 on question sets: nDCG@5, all vectors, and the control of the weights.

    python tools/encoder_table.py DATASET... [--encoders english,minilm] [--cache DIR]

A row an encoder, uncompressed. An encoder that weighs the words of a question (`encoders/heads.py`)
has a second row, its control: the same vectors, every word of a question with the same weight.
BM25 has two rows: that of tools/encoder_pairs.py, and the usual one with a list of stop words.
Both take words without their endings.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from encoder_pairs import BM25, stems

from glie.cli.shared import encode_sets
from glie.errors import GlieError
from glie.evaluation.datasets import Dataset, load
from glie.evaluation.encoded import Encoded
from glie.index.memory import search_vectors
from glie.kernels.top_k import top_k
from glie.measures import DEPTH, each_measure, ndcg_at_5
from glie.pages import Queries

# without their endings
STOP_WORDS = {
    word
    for line in (
        "a an and are as at be but by did do does for from had has have how if in into is it its",
        "no not of on or such that the their then there these they this to was were what when",
        "where which who why will with",
    )
    for word in stems(line)
}


def informative(text: str) -> list[str]:
    """The words of a text without stop words and endings."""
    return [word for word in stems(text) if word not in STOP_WORDS]


def by_words(dataset: Dataset, ranker: BM25) -> float:
    """nDCG@5 of BM25 over the pages' texts."""
    pages, weights = list(dataset.pages), ranker.weights
    asked = ranker.asked(list(dataset.queries.values()))
    rankings = {}
    for row, query in enumerate(dataset.queries):
        scores = np.asarray((asked[[row]] @ weights.T).toarray(), np.float32).ravel()
        rankings[query] = [pages[i] for i in top_k(scores, DEPTH)]
    found = each_measure(dataset.relevant, rankings, ["ndcg_at_5"])
    return float(np.mean(found["ndcg_at_5"]))


def equal_weights(queries: Queries) -> Queries | None:
    """The directions of weighted questions alone; None if the questions have no weights."""
    vectors = queries.vectors.copy()
    if not vectors[:, -1].all():
        return None
    vectors[:, -1] = 0
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return Queries.packed(vectors, queries.offsets, queries.ids)


def whole(encoded: Encoded, queries: Queries) -> float:
    """nDCG@5 of exact MaxSim over all vectors."""
    return ndcg_at_5(encoded, search_vectors(queries, encoded.blocks(), DEPTH).positions)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--encoders", default="english", help="names, with commas between them")
    parser.add_argument("--cache", type=Path, help="folder that caches encoded vectors")
    arguments = parser.parse_args()
    sets = [load(name) for name in arguments.datasets]

    def show(name: str, figures: Sequence[float]) -> None:
        cells = " | ".join(f"{figure:.3f}" for figure in [*figures, float(np.mean(figures))])
        print(f"| {name} | {cells} |", flush=True)

    print(f"| nDCG@5 | {' | '.join(dataset.name for dataset in sets)} | mean |")
    print("| --- |" + " --- |" * (len(sets) + 1))
    rankers: dict[str, Callable[[Dataset], BM25]] = {
        "BM25": lambda s: BM25([*s.pages.values()], [*s.queries.values()]),
        "BM25, stop words, k1 0.9, b 0.4": lambda s: BM25(
            [*s.pages.values()], None, k1=0.9, b=0.4, words_of=informative
        ),
    }
    texts = [dataset for dataset in sets if isinstance(dataset, Dataset)]
    if len(texts) == len(sets):
        for name, ranker in rankers.items():
            show(name, [by_words(dataset, ranker(dataset)) for dataset in texts])
    for encoder in arguments.encoders.split(","):
        encoded = encode_sets(sets, encoder, arguments.cache)
        show(encoder, [whole(one, one.queries) for one in encoded])
        plain = [(one, queries) for one in encoded if (queries := equal_weights(one.queries))]
        if plain:
            show(f"{encoder}, equal weights", [whole(one, queries) for one, queries in plain])


if __name__ == "__main__":
    try:
        main()
    except GlieError as error:
        raise SystemExit(f"encoder_table: {error}") from None
