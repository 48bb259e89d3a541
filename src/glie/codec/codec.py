"""Codec: pages in, codes out."""

from __future__ import annotations

from glie.codec.anchors import anchor, cluster
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.errors import InputError
from glie.pages import Pages


class Codec:
    """The training-free codec: k normalised k-means centroids a page.

    >>> Codec(k=4).k
    4
    """

    def __init__(self, k: int | None = None, *, config: CodecConfig | None = None) -> None:
        if config is None:
            config = CodecConfig() if k is None else CodecConfig(k=k)
        elif k is not None and k != config.k:
            raise TypeError(f"k={k} contradicts config.k={config.k}: give one of them")
        self.config = config

    @property
    def k(self) -> int:
        """How many vectors a page keeps."""
        return self.config.k

    def compress(self, pages: Pages) -> Codes:
        """The code of every page. A page gives the same code alone and in any batch."""
        if not isinstance(pages, Pages):
            raise InputError(f"compress: expected glie.Pages, found {type(pages).__name__}")
        return anchor(pages, cluster(pages, self.config))

    def __repr__(self) -> str:
        return f"Codec(k={self.k})"
