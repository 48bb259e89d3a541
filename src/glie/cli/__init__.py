"""The command line: each verb parses its options, calls the library and shows the result."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
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
        sys.exit(app_for(arguments)(arguments, "glie", standalone_mode=False))
    except GlieError as error:
        fail(*said_of_options(str(error), sys.argv[1:]))
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
        said = said_of_value(error.format_message(), sys.argv[1:])
        fail(f"{said} (see --help)", getattr(error, "exit_code", 2))


MISTYPED = 2  # the exit code for an option, as typer has it; 1 for all else
OPTION = re.compile(r"(?:codec setting )?([a-z][a-z_]*)(?=: | ')")


def said_of_options(message: str, typed: Sequence[str]) -> tuple[str, int]:
    """A message and its exit code. The library names its arguments; one that was typed as an option
    is named as it was typed."""
    found = OPTION.match(message)
    option = f"--{found[1].replace('_', '-')}" if found else ""
    if found and any(word.partition("=")[0] == option for word in typed):
        message = option + message[found.end() :]
    return message, MISTYPED if message.startswith("--") else 1


VALUE = re.compile(r"Invalid value for '(--[\w-]+)': Input should be ([^,]+)")


def said_of_value(message: str, typed: Sequence[str]) -> str:
    """What typer says of an option's value, with the value that was found."""
    told = VALUE.match(message)
    if told is None:
        return message
    option, expected = told.groups()
    words = [part for word in typed for part in word.split("=", 1)]
    found = words[words.index(option) + 1 :][:1] if option in words else []
    return f"{option}: expected {expected}{''.join(f', found {value!r}' for value in found)}"


def fail(message: str, code: int) -> NoReturn:
    """Print a message in one line and exit."""
    print(f"glie: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
