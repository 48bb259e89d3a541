"""Adding pages to an index: check them, adapt the codec to the first, compress, write segments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.candidates.build import candidates_pay
from glie.codec.codec import Codec
from glie.errors import IdError, InputError, VectorError
from glie.identity import EncoderId
from glie.index.segment import StoredCodes
from glie.index.writer import (
    PAGES_PER_STEP,
    SegmentWriter,
    checked_images,
    checked_texts,
    record_lines,
)
from glie.lexical.postings import Postings, Selected
from glie.lexical.terms import Analyzer
from glie.pages import Pages
from glie.storage import long_digest

FIRST_PAGES = 500  # held in memory, for a codec to adapt to
# Postings take about so many bytes for each different term of a page, and for each term that is new
# in the index: within a tenth on five sets. A page has fewer new terms the more there are.
BYTES_A_POSTING = 0.9
BYTES_A_NEW_TERM = 3.5
USUAL_PAGES = 1000
FEWER_NEW_TERMS = 0.35
MOST_IDS = 1 << 16  # that an addition holds as strings; 16 bytes are kept of each before them


class Batch(NamedTuple):
    """Some of the pages of a long addition, with their metadata, images and texts."""

    pages: Pages
    metadata: Sequence[Mapping[str, Any]] | None = None
    images: Sequence[bytes | None] | None = None
    texts: Sequence[str | None] | None = None


def batches_of(
    pages: Pages | Iterable[Batch],
    metadata: Sequence[Mapping[str, Any]] | None,
    images: Sequence[bytes | None] | None,
    texts: Sequence[str | None] | None,
) -> Iterable[Batch]:
    """The arguments of `Index.add` as batches."""
    if isinstance(pages, Pages):
        return [Batch(pages, metadata, images, texts)]
    if (metadata, images, texts) != (None, None, None):
        raise InputError(
            "metadata, images, texts: with an iterable of batches, put them in the Batch"
        )
    if not isinstance(pages, Iterable):
        raise _neither(pages)
    return pages


def adapt(
    codec: Codec,
    pages: Pages | Iterable[Batch],
    batches: Iterable[Batch],
    analyzer: Analyzer,
    encoder: EncoderId | None,
    *,
    expected_pages: int | None = None,
) -> tuple[Codec, Iterable[Batch]]:
    """The codec adapted to the first pages of an addition, and all batches."""
    known = expected_pages or 0
    if isinstance(pages, Pages):
        known = max(known, len(pages))
        batches, more = list(batches), False
        held, first = batches, [pages]
    else:
        batches, held, first, more = first_pages(batches)
    if any(len(some) for some in first):
        texts = [text for batch in held for text in _texts(batch)[:FIRST_PAGES]]
        codec = codec.beside_text(_text_bytes(texts[:FIRST_PAGES], analyzer))
        codec = codec.for_pages(first, more=more, encoder=encoder)
        if candidates_pay(known):
            codec = codec.beside_candidates()
    return codec, batches


def _texts(batch: Batch) -> list[str | None]:
    """The text of each page; none of what `add_batches` refuses."""
    return checked_texts(batch.pages.ids, batch.texts) if isinstance(batch, Batch) else []


def _text_bytes(texts: Sequence[str | None], analyzer: Analyzer) -> int:
    """About how many bytes a page the postings of pages such as these take."""
    if not any(texts):
        return 0
    found = [set(analyzer.terms(text)) for text in texts if text]
    pages = len(texts)
    fewer = float(min(1.0, pages / USUAL_PAGES) ** FEWER_NEW_TERMS)
    new = fewer * len(set().union(*found))
    total = BYTES_A_POSTING * sum(map(len, found)) + BYTES_A_NEW_TERM * new
    return math.ceil(total / pages)


def first_pages(
    batches: Iterable[Batch],
) -> tuple[Iterable[Batch], list[Batch], list[Pages], bool]:
    """All batches; those with the first FIRST_PAGES pages, these pages, and whether there are
    more."""
    source, held, first, room = iter(batches), list[Batch](), list[Pages](), FIRST_PAGES
    for batch in source:
        held.append(batch)
        if not isinstance(batch, Batch):
            break  # `add_batches` refuses it, and pages of another dimension
        if len(batch.pages) and (not first or batch.pages.dim == first[0].dim):
            first.append(batch.pages.slice(0, min(room, len(batch.pages))))
            room -= len(batch.pages)
        if room < 0:
            break
    return itertools.chain(held, source), held, first, room < 0


class Arrived:
    """The ids that an addition has brought so far. A string takes 100 bytes and more, so of all but
    the last ones only digests are kept, in sorted arrays."""

    def __init__(self) -> None:
        self._last = set[str]()
        self._digests: list[npt.NDArray[np.bytes_]] = []  # each much longer than the next

    def __bool__(self) -> bool:
        return bool(self._last or self._digests)

    def add(self, ids: Sequence[str]) -> str | None:
        """Take note of some ids. Returns the first that has arrived before."""
        for page_id in ids:
            if page_id in self._last:
                return page_id
            self._last.add(page_id)
        if self._digests:
            wanted = _digests(ids)
            before = np.zeros(len(ids), bool)
            for known in self._digests:
                places = np.searchsorted(known, wanted).clip(max=len(known) - 1)
                before |= known[places] == wanted
            if before.any():
                return ids[int(before.argmax())]
        if len(self._last) >= MOST_IDS:
            self._keep(np.sort(_digests(self._last)))
            self._last.clear()
        return None

    def _keep(self, digests: npt.NDArray[np.bytes_]) -> None:
        while self._digests and len(self._digests[-1]) <= 2 * len(digests):
            both = self._digests.pop(), digests
            digests = np.sort(np.concatenate(both), kind="stable")
        self._digests.append(digests)


def _digests(ids: Collection[str]) -> npt.NDArray[np.bytes_]:
    return np.array([long_digest(page_id.encode(errors="surrogatepass")) for page_id in ids], "S16")


def add_batches(
    batches: Iterable[Batch],
    codec: Codec,
    writer: SegmentWriter,
    taken: Container[str],
    leaving: Container[str],
    dim: int | None,
    analyzer: Analyzer,
) -> tuple[bool, int | None]:
    """Compress and write pages, and the postings of their texts. Returns whether there were any,
    and the D of the index then. `taken` are the ids in the index, of which those in `leaving` may
    be used again."""
    arrived = Arrived()
    for batch in batches:
        if not isinstance(batch, Batch):
            raise _neither(batch)
        new = batch.pages
        twice = arrived.add(new.ids)
        if twice is None:
            stay = (page_id for page_id in new.ids if page_id not in leaving)
            twice = next((page_id for page_id in stay if page_id in taken), None)
        if twice is not None:
            raise IdError(
                f"page {twice!r} is already in the index; delete it first, or pass "
                "replacing=[...] to replace it"
            )
        if len(new) and dim not in (None, new.dim):
            raise VectorError(
                f"pages: their vectors have {new.dim} numbers, those of the index have {dim}"
            )
        dim = new.dim if len(new) else dim
        lines = record_lines(new.ids, batch.metadata)
        images = checked_images(new.ids, batch.images)
        texts = checked_texts(new.ids, batch.texts)
        for at in range(0, len(new), PAGES_PER_STEP):
            end = min(at + PAGES_PER_STEP, len(new))
            some = new.slice(at, end)
            codes = codec.compress(some)
            words = Postings.of([analyzer.counted(text or "") for text in texts[at:end]])
            stored = StoredCodes.of(codes, some.lengths)
            writer.add(stored, lines[at:end], images[at:end], Selected.all(words))
    writer.flush()
    return bool(arrived), dim


def _neither(found: object) -> InputError:
    return InputError(f"add: expected Pages or Batches, found {type(found).__name__}")
