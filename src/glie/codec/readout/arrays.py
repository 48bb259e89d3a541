"""The networks are written once, in what numpy arrays and torch tensors have in common.

Serving runs them on numpy arrays and needs no torch; fitting runs the same lines on tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # a numpy array or a torch tensor


def library(array: Array) -> Any:
    """numpy for a numpy array, else torch."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def softmax(logits: Array) -> Array:
    """Along the last axis, in which not all may be -inf."""
    xp = library(logits)
    powers = xp.exp(logits - xp.amax(logits, -1)[..., None])
    return powers / powers.sum(-1)[..., None]


def relu(array: Array) -> Array:
    return array.clip(0, None)


def dot(one: Array, other: Array) -> Array:
    """Inner products along the last axis, which stays, with length 1."""
    return (one * other).sum(-1)[..., None]
