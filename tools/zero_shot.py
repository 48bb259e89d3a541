"""Measure fitted codecs on sets that they were not fitted on: the table in docs/results.md.

    python tools/zero_shot.py SET SET SET [--k 2,4,8,16] [--seeds 0,1,2] [--rest] [--each-k]
                              [--no-queries] [--recipe paper --epochs N] [--cache DIR]

A codec is fitted on each set in turn (with --rest: on all sets but one) and measured on the
others. Prints nDCG@5 of every fit, then means over fits with the standard error over seeds. With
--each-k, each budget has its own codec; by default one codec serves all budgets.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import glie
from glie.codec.codes import Codes
from glie.encoders import load_encoder
from glie.evaluation import Encoded, encode, joined, load
from glie.index.memory import search_codes
from glie.measures import DEPTH, each_measure
from glie.pages import Pages


class Measured:
    """A set with the codes of normalised k-means."""

    def __init__(self, encoded: Encoded, budgets: list[int]) -> None:
        self.encoded, self.pages = encoded, encoded.pages()
        self.codes = {k: glie.Codec(k).compress(self.pages) for k in budgets}
        self.free = {k: self._ndcg(codes) for k, codes in self.codes.items()}

    def scores(self, codec: glie.Codec, k: int) -> tuple[float, float, float]:
        """nDCG@5 of normalised k-means, of the refined code, and with the shortlist reranked."""
        full, free = codec.at(k), self.codes[k]
        single = self._ndcg(full.single_stage.code(self.pages, free))
        regenerate = full.regenerate if full.decoder else None
        return self.free[k], single, self._ndcg(full.code(self.pages, free), regenerate)

    def _ndcg(self, codes: Codes, regenerate: Callable[[Codes], Pages] | None = None) -> float:
        found = search_codes(self.encoded.asked, codes, regenerate, DEPTH).positions
        rankings = {
            query: [self.encoded.page_ids[row] for row in rows]
            for query, rows in zip(self.encoded.queries.ids, found, strict=True)
        }
        return float(each_measure(self.encoded.relevant, rankings)["ndcg_at_5"].mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--k", default="2,4,8,16")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--each-k", action="store_true")
    parser.add_argument("--no-queries", action="store_true")
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    budgets = [int(k) for k in arguments.k.split(",")]
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    encoder = load_encoder()
    sets = [Measured(encode(load(p), encoder, arguments.cache), budgets) for p in arguments.sets]
    print("| fitted on | seed | measured on | k | normalised | stage 1 | full |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    found: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    own: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for seed in seeds:
        for number, one in enumerate(sets):
            others = [other for other in sets if other is not one]
            source, targets = (others, [one]) if arguments.rest else ([one], others)
            name = "+".join(s.encoded.name for s in source)
            pages, queries, relevant = joined([s.encoded for s in source])
            groups = [[k] for k in budgets] if arguments.each_k else [budgets]
            for group in groups:
                codec = glie.fit(
                    pages,
                    None if arguments.no_queries else queries,
                    None if arguments.no_queries else relevant,
                    group,
                    recipe=arguments.recipe,
                    epochs=arguments.epochs,
                    seed=seed,
                )
                notes = codec.notes
                print(
                    f"{number + 1} of {len(sets)}, seed {seed}: {notes['steps']} steps of "
                    f"{1000 * notes['step_seconds']:.0f} ms, {notes['seconds']:.0f} s in all",
                    file=sys.stderr,
                    flush=True,
                )
                for k in group:
                    budget = codec.at(k).measured
                    assert budget is not None
                    row = (budget.free, budget.single_stage, budget.cascade)
                    own.setdefault((k, seed), []).append(row)
                    for target in targets:
                        row = target.scores(codec, k)
                        found.setdefault((k, seed), []).append(row)
                        shown = " | ".join(f"{score:.4f}" for score in row)
                        print(
                            f"| {name} | {seed} | {target.encoded.name} | {k} | {shown} |",
                            flush=True,
                        )
    for title, results in (("unseen sets", found), ("held-out questions of the fit", own)):
        print(f"\nmeans, {title}:\n\n| k | normalised | stage 1 | gain | full | gain |")
        print("| --- | --- | --- | --- | --- | --- |")
        for k in budgets:
            print_means(k, [np.mean(results[k, seed], axis=0) for seed in seeds])


def print_means(k: int, by_seed: list[np.ndarray]) -> None:
    """Print a row: means over seeds, and gains with their standard error."""
    free, single, full = np.mean(by_seed, axis=0)

    def gain(upper: int, lower: int) -> str:
        gains = [float(row[upper] - row[lower]) for row in by_seed]
        error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        return f"{statistics.mean(gains):+.4f} ± {error:.4f}"

    print(f"| {k} | {free:.4f} | {single:.4f} | {gain(1, 0)} | {full:.4f} | {gain(2, 1)} |")


if __name__ == "__main__":
    main()
