"""What a vector database must do to hold pages: one Protocol, and what passes through it."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from glie.errors import EngineError, GlieError, MissingExtraError
from glie.pages import Floats, Queries

SOURCE = r",? ?(location: )?/\S+\.rs:\d+.*"  # where in its own code a library found a fault
NUMBERS_PER_REQUEST = 500_000  # of vectors that are sent at a time: 11 MB of JSON


class Entry(NamedTuple):
    """What is kept of a page beside the vectors that the engine searches."""

    id: str
    code: bytes  # its vectors as an index stores them, one after the other
    norms: list[float]
    counts: list[int]
    residual: bytes
    metadata: dict[str, Any]
    terms: list[int]  # a number for each key and value of the metadata
    digest: str  # of all of this


class Row(NamedTuple):
    """A page to store."""

    entry: Entry
    vectors: Floats  # (n, D), as they are read back: what MaxSim goes over
    mean: Floats  # (D,), by which pages are found before that


class Restriction(NamedTuple):
    """The pages that a search may find."""

    ids: Sequence[str] | None = None  # one of these
    terms: Sequence[Sequence[int]] = ()  # with one term of each
    native: Any = None  # and as the engine's own filter says


class Engine(Protocol):
    """A place for one collection of pages, which need not be there yet.

    A header of some bytes lies beside the pages: it says what they are. All methods raise
    EngineError with the place and the remedy.
    """

    place: str  # what errors call it

    def exists(self) -> bool:
        """Whether there is a collection of that name."""

    def create(self, dim: int, settings: Mapping[str, Any]) -> None:
        """Make it, empty; the settings are the engine's own."""

    def dim(self) -> int:
        """The size of its vectors; an error if it is laid out in another way."""

    def read_header(self) -> bytes | None:
        """The header, if one was written."""

    def write_header(self, header: bytes) -> None:
        """Write the header."""

    def count(self) -> int:
        """How many pages there are, nearly."""

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and metadata of every page, in any order."""

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Of those of these pages that are stored, the digests."""

    def put(self, rows: Sequence[Row]) -> None:
        """Store pages; one whose id is there is replaced."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete pages; one that is not there is no error."""

    def optimize(self) -> None:
        """Make the engine's own indexes, after many changes."""

    def nearest(
        self, queries: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> list[list[Entry]]:
        """For each query the `count` best pages by MaxSim: out of the `prefetch` whose means are
        nearest to that of the query's vectors, or out of all."""

    def close(self) -> None:
        """Let go of files and connections."""


def require(package: str, least: str, extra: str) -> None:
    """Refuse to go on without a package of at least that version."""
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtraError(f"the engine {extra!r}", extra) from None
    if _numbers(found) < _numbers(least):
        raise EngineError(
            f"{package} {found} is too old: expected {least} or newer; "
            f'pip install --upgrade "glie[{extra}]"'
        )


def _numbers(version: str) -> list[int]:
    """The first two numbers of a version.

    >>> _numbers("1.20.0rc1")
    [1, 20]
    """
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


@contextmanager
def told_as(place: str) -> Iterator[None]:
    """Whatever an engine's library raises becomes one line that names the place."""
    try:
        yield
    except GlieError:
        raise
    except Exception as error:
        raise EngineError(f"{place}: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """What an error says, without what is for those who debug it."""
    said = str(error).strip().partition("\n")[0]
    return re.sub(SOURCE, "", said) or type(error).__name__


def in_steps(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows, as many at a time as make one request."""
    start = numbers = 0
    for at, row in enumerate(rows):
        if at > start and numbers + row.vectors.size > NUMBERS_PER_REQUEST:
            yield rows[start:at]
            start, numbers = at, 0
        numbers += row.vectors.size
    if rows:
        yield rows[start:]
