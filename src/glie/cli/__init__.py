"""The command line: each verb parses its options, calls the library and shows the result."""

from __future__ import annotations

import io
import os
import sys
from importlib.util import find_spec
from typing import NoReturn

from glie.errors import GlieError, MissingExtraError


def main() -> None:
    """Run `glie`. An error is one line on standard error and a non-zero exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape what the terminal cannot encode
            stream.reconfigure(errors="backslashreplace")
    try:
        if find_spec("typer") is None or find_spec("rich") is None:
            raise MissingExtraError("the command line", "cli")
        from glie.cli.app import app_for, current_spelling

        arguments = current_spelling(sys.argv[1:])
        sys.exit(app_for(arguments)(arguments, standalone_mode=False))
    except GlieError as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        fail(f"{error.filename or 'output'}: {error.strerror or error}", 1)
    except Exception as error:
        if type(error).__name__ == "Abort":
            fail("interrupted", 130)
        if not hasattr(error, "format_message"):  # not a usage error
            raise
        if not error.format_message():  # no arguments: the help was shown
            sys.exit(0)
        fail(f"{error.format_message()} (see --help)", getattr(error, "exit_code", 2))


def fail(message: str, code: int) -> NoReturn:
    """Print a message in one line and exit."""
    print(f"glie: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
