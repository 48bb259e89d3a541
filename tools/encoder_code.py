"""What an index keeps of a page, in torch: a loss of tools/train_encoder.py looks through it.

A page's vectors are merged into fewer ones, means of clusters. Each of these is written as half an
anchor, one of a few means of its page, and a codeword, one of some thousands that all pages share
(`glie.codec.readout.residual`). Gradients pass as if nothing had been rounded (straight through).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import normalize, one_hot

FEWER = 4  # times fewer vectors
ANCHORS = 4  # of a window
ANCHOR_SHARE = 0.5
ROUNDS = 4  # of k-means


def clusters(vectors: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """(n, clusters): which vector belongs where, after k-means from these centres."""
    with torch.no_grad():
        for _ in range(2):
            member = one_hot((vectors @ centres.T).argmax(1), len(centres)).float()
            centres = normalize(member.T @ vectors, dim=-1)
        member = one_hot((vectors @ centres.T).argmax(1), len(centres)).float()
        return member[:, member.any(0)]


def fewer(vectors: torch.Tensor) -> torch.Tensor:
    """A page's vectors as a quarter of their number: means of clusters, unit length."""
    return normalize(clusters(vectors, vectors[::FEWER].clone()).T @ vectors, dim=-1)


def anchors_of(vectors: torch.Tensor) -> torch.Tensor:
    """For each vector, the anchor of its cluster; anchors carry no gradient."""
    with torch.no_grad():
        member = clusters(vectors, vectors[:: max(1, len(vectors) // ANCHORS)].clone())
        return member @ normalize(member.T @ vectors, dim=-1)


class Code:
    """Codewords for what anchors leave of vectors."""

    def __init__(self, codewords: int) -> None:
        self._size = codewords
        self._codewords: torch.Tensor | None = None

    def fit(self, pages: Sequence[torch.Tensor], generator: torch.Generator) -> None:
        """k-means of residuals; a codeword that stands for none starts again."""
        rest = torch.cat([page - ANCHOR_SHARE * anchors_of(page) for page in pages])
        order = torch.randperm(len(rest), generator=generator)
        words, spare = rest[order[: self._size]], rest[order.flip(0)[: self._size]]
        for _ in range(ROUNDS):
            near = self._nearest(rest, words)
            count = torch.bincount(near, minlength=len(words))[:, None]
            means = torch.zeros_like(words).index_add_(0, near, rest) / count.clamp(min=1)
            words = torch.where(count > 0, means, spare)
        self._codewords = words

    def coded(self, page: torch.Tensor) -> torch.Tensor:
        """A page's vectors as they are stored, unit length."""
        assert self._codewords is not None
        with torch.no_grad():
            anchors = ANCHOR_SHARE * anchors_of(page)
            words = self._codewords[self._nearest(page - anchors, self._codewords)]
            stored = normalize(anchors + words, dim=-1)
        return page + (stored - page).detach()

    @staticmethod
    def _nearest(rest: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        half = (words**2).sum(1) / 2
        blocks = torch.split(rest, 4096)
        return torch.cat([(block @ words.T - half).argmax(1) for block in blocks])
