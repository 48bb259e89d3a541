"""A page as a point of Qdrant: its id, its payload, and which of it is searched.

A point has the vectors CODES, k of them, which MaxSim goes over, and MEAN, by which it is found
before that. Pages are named by UUIDs; the points 0, 1, ... without vectors are the header's parts.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from glie.engines.base import Entry, Restriction
from glie.errors import EngineError

CODES, MEAN = "codes", "page"
TERMS = "terms"
PAYLOAD = ("id", "code", "norms", "counts", "evidence", "metadata", "digest")  # that is read back
HEADER, PARTS = "header", "parts"
HEADER_BYTES = 4 << 20  # of a part: a request may have 32 MB
_PAGES = uuid.uuid5(uuid.NAMESPACE_URL, "glie:page")


def point_id(page_id: str) -> str:
    """Qdrant takes UUIDs, and this one stands for the page."""
    return str(uuid.uuid5(_PAGES, page_id))


def payload_of(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "code": base64.b64encode(entry.code).decode(),
        "norms": entry.norms,
        "counts": entry.counts,
        "evidence": base64.b64encode(entry.residual).decode(),
        "metadata": entry.metadata,
        TERMS: entry.terms,
        "digest": entry.digest,
    }


def entry_of(payload: Mapping[str, Any] | None, place: str) -> Entry:
    """The entry of a payload that was read with the keys of PAYLOAD."""
    try:
        found = dict(payload or {})
        return Entry(
            found["id"],
            base64.b64decode(found["code"], validate=True),
            [float(norm) for norm in found["norms"]],
            [int(count) for count in found["counts"]],
            base64.b64decode(found["evidence"], validate=True),
            dict(found["metadata"]),
            [],
            found["digest"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(
            f"{place}: a point in it is not a page of glie ({type(error).__name__}: {error}); "
            "delete it, or export the index to another name"
        ) from None


def header_parts(header: bytes) -> list[dict[str, Any]]:
    """The payloads of the points 0, 1, ... that hold a header."""
    parts = [header[at : at + HEADER_BYTES] for at in range(0, len(header), HEADER_BYTES)]
    return [{HEADER: base64.b64encode(part).decode(), PARTS: len(parts)} for part in parts]


def header_of(payloads: Sequence[Mapping[str, Any] | None], place: str) -> bytes:
    """The header that those payloads hold."""
    try:
        whole = b"".join(base64.b64decode((found or {})[HEADER]) for found in payloads)
        if len(payloads) != (payloads[0] or {})[PARTS]:
            raise ValueError("a part is missing")
        return whole
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{place}: not made by glie ({error}); choose another name") from None


def asked_ids(among: Restriction) -> list[str] | None:
    """The points that a search is restricted to."""
    return None if among.ids is None else [point_id(page_id) for page_id in among.ids]
