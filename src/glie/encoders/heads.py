"""Heads: from what a network says of each token to unit vectors of a page or a question.

The weighted head gives each token of a question a weight w between 0 and 1. Of D outputs, the
first D - 1 are a direction u and the last is the logit of w. A page's vector is (u, 0), a
question's is (w u, sqrt(1 - w^2)). Both have length 1, and their product is w times that of the
directions: MaxSim becomes a weighted sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glie.encoders.base import Floats


class Head(NamedTuple):
    """Functions of (n, H) outputs to (n, D) unit vectors."""

    pages: Callable[[Floats], Floats]
    queries: Callable[[Floats], Floats]


def unit_rows(outputs: Floats) -> Floats:
    """Each row at length 1."""
    norms = np.linalg.norm(outputs, axis=-1, keepdims=True)
    return np.asarray(outputs / np.maximum(norms, 1e-12), dtype=np.float32)


def weighted_pages(outputs: Floats) -> Floats:
    """The directions (u, 0)."""
    vectors = np.zeros_like(outputs, dtype=np.float32)
    vectors[:, :-1] = unit_rows(outputs[:, :-1])
    return vectors


def weighted_queries(outputs: Floats) -> Floats:
    """The directions and their weights: (w u, sqrt(1 - w^2))."""
    # sigmoid(z) and 1 - sigmoid(z), by tanh: it overflows for no z
    half = np.tanh(outputs[:, -1:].astype(np.float64) / 2)
    weight, rest = (1 + half) / 2, (1 - half) / 2
    rows = [unit_rows(outputs[:, :-1]) * weight, np.sqrt(rest * (1 + weight))]
    return np.concatenate(rows, axis=1).astype(np.float32)


PLAIN = Head(unit_rows, unit_rows)
WEIGHTED = Head(weighted_pages, weighted_queries)
