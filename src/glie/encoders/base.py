"""What an encoder is: two methods, and a name that an index remembers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from glie.errors import EncoderError

Floats = npt.NDArray[np.float32]


class Encoder(Protocol):
    """Anything with these can fill and ask an index.

    One that looks at pages instead of reading their text has an attribute `reads = "image"`. Two
    methods more are for showing why a page was found, where an encoder can tell: `spans(text)`,
    the begin and end of every vector in a text, and `patches(page)`, the `Grid` of a picture.
    """

    @property
    def name(self) -> str:
        """What `load_encoder` takes to make it again."""

    @property
    def revision(self) -> str:
        """Changes whenever the vectors would."""

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        """One (n, D) array of unit rows a page: of a text, an image, or a glie.documents page."""

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        """One (m, D) array of unit rows a question."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The parts of a picture that a page's vectors come from: so many rows and columns of patches.
    `vectors[row, column]` is the place of a patch's vector among those of the page; vectors of the
    prompt around the picture have no patch."""

    vectors: npt.NDArray[np.int64]  # (rows, columns)

    @property
    def rows(self) -> int:
        return int(self.vectors.shape[0])

    @property
    def columns(self) -> int:
        return int(self.vectors.shape[1])


def reads(encoder: Encoder) -> Literal["text", "image"]:
    """What an encoder is to be given of a page: its text, unless it says otherwise."""
    found = getattr(encoder, "reads", "text")
    if found not in ("text", "image"):
        expected = "expected 'text' or 'image'"
        raise EncoderError(f"encoder {encoder.name!r} reads {found!r}; {expected}")
    return cast(Literal["text", "image"], found)
