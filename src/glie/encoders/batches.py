"""BatchEncoder: an encoder from any model that returns a batch of vectors and a mask.

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
    """An encoder made of two functions that each take a list of at most `batch` items.

    `pages` gets Pillow images, or strings with `reads="text"`; `queries` gets strings. Both return
    a tuple of (B, N, D) vectors and a (B, N) mask that is 0 at padding; or a list of (n, D) arrays;
    or (B, N, D) vectors whose padding is zero. numpy or torch; vectors are normalised here. An
    index records `name` and `revision`: change the revision when the weights change.
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
        """The same encoder, its vectors reduced by a (D, d) matrix."""
        made = copy.copy(self)
        made.name, made._reduction = name, matrix
        return made

    @property
    def revision(self) -> str:
        """The given revision and, if reduced, a digest of the matrix."""
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
        """The patch of the picture that each vector comes from; None if that is not known."""
        return None if self._patches is None else self._patches(picture_of(page, 0))

    def _in_batches(
        self, items: list[Any], run: Callable[[list[Any]], Any], size: int, kind: str
    ) -> tuple[list[Floats], int]:
        """The vectors of all items, and the batch size that fits into memory."""
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
            if given is None:  # here the error no longer keeps its tensors alive
                size = (len(some) + 1) // 2
                _free()
                continue
            made = unpadded(given, len(some), f"encoder {self.name!r}")
            found += [self._normalised(rows) for rows in made]
        return found, size

    def _normalised(self, rows: Floats) -> Floats:
        if self._reduction is not None:
            check_width(self._reduction, rows.shape[1], self.name)
            rows = rows @ self._reduction
        norms = np.linalg.norm(rows, axis=-1, keepdims=True)
        return np.asarray(rows / np.maximum(norms, 1e-12), dtype=np.float32)


def unpadded(given: Any, count: int, place: str) -> list[Floats]:
    """Remove the padding: one array for each item. `given` is any of the forms that `BatchEncoder`
    accepts. Errors name `place`."""
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
    """Whether a smaller batch may help; each device raises its own error."""
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()


def _free() -> None:
    """Free what a batch that did not fit left in the device's memory."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):  # no such device: nothing to free
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
