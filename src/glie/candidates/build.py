"""Which indexes generate candidates, when their IVF-PQ is fitted again, and both from arrays of
codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.candidates.ivf import IvfPq, sample_for
from glie.candidates.pq import Floats
from glie.kernels.pq import PQCodes
from glie.kernels.quantize import Packed

CANDIDATE_PAGES = 200_000  # a scan of fewer pages is as fast: about 20 milliseconds
REFIT_GROWTH = 4  # an IVF-PQ is fitted again at this many times the pages it was fitted for
VECTORS_PER_STEP = 65_536  # encoded in one step: 34 MB at D = 128


class StoredVectors(NamedTuple):
    """The stored vectors of some pages."""

    vectors: Packed  # (P, k, B)
    counts: npt.NDArray[Any]  # (P, k): 0 in a slot that the page does not use


def candidates_pay(pages: int) -> bool:
    """Whether a search over this many pages goes over candidates by default."""
    return pages >= CANDIDATE_PAGES


def outgrown(pages: int, fitted_for: int) -> bool:
    """Whether an index of this many pages needs a new IVF-PQ."""
    return pages >= REFIT_GROWTH * fitted_for


def fit_ivf_pq(parts: Sequence[StoredVectors], *, seed: int = 0) -> IvfPq:
    """Fit to a sample of the pages of all parts, of which there is at least one."""
    vectors = sum(int(np.count_nonzero(part.counts)) for part in parts)
    bounds = np.cumsum([0, *(len(part.counts) for part in parts)])
    pages = min(int(bounds[-1]), -(-sample_for(vectors) * int(bounds[-1]) // vectors))
    chosen = np.sort(np.random.default_rng(seed).permutation(int(bounds[-1]))[:pages])
    sample = []
    for part, first, last in zip(parts, bounds, bounds[1:], strict=False):
        rows = chosen[(chosen >= first) & (chosen < last)] - first
        used = part.counts[rows] > 0
        sample.append(part.vectors.take(rows).vectors()[used])
    return IvfPq.fit(np.concatenate(sample), vectors, seed=seed)


def encode_pages(stored: StoredVectors, ivf_pq: IvfPq) -> PQCodes:
    """List numbers (P, k) and PQ codes (P, k, PARTS) of stored pages."""
    parts = [ivf_pq.encode(vectors) for vectors in _filled(stored)]
    shape = stored.counts.shape
    return PQCodes(
        np.concatenate([part.lists for part in parts]).reshape(shape),
        np.concatenate([part.codes for part in parts]).reshape(*shape, -1),
    )


def _filled(stored: StoredVectors) -> Iterator[Floats]:
    """The vectors of all slots, in steps; an unused slot repeats the page's first vector."""
    pages, k = stored.counts.shape
    step = max(1, VECTORS_PER_STEP // k)
    for at in range(0, pages, step):
        rows = np.arange(at, min(at + step, pages))
        vectors = stored.vectors.take(rows).vectors()
        used = stored.counts[rows] > 0
        yield np.where(used[..., None], vectors, vectors[:, :1]).reshape(-1, stored.vectors.dim)
