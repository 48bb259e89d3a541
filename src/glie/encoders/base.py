"""What an encoder is: two methods, and a name that an index remembers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Encoder(Protocol):
    """Anything with these can fill and ask an index."""

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
