"""The process that reads documents, started by process.py. A hostile file can take any amount of
memory or time; the limits then kill this process and not the caller.

    python reader_process.py KIND FILE SECONDS BYTES

An answer may take SECONDS of CPU time, the process BYTES of memory. It first opens the file and
prints the number of pages, {"pages": n}; kinds that are read as a whole may take three times as
long for that. Then it answers each line of JSON on standard input with one on standard output;
pages are counted from 0:

    ["text", PAGE]             {"text": ...}
    ["words", PAGE]            {"words": [[word, left, top, right, bottom], ...]}
    ["picture", PAGE, SIZE]    {"size": [width, height]}, then width x height pixels of three bytes

Only a PDF has words with places and pictures. Without a file (KIND and FILE are "-") it prints
nothing first and counts the pages of any, and of a PDF those without text, by a sample of them:

    ["count", KIND, FILE]      {"pages": n, "without_text": m}

{"fault": ...} is the answer when something fails; "refused" is true in it if that says all, and
false for an error of the library that reads the file. The process imports nothing of glie but its
readers, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WHOLE = 3  # times SECONDS for a document that is read as a whole when it is opened


def allow(seconds: int) -> None:
    """Have the system kill this process after another `seconds` of CPU time."""
    with contextlib.suppress(ImportError):  # Windows has no such limits
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime) + 1
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = spent + seconds if hard == resource.RLIM_INFINITY else min(spent + seconds, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # or it is lower already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def say(**what: Any) -> None:
    sys.stdout.buffer.write(json.dumps(what).encode() + b"\n")
    sys.stdout.buffer.flush()


class Whole:
    """A document that is read as a whole: the text of its pages."""

    def __init__(self, kind: str, path: str) -> None:
        reader = importlib.import_module(f"glie.documents.readers.{READERS[kind]}")
        self._pages: list[str] = reader.pages(path)
        self.pages = len(self._pages)

    def text(self, number: int) -> str:
        # half a pair of surrogates, which a file may hold, is not text
        return self._pages[number].encode("utf-8", "replace").decode().replace("\0", "")

    def without_text(self) -> int:
        return 0

    def close(self) -> None:
        self._pages = []


READERS = {
    "docx": "word",
    "pptx": "slides",
    "xlsx": "sheets",
    "html": "web",
    "epub": "book",
    "eml": "mail",
}


def open_document(kind: str, path: str, seconds: int) -> Any:
    if kind == "pdf":
        from glie.documents.readers.pdf import Pdf

        allow(seconds)
        return Pdf(path)
    allow(WHOLE * seconds)
    return Whole(kind, path)


def answer(document: Any, what: str, number: int, *arguments: int) -> None:
    if what == "picture":
        size, pixels = document.picture(number, *arguments)
        say(size=size)
        sys.stdout.buffer.write(pixels)
        sys.stdout.buffer.flush()
    elif what in ("text", "words"):
        say(**{what: getattr(document, what)(number)})


@contextlib.contextmanager
def faults_said() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        os.abort()  # like pdfium itself
    except Exception as error:
        refused = type(error).__name__ == "RefusedError"
        say(fault=str(error) or type(error).__name__, refused=refused)


def import_lightly() -> None:
    """Have `glie.documents.readers` imported without glie, which would import numpy."""
    here = Path(__file__).parent
    for name, folder in (("glie", here.parent), ("glie.documents", here)):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


def main() -> None:
    kind, path, *numbers = sys.argv[1:]
    seconds, memory = map(int, numbers)
    import_lightly()
    limit_memory(memory)
    if kind == "-":
        for line in sys.stdin:
            _, kind, path = json.loads(line)
            with faults_said():
                document = open_document(kind, path, seconds)
                say(pages=document.pages, without_text=document.without_text())
                document.close()
        return
    document = None
    with faults_said():
        document = open_document(kind, path, seconds)
        say(pages=document.pages)
    if document is None:
        return
    for line in sys.stdin:
        what, number, *arguments = json.loads(line)
        allow(seconds)
        with faults_said():
            answer(document, what, number, *arguments)


if __name__ == "__main__":
    main()
