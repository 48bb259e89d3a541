"""Operations that numpy arrays and torch tensors share; the networks are written in them once.

Serving runs on numpy arrays and needs no torch. Fitting runs the same code on tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # a numpy array or a torch tensor


def library(array: Array) -> Any:
    """The module of an array: numpy or torch."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def softmax(logits: Array) -> Array:
    """Softmax along the last axis, in which at least one value must be finite."""
    xp = library(logits)
    powers = xp.exp(logits - xp.amax(logits, -1)[..., None])
    return powers / powers.sum(-1)[..., None]


def relu(array: Array) -> Array:
    return array.clip(0, None)


def dot(one: Array, other: Array) -> Array:
    """Inner products along the last axis, which is kept with length 1."""
    return (one * other).sum(-1)[..., None]


def standardised(array: Array) -> Array:
    """LayerNorm without its weights: mean 0 and variance 1 along the last axis."""
    centred = array - array.mean(-1)[..., None]
    variance = (centred * centred).mean(-1)[..., None]
    return centred / library(array).sqrt(variance + 1e-5)
