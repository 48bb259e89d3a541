"""The k largest scores, in an order that does not depend on how they were computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def top_k(scores: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """Indices of the `k` largest scores, largest first; of equal scores the earlier comes first."""
    if 0 < k < len(scores):
        # a partition finds the k-th score; only scores as high as it are sorted
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        contenders = np.flatnonzero(scores >= threshold)
    else:
        contenders = np.arange(len(scores))
    return contenders[np.argsort(-scores[contenders], kind="stable")[:k]]


def among_top(scores: npt.NDArray[Any], k: int) -> npt.NDArray[np.bool_]:
    """Whether each score is one of the `k` largest; of equal scores the earlier ones are."""
    if not 0 < k < len(scores):
        return np.full(len(scores), k > 0)
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    found: npt.NDArray[np.bool_] = scores > threshold
    found[np.flatnonzero(scores == threshold)[: k - np.count_nonzero(found)]] = True
    return found
