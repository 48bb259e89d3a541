"""Halves of a set: no page in both, no question cut in two."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import glie
from glie.evaluation import Encoded
from glie.evaluation.split import split_by_page
from glie.evaluation.store import fingerprint
from tests.evaluation.topics import PAGES


def with_answers(encoded: Encoded, answers: list[list[Any]]) -> Encoded:
    """The same pages, and a question for each of these lists of pages."""
    asked = encoded.queries.slice(0, len(answers))
    relevant = {
        query: {f"p{page}": 1 + place for place, page in enumerate(pages)}
        for query, pages in zip(asked.ids, answers, strict=True)
    }
    return dataclasses.replace(encoded, queries=asked, relevant=relevant)


def test_two_halves(sets: list[Encoded]) -> None:
    one = sets[0]
    train, test, dropped = split_by_page(one)
    assert (train.name, test.name, dropped) == ("one-train-half", "one-test-half", 0)
    assert len(train.page_ids) == len(test.page_ids) == PAGES // 2
    assert sorted(train.page_ids + test.page_ids) == sorted(one.page_ids)
    assert sorted(train.query_ids + test.query_ids) == sorted(one.query_ids)
    for half in (train, test):
        for query, tokens in zip(half.queries.ids, half.queries, strict=True):
            assert half.relevant[query] == one.relevant[query]  # the page, and its grade
            assert set(half.relevant[query]) <= set(half.page_ids)
            np.testing.assert_array_equal(tokens, one.queries[one.query_ids.index(query)])
        rows = [one.page_ids.index(page) for page in half.page_ids]
        assert rows == sorted(rows)
        expected = one.take(rows)
        np.testing.assert_array_equal(half.lengths, expected.lengths)
        np.testing.assert_array_equal(half.pages().vectors, expected.vectors)
        blocks = list(half.blocks())
        assert [page for block in blocks for page in block.ids] == half.page_ids
        assert len(blocks) > 2  # read block by block, like the whole set
        assert half.encoder == one.encoder


def test_a_seed_gives_the_same_halves_and_another_gives_others(sets: list[Encoded]) -> None:
    first, again, other = (split_by_page(sets[0], seed).test for seed in (0, 0, 1))
    assert fingerprint(first) == fingerprint(again)
    assert fingerprint(first) != fingerprint(other)
    same_name = dataclasses.replace(first, name=sets[0].name)
    assert fingerprint(same_name) != fingerprint(sets[0])


def test_pages_of_a_question_stay_together(sets: list[Encoded]) -> None:
    """Also where questions form a chain; the halves are as even as that allows."""
    chain = [[page, page + 1] for page in range(9)]  # ten pages, hand in hand
    answers: list[list[Any]] = [
        *chain,
        [20, 30, 40],
        [50],
        [50],
        [51, "gone"],
        ["gone"],
        ["gone", "lost"],
    ]
    encoded = with_answers(sets[0], answers)
    found = split_by_page(encoded)
    for half in (found.train, found.test):
        pages = set(half.page_ids)
        for query in half.query_ids:
            assert half.relevant[query] == encoded.relevant[query]
            known = {page for page in half.relevant[query] if page in encoded.page_ids}
            assert known <= pages
        assert len({f"p{page}" for page in range(10)} & pages) in (0, 10)
    assert found.dropped == 2
    assert len(found.train.page_ids) == len(found.test.page_ids)
    assert found.note == (
        "one-test-half: fitted on 35 pages and 9 questions, measured on 35 pages and 4 questions; "
        "2 questions dropped, with no page in the set."
    )


def test_both_halves_have_questions(sets: list[Encoded]) -> None:
    """Even if most pages have none."""
    found = split_by_page(with_answers(sets[0], [[page, page + 1] for page in range(0, 20, 2)]))
    assert [len(half.queries) for half in found[:2]] == [5, 5]
    assert [len(half.page_ids) for half in found[:2]] == [35, 35]


@pytest.mark.parametrize("answers", [[[3]], [[1, 2], [2, 3], [3, 4]], [["gone"], [1]]])
def test_what_has_no_two_halves(sets: list[Encoded], answers: list[list[Any]]) -> None:
    with pytest.raises(glie.DatasetError, match="one: it has no two halves with questions"):
        split_by_page(with_answers(sets[0], answers))
