"""One small vector a page for engines: the share of an index's top 10 among so many pages, those
nearest by that vector, for several such vectors.

    python benchmarks/prefetch.py --index INDEX --questions FILE.npz [--asked 100] [--all]

INDEX has pages of one number of anchors, such as those that benchmarks/engines.py keeps. The last
column is how many pages hold 99% of the top 10. Without --all, only the mean, as it is and rounded.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import load_pages, machine
from million import TOP, unit

import glie
from glie.pages import Floats, Queries

WIDTHS = (300, 1000, 3000, 10_000)
HELD = 0.99
ROUNDS = 6  # of k-means, for the means of groups


def vectors_by(anchors: Floats, queries: list[Floats], every: bool) -> Iterator[tuple[str, Floats]]:
    """The nearness (Q, P) of pages by each kind of vector, with its name and bytes."""
    dim = anchors.shape[2]
    asked, means = np.stack([query.mean(axis=0) for query in queries]), anchors.mean(axis=1)
    near = unit(means)
    yield f"the mean, normalised, {2 * dim} bytes (float16)", asked @ near.T
    yield f"in 4 bits, {dim // 2}", asked @ rounded(near, 7).T
    if not every:
        return
    yield f"in 1 bit, {dim // 8}", asked @ np.sign(near - near.mean(axis=0)).T
    yield "the mean, not normalised", asked @ means.T
    for groups in (2, 3):
        made = group_means(anchors, groups)
        best = [np.max(made @ query.T, axis=1).sum(axis=1) for query in queries]
        yield f"{groups} means of groups, the best for each vector", np.stack(best)
    for bits in (1, 2):
        left, right = encodings(anchors, queries, bits)
        yield f"fixed dimensional encoding, {left.shape[1]} numbers", right @ left.T
    best = [np.max(anchors @ query.T, axis=1).sum(axis=1) for query in queries]
    yield "all anchors: MaxSim", np.stack(best)


def rounded(vectors: Floats, levels: int) -> Floats:
    step = np.abs(vectors).max(axis=-1, keepdims=True) / levels
    return np.asarray(np.round(vectors / step) * step, np.float32)


def group_means(anchors: Floats, groups: int) -> Floats:
    """The means (P, groups, D) of groups of each page's anchors, by k-means."""
    made = anchors[:, :groups].copy()
    for _ in range(ROUNDS):
        nearest = np.einsum("pkd,pgd->pkg", anchors, made).argmax(axis=2)
        for group in range(groups):
            mine = (nearest == group).astype(np.float32)
            count = mine.sum(axis=1)[:, None]
            mean = np.einsum("pk,pkd->pd", mine, anchors) / np.maximum(count, 1)
            made[:, group] = np.where(count > 0, mean, made[:, group])
    return made


def encodings(anchors: Floats, queries: list[Floats], bits: int) -> tuple[Floats, Floats]:
    """Fixed dimensional encodings (MUVERA) of pages and questions: parts of space by random
    hyperplanes; of a page the mean of each part, or its nearest anchor; of a question the sum."""
    rng = np.random.default_rng(0)
    planes = rng.standard_normal((anchors.shape[2], bits)).astype(np.float32)
    middle, weights = anchors.reshape(-1, anchors.shape[2]).mean(axis=0), 1 << np.arange(bits)

    def part_of(vectors: Floats) -> npt.NDArray[np.int64]:
        return np.asarray(((vectors - middle) @ planes > 0) @ weights, np.int64)

    parts = part_of(anchors)
    left, right = [], []
    for part in range(1 << bits):
        mine = (parts == part).astype(np.float32)
        count = mine.sum(axis=1)[:, None]
        apart = np.bitwise_count(parts ^ part).argmin(axis=1)
        nearest = anchors[np.arange(len(anchors)), apart]
        mean = np.einsum("pk,pkd->pd", mine, anchors) / np.maximum(count, 1)
        left.append(np.where(count > 0, mean, nearest))
        right.append([query[part_of(query) == part].sum(axis=0) for query in queries])
    return np.concatenate(left, axis=1), np.concatenate(right, axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--asked", type=int, default=100)
    parser.add_argument("--all", action="store_true", help="more kinds of vectors")
    arguments = parser.parse_args()
    index = glie.Index.open(arguments.index)
    questions = Queries(list(load_pages(arguments.questions, arguments.asked)))
    best = [
        np.array([index._state.position(page_id) for page_id in hits.ids])
        for hits in index.search(questions, TOP)
    ]
    codes = np.concatenate([part.vectors for part, _ in index.stored(4096)])
    weighted = index.encoder is not None and index.encoder.weighted
    asked = list(questions.without_last() if weighted else questions)
    print(f"{index.codec}; {len(index):,} pages; {len(asked)} questions; {machine()}")
    print(f"| vectors | {' | '.join(f'{width:,}' for width in WIDTHS)} | {HELD:.0%} |")
    print("| --- |" + " --- |" * (len(WIDTHS) + 1))
    for name, nearness in vectors_by(codes, asked, arguments.all):
        ranks = np.concatenate(
            [(mine > mine[top, None]).sum(axis=1) for mine, top in zip(nearness, best, strict=True)]
        )
        held = " | ".join(f"{(ranks < width).mean():.1%}" for width in WIDTHS)
        print(f"| {name} | {held} | {int(np.quantile(ranks, HELD)) + 1:,} |", flush=True)


if __name__ == "__main__":
    main()
