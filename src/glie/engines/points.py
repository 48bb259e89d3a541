"""A page as a point of Qdrant: its id, its vectors and its payload.

A point has the vector MEAN, by which candidates are found, and in the layout MULTIVECTOR the k
vectors CODES, which MaxSim scores. Ids of pages are UUIDs; the points 0, 1, ... without vectors
hold the parts of the header.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from glie.engines.base import COMPACT, Candidates, Entry, Restriction, Row, bound_of, untranslated
from glie.engines.entries import packed_sizes, terms_for, unpacked_sizes
from glie.errors import EngineError
from glie.filters import And, AnyOf, Compare, Exists, Filter, Not, Or, Prefix, canonical

CODES, MEAN = "codes", "page"
TERMS = "terms"
READ = ("id", "code", "metadata", "digest")  # of the payload, besides those of its layout:
PAYLOAD = (*READ, "norms", "counts", "evidence")
COMPACT_PAYLOAD = (*READ, "rest")
HEADER, PARTS = "header", "parts"
HEADER_BYTES = 4 << 20  # a part; a request may have 32 MB
RANGES = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_PAGES = uuid.uuid5(uuid.NAMESPACE_URL, "glie:page")


def point_id(page_id: str) -> str:
    """The id of a page's point: Qdrant accepts UUIDs only."""
    return str(uuid.uuid5(_PAGES, page_id))


def vectors_of(row: Row, layout: str) -> dict[str, Any]:
    """The vectors of a page's point."""
    mean = {MEAN: row.mean.tolist()}
    return mean if layout == COMPACT else {CODES: row.vectors.tolist(), **mean}


def payload_of(entry: Entry, layout: str) -> dict[str, Any]:
    if layout == COMPACT:
        sizes: dict[str, Any] = {"rest": _text(packed_sizes(entry))}
    else:
        sizes = {"norms": entry.norms, "counts": entry.counts, "evidence": _text(entry.residual)}
    return {
        "id": entry.id,
        "code": _text(entry.code),
        **sizes,
        "metadata": entry.metadata,
        TERMS: entry.terms,
        "digest": entry.digest,
    }


def entry_of(payload: Mapping[str, Any] | None, place: str) -> Entry:
    """The entry of a payload with the keys of PAYLOAD or COMPACT_PAYLOAD."""
    with _a_page(place):
        found = dict(payload or {})
        if "rest" in found:
            norms, counts, residual = unpacked_sizes(_bytes(found["rest"]))
        else:
            norms, counts = list(map(float, found["norms"])), list(map(int, found["counts"]))
            residual = _bytes(found["evidence"])
        code, metadata = _bytes(found["code"]), dict(found["metadata"])
        return Entry(found["id"], code, norms, counts, residual, metadata, [], found["digest"])


def candidates_of(payloads: Iterable[Mapping[str, Any] | None], place: str) -> Candidates:
    """The ids and codes in payloads."""
    with _a_page(place):
        found = [payload or {} for payload in payloads]
        ids = [payload["id"] for payload in found]
        return Candidates(ids, [_bytes(payload["code"]) for payload in found])


@contextmanager
def _a_page(place: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(
            f"{place}: a point in it is not a page of glie ({type(error).__name__}: {error}); "
            "delete it, or export the index to another name"
        ) from None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def header_parts(header: bytes) -> list[dict[str, Any]]:
    """The payloads of the points 0, 1, ... that hold a header."""
    parts = [header[at : at + HEADER_BYTES] for at in range(0, len(header), HEADER_BYTES)]
    return [{HEADER: _text(part), PARTS: len(parts)} for part in parts]


def header_of(payloads: Sequence[Mapping[str, Any] | None], place: str) -> bytes:
    """The header from the payloads of its points."""
    try:
        whole = b"".join(base64.b64decode((found or {})[HEADER]) for found in payloads)
        if len(payloads) != (payloads[0] or {})[PARTS]:
            raise ValueError("a part is missing")
        return whole
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{place}: not made by glie ({error}); choose another name") from None


class Conditions(NamedTuple):
    """How a library writes conditions: qdrant_client.models, or qdrant_edge. Those of their classes
    that differ are given one by one."""

    models: Any
    range: Callable[..., Any]
    has_id: Callable[[list[str]], Any]  # the point has one of these ids
    is_empty: Callable[[str], Any]  # the payload has no value there
    place: str  # its name in errors

    def restriction(self, among: Restriction) -> Any:
        """A Filter; None: all points."""
        must = []
        if among.ids is not None:
            must.append(self.has_id([point_id(page_id) for page_id in among.ids]))
        if among.where is not None:
            must.append(self._of(among.where))
        if among.native is not None:
            must.append(among.native)
        return self.models.Filter(must=must) if must else None

    def _of(self, where: Filter) -> Any:
        models = self.models
        match where:
            # Qdrant ignores empty lists of conditions
            case And(parts=()):
                return models.Filter(must_not=[self.has_id([])])
            case Or(parts=()):
                return self.has_id([])
            case And(parts):
                return models.Filter(must=[self._of(part) for part in parts])
            case Or(parts):
                return models.Filter(should=[self._of(part) for part in parts])
            case Not(part):
                return models.Filter(must_not=[self._of(part)])
            case AnyOf():
                match = models.MatchAny(any=terms_for(where))
                return models.FieldCondition(key=TERMS, match=match)
            case Compare():
                bounds = {RANGES[where.operator]: bound_of(where, self.place)}
                field, bound = self._path(where), self.range(**bounds)
                # for a list, Qdrant asks whether some item is in the range; an index never finds it
                return models.Filter(
                    must=[models.FieldCondition(key=field, range=bound)],
                    must_not=[models.FieldCondition(key=f"{field}[]", range=bound)],
                )
            case Exists(key):
                # to Qdrant, null and an empty list are no values
                some = models.Filter(must_not=[self.is_empty(self._path(where))])
                nothing = AnyOf(key, frozenset(map(canonical, (None, []))))
                return models.Filter(should=[some, self._of(nothing)])
            case Prefix():
                raise untranslated(self.place, where, "knows no prefixes")
        raise TypeError(f"a filter of an unknown kind: {where!r}")

    def _path(self, where: Compare | Exists) -> str:
        """The place of a field in the payload."""
        if set(where.key) & set('"\\'):
            raise untranslated(self.place, where, "takes no names with quotes or backslashes")
        return f'metadata."{where.key}"'
