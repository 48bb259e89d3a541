"""The command line: each verb parses, calls the library, and prints."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

import glie
from glie.cli import engines, fit, indexes, light_colpali, measure, search, serve
from glie.cli.terminal import fail
from glie.errors import GlieError

# in the order of the help
VERBS = (
    indexes.index,
    indexes.add,
    search.search,
    serve.serve,
    serve.mcp,
    indexes.delete,
    indexes.compact,
    indexes.shrink,
    indexes.info,
    indexes.verify,
    engines.export,
    fit.fit,
    measure.evaluate,
    measure.plan,
    measure.geometry,
    light_colpali.light_colpali,
)

app = typer.Typer(
    name="glie",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Search documents by late interaction, from half a kilobyte a page.

    glie index reports/ --to reports.glie

    glie search reports.glie "capital expenditure in 2018"
    """,
)
for verb in VERBS:
    app.command()(verb)


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
