"""Measure the multilingual encoder: each question asked of all passages of its file.

    python tools/measure_languages.py FILE... [--start build/e5-small --trained build/multilingual]

A FILE is a *.jsonl.gz with lines {"query", "text"}; those of a language that was not trained on,
or of passages that were not. Prints the share of questions whose passage is found first, and
nDCG@5, of BM25 over the encoder's tokens and of the encoder as it is shipped. With --start and
--trained, also of floats: the starting model, its principal directions (127 numbers a token), and
the trained model before it is exported. With --across FILE, questions of the first file are asked
of the passages of the other, line by line a translation. With --bytes-per-page, passages are
compressed and searched in an index, whose codebook is fitted to them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from encoder_pairs import BM25

import glie
from glie.encoders import load_encoder
from glie.encoders.base import Floats
from glie.encoders.heads import Head, unit_rows, weighted_pages, weighted_queries
from glie.encoders.text import TOKENS_PER_BATCH, Ints, TextEncoder

PLAIN = Head(lambda rows: rows, lambda rows: rows)
Scores = Callable[[list[str], list[str]], Floats]  # of (questions, passages)
Compare = Callable[[list[Floats], list[Floats], str], Floats]  # the same of vectors; an encoder


def read(path: Path) -> tuple[list[str], list[str]]:
    """Questions, and the passage of each."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines]
    return [entry["query"] for entry in entries], [entry["text"] for entry in entries]


def maxsim(asked: list[Floats], pages: list[Floats], _: str) -> Floats:
    """(questions, pages): the sum of the best products."""
    ends = np.cumsum([0] + [len(page) for page in pages])[:-1]
    joined = np.concatenate(pages).T
    rows = [np.maximum.reduceat(vectors @ joined, ends, axis=1).sum(axis=0) for vectors in asked]
    return np.asarray(rows, np.float32)


def compressed(size: int) -> Compare:
    """The scores of a search in an index of `size` bytes a page."""

    def scores(asked: list[Floats], pages: list[Floats], encoder: str) -> Floats:
        found = np.full((len(asked), len(pages)), -np.inf, np.float32)
        with tempfile.TemporaryDirectory() as folder:
            codec = glie.Codec(bytes_per_page=size)
            index = glie.Index.create(f"{folder}/index", codec, encoder=encoder)
            index.add(glie.Pages(pages, ids=[str(i) for i in range(len(pages))]))
            for row, hits in enumerate(index.search(asked, top=len(pages))):
                found[row, [int(i) for i in hits.ids]] = hits.scores
        return found

    return scores


def measures(scores: Floats, right: list[int]) -> tuple[float, float]:
    """The share found first, and nDCG@5; one passage is right."""
    own = scores[np.arange(len(right)), right]
    rank = 1 + (scores > own[:, None]).sum(axis=1)
    return float((rank == 1).mean()), float(np.where(rank <= 5, 1 / np.log2(1 + rank), 0).mean())


class Both:
    """The starting and the trained model in floats, which share their frozen layers: the hidden
    states of the one and the outputs of the other, side by side."""

    batch = TOKENS_PER_BATCH
    revision = "0" * 64

    def __init__(self, start: Path, trained: Path, frozen: int) -> None:
        import torch
        from safetensors.torch import load_file
        from train_encoder import Network, load_weights

        torch.set_num_threads(1)
        self._start, self._trained = Network(start, frozen), Network(start, frozen)
        load_weights(self._trained, load_file(trained / "model.safetensors"))
        self.directions = load_file(trained / "head.safetensors")["head.weight"][:-1].numpy()
        self.tokenizer = self._start.tokenizer
        self.before, self.after = [self._start.first], [self._start.last]
        self.pad, self.positions = 0, 512

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        found = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoded.ids for encoded in found]

    def spans(self, text: str) -> list[tuple[int, int]]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).offsets)

    def states(self, tokens: Ints, mask: Ints) -> Floats:
        import torch

        rows = [list(row[: sum(kept)]) for row, kept in zip(tokens, mask, strict=True)]
        with torch.inference_mode():
            below = self._start.lower(rows)
            states = self._start.upper(*below)[0]
            outputs = self._trained.head(self._trained.upper(*below)[0])
            found = torch.cat([states, outputs], dim=-1).numpy()
        return np.pad(found, ((0, 0), (1, 1), (0, 0)))  # special tokens


