"""Fidelity of MaxSim scores on real page vectors that come without questions.

    python tools/fidelity.py PAGES.npz CORPUS... [--bytes-per-page 260,520,1040,2080,4160]
                             [--recipes default,paper]

PAGES.npz holds one (n, D) array a page. CORPUS names the corpora to use (`glie geometry` lists
them), all of one encoder. Each corpus in turn is held out: the codebook and the networks of fitted
codecs are fitted on the others, with each of the recipes (`paper` takes hours). A query vector is a
vector of a held-out page plus noise of half its length, normalised; it is scored against every
held-out page.

The table has, for each method, the mean absolute error of the best inner product, and how often
the best page is the true one. A codec of k bfloat16 vectors takes k (2 D + 4) bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

import glie
from glie.codec.budget import ANCHOR_TYPE
from glie.codec.readout.codebook import Codebook, fit_codebook, residuals
from glie.evaluation.vectors import read_corpora

QUERIES = 1000
NOISE = 0.5
CODEWORDS = 4096
CODEWORD_SHARE = 0.8

Method = Callable[[glie.Pages], glie.Pages]


def noisy_vectors(pages: glie.Pages) -> glie.Queries:
    rng = np.random.default_rng(0)
    rows = pages.vectors[rng.choice(len(pages.vectors), QUERIES)]
    noise = rng.normal(size=rows.shape)
    noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
    return glie.Queries([row[None] for row in rows + noise], normalize=True)


def best_products(queries: glie.Queries, pages: glie.Pages) -> glie.pages.Floats:
    return np.stack([(queries.vectors @ rows.T).max(axis=1) for rows in pages], axis=1)


def reconstruct_with(codec: glie.Codec) -> Method:
    return lambda pages: codec.regenerate(codec.compress(pages))


def codebook_of(pages: glie.Pages) -> Codebook:
    codes = glie.Codec(4, dtype=ANCHOR_TYPE).compress(pages)
    rest, _ = residuals(pages, codes, Codebook.anchor_share)
    return fit_codebook(rest, CODEWORDS, codeword_share=CODEWORD_SHARE)


def methods(
    others: glie.Pages, budgets: list[int], recipes: list[str]
) -> dict[tuple[str, int], Method]:
    book = codebook_of(others)
    sizes = {budget: budget // (2 * others.dim + 4) for budget in budgets}
    each_k = sorted({k for k in sizes.values() if k})
    fitted = {recipe: glie.fit(others, k=each_k, recipe=recipe) for recipe in recipes}
    found: dict[tuple[str, int], Method] = {}
    for budget, k in sizes.items():
        codewords = glie.Codec.with_codebook(book, budget)
        found["codewords of the others", budget] = reconstruct_with(codewords)
        if k:
            found["normalised k-means", budget] = reconstruct_with(glie.Codec(k))
            for recipe, codec in fitted.items():
                found[f"fitted, {recipe} recipe", budget] = reconstruct_with(codec.at(k))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", type=Path)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS")
    parser.add_argument("--bytes-per-page", default="260,520,1040,2080,4160")
    parser.add_argument("--recipes", default="default", help="of the fitted codecs")
    arguments = parser.parse_args()
    recipes = arguments.recipes.split(",")
    budgets = list(map(int, arguments.bytes_per_page.split(",")))
    read = read_corpora(arguments.pages)
    corpora = {name: dict(read[name]) for name in arguments.corpora}
    errors: dict[tuple[str, int], list[float]] = {}
    agreed: dict[tuple[str, int], list[float]] = {}
    for name, mine in corpora.items():
        rest = {
            key: rows for other in corpora if other != name for key, rows in corpora[other].items()
        }
        pages = glie.Pages(mine.values(), ids=list(mine), normalize=True)
        others = glie.Pages(rest.values(), ids=list(rest), normalize=True)
        queries = noisy_vectors(pages)
        true = best_products(queries, pages)
        for key, method in methods(others, budgets, recipes).items():
            kept = best_products(queries, method(pages))
            errors.setdefault(key, []).append(float(np.abs(kept - true).mean()))
            same = kept.argmax(axis=1) == true.argmax(axis=1)
            agreed.setdefault(key, []).append(float(same.mean()))
    print("| method |", " | ".join(f"{budget:,} bytes" for budget in budgets), "|")
    print("| --- " * (len(budgets) + 1) + "|")
    for title in dict.fromkeys(title for title, _ in errors):
        lists = [
            f"{np.mean(errors[title, b]):.3f}, {np.mean(agreed[title, b]):.0%}"
            if (title, b) in errors
            else ""
            for b in budgets
        ]
        print(f"| {title} |", " | ".join(lists), "|")


if __name__ == "__main__":
    main()
