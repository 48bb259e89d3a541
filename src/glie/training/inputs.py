"""The inputs of a fit: checked, and split by page into training and holdout."""

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


class Split(NamedTuple):
    """The queries to fit on and those held out, by number, and the pages held out, by row. A fit
    reads no held-out page. Where pages cannot be divided, none is held out."""

    trained: Ints
    held: Ints
    held_pages: Ints


class Inputs(NamedTuple):
    """Pages and queries. `answers` has the rows of the relevant pages of each query.
    Pseudo-queries are made of pages."""

    pages: Pages
    queries: Queries
    answers: list[list[int]]
    split: Split
    pseudo: bool

    @property
    def trained_pages(self) -> Ints:
        """The rows of the pages to fit on."""
        return np.setdiff1d(np.arange(len(self.pages)), self.split.held_pages)

    @property
    def counts(self) -> dict[str, int]:
        """How many pages and queries each side has, for the notes of a fit."""
        trained, held, held_pages = self.split
        return {
            "pages": len(self.pages),
            "trained_pages": len(self.trained_pages),
            "held_out_pages": len(held_pages),
            "queries": len(trained),
            "held_out": len(held),
        }


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
    return Inputs(pages, asked, answers, split(answers, len(pages), recipe.holdout, rng), pseudo)


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


def split(answers: list[list[int]], pages: int, share: float, rng: np.random.Generator) -> Split:
    """Hold out about this share of the queries, by page: a held-out query has only held-out pages,
    and every other query is fitted on, with what it has of the other pages.

    If that leaves nothing to fit on, as where all queries ask for one page, both sides share all
    pages.
    """
    order = rng.permutation(len(answers))
    wanted = min(max(1, round(share * len(order))), len(order) - 1)
    asked_of: dict[int, list[int]] = {}
    for query, rows in enumerate(answers):
        for row in rows:
            asked_of.setdefault(row, []).append(query)
    held, taken = set[int](), set[int]()
    for query in order.tolist():
        if len(held) >= wanted:
            break
        taken.update(answers[query])
        touched = {other for row in answers[query] for other in asked_of[row]}
        held.update(other for other in touched if taken.issuperset(answers[other]))
    left = [len(set(rows) - taken) for rows in answers]
    trained = [query for query in order.tolist() if 0 < left[query] < pages - len(taken)]
    if not trained:
        return Split(order[wanted:], order[:wanted], np.empty(0, np.int64))
    return Split(*(np.array(found, np.int64) for found in (trained, sorted(held), sorted(taken))))
