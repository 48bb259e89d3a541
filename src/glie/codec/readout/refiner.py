"""The refiner: one layer of cross-attention from a page's anchors to all of its vectors.

Its output projection starts at zero, so an untrained refiner returns the anchors bit for bit. There
are two layouts: the paper's, and a lighter one without the weights that only repeat others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from glie.codec.codes import Codes
from glie.codec.readout.arrays import Array, dot, library, softmax
from glie.pages import Pages

HEADS = 4
NEARNESS = 3.0  # how sharply an untrained head prefers vectors near the anchor
MAX_INNER = 128  # most inner width of the attention: a codec for D = 3,072 stays small


class Refiner(NamedTuple):
    """The weights: three projections into the attention's inner width H, and one out of it."""

    query: Array  # (D, H)
    query_bias: Array  # (H,)
    key: Array  # (D, H)
    value: Array  # (D, H)
    output: Array  # (H, D)
    output_bias: Array  # (D,)


class PaperRefiner(NamedTuple):
    """The paper's: multi-head attention with all of its biases and its own output, then a
    projection that starts at zero."""

    query: Array  # (D, H)
    query_bias: Array  # (H,)
    key: Array  # (D, H)
    key_bias: Array  # (H,): the softmax cancels it; the published size counts it
    value: Array  # (D, H)
    value_bias: Array  # (H,)
    mix: Array  # (H, H): the output of the attention
    mix_bias: Array  # (H,)
    output: Array  # (H, D)
    output_bias: Array  # (D,)


AnyRefiner = Refiner | PaperRefiner


def new_refiner(dim: int, rng: np.random.Generator) -> Refiner:
    """An untrained refiner: it changes nothing, and its heads attend to vectors near the anchor."""
    inner = min(MAX_INNER, HEADS * math.ceil(dim / HEADS))
    frame = np.linalg.qr(rng.normal(size=(max(dim, inner), inner)))[0][:dim]
    near = (NEARNESS**0.5 * frame).astype(np.float32)
    return Refiner(
        query=near,
        query_bias=np.zeros(inner, np.float32),
        key=near.copy(),
        value=rng.normal(0, dim**-0.5, (dim, inner)).astype(np.float32),
        output=np.zeros((inner, dim), np.float32),
        output_bias=np.zeros(dim, np.float32),
    )


def new_paper_refiner(dim: int, rng: np.random.Generator) -> PaperRefiner:
    """The same in the paper's layout."""
    light = new_refiner(dim, rng)
    inner = light.query.shape[1]
    zeros = np.zeros(inner, np.float32)
    return PaperRefiner(
        **light._asdict(),
        key_bias=zeros.copy(),
        value_bias=zeros.copy(),
        mix=rng.normal(0, inner**-0.5, (inner, inner)).astype(np.float32),
        mix_bias=zeros.copy(),
    )


def refine(weights: AnyRefiner, anchors: Array, vectors: Array, real: Array | None = None) -> Array:
    """Refined anchors (..., k, D), normalised, after attention to the vectors (..., N, D).

    `real` (..., N) is false where a row of `vectors` is padding.
    """
    xp = library(anchors)
    *batch, k, dim = anchors.shape
    width = weights.query.shape[1] // HEADS
    scale = math.sqrt(dim)  # the numbers of a unit vector have a variance of 1 / D; make it 1

    def heads(matrix: Array) -> Array:  # (D, H) -> (heads, D, H / heads)
        return matrix.reshape(dim, HEADS, width).swapaxes(0, 1)

    # The k * heads queries are multiplied by the key projection, and values are averaged before
    # they are projected: no matrix is multiplied with all N vectors.
    asked = (anchors * scale)[..., None, :, :] @ heads(weights.query)  # (..., heads, k, width)
    asked = asked + weights.query_bias.reshape(HEADS, 1, width)
    asked = asked @ heads(weights.key).swapaxes(1, 2)  # (..., heads, k, D)
    asked = asked.reshape(*batch, HEADS * k, dim)
    logits = (asked @ vectors.swapaxes(-1, -2)) * (scale / math.sqrt(width))
    if real is not None:
        logits = xp.where(real[..., None, :], logits, -math.inf)
    read = (softmax(logits) @ vectors) * scale
    values = read.reshape(*batch, HEADS, k, dim) @ heads(weights.value)
    values = values.swapaxes(-2, -3).reshape(*batch, k, HEADS * width)
    if isinstance(weights, PaperRefiner):
        values = (values + weights.value_bias) @ weights.mix + weights.mix_bias
    return normalised_sum(anchors, values @ weights.output + weights.output_bias)


def refined(weights: AnyRefiner, codes: Codes, pages: Pages) -> Codes:
    """Codes whose anchors were refined, one page at a time: no page depends on another."""
    vectors = np.zeros_like(codes.vectors)
    for page, rows in enumerate(pages):
        used = int(np.count_nonzero(codes.counts[page]))
        vectors[page, :used] = refine(weights, codes.vectors[page, :used], rows)
    return Codes(vectors, codes.norms, codes.counts, codes.ids)


def with_strength(weights: AnyRefiner, share: float) -> AnyRefiner:
    """A refiner that moves anchors a share of the way, before they are normalised."""
    return weights._replace(output=weights.output * share, output_bias=weights.output_bias * share)


def normalised_sum(unit: Array, step: Array) -> Array:
    """(unit + step), normalised. A step of zero changes no bit: the norm of `unit` is taken as 1,
    not computed."""
    xp = library(unit)
    squared = 1 + 2 * dot(unit, step) + dot(step, step)
    return (unit + step) / xp.sqrt(squared)
