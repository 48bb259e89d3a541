"""What a fit is worth on sets that it has not seen: the table in docs/results.md.

    python tools/zero_shot.py SET SET SET [--k 2,4,8,16] [--seeds 0,1,2] [--rest] [--each-k]
                              [--no-queries] [--recipe paper --epochs N]

A codec is fitted on each set in turn (with --rest: on all sets but one) and measured on the
others. Prints nDCG@5 of every fit, then means over fits with the standard error over seeds. With
--each-k there is a codec a budget, instead of one for all of them.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys

import numpy as np

import glie
from glie.codec.codes import Codes
from glie.encoders import load_encoder
from glie.evaluation import Dataset, Encoded, encode, encoded, load
from glie.evaluation.measures import DEPTH, ndcg_at_5, search_codes
from glie.evaluation.sweep import fitted_scores
from glie.pages import Pages, Queries


class Measured:
    """A set, encoded, with its free codes."""

    def __init__(self, dataset: Dataset | Encoded, budgets: list[int]) -> None:
        self.dataset = encode(dataset, load_encoder())
        self.pages, self.queries, self.relevant = encoded([self.dataset], None)
        self.codes = {k: glie.Codec(k).compress(self.pages) for k in budgets}
        self.free = {k: self._ndcg(codes) for k, codes in self.codes.items()}

    def _ndcg(self, codes: Codes) -> float:
        return ndcg_at_5(self.dataset, search_codes(self.queries, codes, None, DEPTH))


def joined(sets: list[Measured]) -> tuple[Pages, Queries, list[list[str]]]:
    """Several sets as one to fit on."""
    named = [(one, [f"{place}/{page}" for page in one.pages.ids]) for place, one in enumerate(sets)]
    lengths = np.concatenate([one.pages.lengths for one in sets])
    pages = Pages.packed(
        np.concatenate([one.pages.vectors for one in sets]),
        np.concatenate([[0], np.cumsum(lengths)]),
        [page for _, ids in named for page in ids],
    )
    queries = Queries([query for one in sets for query in one.queries])
    relevant = [
        [f"{place}/{page}" for page in pages]
        for place, one in enumerate(sets)
        for pages in one.relevant
    ]
    return pages, queries, relevant


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
    arguments = parser.parse_args()
    budgets = [int(k) for k in arguments.k.split(",")]
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    sets = [Measured(load(path), budgets) for path in arguments.sets]
    print("| fitted on | seed | measured on | k | normalised | stage 1 | full |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    found: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    own: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for seed in seeds:
        for turn, one in enumerate(sets):
            others = [other for other in sets if other is not one]
            source, targets = (others, [one]) if arguments.rest else ([one], others)
            name = "+".join(s.dataset.name for s in source)
            pages, queries, relevant = joined(source)
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
                assert codec.fitted is not None
                notes = codec.fitted.notes
                print(
                    f"{turn + 1} of {len(sets)}, seed {seed}: {notes['steps']} steps of "
                    f"{1000 * notes['step_seconds']:.0f} ms, {notes['seconds']:.0f} s in all",
                    file=sys.stderr,
                    flush=True,
                )
                for k in group:
                    budget = codec.fitted.budget(k)
                    row = (budget.free, budget.single_stage, budget.cascade)
                    own.setdefault((k, seed), []).append(row)
                    for target in targets:
                        scores = fitted_scores(
                            target.dataset, target.queries, target.pages, target.codes[k], codec
                        )
                        row = (target.free[k], scores["glie-stage1"], scores["glie"])
                        found.setdefault((k, seed), []).append(row)
                        shown = " | ".join(f"{score:.4f}" for score in row)
                        print(
                            f"| {name} | {seed} | {target.dataset.name} | {k} | {shown} |",
                            flush=True,
                        )
    for title, results in (("unseen sets", found), ("questions held out of the fit", own)):
        print(f"\nmeans, {title}:\n\n| k | normalised | stage 1 | gain | full | gain |")
        print("| --- | --- | --- | --- | --- | --- |")
        for k in budgets:
            print_means(k, [np.mean(results[k, seed], axis=0) for seed in seeds])


def print_means(k: int, by_seed: list[np.ndarray]) -> None:
    """One line: means over seeds, and gains with their standard error."""
    free, single, full = np.mean(by_seed, axis=0)

    def gain(upper: int, lower: int) -> str:
        gains = [float(row[upper] - row[lower]) for row in by_seed]
        error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        return f"{statistics.mean(gains):+.4f} ± {error:.4f}"

    print(f"| {k} | {free:.4f} | {single:.4f} | {gain(1, 0)} | {full:.4f} | {gain(2, 1)} |")


if __name__ == "__main__":
    main()
