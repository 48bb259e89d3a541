"""glie as a token pooler for colpali-engine, which need not be installed.

pooler = GliePooler(k=16)
embeddings = pooler.pool_embeddings(model(**inputs), padding=True, padding_side="left")
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from glie.codec.codec import Codec
from glie.errors import InputError
from glie.integrations.pooling import chosen, pooled
from glie.pages import to_numpy

if TYPE_CHECKING:
    from torch import Tensor

Clusters = dict[int, tuple["Tensor"]]


@dataclasses.dataclass
class TokenPoolingOutput:
    """The result of `pool_embeddings` with `return_dict`: the pooled vectors and, for each page,
    the rows of each cluster."""

    pooled_embeddings: list[Tensor] | Tensor
    cluster_id_to_indices: list[Clusters] | None = None


class GliePooler:
    """k vectors a page: its normalised k-means centroids, or the code of a given codec. A page with
    fewer distinct vectors than k keeps all of them."""

    def __init__(self, k: int | None = None, *, codec: Codec | None = None) -> None:
        self.codec = chosen(k, codec)

    def pool_embeddings(
        self,
        embeddings: list[Tensor] | Tensor,
        return_dict: bool = False,
        padding: bool = False,
        padding_side: str = "left",
        num_workers: int | None = None,
        *,
        pool_factor: int | None = None,
    ) -> Any:
        """The pooled vectors of a list of (n, D) tensors, as a list, or of a (B, N, D) one, padded
        with zeros on `padding_side`. `padding=True` means that the latter is already padded on that
        side. `pool_factor` divides each page's number of vectors instead of fixing it to k.
        `num_workers` is ignored: pages are compressed in parallel anyway.
        """
        if padding_side not in ("left", "right"):
            raise InputError(f"padding_side: expected 'left' or 'right', found {padding_side!r}")
        pages = list(embeddings)
        if any(getattr(page, "ndim", None) != 2 for page in pages):
            raise InputError(
                "embeddings: expected a list of (n, D) tensors or a (B, N, D) tensor, found "
                f"{[tuple(getattr(page, 'shape', ())) for page in pages[:3]]}"
            )
        if padding and not isinstance(embeddings, list):
            pages = [_trimmed(page, padding_side) for page in pages]
        if pool_factor is None:
            made = pooled(pages, self.codec)
        else:
            ks = [max(len(page) // pool_factor, 1) for page in pages]
            made = [pooled([p], self.codec.at(k))[0] for p, k in zip(pages, ks, strict=True)]
        found: list[Tensor] | Tensor = made
        if not isinstance(embeddings, list):
            found = _padded(made, embeddings, padding_side)
        if not return_dict:
            return found
        members = [_members(page, codes) for page, codes in zip(pages, made, strict=True)]
        return TokenPoolingOutput(found, members)


def _trimmed(page: Tensor, side: str) -> Tensor:
    """A page without its padding."""
    real = np.flatnonzero(to_numpy(page).any(axis=1))
    if not len(real):
        return page[:0]
    return page[int(real[0]) :] if side == "left" else page[: int(real[-1]) + 1]


def _padded(pages: list[Tensor], like: Tensor, side: str) -> Tensor:
    longest = max((len(page) for page in pages), default=0)
    batch = like.new_zeros((len(pages), longest, like.shape[-1]))
    for row, page in enumerate(pages):
        rows = slice(longest - len(page), longest) if side == "left" else slice(len(page))
        batch[row, rows] = page
    return batch


def _members(page: Tensor, codes: Tensor) -> Clusters:
    """For each stored vector the rows of the page that are nearest to it."""
    import torch

    rows, vectors = to_numpy(page).astype(np.float32), to_numpy(codes).astype(np.float32)
    real = np.flatnonzero(rows.any(axis=1))
    nearest = (rows[real] @ vectors.T).argmax(axis=1) if len(real) else real
    return {slot: (torch.from_numpy(real[nearest == slot]),) for slot in range(len(vectors))}
