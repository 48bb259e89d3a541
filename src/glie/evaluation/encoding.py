"""Encode sets: pages and questions to vectors, shard by shard, into memory or a cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glie.documents import ocr_available, picture_text
from glie.encoders.base import Encoder, reads
from glie.errors import DatasetError, DocumentError, EncoderError, InputError
from glie.evaluation.cache import (
    FORMAT,
    VERSION,
    Entry,
    Journal,
    finish,
    is_finished,
    read_again,
    reasons_of,
    warnings_of,
    writing,
)
from glie.evaluation.datasets import UNREADABLE, Dataset
from glie.evaluation.encoded import Encoded, Half, check_set
from glie.identity import EncoderId
from glie.pages import Pages, Queries
from glie.progress import OnProgress, Progress, ignore

SHARD_PAGES = 64  # a killed run encodes at most so many again
SHARD_BYTES = 32 * 2**20  # of float32; a shard ends with the batch that exceeds it
TEXTS_PER_BATCH, IMAGES_PER_BATCH = 32, 8  # a decoded image takes 10 MB and more

NO_OCR = 'with no text but an image (pip install "glie[ocr]" to read it)'


def encode(
    dataset: Dataset | Encoded,
    encoder: Encoder | None,
    cache: str | os.PathLike[str] | None = None,
    progress: OnProgress = ignore,
) -> Encoded:
    """Encode a set; an encoded set is returned as it is.

    With a `cache` folder, vectors are written there and read from there the next time. Without,
    they stay in memory, rounded in the same way, so that a cache changes no result.
    """
    if isinstance(dataset, Encoded):
        if encoder is not None:
            check_set(dataset, encoder)
        return dataset
    if encoder is None:
        raise InputError(f"{dataset.name}: an encoder is needed; only cached vectors need none")
    if cache is None:
        memory = _Memory()
        queries = _encode_into(memory, dataset, encoder, progress)
        return _encoded(dataset, encoder, memory.entries, queries, memory.halves.__getitem__)
    key = _key(dataset, encoder)
    name = re.sub(r"[^\w.-]+", "_", dataset.name).strip(".")[:80]
    folder = Path(cache) / f"{name}-{key[:16]}"
    if not is_finished(folder):
        waiting = Progress(f"{dataset.name}: another process is encoding it")
        with writing(folder, lambda: progress(waiting)):
            if not is_finished(folder):
                journal = Journal(folder)
                queries = _encode_into(journal, dataset, encoder, progress)
                finish(journal, key, dataset, encoder, queries)
    return read_again(folder, key, dataset.warnings)


def _key(dataset: Dataset, encoder: Encoder) -> str:
    """A digest of everything that decides the vectors and how they are judged."""
    given = reads(encoder)
    by_ocr = given == "text" and not all(dataset.pages.values()) and ocr_available()
    digest = hashlib.sha256()
    head = FORMAT, VERSION, encoder.name, encoder.revision, given, by_ocr
    digests = ((page, picture.digest) for page, picture in dataset.images.items())
    parts = head, dataset.pages.items(), digests, dataset.queries.items(), dataset.relevant.items()
    for part in parts:
        for item in part:
            digest.update(json.dumps(item).encode() + b"\n")
        digest.update(b"\n")
    return digest.hexdigest()


class _Shard(NamedTuple):
    pages: Pages
    left_out: dict[str, list[str]]  # since the shard before, by reason
    next: int  # the first page of the set that is not encoded yet


def _shards(
    dataset: Dataset, encoder: Encoder, start: int, progress: OnProgress
) -> Iterator[_Shard]:
    """Encode the pages of a set from page `start` on, shard by shard.

    On an error or an interrupt, the pages encoded so far are yielded before the error is raised.
    """
    ids, what = list(dataset.pages), reads(encoder)
    batch_size = IMAGES_PER_BATCH if what == "image" else TEXTS_PER_BATCH
    names: list[str] = []
    arrays: list[Any] = []
    reasons: dict[str, list[str]] = {}
    for at in range(start, len(ids), batch_size):
        progress(Progress(f"pages of {dataset.name} encoded", at, len(ids)))
        batch = ids[at : at + batch_size]
        dropped: dict[str, list[str]] = {}
        try:
            given = {page: _given(dataset, page, what, dropped) for page in batch}
            given = {page: content for page, content in given.items() if content is not None}
            vectors = encoder.encode_pages(list(given.values())) if given else []
            made = Pages(vectors, list(given))
        except (Exception, KeyboardInterrupt):
            if arrays:
                yield _Shard(Pages(arrays, names), reasons, at)
            raise
        names += made.ids
        arrays += list(made)
        for reason, pages in dropped.items():
            reasons.setdefault(reason, []).extend(pages)
        size = sum(array.nbytes for array in arrays)
        if arrays and (len(arrays) + batch_size > SHARD_PAGES or size >= SHARD_BYTES):
            yield _Shard(Pages(arrays, names), reasons, at + len(batch))
            names, arrays, reasons = [], [], {}
    if arrays or reasons:
        yield _Shard(Pages(arrays, names), reasons, len(ids))


def _given(dataset: Dataset, page: str, what: str, dropped: dict[str, list[str]]) -> Any:
    """What an encoder reads of a page: its text (by OCR if it has only an image), or its image.

    If there is neither, None; the reason is added to `dropped`.
    """
    text, picture = dataset.pages[page], dataset.images.get(page)
    if what == "text" and text:
        return text
    why, shown = f"without {'an image' if what == 'image' else 'text'}", page
    if picture is not None and what == "text" and not ocr_available():
        why = NO_OCR
    elif picture is not None:
        try:
            image = picture.open()
            content = image if what == "image" else picture_text(image)
            if content:
                return content
            why = "without text that OCR can read"
        except DocumentError as error:
            why, shown = UNREADABLE, str(error)
    dropped.setdefault(why, []).append(shown)
    return None


class _Memory:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.halves: list[Half] = []

    def keep(self, entry: Entry, half: Half) -> None:
        if entry.pages:
            self.halves.append(half)
        self.entries.append(entry)


def _encode_into(
    store: _Memory | Journal, dataset: Dataset, encoder: Encoder, progress: OnProgress
) -> Queries:
    """Encode the pages that the store lacks, and all questions."""
    start = store.entries[-1].next if store.entries else 0
    for pages, dropped, following in _shards(dataset, encoder, start, progress):
        if len(pages):
            _check_dim(encoder, store.entries, pages.dim)
        lengths = [list(pair) for pair in zip(pages.ids, pages.lengths.tolist(), strict=True)]
        store.keep(Entry(lengths, pages.dim, dropped, following), Half.of(pages))
    progress(Progress(f"encoding the questions of {dataset.name}"))
    texts = list(dataset.queries.values())
    queries = Queries(encoder.encode_queries(texts) if texts else [], list(dataset.queries))
    if not any(entry.pages for entry in store.entries):
        warnings = (*dataset.warnings, *warnings_of(reasons_of(store.entries)))
        raise DatasetError(f"{dataset.name}: no page is left to encode; {'; '.join(warnings)}")
    if len(queries):
        _check_dim(encoder, store.entries, queries.dim)
    return queries


def _check_dim(encoder: Encoder, entries: Sequence[Entry], dim: int) -> None:
    before = next((entry.dim for entry in entries if entry.pages), dim)
    if dim != before:
        raise EncoderError(
            f"encoder {encoder.name!r}: its vectors have {before} and {dim} numbers; all must agree"
        )


def _encoded(
    dataset: Dataset,
    encoder: Encoder,
    entries: Sequence[Entry],
    queries: Queries,
    read_shard: Callable[[int], Half],
) -> Encoded:
    with_pages = [entry for entry in entries if entry.pages]
    return Encoded(
        dataset.name,
        EncoderId.of(encoder),
        [page for entry in with_pages for page, _ in entry.pages],
        np.array([length for entry in with_pages for _, length in entry.pages], dtype=np.int64),
        with_pages[0].dim,
        Queries.restored(*Half.of(queries), queries.ids),
        dataset.relevant,
        (*dataset.warnings, *warnings_of(reasons_of(entries))),
        tuple(len(entry.pages) for entry in with_pages),
        read_shard,
    )
