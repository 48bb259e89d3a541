"""Any model that gives a batch of vectors and a mask, as an encoder.

def pages(images):  # a list of Pillow images
    inputs = processor.process_images(images).to(model.device)
    return model(**inputs), inputs["attention_mask"]

encoder = BatchEncoder("my/colqwen", pages, queries, revision="1")
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from glie.encoders.base import Floats, Grid
from glie.encoders.content import checked_texts, picture_of, text_of
from glie.encoders.reduction import check_width
from glie.errors import EncoderError
from glie.pages import to_numpy

QUERIES_PER_BATCH = 32


class BatchEncoder:
    """An encoder made of two functions, each of which takes a list of at most `batch` contents.

    `pages` gets Pillow images or, where it `reads` texts, strings; `queries` gets strings. They
    give (B, N, D) vectors and the (B, N) mask of those that are no padding, as a tuple; or a list
    of (n, D) arrays; or (B, N, D) vectors alone, where padding is zero. numpy or torch, of any
    length: they are put on the unit sphere here. An index remembers `name` and `revision`:
    change the latter when the weights change.
    """

    def __init__(
        self,
        name: str,
        pages: Callable[[list[Any]], Any],
        queries: Callable[[list[str]], Any],
        *,
        revision: str = "1",
        reads: Literal["text", "image"] = "image",
        batch: int = 8,
        patches: Callable[[Any], Grid | None] | None = None,
    ) -> None:
        self.name = name
        self.reads = reads
        self._pages, self._queries, self._patches = pages, queries, patches
        self._revision = revision
        self._batch = batch
        self._reduction: Floats | None = None

    def reduced(self, matrix: Floats, name: str) -> BatchEncoder:
        """The same, with vectors that a (D, d) matrix takes to fewer dimensions."""
        made = copy.copy(self)
        made.name, made._reduction = name, matrix
        return made

    @property
    def revision(self) -> str:
        """As it was given, and a digest of the matrix."""
        if self._reduction is None:
            return self._revision
        return f"{self._revision}+{hashlib.sha256(self._reduction.tobytes()).hexdigest()[:16]}"

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        """One array a page: an image or the path of one, a text, or a glie.documents page."""

        def run(some: list[tuple[int, Any]]) -> Any:
            if self.reads == "image":
                return self._pages([picture_of(page, i) for i, page in some])
            return self._pages(checked_texts([text_of(page, i) for i, page in some], "page"))

        vectors, self._batch = self._in_batches(list(enumerate(pages)), run, self._batch, "page")
        return vectors

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        """One array a question."""
        asked = checked_texts(texts, "query")
        return self._in_batches(asked, self._queries, QUERIES_PER_BATCH, "query")[0]

    def patches(self, page: Any) -> Grid | None:
        """Which patch of the page's picture each vector comes from; None where it cannot tell."""
        return None if self._patches is None else self._patches(picture_of(page, 0))

    def _in_batches(
        self, items: list[Any], run: Callable[[list[Any]], Any], size: int, kind: str
    ) -> tuple[list[Floats], int]:
        """The vectors of all items, and the size of batch that fits into memory."""
        found: list[Floats] = []
        while len(found) < len(items):
            some = items[len(found) : len(found) + size]
            try:
                given = run(some)
            except Exception as error:
                if not _out_of_memory(error):
                    raise
                if size == 1:
                    raise EncoderError(
                        f"encoder {self.name!r}: out of memory on a single {kind}; use a smaller "
                        "model or another device"
                    ) from None
                given = None
            if given is None:  # here, where the error no longer holds on to its tensors
                size = (len(some) + 1) // 2
                _free()
                continue
            made = unpadded(given, len(some), f"encoder {self.name!r}")
            found += [self._on_sphere(rows) for rows in made]
        return found, size

    def _on_sphere(self, rows: Floats) -> Floats:
        if self._reduction is not None:
            check_width(self._reduction, rows.shape[1], self.name)
            rows = rows @ self._reduction
        norms = np.linalg.norm(rows, axis=-1, keepdims=True)
        return np.asarray(rows / np.maximum(norms, 1e-12), dtype=np.float32)


def unpadded(given: Any, count: int, place: str) -> list[Floats]:
    """The vectors of each item, of what a `BatchEncoder` gets: a tuple of vectors and mask, a list
    of arrays, or vectors whose padding is zero. `place` is what an error names."""
    vectors, mask = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    expected = "expected (B, N, D) vectors and a (B, N) mask, or a list of (n, D) arrays"
    if isinstance(vectors, list):
        rows = [to_numpy(array).astype(np.float32) for array in vectors]
    else:
        padded = to_numpy(vectors).astype(np.float32)
        if padded.ndim != 3:
            raise EncoderError(f"{place}: it gave an array of shape {padded.shape}; {expected}")
        keep = np.asarray(padded.any(axis=2) if mask is None else to_numpy(mask), dtype=bool)
        if keep.shape != padded.shape[:2]:
            raise EncoderError(
                f"{place}: it gave vectors of {padded.shape} and a mask of {keep.shape}; {expected}"
            )
        rows = [page[kept] for page, kept in zip(padded, keep, strict=True)]
    if len(rows) != count:
        raise EncoderError(f"{place}: it gave vectors of {len(rows)} for {count}; {expected}")
    for array in rows:
        if array.ndim != 2 or not array.size:
            raise EncoderError(f"{place}: it gave an array of shape {array.shape}; {expected}")
    return rows


def _out_of_memory(error: Exception) -> bool:
    """Whether a smaller batch may help: each device has its own words for it."""
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()


def _free() -> None:
    """Give back what a batch that did not fit has left in the device's memory."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):  # without such a device there is nothing to free
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
