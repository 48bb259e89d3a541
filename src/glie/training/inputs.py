"""The inputs of a fit: checked, and split into training and held-out queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.config import CodecConfig
from glie.errors import IdError, InputError, VectorError
from glie.pages import Pages, Queries
from glie.training.pseudo import pseudo_queries
from glie.training.recipe import Recipe

Ints = npt.NDArray[np.int64]


class Inputs(NamedTuple):
    """Pages and queries. `answers` has the rows of the relevant pages of each query; `trained` and
    `held` number the queries to fit on and those held out. Pseudo-queries are made of pages."""

    pages: Pages
    queries: Queries
    answers: list[list[int]]
    trained: Ints
    held: Ints
    pseudo: bool


def checked_inputs(
    pages: Pages,
    queries: Any,
    relevant: Sequence[Iterable[str]] | None,
    recipe: Recipe,
    rng: np.random.Generator,
) -> Inputs:
    """The inputs of a fit, or an error that says what is wrong with them."""
    _check_pages(pages, recipe)
    pseudo = queries is None
    if not pseudo:
        asked, answers = _checked_queries(pages, queries, relevant)
    elif relevant is not None:
        raise InputError("relevant: given without queries; give both, or neither")
    else:
        asked, answers = pseudo_queries(pages, np.arange(len(pages)), len(pages), rng)
    return Inputs(pages, asked, answers, *split(answers, recipe.holdout, rng), pseudo)


def checked_budgets(k: int | Iterable[int]) -> list[int]:
    """The budgets of a fit, in ascending order, each once."""
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
    """The queries with both relevant and other pages, and the rows of their relevant pages."""
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


def split(answers: list[list[int]], share: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The queries to fit on, and the queries held out.

    A query that shares a relevant page with a held-out query is not fitted on, unless that would
    drop more than half of the queries.
    """
    order = rng.permutation(len(answers))
    held = order[: min(max(1, round(share * len(order))), len(order) - 1)]
    rest = order[len(held) :]
    taken = {row for query in held for row in answers[query]}
    apart = np.array([q for q in rest if taken.isdisjoint(answers[q])], dtype=np.int64)
    return (apart if 2 * len(apart) >= len(rest) else rest), held
