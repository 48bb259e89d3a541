"""The command line: each verb parses, calls the library, and prints."""

from __future__ import annotations

import dataclasses
import io
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.console
import rich.padding
import rich.progress
import rich.table
import rich.text
import typer

import glie
from glie.errors import GlieError, InputError
from glie.search import SHORTLIST
from glie.terminal import (
    errors,
    fail,
    fit_bar,
    output,
    print_fit,
    print_geometry,
    print_ingest,
    print_json,
    print_results,
    progress_bar,
    size,
    status_line,
    tune_bar,
)
from glie.wording import count, listing

if TYPE_CHECKING:
    from glie.encoders import Encoder
    from glie.evaluation import Dataset, Encoded
    from glie.evaluation.tables import Table
    from glie.ingest import Report

DONE_WITH_PROBLEMS = 3  # the exit code when some files could not be read

app = typer.Typer(
    name="glie",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Search documents by late interaction, from about a kilobyte a page.

    glie index reports/ --to reports.glie

    glie search reports.glie "capital expenditure in 2018"
    """,
)
IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="An index folder.")]
Documents = Annotated[
    list[Path],
    typer.Argument(
        metavar="DOCUMENTS",
        help="Files or folders: PDF, PNG, JPEG, TIFF, WebP, text, Markdown.",
    ),
]
Datasets = Annotated[
    list[str],
    typer.Argument(
        metavar="DATASET",
        help="Folders with corpus.jsonl, queries.jsonl and qrels/test.tsv (the BEIR shape), "
        "folders of cached vectors, or ViDoRe sets by their name on the Hub.",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="GLIE_CACHE",
        help="Keep the vectors in a folder there; the next run reads them.",
        show_default="none is kept",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
KeepImages = Annotated[
    bool, typer.Option("--keep-images", help="Keep a small picture of every page in the index.")
]
Ocr = Annotated[
    bool, typer.Option(help="Read pages without text by OCR, where glie\\[ocr] is installed.")
]


def _version(asked: bool) -> None:
    if asked:
        print(f"glie {glie.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options of every command."""


@app.command("index")
def index_documents(
    documents: Documents,
    to: Annotated[Path, typer.Option("--to", metavar="INDEX", help="The index folder to make.")],
    k: Annotated[
        int | None,
        typer.Option(
            help="Vectors stored a page, 260 bytes each: 4 for a kilobyte, 16 for dense pages.",
            show_default="4, or the codec's",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="minilm, minilm-384, or a FOLDER with a text model, of transformers or ONNX; "
            "FOLDER@MATRIX.safetensors reduces its vectors by a fitted matrix."
        ),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            metavar="CODEC",
            help="A folder from `glie fit`, or free for normalised k-means.",
            show_default="the one that ships for the encoder, else free",
        ),
    ] = None,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    as_json: Json = False,
) -> None:
    """Make an index of documents. Run it again to take in what is new or has changed.

    Files that cannot be read are listed at the end, the rest is indexed, and the exit code is 3.
    """
    if (to / "manifest.json").exists():
        index = glie.Index.open(to)
        if k is not None and k != index.codec.k:
            raise InputError(
                f"{to}: it stores k={index.codec.k} vectors a page, not {k}; make a new index for "
                "another k"
            )
        if codec is not None and not _codec(codec).at(index.codec.k).same_as(index.codec):
            raise InputError(f"{to}: it has another codec; make a new index for this one")
        engine = _encoder_of(index, encoder)
    else:
        from glie.ingest import found_documents

        found_documents(documents)  # before a folder is made for nothing
        chosen = None if codec is None else _codec(codec)  # a mistyped name fails at once
        glie.CodecConfig(k=4 if k is None else k)
        engine = _load_encoder(encoder)
        entry = {"name": engine.name, "revision": engine.revision}
        chosen = chosen or glie.Codec.shipped(entry) or glie.Codec()
        index = glie.Index.create(to, chosen if k is None else chosen.at(k), encoder=entry)
    _ingest(index, engine, documents, keep_images, ocr, as_json)