def float_methods(both: Both, compare: Compare) -> dict[str, Scores]:
    """Start, principal directions and trained, which read a text once."""
    encoder = TextEncoder(both, name="floats", head=PLAIN)
    kept: dict[tuple[str, ...], list[Floats]] = {}

    def outputs(texts: list[str]) -> list[Floats]:
        if tuple(texts) not in kept:
            kept[tuple(texts)] = encoder.encode_pages(texts)
        return kept[tuple(texts)]

    hidden = both.directions.shape[1]

    def scores(
        pages: Callable[[Floats], Floats], queries: Callable[[Floats], Floats], encoder: str
    ) -> Scores:
        return lambda asked, texts: compare(
            [*map(queries, outputs(asked))], [*map(pages, outputs(texts))], encoder
        )

    def start(rows: Floats) -> Floats:
        return unit_rows(rows[:, :hidden])

    def reduced(rows: Floats) -> Floats:
        return unit_rows(np.pad(start(rows) @ both.directions.T, ((0, 0), (0, 1))))

    return {
        "start, 384": scores(start, start, "start"),
        "start, 127": scores(reduced, reduced, "reduced"),
        "trained, floats": scores(
            lambda rows: weighted_pages(rows[:, hidden:]),
            lambda rows: weighted_queries(rows[:, hidden:]),
            "multilingual",
        ),
    }


def shipped(encoder: Any, compare: Compare) -> dict[str, Scores]:
    """BM25 over the encoder's tokens, and the encoder."""

    def words(asked: list[str], texts: list[str]) -> Floats:
        def tokens(text: str) -> list[str]:
            return [str(token) for token in encoder.model.tokenize([text])[0]]

        ranker = BM25(texts, asked, words_of=tokens)
        return np.asarray((ranker.asked(asked) @ ranker.weights.T).toarray())

    def vectors(asked: list[str], texts: list[str]) -> Floats:
        return compare(encoder.encode_queries(asked), encoder.encode_pages(texts), encoder.name)

    return {"BM25": words, encoder.name: vectors}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--across", type=Path, help="passages of another language")
    parser.add_argument("--bytes-per-page", type=int)
    parser.add_argument("--encoder", default="multilingual")
    parser.add_argument("--start", type=Path)
    parser.add_argument("--trained", type=Path)
    parser.add_argument("--frozen", type=int, default=9)
    asked = parser.parse_args()
    compare = compressed(asked.bytes_per_page) if asked.bytes_per_page else maxsim
    methods = shipped(load_encoder(asked.encoder), compare)
    if asked.start and asked.trained:
        methods |= float_methods(Both(asked.start, asked.trained, asked.frozen), compare)
    print("| file | " + " | ".join(methods) + " |")
    print("| --- |" + " --- |" * len(methods))
    found = []
    for path in asked.files:
        questions, own = read(path)
        given = read(asked.across)[1] if asked.across else own
        passages = list(dict.fromkeys(given))
        right = [passages.index(text) for text in given]
        row = [measures(scores(questions, passages), right) for scores in methods.values()]
        found.append(row)
        show(path.name.partition(".")[0], row)
    show("mean", np.mean(found, axis=0).tolist())


def show(name: str, row: list[tuple[float, float]]) -> None:
    """Print a row: found first, nDCG@5."""
    cells = " | ".join(f"{first:.3f}, {ndcg:.3f}" for first, ndcg in row)
    print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
