"""Random weights: networks that have learned nothing, and must keep every promise all the same."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

import glie
from glie.codec.readout.generative import FitScores, Fitted, Generative
from glie.codec.readout.refiner import PaperRefiner, Refiner, new_paper_refiner, new_refiner
from glie.training.fitter import new_networks
from glie.training.recipe import Recipe

Weights = TypeVar("Weights", bound=tuple[Any, ...])


def random_refiner(dim: int, rng: np.random.Generator, size: float = 0.3) -> Refiner:
    """Not the zeros of a fresh one: each weight is drawn."""
    return drawn(new_refiner(dim, rng), rng, size)


def random_paper_refiner(dim: int, rng: np.random.Generator, size: float = 0.3) -> PaperRefiner:
    return drawn(new_paper_refiner(dim, rng), rng, size)


def drawn(weights: Weights, rng: np.random.Generator, size: float) -> Weights:
    """Weights of the same shapes, each number drawn."""
    return type(weights)(
        *(rng.normal(0, size, array.shape).astype(np.float32) for array in weights)
    )


def random_codec(
    dim: int, seed: int, k: int = 4, size: float = 0.3, layout: str = "light"
) -> glie.Codec:
    """A fitted codec with random weights, that a holdout is said to have confirmed."""
    rng = np.random.default_rng(seed)
    recipe = Recipe(layout=layout, width=12, depth=2)
    refiner, decoder = new_networks(recipe, dim, rng)
    fitted = Fitted(
        drawn(refiner, rng, size),
        drawn(decoder, rng, size),
        drawn(refiner, rng, size),
        (FitScores(k, free=0.1, single_stage=0.2, cascade=0.3),),
    )
    return fitted_codec(fitted, k)


def fitted_codec(fitted: Fitted, k: int) -> glie.Codec:
    """The codec of these weights."""
    return glie.Codec.from_config(glie.CodecConfig(k=k), Generative(fitted))


def fitted_of(codec: glie.Codec) -> Fitted:
    """The weights of a fitted codec."""
    assert isinstance(codec.readout, Generative)
    return codec.readout.fitted
