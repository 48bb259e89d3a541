"""Engine: the Protocol that a vector database implements to store pages, and its values.

Pages are stored in one of two layouts. COMPACT: the code as bytes, and one small vector, the mean,
by which the engine finds candidates; glie scores their codes. MULTIVECTOR: the codes as vectors
too, which the engine scores by MaxSim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from glie.errors import EngineError, GlieError, InputError, MissingExtraError
from glie.filters import Compare, Exists, Filter, Prefix
from glie.pages import Floats, Queries

SOURCE = r",? ?(location: )?/\S+\.rs:\d+.*"  # a library's own source line
EXACT = 2**53  # engines compare numbers as float64, which holds all whole numbers below this
COMPACT, MULTIVECTOR = LAYOUTS = ("compact", "multivector")
NUMBERS_PER_REQUEST = 500_000  # in the vectors of one request: 11 MB of JSON


class Entry(NamedTuple):
    """The payload of a page: all that is stored besides the vectors that the engine searches."""

    id: str
    code: bytes  # its vectors, packed as in an index
    norms: list[float]
    counts: list[int]
    residual: bytes
    metadata: dict[str, Any]
    terms: list[int]  # a hash of each key and value of the metadata
    digest: str  # of all the other fields


class Candidates(NamedTuple):
    """Pages that an engine found by their means, with what glie scores them by."""

    ids: Sequence[str]
    codes: Sequence[bytes]  # Entry.code


class Row(NamedTuple):
    """A page to store."""

    entry: Entry
    vectors: Floats  # (n, D), unpacked: the engine's MaxSim runs over them
    mean: Floats  # (D,), normalised: candidates are found by it


class Restriction(NamedTuple):
    """A filter: the pages that a search may find."""

    ids: Sequence[str] | None = None  # only these pages
    where: Filter | None = None  # only pages whose metadata matches
    native: Any = None  # a filter of the engine itself


class Engine(Protocol):
    """A place for one collection of pages, which may not exist yet.

    A header is stored beside the pages: the codec, the dimension and the encoder. All methods raise
    EngineError, which names the place and the remedy.
    """

    place: str  # its name in errors

    def exists(self) -> bool:
        """Whether the collection exists."""

    def create(self, dim: int, layout: str, settings: Mapping[str, Any]) -> None:
        """Create the empty collection, with the engine's own `settings`."""

    def dim(self) -> int:
        """The dimension of its vectors; raises EngineError if they are not glie's."""

    def layout(self) -> str:
        """How its pages are stored: one of LAYOUTS."""

    def read_header(self) -> bytes | None:
        """The header, if one was written."""

    def write_header(self, header: bytes) -> None:
        """Write the header."""

    def count(self) -> int:
        """The number of pages, which may be approximate."""

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and metadata of every page, in any order."""

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """The digests of those of these pages that are stored, by id."""

    def put(self, rows: Sequence[Row], leaving: Sequence[str] = ()) -> None:
        """Store pages, replacing those with the same ids, and delete the pages `leaving`."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete pages; unknown ids are ignored."""

    def optimize(self) -> None:
        """Build the engine's own indexes, after many changes."""

    def candidates(self, means: Floats, count: int | None, among: Restriction) -> list[Candidates]:
        """For each row of `means` the `count` pages whose mean is nearest, or all if that is None;
        in the layout COMPACT."""

    def entries(self, ids: Sequence[str]) -> list[Entry]:
        """Those of these pages that are stored, in any order; in the layout COMPACT."""

    def nearest(
        self, queries: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> list[list[Entry]]:
        """For each query the `count` best pages by MaxSim: among the `prefetch` pages whose mean is
        nearest to the mean of the query's vectors, or among all if `prefetch` is None; in the
        layout MULTIVECTOR."""

    def close(self) -> None:
        """Close files and connections."""


def require(package: str, least: str, extra: str) -> None:
    """Raise unless a package is installed in at least version `least`."""
    import importlib.metadata  # takes longer than all of this room

    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtraError(f"the engine {extra!r}", extra) from None
    if older(found, least):
        raise EngineError(
            f"{package} {found} is too old: expected {least} or newer; "
            f'pip install --upgrade "glie[{extra}]"'
        )


def older(version: str, least: str) -> bool:
    """Whether the first two numbers of a version are below those of another.

    >>> older("1.9.3", "1.20"), older("1.20.0rc1", "1.20")
    (True, False)
    """
    found, expected = (re.findall(r"\d+", one)[:2] for one in (version, least))
    return list(map(int, found)) < list(map(int, expected))


def untranslated(place: str, where: Compare | Exists | Prefix, why: str) -> InputError:
    """The error for a filter that an engine cannot apply as an index does."""
    return InputError(
        f"where: {where.key!r} {where.operator} is not possible in {place}, which {why}; use its "
        "own `filter`, or search the index"
    )


def bound_of(where: Compare, place: str) -> float:
    """The number that a field is compared with; anything else is refused."""
    if isinstance(where.value, str):
        raise untranslated(place, where, "compares numbers only")
    if abs(where.value) >= EXACT:
        raise untranslated(place, where, "compares numbers below 2^53 only")
    return where.value


@contextmanager
def told_as(place: str) -> Iterator[None]:
    """Turn what an engine's library raises into one line that names the place."""
    try:
        yield
    except GlieError:
        raise
    except Exception as error:
        raise EngineError(f"{place}: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without source locations."""
    said = str(error).strip().partition("\n")[0]
    return re.sub(SOURCE, "", said) or type(error).__name__


def in_steps(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows in batches, one for each request."""
    start = numbers = 0
    for at, row in enumerate(rows):
        if at > start and numbers + row.vectors.size > NUMBERS_PER_REQUEST:
            yield rows[start:at]
            start, numbers = at, 0
        numbers += row.vectors.size
    if rows:
        yield rows[start:]
