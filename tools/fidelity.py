"""Fidelity of MaxSim scores on real page vectors that come without questions.

    python tools/fidelity.py PAGES.npz CORPUS... [--bytes-per-page 260,520,1040,2080,4160]
                             [--recipes default,paper]

PAGES.npz holds one (n, D) array a page. CORPUS names the corpora to use (`glie geometry` lists
them), all of one encoder. Each corpus in turn is held out: the codebook, the coordinates and the
networks of fitted codecs are fitted on the others, with each of the recipes (`paper` takes hours,
`none` leaves networks out). A query vector lies between a vector of a held-out page and one of
another (`glie.probes`); it is scored against every held-out page.

The table has, for each method, the mean absolute error of the best inner product, and how often
the best page is the true one. A codec of k bfloat16 vectors takes k (2 D + 4) bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

import glie
from glie.codec.adapt import drawn
from glie.codec.budget import ANCHOR_TYPE, OVERHEAD
from glie.codec.choose import FAMILIES
from glie.codec.readout.codebook import Codebook, fit_codebook, residuals
from glie.evaluation.baselines import ward_1bit
from glie.evaluation.vectors import read_corpora
from glie.probes import QUESTION_VECTORS, probes

QUERIES = 1000
CODEWORDS = 4096
CODEWORD_SHARE = 0.8

Method = Callable[[glie.Pages], glie.Pages]


def asked_of(pages: glie.Pages) -> glie.Queries:
    """Single vectors of made-up questions."""
    made = probes(pages, QUERIES // QUESTION_VECTORS, np.random.default_rng(0))
    return glie.Queries([row[None] for row in made.vectors])


def best_products(queries: glie.Queries, pages: glie.Pages) -> glie.pages.Floats:
    return np.stack([(queries.vectors @ rows.T).max(axis=1) for rows in pages], axis=1)


def reconstruct_with(codec: glie.Codec) -> Method:
    return lambda pages: codec.regenerate(codec.compress(pages))


def codebook_of(pages: glie.Pages) -> Codebook:
    codes = glie.Codec(4, dtype=ANCHOR_TYPE).compress(pages)
    rest, _ = residuals(pages, codes, Codebook.anchor_share)
    return fit_codebook(rest, CODEWORDS, codeword_share=CODEWORD_SHARE)


def ward_at(budget: int) -> Method:
    """With the same bytes for the id and metadata as the others."""

    def stored(pages: glie.Pages) -> glie.Pages:
        codes = ward_1bit(pages, budget - OVERHEAD)
        return glie.Pages(
            [rows[used > 0] for rows, used in zip(codes.vectors, codes.counts, strict=True)]
        )

    return stored


def methods(
    others: glie.Pages, budgets: list[int], recipes: list[str]
) -> dict[tuple[str, int], Method]:
    book, sample = codebook_of(others), drawn(others)
    sizes = {budget: budget // (2 * others.dim + 4) for budget in budgets}
    each_k = sorted({k for k in sizes.values() if k})
    fitted = {
        recipe: glie.fit(others, k=each_k, recipe=recipe) for recipe in recipes if recipe != "none"
    }
    found: dict[tuple[str, int], Method] = {}
    for budget, k in sizes.items():
        codewords = glie.Codec.with_codebook(book, budget)
        found["codewords of the others", budget] = reconstruct_with(codewords)
        coordinates = glie.Codec.from_config(*FAMILIES["coordinates"](sample, budget, True))
        found["coordinates of the others", budget] = reconstruct_with(coordinates)
        found["Ward clusters, 1 bit", budget] = ward_at(budget)
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
        queries = asked_of(pages)
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
