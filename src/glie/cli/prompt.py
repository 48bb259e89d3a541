"""`glie search INDEX` without a question: ask one question after another, with a loaded encoder."""

from __future__ import annotations

import contextlib
import os
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glie.cli.search import print_cost, print_doubts, print_rows, rows_of
from glie.cli.terminal import errors, output, status_line
from glie.errors import GlieError, InputError
from glie.filters import all_of, parse
from glie.retriever import Retriever, asked_of
from glie.wording import count, printable

if TYPE_CHECKING:
    from glie.filters import Filter

HISTORY = ".glie_history"  # in the home folder
HELP = """A question, or one of these:
  :open 2       open the document of the second answer, at its page
  :why 2        how its score is made up, and its text
  :where year >= 2020 and lang = en
                only pages whose metadata matches; without a filter: all pages
  :document a.pdf
                only pages of this document or folder; without a name: of all
  :top 5        show so many pages
  :quit         end it, as Ctrl-D does"""


class Prompt:
    """What was asked last, and what the next question is restricted to."""

    def __init__(
        self, retriever: Retriever, top: int, filters: list[Filter], options: dict[str, Any]
    ) -> None:
        self._retriever = retriever
        self._top, self._filters, self._options = top, filters, options
        self._rows: list[dict[str, Any]] = []

    def loop(self) -> None:
        """Read and answer lines until the end of the input."""
        with status_line("loading the encoder"):
            self._retriever.load()
        pages = count(len(self._retriever.index), "page")
        print(f"{pages}. Ask a question; :help lists what else you can type.")
        with _history():
            while True:
                try:
                    line = input("? ").strip()
                except EOFError:
                    print()
                    return
                except KeyboardInterrupt:  # drops what was typed
                    print()
                    continue
                if line in (":quit", ":q"):
                    return
                try:
                    self.take(line)
                except GlieError as error:
                    errors.print(" ".join(str(error).split()), style="red", soft_wrap=True)

    def take(self, line: str) -> None:
        """Answer one line."""
        command, _, rest = line.partition(" ")
        rest = rest.strip()
        match command:
            case "":
                return
            case ":help" | ":h":
                print(HELP)
            case ":open":
                self._open(self._row(rest))
            case ":why":
                self._why(self._row(rest))
            case ":where":
                self._filters = [parse(rest)] if rest else []
                print(f"from now on: pages with {rest}" if rest else "from now on: all pages")
            case ":document":
                self._options["documents"] = [rest] if rest else None
                print(f"from now on: {rest}" if rest else "from now on: all documents")
            case ":top":
                self._top = _number(rest)
                print(f"from now on: {count(self._top, 'page')} an answer")
            case _ if line.startswith(":"):
                raise InputError(f"{command}: not known here; :help lists what is")
            case _:
                self._ask(line)

    def _ask(self, question: str) -> None:
        options = {**self._options, "where": all_of(self._filters)}
        with status_line("searching"):
            hits = self._retriever.search(question, self._top, **options)
        marks = asked_of(self._retriever.index, question)
        self._rows = rows_of(hits, marks, lambda text: self._retriever.nearest(question, text))
        if self._rows:
            print_doubts(hits)
            print_rows(self._rows, marks)
            print_cost(hits.cost)
        else:
            print("no page matches")

    def _row(self, number: str) -> dict[str, Any]:
        wanted = _number(number)
        if wanted > len(self._rows):
            raise InputError(f"{wanted}: there are {count(len(self._rows), 'answer')}; ask first")
        return self._rows[wanted - 1]

    def _open(self, row: dict[str, Any]) -> None:
        from glie.documents.original import page_address

        path = Path(str(row["path"]))
        if row["path"] is None or not path.exists():
            raise InputError(f"{row['id']}: its file is gone: {path}")
        address = page_address(path, row["page"])
        output.print(address, soft_wrap=True)
        webbrowser.open(address)

    def _why(self, row: dict[str, Any]) -> None:
        from glie.documents.original import original_text

        score, made_of = round(row["score"], 3), ", by meaning alone"
        if "words" in row:  # rounded so that both add up to the score
            words = round(row["words"], 3)
            made_of = f" = meaning {score - words:.3f} + words {words:.3f}"
        output.print(f"{printable(row['id'])}: score {score:.3f}{made_of}", style="cyan")
        output.print(original_text(row["metadata"]).strip() or "(no text of its own)")


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"expected a number from 1 on, found {text!r:.40}")
    return int(text)


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Arrow keys bring back earlier questions, also those of earlier sessions."""
    try:
        import readline
    except ImportError:  # Windows
        yield
        return
    place = Path.home() / HISTORY
    with contextlib.suppress(OSError):
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))  # for this user's eyes
        readline.read_history_file(place)
    try:
        yield
    finally:
        readline.set_history_length(1000)
        with contextlib.suppress(OSError):
            readline.write_history_file(place)
