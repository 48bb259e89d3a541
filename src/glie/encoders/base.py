"""Encoder: a Protocol of two methods, and the identity that an index records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from glie.errors import EncoderError

Floats = npt.NDArray[np.float32]


class Encoder(Protocol):
    """Encodes pages and questions.

    An encoder of pictures has an attribute `reads = "image"`. Two optional methods serve the heat
    map: `spans(text)` returns start and end of every vector in a text, `patches(page)` the `Grid`
    of a picture.
    """

    @property
    def name(self) -> str:
        """The name that `load_encoder` loads it by."""

    @property
    def revision(self) -> str:
        """Changes when the vectors change."""

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        """One (n, D) array of unit vectors a page: a text, an image, or a glie.documents page."""

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        """One (m, D) array of unit vectors a question."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The patches of a picture that a page's vectors come from. `vectors[row, column]` is the
    position of a patch's vector among those of the page. Vectors of the prompt have no patch."""

    vectors: npt.NDArray[np.int64]  # (rows, columns)

    @property
    def rows(self) -> int:
        return int(self.vectors.shape[0])

    @property
    def columns(self) -> int:
        return int(self.vectors.shape[1])


def reads(encoder: Encoder) -> Literal["text", "image"]:
    """What an encoder reads of a page: its text (the default) or its picture."""
    found = getattr(encoder, "reads", "text")
    if found not in ("text", "image"):
        expected = "expected 'text' or 'image'"
        raise EncoderError(f"encoder {encoder.name!r} reads {found!r}; {expected}")
    return cast(Literal["text", "image"], found)
