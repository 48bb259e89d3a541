"""Random weights: networks that have learned nothing, and must keep every promise all the same."""

from __future__ import annotations

import numpy as np

import glie
from glie.codec.readout.decoder import new_decoder
from glie.codec.readout.generative import FitScores, Fitted, Generative
from glie.codec.readout.refiner import Refiner, new_refiner


def random_refiner(dim: int, rng: np.random.Generator, size: float = 0.3) -> Refiner:
    """Not the zeros of a fresh one: each weight is drawn."""
    return Refiner(
        *(rng.normal(0, size, array.shape).astype(np.float32) for array in new_refiner(dim, rng))
    )


def random_codec(dim: int, seed: int, k: int = 4, size: float = 0.3) -> glie.Codec:
    """A fitted codec with random weights, that a holdout is said to have confirmed."""
    rng = np.random.default_rng(seed)
    decoder = new_decoder(dim, rng, width=12, depth=2)
    decoder = type(decoder)(
        *(rng.normal(0, size, array.shape).astype(np.float32) for array in decoder)
    )
    fitted = Fitted(
        random_refiner(dim, rng, size),
        decoder,
        random_refiner(dim, rng, size),
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