@app.command()
def add(
    index_path: IndexPath,
    documents: Documents,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    as_json: Json = False,
) -> None:
    """Add documents to an index; those it already has are skipped unless they changed."""
    index = glie.Index.open(index_path)
    _ingest(index, _encoder_of(index, None), documents, keep_images, ocr, as_json)


@app.command()
def search(
    index_path: IndexPath,
    words: Annotated[list[str], typer.Argument(metavar="QUESTION", help="What you want to know.")],
    top: Annotated[int, typer.Option(help="How many pages to show.")] = 10,
    shortlist: Annotated[
        int,
        typer.Option(help="Pages to regenerate and score again; 0 ranks by the stored codes."),
    ] = SHORTLIST,
    document: Annotated[
        list[str] | None,
        typer.Option(help="Only pages of this document or folder; may be given several times."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the pages that answer a question."""
    from glie.ingest import pages_of

    index = glie.Index.open(index_path)
    question = " ".join(words)
    if not question.strip():
        raise InputError("the question is empty")
    ids = pages_of(index, document) if document else None
    began = time.perf_counter()
    if len(index):
        vectors = _encoder_of(index, None).encode_queries([question])
        encoded = time.perf_counter()
        hits = index.search(vectors, top=top, shortlist=shortlist, ids=ids)[0]
    else:
        encoded = began
        hits = glie.Hits([], [], [], glie.Cost(0, 0, 0, 0.0))
    shown: list[dict[str, Any]] = [
        {
            "rank": rank,
            "id": page_id,
            "score": round(score, 6),
            "document": metadata.get("document"),
            "page": metadata.get("page"),
            "path": metadata.get("path"),
            "snippet": _snippet(metadata, question),
            "metadata": metadata,
        }
        for rank, (page_id, score, metadata) in enumerate(
            zip(hits.ids, hits.scores, hits.metadata, strict=True), start=1
        )
    ]
    if as_json:
        print_json(
            {
                "index": str(index_path),
                "query": question,
                "hits": shown,
                "cost": {**dataclasses.asdict(hits.cost), "encode_seconds": encoded - began},
            }
        )
        return
    if not shown:
        print("no pages: the index is empty")
        return
    from glie.snippet import matches, printable

    for hit in shown:
        name = (printable(hit["id"]), "cyan")
        output.print(rich.text.Text.assemble(f"{hit['rank']:3}  {hit['score']:6.2f}  ", name))
        text = rich.text.Text(hit["snippet"])
        for start, end in matches(hit["snippet"], question):
            text.stylize("bold", start, end)
        text = text or rich.text.Text(_why_no_text(hit["metadata"]), style="dim")
        output.print(rich.padding.Padding(text, (0, 0, 0, 13), expand=False))
    cost = hits.cost
    again = f"{cost.pages_regenerated:,} regenerated, " if cost.pages_regenerated else ""
    output.print(
        f"{count(cost.pages_scanned, 'page')} scanned, {again}{size(cost.bytes_read)} read, "
        f"{cost.seconds * 1000:.1f} ms; {encoded - began:.1f} s to load the encoder",
        style="dim",
    )


@app.command()
def delete(
    index_path: IndexPath,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="DOCUMENTS",
            help="Documents (their name or path), or single pages (report.pdf#3).",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Delete documents or pages from an index. `compact` then frees their space."""
    from glie.ingest import pages_of

    index = glie.Index.open(index_path)
    with index.writing():
        deleted = index.delete(pages_of(index, names))
    if as_json:
        print_json({"deleted": deleted, "pages": len(index)})
    else:
        print(f"{count(deleted, 'page')} deleted, {count(len(index), 'page')} left")


@app.command()
def compact(index_path: IndexPath, as_json: Json = False) -> None:
    """Rewrite an index without its deleted pages."""
    index = glie.Index.open(index_path)
    before = index.info()
    index.compact()
    after = index.info()
    if as_json:
        print_json({"pages": after.pages, "bytes_before": before.bytes, "bytes": after.bytes})
    else:
        print(f"{size(before.bytes)} before, {size(after.bytes)} now")


@app.command()
def info(
    index_path: IndexPath,
    documents: Annotated[bool, typer.Option("--documents", help="List the documents.")] = False,
    as_json: Json = False,
) -> None:
    """Show what an index holds and what it weighs."""
    from glie.ingest import known_documents

    index = glie.Index.open(index_path)
    facts = index.info()
    known = known_documents(index)
    lean = facts.bytes - facts.image_bytes - facts.codec_bytes
    per_page = lean / facts.pages if facts.pages else None
    ratio = facts.uncompressed_bytes / lean if facts.pages else None
    if as_json:
        listed = {name: len(document.ids) for name, document in known.items()}
        print_json(
            {
                **dataclasses.asdict(facts),
                "path": str(index_path),
                "bytes_per_page": per_page,
                "compression": ratio,
                "documents": listed if documents else len(known),
            }
        )
        return
    table = rich.table.Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    rows = [
        ("pages", f"{facts.pages:,} in {count(len(known), 'document')}"),
        ("deleted", f"{facts.deleted:,}" + (" (compact frees them)" if facts.deleted else "")),
        ("encoder", facts.encoder or "not recorded"),
        ("codec", _codec_line(index, facts)),
        ("on disk", size(lean) + f" in {count(facts.segments, 'segment')}"),
    ]
    if per_page and ratio:
        rows.append(("a page", f"{per_page:,.0f} bytes, codes {facts.code_bytes_per_page:,}"))
        rows.append(
            (
                "vectors",
                f"{facts.vectors:,}, {size(facts.uncompressed_bytes)} at 2 bytes a number",
            )
        )
        rows.append(("compression", f"{ratio:,.1f} times"))
    if facts.image_bytes:
        rows.append(("pictures", f"{size(facts.image_bytes)}, not counted in the lines above"))
    for name, value in rows:
        table.add_row(name, rich.text.Text(value))
    output.print(table)
    if documents:
        for name, document in known.items():
            print(f"{len(document.ids):6,} {name}")


def _codec_line(index: glie.Index, facts: glie.IndexInfo) -> str:
    line = f"k = {facts.k}" + (f", D = {facts.dim}" if facts.dim else "")
    if index.codec.refiner is None:
        return f"{line}, normalised k-means"
    stages = "fitted, two stages" if index.codec.decoder else "fitted, one stage"
    return f"{line}, {stages} ({size(facts.codec_bytes)} besides the lines below)"


@app.command()
def fit(
    datasets: Datasets,
    to: Annotated[Path, typer.Option("--to", metavar="CODEC", help="The codec folder to make.")],
    k: Annotated[str, typer.Option(help="Budgets that the codec will serve, like 2,4,8.")] = "4",
    epochs: Annotated[
        int | None, typer.Option(help="Rounds over the questions.", show_default="the recipe's")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same codec.")] = 0,
    no_queries: Annotated[
        bool,
        typer.Option("--no-queries", help="Make questions of the pages; DATASET needs no others."),
    ] = False,
    recipe: Annotated[
        str, typer.Option(help="default, for a CPU, or paper: the published one, 100 epochs.")
    ] = "default",
    encoder: Annotated[str | None, typer.Option(help="As for `index`.")] = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Fit a codec on pages and questions: better codes than clustering, at the same size.

    A part of the questions is held out and decides: what does not help is not kept. Ctrl-C
    keeps the best so far.
    """
    from glie.codec.store import check_place
    from glie.evaluation import joined, load, load_pages
    from glie.training.fit import check_ready
    from glie.training.recipe import recipe_of

    # what can be wrong is found before minutes of work, not after
    check_ready()
    budgets, chosen = _budgets(k), recipe_of(recipe)
    for budget in budgets:
        glie.CodecConfig(k=budget, seed=seed)
    if epochs is not None:
        chosen = dataclasses.replace(chosen, epochs=epochs)
    loaded = [load_pages(path) if no_queries else load(path) for path in datasets]
    check_place(to)
    sets = _encode(loaded, encoder, cache)
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
    assert codec.fitted is not None
    notes = codec.fitted.notes
    if as_json:
        rows = [dataclasses.asdict(budget) for budget in codec.fitted.budgets]
        print_json({"codec": str(to), "budgets": rows, **notes})
    else:
        print_fit(codec, to)
    if notes["interrupted"]:
        fail(f"interrupted after {notes['steps']} steps; {to} is the best so far", 130)


@app.command()
def evaluate(
    datasets: Datasets,
    k: Annotated[str, typer.Option(help="Budgets: vectors a page.")] = "2,4,8,16,32,64",
    methods: Annotated[
        str | None,
        typer.Option(
            help="all, or some of: raw-kmeans, token-pooling, cluster-merging, "
            "hierarchical-pooling, glie-free, glie-stage1, glie, oracle, uncompressed.",
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
    """
    from glie.evaluation import load
    from glie.evaluation.experiment import (
        MORE,
        Codecs,
        Plan,
        Store,
        check_names,
        check_plan,
        run,
        sources,
    )
    from glie.evaluation.methods import chosen_methods
    from glie.evaluation.tables import Results, rows
    from glie.training.recipe import recipe_of

    # what can be wrong is found before minutes of work, not after
    extra = MORE if more == "all" else _words(more, "--more", MORE)
    plan = Plan(
        methods=chosen_methods(methods, bool(codec or fit_on)),
        budgets=[glie.CodecConfig(k=budget).k for budget in _budgets(k)],
        seeds=_numbers(seeds, "--seeds", 0),
        more=extra,
        recipe=recipe_of(recipe),
        epochs=epochs,
    )
    check_plan(plan, codec=codec is not None, fits=bool(fit_on), report=to is not None)
    if trec and to is None:
        raise InputError("--trec: run files are written into the results; name a folder with --to")
    if codec is not None and fit_on:
        raise InputError("--codec and --fit-on: give one of them")
    others = fit_on == ["others"]
    if others and len(datasets) < 2:
        raise InputError("--fit-on others: there is one set; give others to fit on")
    store = Store(to, trec=trec)
    given = None if codec is None else _codec(codec)
    if given is not None and given.fitted is None:
        raise InputError("--codec: not a fitted codec; glie-free is measured without one")
    names = list(dict.fromkeys([*datasets, *([] if others else fit_on or [])]))
    loaded = {name: load(name) for name in names}
    check_names([loaded[name].name for name in datasets])
    encoded = dict(zip(names, _encode(list(loaded.values()), encoder, cache), strict=True))
    sets = [encoded[name] for name in datasets]
    fitted_on = [encoded[name] for name in fit_on or []] if not others else None
    for one in sets:
        if given is not None:
            given.check_encoder(one.encoder)
    notes = sources(sets, fitted_on, given, bool(fit_on))
    for line in notes:
        errors.print(line, style="yellow", soft_wrap=True)
    try:
        with status_line("measuring") as say:
            codecs = None
            if given is not None or fit_on:
                codecs = Codecs(plan, store, given=given, fit_on=fitted_on, sets=sets, say=say)
            results = Results(run(sets, plan, codecs, store, say))
            figures, tables = _geometry(sets, to, say) if "geometry" in extra else ({}, [])
            if to is not None:
                from glie.evaluation.report import write_report

                write_report(to, results, sets, _typed(), notes, tables, figures)
    except KeyboardInterrupt:
        kept = f"; {to} keeps what is finished: run it again to go on" if to else ""
        fail(f"interrupted{kept}", 130)
    if as_json:
        print_json(rows(results))
        return
    print_results(sets, results, tables)
    if to is not None:
        print(
            f"{to}: report.html, report.md, results.json; "
            f"{count(store.made, 'result')} measured, {store.kept:,} found finished"
        )


def _geometry(
    sets: list[Encoded], to: Path | None, say: Callable[[str], None]
) -> tuple[dict[str, str], list[Table]]:
    """The table of intrinsic dimensions of some sets and, into a folder, its plot."""
    from glie.evaluation.plots import plot_geometry
    from glie.evaluation.tables import geometry as table
    from glie.evaluation.vectors import vectors_of

    seed, most = 0, glie.geometry.MOST_PAGES
    corpora = glie.geometry.measure({one.name: vectors_of(one) for one in sets}, seed, most, say)
    if to is None:
        return {}, [table(corpora)]
    plot_geometry(corpora, to / "geometry.png")
    return {"geometry.png": "Intrinsic dimension of the pages, a dot a page."}, [table(corpora)]


def _typed() -> str:
    """The command as it was typed, to be typed again."""
    return shlex.join(["glie", *sys.argv[1:]])


@app.command()
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


@app.command("light-colpali")
def light_colpali(
    dataset: Annotated[
        Path,
        typer.Argument(
            metavar="DATASET",
            help="A folder as for `fit`, whose corpus.jsonl gives each page's `image`, a path.",
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="A ColPali or ColQwen2 model of transformers: a folder, or a name on the Hub.",
        ),
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="ADAPTER", help="The adapter folder to make.")
    ],
    k: Annotated[int, typer.Option(help="Vectors a page; each budget needs its own adapter.")] = 4,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of the optimizer, 32 pairs each.", show_default="5 epochs"),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same adapter.")] = 0,
    as_json: Json = False,
) -> None:
    """Fine-tune a visual encoder through Light-ColPali's merge: a rival to compare codecs with.

    Unlike `fit`, it changes the encoder: pages must be encoded again, once for every k. It trains a
    LoRA on up to 4,000 pairs of a question and a page image, and wants a GPU. Ctrl-C keeps what is
    learned so far.
    """
    from glie.evaluation.light_colpali import (
        FineTuning,
        LightColPali,
        check_place,
        check_ready,
        fine_tune,
        image_pairs,
    )

    check_ready()
    settings = FineTuning(steps=steps)
    glie.CodecConfig(k=k, seed=seed)
    pairs = image_pairs(dataset)
    with status_line("loading the model"):
        encoder = LightColPali(model)
    check_place(to)
    with tune_bar() as show:
        losses = fine_tune(encoder, pairs, k, settings, seed=seed, progress=show)
    encoder.save(to)
    notes = encoder.notes
    if as_json:
        print_json({"adapter": str(to), "losses": losses, **notes})
    else:
        print(
            f"{to}: {count(notes['parameters'], 'parameter')} for k = {k}, trained on "
            f"{count(notes['pairs'], 'pair')} in {notes['seconds']:.0f} s "
            f"({count(notes['steps'], 'step')})"
        )
    if notes["interrupted"]:
        fail(f"interrupted after {notes['steps']} steps; {to} is what was learned so far", 130)


def _encode(
    loaded: Sequence[Dataset | Encoded], encoder: str | None, cache: Path | None
) -> list[Encoded]:
    """Sets as vectors, with a word on what was left out; vectors need no encoder."""
    from glie.evaluation import Encoded, encode

    for dataset in loaded:
        _say_left_out(dataset.name, dataset.warnings)
    engine = None
    if encoder is not None or not all(isinstance(dataset, Encoded) for dataset in loaded):
        engine = _load_encoder(encoder)
    sets = []
    for dataset in loaded:
        with status_line(dataset.name) as say:
            sets.append(encode(dataset, engine, cache, say))
        _say_left_out(dataset.name, sets[-1].warnings[len(dataset.warnings) :])
    return sets


def _say_left_out(name: str, warnings: Sequence[str]) -> None:
    for line in warnings:
        errors.print(f"{name}: {line}", style="yellow", soft_wrap=True)


def _codec(name: str) -> glie.Codec:
    """The codec that an option names."""
    return glie.Codec() if name == "free" else glie.Codec.load(name)


def _ingest(
    index: glie.Index,
    encoder: Encoder,
    documents: list[Path],
    keep_images: bool,
    ocr: bool,
    as_json: bool,
) -> None:
    from glie.ingest import ingest

    began = time.perf_counter()
    try:
        with progress_bar() as show:
            report = ingest(
                index, encoder, documents, keep_images=keep_images, ocr=ocr, progress=show
            )
    except KeyboardInterrupt:
        kept = f"the index keeps the {count(len(index), 'page')} committed so far"
        fail(f"interrupted; {kept}; run it again to go on", 130)
    seconds = time.perf_counter() - began
    facts = index.info()
    if as_json:
        print_json(
            {
                **dataclasses.asdict(report),
                "seconds": seconds,
                "pages": facts.pages,
                "bytes": facts.bytes,
            }
        )
    else:
        print_ingest(report, facts, seconds)
    hint = ocr_hint(report)
    if hint:
        errors.print(hint, style="yellow", soft_wrap=True)
    if report.documents_gone:
        gone = count(len(report.documents_gone), "indexed document")
        names = listing(report.documents_gone)
        errors.print(f"files gone of {gone}: {names}; `glie delete` takes them out", soft_wrap=True)
    if report.problems:
        errors.print(f"{count(len(report.problems), 'problem')}:", style="red")
    for problem in report.problems:
        errors.print(problem, style="red", soft_wrap=True)
    if report.problems:
        raise typer.Exit(DONE_WITH_PROBLEMS)


def ocr_hint(report: Report) -> str | None:
    """What to say of pages that could not be read for want of OCR."""
    from glie.documents import ocr_available

    if not report.pages_without_text:
        return None
    pages = count(len(report.pages_without_text), "page")
    said = f"{pages} without text left out: {listing(report.pages_without_text)}"
    return said if ocr_available() else f'{said}; pip install "glie[ocr]" to read them'


def _load_encoder(name: str | None) -> Encoder:
    from glie.encoders import load_encoder

    with status_line("loading the encoder"):
        return load_encoder(name)


def _encoder_of(index: glie.Index, asked: str | None) -> Encoder:
    """The encoder that made the index; another one is refused."""
    from glie.ingest import check_encoder, encoder_name

    encoder = _load_encoder(asked or encoder_name(index))
    check_encoder(index, encoder)
    return encoder


def _snippet(metadata: dict[str, Any], question: str) -> str:
    """Where the page answers, read from its file; empty when that is gone or is a picture."""
    from glie.documents import page_text
    from glie.snippet import best_snippet

    try:
        return best_snippet(page_text(Path(metadata["path"]), metadata["page"]), question)
    except (KeyError, TypeError, IndexError, OSError, GlieError):
        return ""


def _why_no_text(metadata: dict[str, Any]) -> str:
    if metadata.get("origin") == "ocr":
        return "(a scanned page, read by OCR)"
    path = metadata.get("path")
    return f"(its file is gone: {path})" if path and not Path(path).exists() else "(no text)"


def _budgets(text: str) -> list[int]:
    return _numbers(text, "--k", 1)


def _numbers(text: str, option: str, least: int) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option}: expected numbers like 2,4,8, found {text!r}") from None
    if min(numbers) < least:
        raise InputError(f"{option}: expected numbers of at least {least}, found {text!r}")
    return list(dict.fromkeys(numbers))


def _words(text: str | None, option: str, known: Sequence[str]) -> list[str]:
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        if word not in known:
            raise InputError(
                f"{option}: {word!r} is unknown; expected all, or some of {', '.join(known)}"
            )
    return words


def main() -> None:
    """The entry point: an error is one line, and a non-zero exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a letter shows its code
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app(standalone_mode=False))
    except GlieError as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        fail(f"{error.filename or 'output'}: {error.strerror or error}", 1)
    except Exception as error:
        if type(error).__name__ == "Abort":
            fail("interrupted", 130)
        if not hasattr(error, "format_message"):  # not a fault in what was typed
            raise
        if not error.format_message():  # nothing was typed, and the help is shown
            sys.exit(0)
        fail(f"{error.format_message()} (see --help)", getattr(error, "exit_code", 2))
