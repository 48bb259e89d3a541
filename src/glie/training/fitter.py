"""The training loop of a fit: steps, measurements on the holdout, and the best networks so far."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.readout.decoder import AnyDecoder, new_decoder, new_paper_decoder
from glie.codec.readout.generative import FitScores, Fitted
from glie.codec.readout.refiner import (
    AnyRefiner,
    new_paper_refiner,
    new_refiner,
    with_strength,
)
from glie.identity import EncoderId
from glie.kernels.maxsim import maxsim
from glie.pages import Pages, Queries
from glie.progress import Progress
from glie.renamed import renamed
from glie.training.augment import varied
from glie.training.holdout import BestSteps, Holdout
from glie.training.inputs import Inputs, Ints
from glie.training.negatives import hard_negatives
from glie.training.pseudo import pseudo_queries
from glie.training.recipe import Recipe

if TYPE_CHECKING:
    from glie.training.batches import Corpus, TrainingBatch
    from glie.training.objective import Terms

STEPS_PER_REPORT = 10


@dataclasses.dataclass(frozen=True)
class FitProgress(Progress):
    """The steps of a fit. `losses` are means over the steps since the last report."""

    _: dataclasses.KW_ONLY
    epoch: int
    losses: Mapping[str, float]
    free: Mapping[int, float]  # nDCG@5 on the holdout, by k
    single_stage: Mapping[int, float]  # as last measured
    cascade: Mapping[int, float]
    measurements: int  # of the holdout, so far

    step = renamed("step", "done")
    steps = renamed("steps", "total")


class _Epoch(NamedTuple):
    """The data of one epoch: pages and codes, queries, relevant pages and negatives."""

    pages: Pages
    queries: Queries
    corpus: Corpus
    answers: list[list[int]]
    negatives: dict[int, Ints]  # by k


class Fitter:
    """The state of one fit: the weights, and the best networks measured so far.

    The paper's recipe fits refiner and decoder together. The default recipe first fits the
    refiner alone, on lists of hundreds of pages. It then freezes the best refiner and fits the
    decoder to its code.
    """

    def __init__(
        self,
        inputs: Inputs,
        codes: dict[int, Codes],
        recipe: Recipe,
        seed: int,
        device: str | None,
        progress: Callable[[FitProgress], None],
    ) -> None:
        import torch

        self.recipe, self.progress = recipe, progress
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        # separate random streams: the split of the holdout has already drawn from `seed`
        self.rng, born = (np.random.default_rng([seed, stream]) for stream in (1, 2))
        self.generator = torch.Generator(self.device).manual_seed(seed)
        queries, answers, (trained, held, _) = inputs.queries, inputs.answers, inputs.split
        rows = inputs.trained_pages
        self.pages, self.budgets = inputs.pages.take(rows), list(codes)
        self.codes = {k: code.take(rows) for k, code in codes.items()}
        place = {int(row): at for at, row in enumerate(rows)}
        asked = [[place[row] for row in answers[query] if row in place] for query in trained]
        # pseudo-queries are new in each epoch, of pages that no held-out query asks for
        self.queries = [] if inputs.pseudo else [queries[int(query)] for query in trained]
        self.answers = [] if inputs.pseudo else asked
        self.owners = np.array([found[0] for found in asked] if inputs.pseudo else [], np.int64)
        self.epoch: _Epoch | None = None
        self.holdout = Holdout(
            inputs.pages,
            Queries([queries[int(query)] for query in held]),
            [answers[int(query)] for query in held],
            codes,
        )
        refiner, decoder = new_networks(recipe, self.pages.dim, born)
        self.refiner = type(refiner)(*map(self._parameter, refiner))
        self.decoder = type(decoder)(*map(self._parameter, decoder))
        self.averaged = [w.detach().clone() for w in (*self.refiner, *self.decoder)]
        self.directions = torch.nn.functional.normalize(
            torch.randn(
                recipe.directions, self.pages.dim, generator=self.generator, device=self.device
            ),
            dim=-1,
        )
        self.code_steps = self._steps(recipe.code_batch, recipe.code_steps, len(trained))
        self.steps = self.code_steps + self._steps(recipe.batch, recipe.steps, len(trained))
        self.steps_done, self.epochs_done, self.measurements = 0, 0, 0
        self.interrupted = False
        self.frozen = recipe.code_batch is None  # whether the decoder can be fitted
        self.stepping = self.code_stepping = 0.0  # seconds
        self.code_steps_done = 0
        self.losses: list[dict[str, float]] = []  # of the steps since the last report
        self.single_stage: dict[int, float] = {}
        self.cascade: dict[int, float] = {}
        self.best_single: tuple[float, dict[int, float], AnyRefiner] | None = None
        self.best_cascade: tuple[float, dict[int, float], AnyRefiner, AnyDecoder] | None = None
        self._measure()  # a result to return, even if the fit is interrupted at once

    def _parameter(self, array: npt.NDArray[np.float32]) -> Any:
        import torch

        return torch.nn.Parameter(torch.from_numpy(array).to(self.device))

    def _steps(self, batch: int | None, steps: int, queries: int) -> int:
        if batch is None:
            return 0
        return math.ceil(queries / batch) * self.recipe.epochs if self.recipe.epochs else steps

    def run(self) -> None:
        """Run all steps; measure the holdout at even intervals and at the end."""
        recipe, both = self.recipe, [*self.refiner, *self.decoder]
        try:
            if recipe.code_batch is None:
                self._train(both, self.steps, recipe.batch, self._terms)
            else:
                self._train(
                    both[: len(self.refiner)], self.code_steps, recipe.code_batch, self._code_terms
                )
                self._freeze_code()
                steps = self.steps - self.code_steps
                self._train(both[len(self.refiner) :], steps, recipe.batch, self._terms)
        except KeyboardInterrupt:
            self.interrupted = True

    def _train(
        self, weights: list[Any], steps: int, batch: int, terms: Callable[[Ints, int], Terms]
    ) -> None:
        """Run AdamW on some of the weights, with a cosine schedule."""
        import torch

        recipe, low = self.recipe, self.recipe.final_rate
        learned = {id(weight) for weight in weights}
        averaged = [
            (average, weight)
            for average, weight in zip(self.averaged, (*self.refiner, *self.decoder), strict=True)
            if id(weight) in learned
        ]
        optimizer = torch.optim.AdamW(
            weights, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: low + (1 - low) * (1 + math.cos(math.pi * step / steps)) / 2
        )
        every = math.ceil(self.steps / recipe.measurements)
        for step, queries in enumerate(self._batches(batch, steps)):
            began = time.perf_counter()
            found = terms(queries, self.budgets[step % len(self.budgets)])
            optimizer.zero_grad()
            torch.autograd.backward(torch.stack(list(found.values())).sum())
            torch.nn.utils.clip_grad_norm_(weights, recipe.clip)
            optimizer.step()
            schedule.step()
            # keep less of the average in the first steps, so that it forgets the initial weights
            keep = min(recipe.average, step / (step + 10))
            with torch.no_grad():
                for average, weight in averaged:
                    average.lerp_(weight, 1 - keep)
            self.stepping += time.perf_counter() - began
            self.steps_done += 1
            if not self.frozen:
                self.code_stepping, self.code_steps_done = self.stepping, self.steps_done
            self.losses.append({name: float(term.detach()) for name, term in found.items()})
            measured = step + 1 == steps or (step + 1) % every == 0
            if measured:
                self._measure()
            if measured or self.steps_done % STEPS_PER_REPORT == 0:
                self._report()

    def _batches(self, size: int, steps: int) -> Iterator[Ints]:
        """Yield the queries of each step; every epoch has its own random order."""
        while steps:
            self.epoch = self._next_epoch()
            self.epochs_done += 1
            order = self.rng.permutation(len(self.epoch.answers))
            for at in range(0, len(order), size)[:steps]:
                yield order[at : at + size]
            steps -= min(steps, math.ceil(len(order) / size))

    def _next_epoch(self) -> _Epoch:
        from glie.training.batches import Corpus

        recipe, pages, codes = self.recipe, self.pages, self.codes
        if self.epoch is not None and not recipe.vary and not len(self.owners):
            return self.epoch
        if recipe.vary:
            pages = varied(pages, self.rng)
            seed = int(self.rng.integers(2**31))
            codes = {k: Codec(k).with_seed(seed).compress(pages) for k in codes}
        made, owners = pseudo_queries(pages, self.owners, len(self.owners), self.rng)
        queries, answers = Queries([*self.queries, *made]), [*self.answers, *owners]
        negatives = {
            k: hard_negatives(queries, answers, code, recipe.pool) for k, code in codes.items()
        }
        corpus = Corpus(pages, codes, queries, self.device, recipe.vectors)
        return _Epoch(pages, queries, corpus, answers, negatives)

    def _candidates(self, queries: Ints, k: int) -> Ints:
        """(B, 1 + negatives) rows: one relevant page of each query, and hard negatives."""
        assert self.epoch is not None
        answers, negatives = self.epoch.answers, self.epoch.negatives[k]
        positives = np.array([self.rng.choice(answers[query]) for query in queries])
        lots = self.rng.permuted(negatives[queries], axis=1)[:, : self.recipe.negatives]
        return np.concatenate([positives[:, None], lots], axis=1)

    def _batch(self, queries: Ints, pages: Ints, k: int) -> TrainingBatch:
        import torch

        assert self.epoch is not None
        asked, listed = (torch.from_numpy(rows).to(self.device) for rows in (queries, pages))
        return self.epoch.corpus.batch(asked, listed, k, self.generator)

    def _terms(self, queries: Ints, k: int) -> Terms:
        from glie.training.objective import objective

        batch = self._batch(queries, self._candidates(queries, k), k)
        return objective(
            self.refiner, self.decoder, batch, self.recipe, self.directions, self.generator
        )

    def _code_terms(self, queries: Ints, k: int) -> Terms:
        import torch

        from glie.training.objective import code_objective

        assert self.epoch is not None
        rows = np.unique(self._candidates(queries, k))
        asked = Queries([self.epoch.queries[int(query)] for query in queries])
        pages = self.epoch.pages
        scores = maxsim(
            asked.vectors,
            asked.offsets,
            pages.vectors,
            pages.offsets[rows],
            pages.offsets[rows + 1],
        )
        wanted = torch.from_numpy(scores / asked.lengths[:, None].astype(np.float32))
        batch = self._batch(queries, rows, k)
        return code_objective(self.refiner, batch, wanted.to(self.device), self.recipe.temperature)

    def _freeze_code(self) -> None:
        """Freeze the refiner that measured best: the decoder is fitted to its code."""
        import torch

        assert self.best_single is not None
        for weight, average, best in zip(
            self.refiner, self.averaged, self.best_single[2], strict=False
        ):
            with torch.no_grad():
                weight.copy_(torch.from_numpy(best))
                average.copy_(weight)
            weight.requires_grad_(False)
        self.frozen = True
        assert self.best_cascade is not None
        # scores measured with another code do not count any more
        self.best_cascade = (-math.inf, *self.best_cascade[1:])
        self._measure()

    def _measure(self) -> None:
        weights = [average.cpu().numpy().copy() for average in self.averaged]
        decoder = type(self.decoder)(*weights[len(self.refiner) :])
        self.measurements += 1
        if self.refiner.output.requires_grad:
            # part of the way from the free to the refined code transfers better than all of it
            refiner = type(self.refiner)(*weights[: len(self.refiner)])
            refiner = with_strength(refiner, self.recipe.strength)
            self.single_stage = self.holdout.single_stage(refiner)
            single = _mean(self.single_stage)
            if self.best_single is None or single > self.best_single[0]:
                self.best_single = single, self.single_stage, refiner
        else:
            assert self.best_single is not None
            refiner = self.best_single[2]
        if self.best_cascade is None or self.frozen:
            self.cascade = self.holdout.cascade(refiner, decoder)
            cascade = _mean(self.cascade)
            if self.best_cascade is None or cascade > self.best_cascade[0]:
                self.best_cascade = cascade, self.cascade, refiner, decoder

    def _report(self) -> None:
        means = {name: _mean_of(name, self.losses) for name in self.losses[-1]}
        self.losses = []
        self.progress(
            FitProgress(
                "steps",
                self.steps_done,
                self.steps,
                epoch=self.epochs_done,
                losses=means,
                free=self.holdout.free,
                single_stage=self.single_stage,
                cascade=self.cascade,
                measurements=self.measurements,
            )
        )

    def best(self, encoder: EncoderId | None) -> Fitted:
        """The networks that measured best, with one stage and with two."""
        assert self.best_single is not None
        assert self.best_cascade is not None
        _, single, single_refiner = self.best_single
        _, cascade, refiner, decoder = self.best_cascade
        if self.recipe.code_batch is not None:
            refiner = single_refiner
        errors = dict.fromkeys(self.budgets, 0.0)
        try:
            errors = self.holdout.single_stage_errors(single_refiner)
            if self.frozen:
                steps = self.holdout.best_steps(refiner, decoder)
            else:  # interrupted before the decoder was fitted
                steps = {k: BestSteps(score, 0.0, errors[k]) for k, score in single.items()}
        except KeyboardInterrupt:  # a second time: keep the scores as measured
            self.interrupted = True
            steps = {k: BestSteps(score, 1.0) for k, score in cascade.items()}
        budgets = tuple(
            FitScores(
                k,
                free=self.holdout.free[k],
                single_stage=single[k],
                cascade=steps[k].score,
                step=steps[k].share,
                single_stage_error=errors[k],
                cascade_error=steps[k].error,
            )
            for k in self.budgets
        )
        return Fitted(refiner, decoder, single_refiner, budgets, encoder)


def new_networks(
    recipe: Recipe, dim: int, rng: np.random.Generator
) -> tuple[AnyRefiner, AnyDecoder]:
    """Untrained networks in the layout and size of a recipe."""
    size = {"width": recipe.width, "depth": recipe.depth}
    refiner: AnyRefiner
    decoder: AnyDecoder
    if recipe.layout == "paper":
        decoder, refiner = new_paper_decoder(dim, rng, **size), new_paper_refiner(dim, rng)
    else:
        decoder, refiner = new_decoder(dim, rng, **size), new_refiner(dim, rng)
    if recipe.blind:
        decoder.anchor[:dim] = 0  # and stays so: in a fit its inputs are 0
    return refiner, decoder


def _mean(scores: Mapping[int, float]) -> float:
    return sum(scores.values()) / len(scores)


def _mean_of(name: str, losses: Sequence[Mapping[str, float]]) -> float:
    found = [loss[name] for loss in losses if name in loss]
    return sum(found) / len(found)
