"""What an encoder is: two methods, and a name that an index remembers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from glie.errors import EncoderError

Floats = npt.NDArray[np.float32]
Span = tuple[int, int]
Box = tuple[float, float, float, float]


class Encoder(Protocol):
    """Anything with these can fill and ask an index.

    One that looks at pages instead of reading their text has an attribute `reads = "image"`.

    One that can say where its vectors come from, so that people can be shown why a page matched,
    has `spans(text)`: for each vector of a text the characters (start, end) that it stands for.
    One that looks at pages has `boxes(page)` besides: for each vector of a page its part of the
    picture, (left, top, right, bottom) as fractions from the top left. None stands for a vector of
    no place, such as an instruction's.
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


def reads(encoder: Encoder) -> Literal["text", "image"]:
    """What an encoder is to be given of a page: its text, unless it says otherwise."""
    found = getattr(encoder, "reads", "text")
    if found not in ("text", "image"):
        expected = "expected 'text' or 'image'"
        raise EncoderError(f"encoder {encoder.name!r} reads {found!r}; {expected}")
    return cast(Literal["text", "image"], found)
