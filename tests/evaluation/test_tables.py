"""Tables: rows, headings and figures."""

from __future__ import annotations

import pytest

from glie.evaluation.methods import ADAPTED, SHIPPED
from glie.evaluation.results import Results, margin
from glie.evaluation.store import Result, Setting
from glie.evaluation.tables import (
    improved,
    ladder,
    main_sweep,
    per_set,
    projected,
    rows,
)
from glie.measures import MEASURES
from tests.evaluation.test_results import METHODS, made, make


def test_without_a_baseline_there_is_no_margin() -> None:
    results = Results([make("a", "glie-free", 2, 0, [0.5])])
    assert margin(results, "glie-free", 2) is None
    assert improved(results) is None
    assert ladder(results) is None
    assert main_sweep(results).rows == [["normalised k-means", "0.500"]]


def test_the_ladder_adds_up() -> None:
    results = Results(made())
    table = ladder(results)
    assert table is not None
    assert [row[0] for row in table.rows] == [
        *("raw k-means", "normalised k-means", "refined, one stage", "full")
    ]
    for column in (1, 2):
        first, *rest = [row[column].split() for row in table.rows]
        total = float(first[0])
        for score, gain in rest:
            total += float(gain.strip("()"))
            assert total == pytest.approx(float(score), abs=0.003)


def test_budgets_in_bytes() -> None:
    """Two of them may hold as many vectors; a codebook is shared by more pages than were there."""
    results = []
    for dataset, pages in (("a", 100), ("b", 400)):
        for budget in (520, 600):
            codec = {"codebook_bytes": 10_000, "pages": pages}
            for method, k, extra in (("glie-free", 2, None), (ADAPTED, None, codec)):
                setting = Setting(dataset, method, k, bytes=budget)
                size = 500 + (10_000 / pages if extra else 0)
                measures = dict.fromkeys(MEASURES, budget / 1000)
                results.append(Result(setting, size, 1.0, measures, (budget / 1000,), extra))
    found = Results(results)
    assert main_sweep(found).header == ["method", "520 bytes", "600 bytes"]
    assert main_sweep(found).rows[0] == ["normalised k-means", "0.520", "0.600"]
    assert [row[0] for row in per_set(found)[0].rows] == [
        "normalised k-means",
        "codewords, adapted",
    ]
    table = projected(found)
    assert table is not None
    assert [row[:2] for row in table.rows] == [
        ["codebook", "10,000"],
        ["code of a page", "500"],
        ["a page, as measured", "562"],  # of 600 and 525
        ["a page of 10,000", "501"],
        ["a page of 1,000,000", "500"],
    ]
    assert projected(Results(made())) is None


def test_what_is_kept_is_said_of_each_of_our_methods() -> None:
    results = [make("a", method, 2, 0, [score]) for method, score in METHODS.items()]
    (table,) = per_set(Results([*results, make("a", "uncompressed", None, 0, [0.8])]))
    assert table.rows[0] == ["raw k-means, bytes a page", "200"]
    assert table.rows[-3:] == [
        ["normalised k-means, kept", "50%"],
        ["refined, one stage, kept", "62%"],
        ["full, kept", "75%"],
    ]
    in_bytes = [
        Result(Setting("a", method, bytes=520), 500, 1.0, dict.fromkeys(MEASURES, score), (score,))
        for method, score in ((SHIPPED, 0.6), (ADAPTED, 0.7))
    ]
    (table,) = per_set(Results([*in_bytes, make("a", "uncompressed", None, 0, [0.8])]))
    assert table.rows[-2:] == [["codewords, kept", "75%"], ["codewords, adapted, kept", "87%"]]


def test_rows_for_programs() -> None:
    found = rows(Results(made()))
    assert [row["method"] for row in found if row["dataset"] == "b"] == [*METHODS, *METHODS, "uncompressed"]  # fmt: skip
    first = found[0]
    assert (first["dataset"], first["k"], first["seeds"]) == ("a", 2, 1)
    assert first["standard_error"] is None
    assert found[4]["standard_error"] > 0
