"""Product quantisation: 8-byte codes of residuals, and page scores estimated from them.

A rotation spreads the variance of the residuals evenly over PARTS parts. Each part is replaced by
the nearest of its CODEWORDS codewords.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from glie.kernels.kmeans import kmeans
from glie.kernels.pq import CODEWORDS, PARTS, PQCodes, Tables, estimates
from glie.kernels.top_k import among_top

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Ints = npt.NDArray[np.int64]


def fit_pq(residuals: Floats, *, seed: int = 0) -> tuple[Halves, Halves]:
    """The rotation (D, PARTS * width) and the codewords (PARTS, CODEWORDS, width) for residuals
    (n, D)."""
    rotation = _rotation(residuals)
    parts = rotated_parts(residuals, rotation)
    stacked = np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(-1, parts.shape[2])
    bounds = np.arange(PARTS + 1) * len(residuals)
    found = kmeans(stacked, bounds, CODEWORDS, restarts=1, iterations=8, seed=seed)
    return rotation, found.centroids.astype(np.float16)


def rotated_parts(vectors: Floats, rotation: Halves) -> Floats:
    """Vectors (n, D) rotated and cut into parts: (n, PARTS, width)."""
    return (vectors @ rotation.astype(np.float32)).reshape(len(vectors), PARTS, -1)


def best_estimated(
    tables: Tables, pq_codes: Sequence[PQCodes], rows: Sequence[Ints], wanted: int
) -> list[Ints]:
    """Of these rows of each block, the `wanted` with the highest estimated MaxSim in all blocks
    together; the rows of each block stay in order."""
    estimated = [estimates(tables, *block) for block in zip(pq_codes, rows, strict=True)]
    ends = np.cumsum([len(some) for some in rows])
    best = among_top(np.concatenate(estimated), wanted)
    return [some[mine] for some, mine in zip(rows, np.split(best, ends[:-1]), strict=True)]


def _rotation(residuals: Floats) -> Halves:
    """Principal directions, dealt out to the parts so that the product of variances is about the
    same in each. Where PARTS does not divide D, the last columns are zeros."""
    dim = residuals.shape[1]
    width = -(-dim // PARTS)
    variances, directions = np.linalg.eigh((residuals.T @ residuals).astype(np.float64))
    variances = np.maximum(variances, 1e-9 * max(variances.max(initial=0), 1e-9))
    rotation = np.zeros((dim, PARTS, width), np.float16)
    filled, load = np.zeros(PARTS, np.int64), np.zeros(PARTS)
    for at in np.argsort(-variances, kind="stable"):
        part = int(np.where(filled < width, load, np.inf).argmin())
        rotation[:, part, filled[part]] = directions[:, at]
        filled[part] += 1
        load[part] += math.log(variances[at] / variances.min()) + 1e-6
    return rotation.reshape(dim, PARTS * width)
