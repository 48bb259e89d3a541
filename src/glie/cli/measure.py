"""The verbs that measure: what compression keeps, and what shape page vectors have."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

import glie
from glie.cli.shared import Cache, Datasets, Json, encode_sets, named_codec, numbers, words
from glie.cli.terminal import (
    errors,
    fail,
    print_geometry,
    print_json,
    print_plan,
    print_results,
    status_line,
)
from glie.errors import InputError
from glie.wording import count


def evaluate(
    datasets: Datasets,
    k: Annotated[
        str | None,
        typer.Option(help="Budgets: vectors a page.", show_default="2,4,8,16,32,64"),
    ] = None,
    bytes_per_page: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Budgets in bytes, instead of --k: vectors in bfloat16 are kept as many as fit.",
            show_default="those of --k",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="all, or some of: raw-kmeans, token-pooling, cluster-merging, "
            "hierarchical-pooling, glie-free, quantised, glie-stage1, glie, oracle, plaid, "
            "glie-bytes, glie-bytes-adapted, uncompressed.",
            show_default="raw-kmeans, glie-free, uncompressed, and those of a codec",
        ),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(metavar="CODEC", help="Measure this fitted codec (a folder)."),
    ] = None,
    fit_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATASET",
            help="Fit a codec on this set and measure it; several times for several sets. "
            "others: each set is measured by a codec fitted on the other ones.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Of clustering and fitting, like 0,1,2.")] = "0",
    language: Annotated[
        str | None,
        typer.Option(
            help="Only the questions in this language, of every set, in the word that the sets "
            "have for it, like english; a wrong one is answered with those that there are.",
            show_default="all questions",
        ),
    ] = None,
    more: Annotated[
        str | None,
        typer.Option(
            metavar="TABLES",
            help="Tables that take longer: some of shortlist, capacity, data, geometry; or all.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write results.json, report.md, report.html and plots there. What is finished is "
            "kept: run it again to go on.",
        ),
    ] = None,
    trec: Annotated[bool, typer.Option("--trec", help="TREC run files too, into --to.")] = False,
    recipe: Annotated[str, typer.Option(help="As for `fit`.")] = "default",
    epochs: Annotated[
        int | None, typer.Option(help="As for `fit`.", show_default="the recipe's")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="As for `index`.")] = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Measure what compression keeps: nDCG@5 at each budget, of one method or of many.

    glie evaluate my-set

    glie evaluate set-a set-b set-c --k 2,4,8,16 --methods all --fit-on others --seeds 0,1,2
    --to results/

    glie evaluate my-set --bytes-per-page 520,1040 --methods all
    """
    from glie.evaluation.comparison import Comparison
    from glie.evaluation.methods import chosen_methods
    from glie.evaluation.plan import MORE, Plan
    from glie.evaluation.report import write_report
    from glie.evaluation.tables import rows

    if k is not None and bytes_per_page is not None:
        raise InputError("--k and --bytes-per-page: give one of them")
    plan = Plan(
        methods=chosen_methods(methods, codec=bool(codec), fits=bool(fit_on)),
        budgets=(
            numbers(bytes_per_page, "--bytes-per-page", 1)
            if bytes_per_page is not None
            else numbers("2,4,8,16,32,64" if k is None else k, "--k", 1)
        ),
        in_bytes=bytes_per_page is not None,
        seeds=numbers(seeds, "--seeds", 0),
        more=words(more, "--more", MORE),
        recipe=recipe,
        epochs=epochs,
    )
    given = None if codec is None else named_codec(codec)
    asked = Comparison(
        datasets, plan, codec=given, fit_on=fit_on or (), to=to, trec=trec, language=language
    )
    vectors = encode_sets(list(asked.loaded.values()), encoder, cache)
    notes = asked.notes(vectors)
    for line in notes:
        errors.print(line, style="yellow", soft_wrap=True)
    try:
        with status_line("measuring") as say:
            measured = asked.measure(vectors, say)
            sets, results, corpora = measured
            if to is not None:
                write_report(to, results, sets, _typed(), notes, corpora)
    except KeyboardInterrupt:
        kept = f"; {to} keeps what is finished: run it again to go on" if to else ""
        fail(f"interrupted{kept}", 130)
    if as_json:
        print_json(rows(results))
        return
    print_results(measured)
    if to is not None:
        print(
            f"{to}: report.html, report.md, results.json; "
            f"{count(asked.store.made, 'result')} measured, {asked.store.kept:,} found finished"
        )


def _typed() -> str:
    """The command as it was typed, to be typed again."""
    return shlex.join(["glie", *sys.argv[1:]])


def geometry(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PAGES",
            help="An .npz file with one (n, D) array a page, or a folder of cached vectors.",
        ),
    ],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Draw every page and its controls (or .svg, .pdf)."),
    ] = None,
    pages: Annotated[
        int, typer.Option(help="Pages to measure a corpus; of more, so many are drawn.")
    ] = glie.geometry.MOST_PAGES,
    seed: Annotated[int, typer.Option(help="The same seed draws the same.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure page vectors: their norms and their intrinsic dimension (TwoNN).

    Two controls on the same pages stand beside it: a Gaussian with the page's
    own covariance, and uniform noise. A dimension far below the Gaussian's is
    that of a curved surface, not of a flat cloud.

    A corpus is a folder of keys, like slides/ of slides/deck_3; a folder with
    several documents of several pages is told apart by document.

    glie geometry pages.npz --plot pages.png
    """
    from glie.evaluation import read_corpora

    if plot is not None:
        from glie.evaluation.plots import check_plot, plot_geometry

        check_plot(plot)
    with status_line(str(path)) as say:
        corpora = glie.geometry.measure(read_corpora(path), seed, pages, say)
    if plot is not None:
        plot_geometry(corpora, plot)
    if as_json:
        print_json(
            {
                "path": str(path),
                "seed": seed,
                "corpora": [corpus.to_dict() for corpus in corpora],
                "overall": glie.geometry.overall(corpora).to_dict(),
            }
        )
    else:
        print_geometry(corpora, seed)


def plan(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PAGES",
            help="Documents, a folder with corpus.jsonl, a ViDoRe set by its name on the Hub, a "
            "folder of cached vectors, or an .npz file with one (n, D) array a page.",
        ),
    ],
    bytes_per_page: Annotated[
        str, typer.Option(metavar="BYTES", help="Budgets: what a page may take on disk.")
    ] = "256,520,1040,4160",
    encoder: Annotated[
        str | None,
        typer.Option(help="As for `index`; of an .npz file, the name of what made its vectors."),
    ] = None,
    cache: Cache = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Measure what each budget would keep of your pages, before you choose one.

    At most 500 pages are drawn, stored at each budget and asked 200 questions
    that are made of the pages: noisy vectors of one page each. Such questions
    are easier than real ones, but the same for all budgets.

    glie plan reports/ --bytes-per-page 260,520,1040
    """
    from glie.evaluation import sample
    from glie.planning import MOST_PAGES

    budgets = numbers(bytes_per_page, "--bytes-per-page", 1)
    drawn = sample(path, MOST_PAGES, seed, lambda one: encode_sets([one], encoder, cache)[0])
    with status_line("measuring") as say:
        rows = glie.plan(
            drawn.pages, budgets, encoder=drawn.encoder or encoder, seed=seed, progress=say
        )
    if as_json:
        measured = [row.to_dict() for row in rows]
        print_json({"path": path, "seed": seed, "pages": len(drawn.pages), "budgets": measured})
    else:
        print_plan(rows, len(drawn.pages))
