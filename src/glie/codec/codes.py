"""Codes: what compressing a page leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Codes:
    """k vectors, norms and counts a page.

    Clusters stand in order of size. A page with fewer than k distinct vectors has fewer clusters:
    the slots behind them hold zeros, and their count of 0 says that they are not part of the page.
    """

    vectors: npt.NDArray[np.float32]  # (P, k, D), on the unit sphere
    norms: npt.NDArray[np.float16]  # (P, k): how long the centroid was before projection
    counts: npt.NDArray[np.uint16]  # (P, k): how many of the page's vectors it stands for
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def k(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[2])

    def take(self, rows: npt.NDArray[np.int64]) -> Codes:
        """The codes of some of the pages."""
        return Codes(
            self.vectors[rows], self.norms[rows], self.counts[rows], [self.ids[r] for r in rows]
        )


def used_rows(
    counts: npt.NDArray[np.uint16],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each page's rows start and end in its codes seen as one (P * k, D) array."""
    pages, k = counts.shape
    starts = np.arange(pages, dtype=np.int64) * k
    return starts, starts + np.count_nonzero(counts, axis=1)
