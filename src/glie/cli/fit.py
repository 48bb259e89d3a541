"""The verb that fits a codec."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

import glie
from glie.cli import fail
from glie.cli.shared import RARE, Cache, Datasets, Json, encode_sets, numbers
from glie.cli.show_measures import print_fit
from glie.cli.terminal import fit_bar, print_json


def fit(
    datasets: Datasets,
    to: Annotated[Path, typer.Option("--to", metavar="CODEC", help="The codec folder to create.")],
    k: Annotated[
        str, typer.Option(help="Vectors per page that the codec supports, like 2,4,8.")
    ] = "4",
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the questions.", show_default="the recipe's")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", help="The same seed gives the same codec.", rich_help_panel=RARE
        ),
    ] = 0,
    no_queries: Annotated[
        bool,
        typer.Option(
            "--no-queries", help="Make questions from the pages; DATASET then needs none."
        ),
    ] = False,
    recipe: Annotated[
        str,
        typer.Option(
            help="default (for a CPU) or paper (as published, 100 epochs); default-blind and "
            "paper-blind are controls whose decoder never reads the anchors.",
            rich_help_panel=RARE,
        ),
    ] = "default",
    encoder: Annotated[str | None, typer.Option(help="As for `index`.")] = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Fit the paper's codec (refiner and decoder) on pages and questions.

    Some questions are held out; only what improves their results is kept. Ctrl-C stops early and
    keeps the best codec so far. Compare it with a budget, the default of `glie index`, by `glie
    evaluate`.

    glie fit my-set --to my.codec --k 2,4,8
    """
    from glie.codec.store import check_place
    from glie.evaluation import joined, load, load_pages, sets_in
    from glie.training.fit import check_ready
    from glie.training.recipe import recipe_of

    # find mistakes before minutes of work, not after
    check_ready()
    budgets, chosen = numbers(k, "--k", 1), recipe_of(recipe)
    for budget in budgets:
        glie.CodecConfig(k=budget, seed=seed)
    if epochs is not None:
        chosen = dataclasses.replace(chosen, epochs=epochs)
    named = [one for name in datasets for one in sets_in(name)]
    loaded = [load_pages(name) if no_queries else load(name) for name in named]
    check_place(to)
    sets = encode_sets(loaded, encoder, cache)
    pages, queries, relevant = joined(sets)
    with fit_bar() as show:
        codec = glie.fit(
            pages,
            None if no_queries else queries,
            None if no_queries else relevant,
            budgets,
            recipe=chosen,
            seed=seed,
            encoder=sets[0].encoder,
            progress=show,
        )
    codec.save(to)
    notes = codec.notes
    if as_json:
        rows = [dataclasses.asdict(budget) for budget in codec.scores]
        print_json({"codec": str(to), "budgets": rows, **notes})
    else:
        print_fit(codec, to)
    if notes["interrupted"]:
        fail(f"interrupted after {notes['steps']} steps; {to} is the best so far", 130)
