"""Codes to entries of a database, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glie.codec.codec import Codec
from glie.codec.codes import Blobs, Codes
from glie.engines.base import Entry, Row
from glie.errors import EngineError, InputError
from glie.filters import AnyOf, canonical
from glie.index.writer import record_lines
from glie.kernels.quantize import Packed, row_bytes
from glie.pages import Floats
from glie.storage import checksum, digest_of

WHOLE = 2**63  # whole numbers of metadata must fit in 64 bits: all that engines store


def rows_of(codes: Codes, metadata: Sequence[Mapping[str, Any]] | None) -> list[Row]:
    """Codes and metadata as rows to store."""
    lines = record_lines(codes.ids, metadata)
    entries = metadata or [{}] * len(codes)
    stored, rows = codes.stored, []
    vectors = stored.vectors()
    for page, (page_id, line) in enumerate(zip(codes.ids, lines, strict=True)):
        used = int(np.count_nonzero(codes.counts[page]))
        norms, counts = codes.norms[page, :used], codes.counts[page, :used]
        code = stored.rows[page, :used].tobytes()
        residual = b"" if codes.residual is None else codes.residual[page].tobytes()
        kept = dict(entries[page])
        _check_numbers(kept, page_id)
        parts = line, code, norms.tobytes(), counts.tobytes(), residual
        digest = digest_of((len(part).to_bytes(4) + part for part in parts), bits=128)
        entry = Entry(
            page_id, code, norms.tolist(), counts.tolist(), residual, kept, terms_of(kept), digest
        )
        mine = vectors[page, :used]
        rows.append(Row(entry, mine, _direction(mine)))
    return rows


def codes_of(entries: Sequence[Entry], codec: Codec, dim: int, place: str) -> Codes:
    """The codes of entries. Their ids are the entries' digests, so that cached pages stay valid if
    a page is replaced."""
    width = row_bytes(dim, codec.dtype)
    packed = np.zeros((len(entries), codec.k, width), np.uint8)
    norms = np.zeros((len(entries), codec.k), np.float16)
    counts = np.zeros((len(entries), codec.k), np.uint16)
    for page, entry in enumerate(entries):
        used = len(entry.counts)
        sizes = len(entry.norms), len(entry.code)
        if not 1 <= used <= codec.k or sizes != (used, used * width):
            raise EngineError(
                f"{place}: what is stored of page {entry.id!r} is not a code of its codec; export "
                "the page again"
            )
        packed[page, :used] = np.frombuffer(entry.code, np.uint8).reshape(used, width)
        norms[page, :used], counts[page, :used] = entry.norms, entry.counts
    residual = None
    if codec.keeps_residual:
        residual = Blobs.of([entry.residual for entry in entries])
    ids = [entry.digest for entry in entries]
    return Codes.read(Packed(packed, codec.dtype, dim), norms, counts, ids, residual)


def packed_sizes(entry: Entry) -> bytes:
    """All but the vectors of a page's code: the number of its clusters, their counts and norms in
    two bytes each, and the residual."""
    counts = np.array([len(entry.counts), *entry.counts], "<u2")
    return counts.tobytes() + np.array(entry.norms, "<f2").tobytes() + entry.residual


def unpacked_sizes(packed: bytes) -> tuple[list[float], list[int], bytes]:
    """The norms, counts and residual that `packed_sizes` packed; ValueError if it did not."""
    used = int.from_bytes(packed[:2], "little")
    end = 2 + 4 * used
    if len(packed) < end:
        raise ValueError(f"expected at least {end} bytes, found {len(packed)}")
    counts = np.frombuffer(packed, "<u2", used, 2)
    norms = np.frombuffer(packed, "<f2", used, 2 + 2 * used)
    return norms.tolist(), counts.tolist(), packed[end:]


def terms_of(metadata: Mapping[str, Any]) -> list[int]:
    """A hash of each key with its value. Engines filter by these hashes, so that a filter means the
    same in all of them, for any JSON value."""
    return [_term(key, canonical(value)) for key, value in metadata.items()]


def terms_for(where: AnyOf) -> list[int]:
    """The terms of a filter: a page that matches has one of them."""
    return [_term(where.key, value) for value in sorted(where.values)]


def _term(key: str, value: str) -> int:
    """63 bits of a checksum: a whole number that every engine can store."""
    return checksum(f"{canonical(key)}:{value}".encode()) >> 1


def _direction(vectors: Floats) -> Floats:
    """The normalised mean of a page's vectors, or the first vector if they cancel out."""
    mean: Floats = vectors.mean(axis=0)
    length = np.linalg.norm(mean)
    return mean / length if length > 1e-6 else vectors[0]


def _check_numbers(value: Any, page_id: str) -> None:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            _check_numbers(item, page_id)
    elif isinstance(value, int) and not -WHOLE <= value < WHOLE:
        raise InputError(
            f"metadata of page {page_id!r}: {value} does not fit in the 64 bits that an engine "
            "keeps; store it as text"
        )
