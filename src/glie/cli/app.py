"""The verbs of `glie`, in the order of its help."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

import glie
from glie.cli import (
    cluster,
    codec,
    engines,
    fit,
    index,
    light_colpali,
    maintain,
    measure,
    search,
    serve,
    watch,
)
from glie.errors import InputError

CLUSTER_OPTIONS = {"--workers", "--gpus", "--shards", "--engine"}
SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="glie",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
    help="""Index documents and search them by late interaction, in half a kilobyte a page.

    glie index reports/ --to reports.glie

    glie search reports.glie "capital expenditure in 2018"
    """,
)

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Index and search": (
        index.index,
        index.add,
        watch.watch,
        search.search,
        serve.serve,
        serve.mcp,
    ),
    "Look after an index": (
        *(maintain.info, maintain.delete, maintain.compact, maintain.shrink, maintain.verify),
    ),
    "Choose and fit a codec": (
        *(measure.plan, fit.fit, measure.evaluate, measure.geometry, light_colpali.light_colpali),
    ),
    "Many machines": (engines.export,),
}


def help_of(verb: Callable[..., None]) -> str:
    """The docstring of a verb, one line a paragraph: the terminal wraps it."""
    paragraphs = (verb.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


for panel, verbs in PANELS.items():
    for verb in verbs:
        app.command(help=help_of(verb), rich_help_panel=panel)(verb)

codebooks = typer.Typer(
    no_args_is_help=True,
    context_settings=SETTINGS,
    help="Make a codebook for an encoder, which all its indexes share.",
)
OF_CODECS: dict[str, Callable[..., None]] = {
    "make": codec.make,
    "fit-sample": codec.fit_sample,
    "add": codec.add,
    "list": codec.list_codebooks,
    "show": codec.show,
}
for name, of_codecs in OF_CODECS.items():
    codebooks.command(name, help=help_of(of_codecs))(of_codecs)
app.add_typer(codebooks, name="codec", rich_help_panel="Choose and fit a codec")

on_cluster = typer.Typer(
    no_args_is_help=True,
    context_settings=SETTINGS,
    help="Work on a Ray cluster.",
)
for on_ray in (cluster.index, cluster.serve, cluster.status, cluster.replace, cluster.stop):
    on_cluster.command(help=help_of(on_ray))(on_ray)
app.add_typer(on_cluster, name="cluster", rich_help_panel="Many machines")


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The application with only the verb that is asked for: typer prepares every verb it has."""
    names = {verb.__name__.replace("_", "-"): verb for verbs in PANELS.values() for verb in verbs}
    asked = names.get(arguments[0]) if arguments else None
    if asked is None:
        return app
    one = copy.copy(app)
    one.registered_commands = [info for info in app.registered_commands if info.callback is asked]
    one.registered_groups = []
    return one


def current_spelling(arguments: Sequence[str]) -> list[str]:
    """Translate `glie index --ray`, the old spelling of `glie cluster index`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, rest = list(arguments[:end]), list(arguments[end:])
    if options[:1] != ["index"]:
        return [*options, *rest]
    if "--ray" in options:
        return ["cluster", *(option for option in options if option != "--ray"), *rest]
    for option in options:
        if option.partition("=")[0] in CLUSTER_OPTIONS:
            raise InputError(f"{option}: an option of `glie cluster index`, not of `glie index`")
    return [*options, *rest]


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
