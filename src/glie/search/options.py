"""What a search is asked for, validated once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from glie.errors import InputError, VectorError
from glie.filters import And, Filter, distinct_ids, from_json
from glie.lexical.query import Query
from glie.pages import Queries

MODES = (HYBRID, LATE, LEXICAL) = ("hybrid", "late", "lexical")


class SearchKeywords(TypedDict, total=False):
    """The keyword arguments that every search takes, besides `top`."""

    shortlist: int | None
    ids: Iterable[str] | None
    where: Mapping[str, Any] | Filter | None
    normalize: bool
    exact: bool | None


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The options of a search. `Index.search` says what they mean."""

    top: int = 10
    shortlist: int | None = None  # None: the codec's default
    ids: Iterable[str] | None = None  # a list without repetitions, once validated
    where: Mapping[str, Any] | Filter | None = None
    normalize: bool = False
    exact: bool | None = None  # None: by the number of pages
    text: Sequence[str | Query] | None = None  # the words of each query
    mode: str | None = None  # one of search.hybrid's; None: hybrid if there is text, else late

    def __post_init__(self) -> None:
        check_number("top", self.top, 1)
        object.__setattr__(self, "top", int(self.top))  # numpy's small integers overflow
        if self.shortlist is not None:
            check_number("shortlist", self.shortlist, 0)
            object.__setattr__(self, "shortlist", int(self.shortlist))
        if self.exact not in (None, True, False):
            raise InputError(f"exact: expected None, True or False, found {self.exact!r}")
        check_mode(self.mode)
        if self.text is not None:
            object.__setattr__(self, "text", _checked_text(self.text))
        _ = self.filter
        if self.ids is not None:
            object.__setattr__(self, "ids", distinct_ids(self.ids))

    @functools.cached_property
    def filter(self) -> Filter | None:
        """What `where` means; None: every page."""
        found = And(()) if self.where is None else from_json(self.where)
        return None if found == And(()) else found


def _checked_text(text: Any) -> list[str | Query]:
    one = isinstance(text, (str, bytes)) or not isinstance(text, Iterable)
    texts = [] if one else list(text)
    if one or not all(isinstance(words, str | Query) for words in texts):
        raise InputError("text: expected a list with the words of each query")
    return texts


def check_mode(mode: object) -> None:
    """Refuse what is neither a mode nor None."""
    if mode not in (None, *MODES):
        raise InputError(f"mode: expected {', '.join(MODES[:-1])} or {MODES[-1]}, found {mode!r}")


def check_number(name: str, number: object, least: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    whole = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
    if not whole or number < least:  # type: ignore[operator]
        raise InputError(f"{name}: expected a whole number of at least {least}, found {number!r}")


def checked_queries(
    queries: Any,
    dim: int | None,
    place: object,
    *,
    normalize: bool = False,
    weighted: bool = False,
) -> Queries:
    """Queries for vectors of `dim` numbers, which are stored at `place`. `weighted`: their last
    dimension serves questions alone."""
    if dim is not None:  # first: vectors of another encoder may also have other norms
        for found in _dims(queries):
            _check_dim(found, dim, place)
    checked = Queries.of(queries, normalize=normalize)
    if len(checked) and dim is not None:
        _check_dim(checked.dim, dim, place)
    return checked.without_last() if weighted and len(checked) else checked


def _dims(queries: Any) -> list[int]:
    """The D of each (m, D) array that has a shape; Queries and lists of numbers have none."""
    arrays = queries if isinstance(queries, (list, tuple)) else [queries]
    shapes: list[tuple[int, ...]] = [getattr(array, "shape", ()) for array in arrays]
    return [shape[-1] for shape in shapes if len(shape) > 1 and shape[-1]]


def _check_dim(found: int, dim: int, place: object) -> None:
    if found != dim:
        raise VectorError(
            f"queries: their vectors have {found} numbers, those of {place} have {dim}; "
            "encode them with the encoder that made the index"
        )
