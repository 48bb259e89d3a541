"""The verbs that measure: what compression keeps, and the geometry of page vectors."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

import glie
from glie.cli import fail
from glie.cli.shared import RARE, Cache, Datasets, Json, encode_sets, names, numbers
from glie.cli.show_measures import print_geometry, print_plan, print_results
from glie.cli.terminal import (
    errors,
    print_json,
    status_line,
)
from glie.errors import InputError
from glie.wording import count


def evaluate(
    datasets: Datasets,
    k: Annotated[
        str | None,
        typer.Option(help="Budgets, in vectors per page.", show_default="2,4,8,16,32,64"),
    ] = None,
    bytes_per_page: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Budgets in bytes, instead of --k: as many bfloat16 vectors as fit.",
            show_default="those of --k",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="all, or a list of: raw-kmeans, token-pooling, cluster-merging, glie-free, "
            "glie-stage1, glie, oracle, hierarchical-pooling, token-pooling-raw (a control), "
            "glie-free-scaled, quantised, ward-1bit, plaid, glie-bytes, glie-bytes-adapted, "
            "uncompressed.",
            show_default="raw-kmeans, glie-free, uncompressed, and the codec's",
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
            help="Fit a codec on this set, or folder of sets, and measure it. Repeat it for "
            "several. others: measure each set with a codec fitted on the other sets. own: split "
            "each set by page, fit on one half and measure the other.",
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Seeds of clustering and fitting, like 0,1,2.")
    ] = "0",
    language: Annotated[
        str | None,
        typer.Option(
            help="Only questions in this language, spelled as in the sets, like english. A wrong "
            "name lists the known ones.",
            show_default="all questions",
            rich_help_panel=RARE,
        ),
    ] = None,
    more: Annotated[
        str | None,
        typer.Option(
            metavar="TABLES",
            help="Slower tables: all, or a list of shortlist, capacity, data, geometry.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write results.json, report.md, report.html and plots there. Finished results "
            "are kept: run it again to go on.",
        ),
    ] = None,
    trec: Annotated[
        bool,
        typer.Option("--trec", help="Also write TREC run files to --to.", rich_help_panel=RARE),
    ] = False,
    recipe: Annotated[
        str, typer.Option(help="As for `glie fit`.", rich_help_panel=RARE)
    ] = "default",
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="As for `glie fit`.",
            show_default="the recipe's",
            rich_help_panel=RARE,
        ),
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="As for `glie index`.")] = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Measure what compression keeps: nDCG@5 of each method at each budget.

    glie evaluate my-set

    glie evaluate set-a set-b set-c --k 2,4,8,16 --methods all --fit-on others --seeds 0,1,2
    --to results/

    glie evaluate vidore-v1/ --methods all --fit-on train/ --seeds 0,1,2 --more all --to results/

    glie evaluate my-set --bytes-per-page 520,1040 --methods all
    """
    from glie.evaluation.comparison import Comparison
    from glie.evaluation.methods import chosen_methods
    from glie.evaluation.plan import MORE, Plan
    from glie.evaluation.report import write_report
    from glie.evaluation.tables import rows
    from glie.indexing import codec_named

    if k is not None and bytes_per_page is not None:
        raise InputError("--k and --bytes-per-page: give one of them")
    plan = Plan(
        methods=chosen_methods(methods, codec=bool(codec), fits=bool(fit_on)),
        budgets=(
            numbers(bytes_per_page, "--bytes-per-page", 1, "256,520,1040")
            if bytes_per_page is not None
            else numbers("2,4,8,16,32,64" if k is None else k, "--k", 1)
        ),
        in_bytes=bytes_per_page is not None,
        seeds=numbers(seeds, "--seeds", 0, "0,1,2"),
        more=names(more, "--more", MORE),
        recipe=recipe,
        epochs=epochs,
    )
    given = None if codec is None else codec_named(codec)
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
        kept = f"; {to} keeps the finished results: run it again to go on" if to else ""
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
    """The command line of this run."""
    return shlex.join(["glie", *sys.argv[1:]])


def geometry(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PAGES",
            help="An .npz file with one (n, D) array per page, or a folder of cached vectors.",
        ),
    ],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Plot every page and its controls (or .svg, .pdf)."),
    ] = None,
    pages: Annotated[
        int, typer.Option(help="Most pages to measure per corpus, drawn at random.")
    ] = glie.geometry.MOST_PAGES,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", help="The same seed draws the same pages.", rich_help_panel=RARE
        ),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Measure page vectors: their norms and their intrinsic dimension (TwoNN).

    Each page has two controls: a Gaussian with the covariance of the page, and uniform noise. A
    dimension far below that of the Gaussian means a curved surface, not a flat cloud.

    A corpus is a folder of keys, like slides/ in slides/deck_3. A folder with several documents
    of several pages is split by document.

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
            help="Documents, a folder with corpus.jsonl, the name of a ViDoRe set on the Hub, a "
            "folder of cached vectors, or an .npz file with one (n, D) array per page.",
        ),
    ],
    bytes_per_page: Annotated[
        str, typer.Option(metavar="BYTES", help="Budgets: sizes of a page on disk.")
    ] = "256,520,1040,4160",
    encoder: Annotated[
        str | None,
        typer.Option(help="As for `glie index`; for an .npz file, the encoder of its vectors."),
    ] = None,
    words: Annotated[
        bool, typer.Option(help="Count the words of the pages' texts in each budget.")
    ] = True,
    cache: Cache = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER",
            help="The same seed draws the same pages.",
            min=0,
            rich_help_panel=RARE,
        ),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Measure what each budget would keep of your pages, before you choose one.

    It stores up to 500 pages at each budget and asks 200 questions made from the pages: noisy
    vectors of one page each. Such questions are easier than real ones, but the same for all
    budgets.

    glie plan reports/ --bytes-per-page 260,520,1040
    """
    from glie.evaluation import sample
    from glie.planning import MOST_PAGES

    budgets = numbers(bytes_per_page, "--bytes-per-page", 1, "256,520,1040")
    drawn = sample(path, MOST_PAGES, seed, lambda one: encode_sets([one], encoder, cache)[0])
    with status_line("measuring") as say:
        rows = glie.plan(
            drawn.pages,
            budgets,
            encoder=drawn.encoder or encoder,
            texts=drawn.texts if words else None,
            seed=seed,
            progress=say,
        )
    if as_json:
        measured = [row.to_dict() for row in rows]
        print_json({"path": path, "seed": seed, "pages": len(drawn.pages), "budgets": measured})
    else:
        print_plan(rows, len(drawn.pages))
