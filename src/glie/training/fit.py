"""Fit a codec: a refiner and a decoder, selected on held-out queries."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from glie.codec.codec import Codec
from glie.codec.config import CodecConfig
from glie.codec.readout.generative import Generative
from glie.errors import InputError, MissingExtraError
from glie.identity import EncoderId, Identified
from glie.pages import Pages
from glie.progress import ignore
from glie.training.fitter import FitProgress, Fitter
from glie.training.inputs import checked_budgets, checked_inputs
from glie.training.recipe import Recipe, recipe_of


def fit(
    pages: Pages,
    queries: Any = None,
    relevant: Sequence[Iterable[str]] | None = None,
    k: int | Iterable[int] = 4,
    *,
    recipe: str | Recipe = "default",
    epochs: int | None = None,
    seed: int = 0,
    encoder: Identified | Mapping[str, Any] | str | None = None,
    device: str | None = None,
    progress: Callable[[FitProgress], None] = ignore,
) -> Codec:
    """Fit a codec that retrieves better than clustering alone and can regenerate pages.

    `queries` are (m, D) arrays of unit vectors, or Queries; `relevant[i]` lists the ids of the
    pages that answer query i. Without queries, pseudo-queries are made of page vectors. `k` is a
    budget, or a list of budgets that one codec serves. `encoder` names the encoder of the vectors;
    the codec then refuses vectors of another. By default about a fifth of the queries is held out,
    and the pages that they ask for. A network is kept only if it helps on these by more than a
    standard error: otherwise the codec is normalised k-means.

    The same inputs, seed and thread count give the same weights. An interrupted fit returns the
    best codec so far.
    """
    check_ready()
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"seed: expected a whole number of at least 0, found {seed!r}")
    chosen = recipe_of(recipe)
    if epochs is not None:
        chosen = dataclasses.replace(chosen, epochs=epochs)
    budgets, entry = checked_budgets(k), EncoderId.of(encoder)
    began = time.perf_counter()
    inputs = checked_inputs(pages, queries, relevant, chosen, np.random.default_rng(seed))
    codes = {budget: Codec(budget).compress(pages) for budget in budgets}
    fitter = Fitter(inputs, codes, chosen, seed, device, progress)
    fitter.run()
    config = CodecConfig(k=4 if 4 in budgets else budgets[0])
    fitted = fitter.best(entry)
    notes = {
        **inputs.counts,
        "pseudo_queries": inputs.pseudo,
        "recipe": dataclasses.asdict(chosen),
        "seed": seed,
        "steps": fitter.steps_done,
        "interrupted": fitter.interrupted,
        "code_steps": fitter.code_steps_done,  # the steps that fitted the refiner alone
        "step_seconds": round(fitter.stepping / max(fitter.steps_done, 1), 4),
        "code_step_seconds": round(fitter.code_stepping / max(fitter.code_steps_done, 1), 4),
        "seconds": round(time.perf_counter() - began, 1),
    }
    return Codec.from_config(config, Generative(dataclasses.replace(fitted, notes=notes)))


def check_ready() -> None:
    """Raise unless what fitting needs is installed."""
    try:
        import ir_measures  # noqa: F401  it measures the holdout
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("fitting a codec", "fit") from None
