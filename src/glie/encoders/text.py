"""Late interaction over text: one unit vector a token, from the hidden states of any text model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from glie.encoders.base import Floats
from glie.encoders.content import checked_texts, text_of
from glie.encoders.heads import PLAIN, Head
from glie.encoders.reduction import check_width
from glie.errors import EncoderError, InputError

WINDOW = 192  # tokens a window, with special ones; MiniLM was trained on short texts
OVERLAP = 32  # tokens that two windows share; each keeps the half nearer to its centre
TOKENS_PER_BATCH = 4096

Ints = npt.NDArray[np.int64]


class TextModel(Protocol):
    """A tokenizer and its network: what differs between frameworks."""

    revision: str  # a digest of the files that decide the hidden states
    before: list[int]  # special tokens before a text
    after: list[int]  # special tokens after a text
    pad: int
    positions: int  # the most tokens that the network accepts
    batch: int  # tokens in one call of `states`

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, without special tokens."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each token in the text."""

    def states(self, tokens: Ints, mask: Ints) -> Floats:
        """The last hidden states (B, T, H) of tokens (B, T); the mask is 0 at padding."""


class _Window(NamedTuple):
    item: int
    tokens: list[int]  # input of the model
    keep: slice  # the tokens whose vectors are taken from this window


class TextEncoder:
    """A model's last hidden states as late-interaction vectors, special tokens dropped.

    Text longer than a window is read in overlapping windows. `reduction` is a (H, D) matrix
    applied to the hidden states. `head` turns what follows into unit vectors; it may differ for
    pages and questions.
    """

    def __init__(
        self,
        model: TextModel,
        *,
        name: str,
        reduction: Floats | None = None,
        head: Head = PLAIN,
    ) -> None:
        self.name = name
        self.model = model
        self._reduction = reduction
        self._head = head
        self._body = min(WINDOW, model.positions) - len(model.before) - len(model.after)
        if self._body < 1:
            raise EncoderError(f"{name}: no room for text in the {model.positions} tokens it takes")
        width = self._forward(model.tokenize(["a"])).shape[-1]  # a broken model fails here
        if reduction is not None:
            check_width(reduction, width, name)

    def reduced(self, matrix: Floats, name: str) -> TextEncoder:
        """The same encoder, its vectors reduced by an (H, D) matrix."""
        return TextEncoder(self.model, name=name, reduction=matrix, head=self._head)

    @property
    def revision(self) -> str:
        """A digest of everything that decides the vectors."""
        if self._reduction is None:
            return self.model.revision[:16]
        both = self.model.revision.encode() + self._reduction.tobytes()
        return hashlib.sha256(both).hexdigest()[:16]

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        """One array a page: a text, an image (read by OCR), or a glie.documents page."""
        texts = [text_of(page, i) for i, page in enumerate(pages)]
        return self._encode(texts, "page", self._head.pages)

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        """One array a question."""
        return self._encode(texts, "query", self._head.queries)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end in the text of each vector of a page or a question."""
        return self.model.spans(text)

    def _encode(
        self, given: Sequence[str], kind: str, head: Callable[[Floats], Floats]
    ) -> list[Floats]:
        texts = checked_texts(given, kind)
        tokens = self.model.tokenize(texts) if texts else []
        for i, ids in enumerate(tokens):
            if not ids:
                raise InputError(f"{kind} {i}: no token is left of {texts[i]!r:.40}")
        windows = [w for item, ids in enumerate(tokens) for w in self._windows(item, ids)]
        parts: list[Floats | None] = [None] * len(windows)
        for batch in _batches(windows, self.model.batch):
            states = self._forward([windows[i].tokens for i in batch])
            for row, i in enumerate(batch):
                kept = states[row, len(self.model.before) :][windows[i].keep]
                parts[i] = head(kept if self._reduction is None else kept @ self._reduction)
        grouped: list[list[Floats]] = [[] for _ in texts]
        for window, part in zip(windows, parts, strict=True):
            assert part is not None
            grouped[window.item].append(part)
        return [np.concatenate(group) for group in grouped]

    def _windows(self, item: int, ids: list[int]) -> Iterator[_Window]:
        overlap = min(OVERLAP, self._body // 4)
        start = 0
        while True:
            end = min(start + self._body, len(ids))
            first = 0 if start == 0 else overlap // 2
            last = end - start if end == len(ids) else end - start - (overlap - overlap // 2)
            yield _Window(item, ids[start:end], slice(first, last))
            if end == len(ids):
                return
            start = end - overlap

    def _forward(self, rows: list[list[int]]) -> Floats:
        framed = [[*self.model.before, *row, *self.model.after] for row in rows]
        width = max(map(len, framed))
        tokens = np.full((len(framed), width), self.model.pad, dtype=np.int64)
        mask = np.zeros((len(framed), width), dtype=np.int64)
        for i, row in enumerate(framed):
            tokens[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return self.model.states(tokens, mask)


def framing(tokens: Sequence[int], special: Sequence[int]) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text, of one whose special tokens are marked 1.

    >>> framing([101, 7, 8, 102], [1, 0, 0, 1])
    ([101], [102])
    """
    if 0 not in special:
        raise EncoderError("its tokenizer makes no token of a letter")
    first, last = list(special).index(0), len(special) - list(special)[::-1].index(0)
    return list(tokens[:first]), list(tokens[last:])


def _batches(windows: list[_Window], tokens: int) -> Iterator[list[int]]:
    """Batches of windows of similar length, to save padding; the longest first."""
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i].tokens))
    at = 0
    while at < len(order):
        size = max(1, tokens // len(windows[order[at]].tokens))
        yield order[at : at + size]
        at += size
