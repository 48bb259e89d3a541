"""Shared by the poolers for other libraries: tensors in, the stored vectors of their codes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from glie.codec.codec import Codec
from glie.errors import InputError
from glie.pages import Pages, to_numpy

if TYPE_CHECKING:
    from torch import Tensor


def chosen(k: int | None, codec: Codec | None) -> Codec:
    """The codec for k vectors: training-free by default."""
    if codec is not None and not isinstance(codec, Codec):
        raise InputError(f"codec: expected a glie.Codec, found {type(codec).__name__}")
    if codec is None:
        return Codec(k)
    return codec if k is None else codec.at(k)


def pooled(embeddings: Sequence[Tensor], codec: Codec) -> list[Tensor]:
    """The vectors of each page's code, with the dtype and device of the page. Rows of zeros are
    padding; a page of only padding stays empty."""
    import torch

    pages = [to_numpy(page).astype(np.float32) for page in embeddings]
    pages = [rows[rows.any(axis=1)] for rows in pages]
    codes = codec.compress(Pages([rows for rows in pages if len(rows)], normalize=True))
    made = iter(zip(codes.vectors, codes.counts, strict=True))
    found = []
    for given, rows in zip(embeddings, pages, strict=True):
        if len(rows):
            vectors, counts = next(made)
            rows = vectors[counts > 0]
        found.append(torch.from_numpy(rows.copy()).to(device=given.device, dtype=given.dtype))
    return found
