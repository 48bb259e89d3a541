"""Fitting a codec: one loop, a holdout that decides, and the best of what was seen."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.codec.readout.decoder import Decoder, new_decoder
from glie.codec.readout.generative import FitScores, Fitted
from glie.codec.readout.refiner import Refiner, new_refiner, with_strength
from glie.errors import IdError, InputError, MissingExtraError, VectorError
from glie.identity import EncoderId, Identified
from glie.kernels.maxsim import maxsim
from glie.pages import Pages, Queries
from glie.progress import Progress, ignore
from glie.training.augment import varied
from glie.training.negatives import hard_negatives
from glie.training.pseudo import pseudo_queries
from glie.training.recipe import Recipe, recipe_of

if TYPE_CHECKING:
    from glie.training.batches import Corpus, TrainingBatch
    from glie.training.holdout import Holdout
    from glie.training.objective import Terms

Ints = npt.NDArray[np.int64]

STEPS_PER_REPORT = 10


@dataclasses.dataclass(frozen=True)
class FitProgress(Progress):
    """Steps of a fit. `losses` are means over the last few steps."""

    _: dataclasses.KW_ONLY
    epoch: int
    losses: Mapping[str, float]
    free: Mapping[int, float]  # nDCG@5 on the holdout, by k
    single_stage: Mapping[int, float]  # the latest measured
    cascade: Mapping[int, float]
    measurements: int  # of the holdout, so far


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
    """A codec whose code retrieves better than clustering, and whose pages can be regenerated.

    `queries` are (m, D) arrays of unit vectors, or Queries; `relevant[i]` lists the ids of the
    pages that answer query i. Without queries, they are made of page vectors. `k` is a budget or
    a list of them, which one codec then serves. `encoder` names what made the vectors, so that
    the codec is not used with another's. Nothing that a fifth of the queries, held out, did not
    confirm is kept: where fitting did not help, the codec is normalised k-means.

    The same inputs, seed and thread count give the same weights. Interrupted, it keeps the best
    so far.
    """
    check_ready()
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"seed: expected a whole number of at least 0, found {seed!r}")
    chosen = recipe_of(recipe)
    if epochs is not None:
        chosen = dataclasses.replace(chosen, epochs=epochs)
    _check_pages(pages, chosen)
    budgets = _checked_budgets(k)
    entry = EncoderId.of(encoder)
    rng = np.random.default_rng(seed)
    if queries is None:
        if relevant is not None:
            raise InputError("relevant: given without queries; give both, or neither")
        asked, answers = pseudo_queries(pages, np.arange(len(pages)), len(pages), rng)
    else:
        asked, answers = _checked_queries(pages, queries, relevant)
    began = time.perf_counter()
    codes = {budget: Codec(budget).compress(pages) for budget in budgets}
    trained, held = _split(answers, chosen.holdout, rng)
    made = queries is None
    fitter = _Fitter(
        pages, asked, answers, trained, held, made, codes, chosen, seed, device, progress
    )
    fitter.run()
    config = CodecConfig(k=4 if 4 in budgets else budgets[0])
    fitted = fitter.best(entry)
    notes = {
        "pages": len(pages),
        "queries": len(trained),
        "held_out": len(held),
        "pseudo_queries": made,
        "recipe": dataclasses.asdict(chosen),
        "seed": seed,
        "steps": fitter.steps_done,
        "interrupted": fitter.interrupted,
        "code_steps": fitter.code_steps_done,  # of those, the ones that fitted the code by itself
        "step_seconds": round(fitter.stepping / max(fitter.steps_done, 1), 4),
        "code_step_seconds": round(fitter.code_stepping / max(fitter.code_steps_done, 1), 4),
        "seconds": round(time.perf_counter() - began, 1),
    }
    return Codec(config=config, fitted=dataclasses.replace(fitted, notes=notes))


class _Epoch(NamedTuple):
    """What one round sees: pages with their codes, queries, their answers, and their negatives."""

    pages: Pages
    queries: Queries
    corpus: Corpus
    answers: list[list[int]]
    negatives: dict[int, Ints]  # by k


class _Fitter:
    """The state of one fit: weights, and the best of what was measured.

    The paper's recipe fits refiner and decoder together. The default settles the code first, on
    lists of hundreds of pages, which needs no decoder, and then fits the decoder to that code.
    """

    def __init__(
        self,
        pages: Pages,
        queries: Queries,
        answers: list[list[int]],
        trained: Ints,
        held: Ints,
        made: bool,
        codes: dict[int, Codes],
        recipe: Recipe,
        seed: int,
        device: str | None,
        progress: Callable[[FitProgress], None],
    ) -> None:
        import torch

        from glie.training.holdout import Holdout

        self.recipe, self.progress = recipe, progress
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        # streams of their own: what is drawn here must not repeat what was drawn for the holdout
        self.rng, born = (np.random.default_rng([seed, stream]) for stream in (1, 2))
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.pages, self.codes, self.budgets = pages, codes, list(codes)
        # made-up queries are made anew each epoch, of pages that no held-out one asks for
        self.queries = [] if made else [queries[int(query)] for query in trained]
        self.answers = [] if made else [answers[int(query)] for query in trained]
        self.owners = np.array([answers[int(q)][0] for q in trained] if made else [], np.int64)
        self.epoch: _Epoch | None = None
        self.holdout: Holdout = Holdout(
            pages,
            Queries([queries[int(query)] for query in held]),
            [answers[int(query)] for query in held],
            codes,
        )
        network = new_decoder(pages.dim, born, width=recipe.width, depth=recipe.depth)
        self.refiner = Refiner(*map(self._parameter, new_refiner(pages.dim, born)))
        self.decoder = Decoder(*map(self._parameter, network))
        self.averaged = [w.detach().clone() for w in (*self.refiner, *self.decoder)]
        self.directions = torch.nn.functional.normalize(
            torch.randn(recipe.directions, pages.dim, generator=self.generator, device=self.device),
            dim=-1,
        )
        self.code_steps = self._steps(recipe.code_batch, recipe.code_steps, len(trained))
        self.steps = self.code_steps + self._steps(recipe.batch, recipe.steps, len(trained))
        self.steps_done, self.epochs_done, self.measurements = 0, 0, 0
        self.interrupted = False
        self.frozen = recipe.code_batch is None  # whether the decoder has a code to learn
        self.stepping = self.code_stepping = 0.0  # seconds
        self.code_steps_done = 0
        self.losses: list[dict[str, float]] = []  # of the steps since the last report
        self.single_stage: dict[int, float] = {}
        self.cascade: dict[int, float] = {}
        self.best_single: tuple[float, dict[int, float], Refiner] | None = None
        self.best_cascade: tuple[float, dict[int, float], Refiner, Decoder] | None = None
        self._measure()  # something to keep, whenever the fit is interrupted

    def _parameter(self, array: npt.NDArray[np.float32]) -> Any:
        import torch

        return torch.nn.Parameter(torch.from_numpy(array).to(self.device))

    def _steps(self, batch: int | None, steps: int, queries: int) -> int:
        if batch is None:
            return 0
        return math.ceil(queries / batch) * self.recipe.epochs if self.recipe.epochs else steps

    def run(self) -> None:
        """All steps, measuring at even intervals and at the end."""
        recipe, both = self.recipe, [*self.refiner, *self.decoder]
        try:
            if recipe.code_batch is None:
                self._train(both, self.steps, recipe.batch, self._terms)
            else:
                self._train(
                    both[: len(self.refiner)], self.code_steps, recipe.code_batch, self._code_terms
                )
                self._settle_code()
                steps = self.steps - self.code_steps
                self._train(both[len(self.refiner) :], steps, recipe.batch, self._terms)
        except KeyboardInterrupt:
            self.interrupted = True

    def _train(
        self, weights: list[Any], steps: int, batch: int, terms: Callable[[Ints, int], Terms]
    ) -> None:
        """AdamW on some of the weights, its rate falling as a cosine does."""
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
            # the average forgets its start, the sooner the fewer the steps
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
        """Queries for a number of steps, epoch after epoch, each in an order of its own."""
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
            codes = {k: Codec(config=CodecConfig(k=k, seed=seed)).compress(pages) for k in codes}
        made, owners = pseudo_queries(pages, self.owners, len(self.owners), self.rng)
        queries, answers = Queries([*self.queries, *made]), [*self.answers, *owners]
        negatives = {
            k: hard_negatives(queries, answers, code, recipe.pool) for k, code in codes.items()
        }
        corpus = Corpus(pages, codes, queries, self.device, recipe.vectors)
        return _Epoch(pages, queries, corpus, answers, negatives)

    def _candidates(self, queries: Ints, k: int) -> Ints:
        """(B, 1 + negatives): a page that answers each query, and some that do not."""
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

    def _settle_code(self) -> None:
        """The best code measured is what the decoder will read, and what it learns to read."""
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
        # what was measured with another code no longer counts
        self.best_cascade = (-math.inf, *self.best_cascade[1:])
        self._measure()

    def _measure(self) -> None:
        weights = [average.cpu().numpy().copy() for average in self.averaged]
        decoder = Decoder(*weights[len(Refiner._fields) :])
        self.measurements += 1
        if self.refiner.output.requires_grad:
            # a part of the way from the free code to the fitted one travels better than all of it
            refiner = Refiner(*weights[: len(Refiner._fields)])
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
        """The networks of the best cascade and of the best single stage."""
        assert self.best_single is not None
        assert self.best_cascade is not None
        _, single, single_refiner = self.best_single
        _, cascade, refiner, decoder = self.best_cascade
        if self.recipe.code_batch is not None:
            refiner = single_refiner
        try:
            if self.frozen:
                steps = self.holdout.best_steps(refiner, decoder)
            else:  # interrupted before the decoder had learned anything
                steps = {k: (score, 0.0) for k, score in single.items()}
        except KeyboardInterrupt:  # of one who cannot wait: as they were measured
            self.interrupted = True
            steps = {k: (score, 1.0) for k, score in cascade.items()}
        budgets = tuple(
            FitScores(k, self.holdout.free[k], single[k], *steps[k]) for k in self.budgets
        )
        return Fitted(refiner, decoder, single_refiner, budgets, encoder)


def check_ready() -> None:
    """Raise unless what fitting needs is installed."""
    try:
        import ir_measures  # noqa: F401  the holdout is measured by it
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("fitting a codec", "fit") from None


def _mean(scores: Mapping[int, float]) -> float:
    return sum(scores.values()) / len(scores)


def _mean_of(name: str, losses: Sequence[Mapping[str, float]]) -> float:
    found = [loss[name] for loss in losses if name in loss]
    return sum(found) / len(found)


def _checked_budgets(k: int | Iterable[int]) -> list[int]:
    if not isinstance(k, (int, Iterable)) or isinstance(k, str):
        raise InputError(f"k: expected a number or a list of numbers, found {k!r}")
    budgets = sorted({CodecConfig(k=budget).k for budget in ([k] if isinstance(k, int) else k)})
    if not budgets:
        raise InputError("k: expected a number or a list of numbers, found an empty list")
    return budgets


def _check_pages(pages: Pages, recipe: Recipe) -> None:
    if not isinstance(pages, Pages):
        raise InputError(f"fit: expected glie.Pages, found {type(pages).__name__}")
    least = recipe.negatives + 1
    if len(pages) < least:
        raise InputError(
            f"fit: {len(pages)} pages; at least {least} are needed, and a thousand serve well"
        )


def _checked_queries(
    pages: Pages, queries: Any, relevant: Sequence[Iterable[str]] | None
) -> tuple[Queries, list[list[int]]]:
    """The queries that have an answer among the pages, and the rows of their answers."""
    asked = Queries.of(queries)
    if not isinstance(relevant, Sequence):
        raise InputError(
            f"relevant: expected, for each query, a list of page ids, found {relevant!r}"
        )
    if len(relevant) != len(asked):
        raise InputError(
            f"relevant: found {len(relevant)} lists of page ids for {len(asked)} queries; expected "
            "one each"
        )
    if len(asked) and asked.dim != pages.dim:
        raise VectorError(
            f"queries: their vectors have {asked.dim} numbers, those of the pages {pages.dim}"
        )
    rows = {page_id: row for row, page_id in enumerate(pages.ids)}
    answers: list[list[int]] = []
    for query, ids in zip(asked.ids, relevant, strict=True):
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise IdError(f"relevant, query {query!r}: expected a list of ids, found {ids!r}")
        try:
            answers.append(sorted({rows[page_id] for page_id in ids}))
        except KeyError as error:
            raise IdError(f"relevant, query {query!r}: page {error} is not in the pages") from None
    answered = [i for i, found in enumerate(answers) if 0 < len(found) < len(pages)]
    if len(answered) < 2:
        raise InputError(
            f"queries: {len(answered)} of {len(asked)} have a relevant page, and one that is not; "
            "at least 2 are needed"
        )
    kept = Queries([asked[i] for i in answered], [asked.ids[i] for i in answered])
    return kept, [answers[i] for i in answered]


def _split(answers: list[list[int]], share: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Queries to fit on and queries held out. Those that ask for a page which a held-out one asks
    for are not fitted on, as long as half of the rest remain."""
    order = rng.permutation(len(answers))
    held = order[: min(max(1, round(share * len(order))), len(order) - 1)]
    rest = order[len(held) :]
    taken = {row for query in held for row in answers[query]}
    apart = np.array([q for q in rest if taken.isdisjoint(answers[q])], dtype=np.int64)
    return (apart if 2 * len(apart) >= len(rest) else rest), held
