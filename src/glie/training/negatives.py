"""Hard negatives: the pages that a code confuses with the relevant ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes, used_rows
from glie.kernels.maxsim import maxsim
from glie.kernels.top_k import top_k
from glie.pages import Queries

Ints = npt.NDArray[np.int64]

QUERIES_AT_ONCE = 256


def hard_negatives(
    queries: Queries, relevant: Sequence[Sequence[int]], codes: Codes, pool: int
) -> Ints:
    """(Q, pool) rows of the pages that score best under the code and are not relevant.

    If there are fewer than `pool` such pages, they repeat.
    """
    starts, ends = used_rows(codes.counts)
    flat = codes.vectors.reshape(-1, codes.dim)
    found = np.empty((len(queries), pool), np.int64)
    for first in range(0, len(queries), QUERIES_AT_ONCE):
        part = queries.slice(first, min(first + QUERIES_AT_ONCE, len(queries)))
        scores = maxsim(part.vectors, part.offsets, flat, starts, ends)
        for row, query in zip(scores, range(first, first + len(part)), strict=True):
            row[list(relevant[query])] = -np.inf
            best = top_k(row, min(pool, len(row) - len(relevant[query])))
            found[query] = np.resize(best, pool)
    return found
