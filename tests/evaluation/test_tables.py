"""Tables: rows, headings and figures."""

from __future__ import annotations

import numpy as np
import pytest

from glie.evaluation.methods import ADAPTED, NAMES, SHIPPED
from glie.evaluation.results import Results, margin
from glie.evaluation.store import Result, Setting
from glie.evaluation.tables import (
    improved,
    ladder,
    main_sweep,
    per_set,
    percentages,
    projected,
    rows,
    tables,
)
from glie.measures import MEASURES
from tests.evaluation.test_results import METHODS, made, make


def test_without_a_baseline_there_is_no_margin() -> None:
    results = Results([make("a", "glie-free", 2, 0, [0.5])])
    assert margin(results, "glie-free", 2) is None
    assert improved(results) is None
    assert ladder(results) is None
    assert main_sweep(results).rows == [["glie-free", "0.500"]]


def test_the_ladder_adds_up() -> None:
    results = Results(made())
    table = ladder(results)
    assert table is not None
    assert [row[0] for row in table.rows] == [*("raw-kmeans", "glie-free", "glie-stage1", "glie")]
    for column in (1, 2):
        cells = [float(row[column]) for row in table.rows]
        full = next(row for row in main_sweep(results).rows if row[0] == "glie")
        assert sum(cells) == pytest.approx(float(full[column].split()[0]), abs=0.003)


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
    assert main_sweep(found).rows[0] == ["glie-free", "0.520", "0.600"]
    assert [row[0] for row in per_set(found)[0].rows] == [
        "glie-free",
        "glie-bytes-adapted",
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
    assert table.rows[0] == ["raw-kmeans, bytes a page", "200"]
    assert table.rows[-4:] == [
        ["glie-free, kept", "50%"],
        ["glie-stage1, kept", "62%"],
        ["glie, kept", "75%"],
        ["uncompressed", "0.800"],
    ]
    in_bytes = [
        Result(Setting("a", method, bytes=520), 500, 1.0, dict.fromkeys(MEASURES, score), (score,))
        for method, score in ((SHIPPED, 0.6), (ADAPTED, 0.7))
    ]
    (table,) = per_set(Results([*in_bytes, make("a", "uncompressed", None, 0, [0.8])]))
    assert table.rows[-3:-1] == [["glie-bytes, kept", "75%"], ["glie-bytes-adapted, kept", "87%"]]


# the rows of the paper's tables, then ours
ORDER = [
    *("raw-kmeans", "token-pooling", "cluster-merging"),
    *("glie-free", "glie-stage1", "glie", "oracle"),
    *("hierarchical-pooling", "token-pooling-raw", "glie-free-scaled", "quantised", "ward-1bit"),
    *("plaid", "glie-bytes", "glie-bytes-adapted", "uncompressed"),
]


def test_the_rows_of_the_paper_in_its_order() -> None:
    methods = [method for method in reversed(NAMES) if method != "uncompressed"]
    results = [
        make(dataset, method, k, 0, [0.6 if (dataset, method) == ("a", "glie") else 0.4])
        for dataset in "ab"
        for k in (2, 4)
        for method in methods
    ]
    results += [make(dataset, "uncompressed", None, 0, [0.8]) for dataset in "ab"]
    table = main_sweep(Results(results))
    assert [row[0] for row in table.rows] == ORDER
    kept = percentages(Results(results))
    assert kept is not None
    assert ["glie", "62%", "62%"] in kept.rows  # of 0.5 in 0.8
    (first, *rest) = per_set(Results(results))[0].rows
    assert first[0] == "raw-kmeans, bytes a page"
    assert [name for name, *_ in rest if not name.endswith(", kept")] == ORDER
    wins = improved(Results(results))
    assert wins is not None
    assert ["glie", "1 of 2", "1 of 2"] in wins.rows
    assert "glie-free itself is compared with the others" in wins.note
    assert "hierarchical-pooling" in wins.note
    assert "token-pooling-raw" not in wins.note


def test_a_part_of_the_methods_keeps_the_order() -> None:
    some = ("hierarchical-pooling", "glie", "raw-kmeans")
    table = main_sweep(Results([make("a", method, 2, 0, [0.5]) for method in some]))
    assert [row[0] for row in table.rows] == [*("raw-kmeans", "glie", "hierarchical-pooling")]


def test_the_tables_of_sizes_and_shortlists(results: list[Result]) -> None:
    """Columns and rows as in the paper."""
    found = {table.name: table for table in tables(Results(results))}
    assert found["capacity"].header == ["width x depth", "params", "k = 4", "k = 16"]
    assert [row[0] for row in found["capacity"].rows] == ["16x1", "16x3"]
    assert "at most 500 pages" in found["capacity"].title
    for size, _, *cells in found["capacity"].rows:
        for k, cell in zip((4, 16), cells, strict=True):
            here = [r.ndcg for r in results if r.setting.variant == size and r.setting.k == k]
            assert cell == f"{np.mean(here):.3f}"
    assert found["shortlist"].header == ["L", "glie", "oracle"]
    assert [row[0] for row in found["shortlist"].rows] == ["5", "10", "20", "50", "100"]
    for length, *cells in found["shortlist"].rows:
        for method, cell in zip(("glie", "oracle"), cells, strict=True):
            listed = [r for r in results if r.setting.variant == "shortlist"]
            mine = [r for r in listed if r.setting.method == method]
            here = [r.ndcg for r in mine if r.setting.shortlist == int(length)]
            assert cell == f"{np.mean(here):.3f}"
    assert [row[:2] for row in found["data"].rows] == [
        *(["25% of pages", "18"], ["50% of pages", "35"], ["100% of pages", "70"])
    ]


def test_rows_for_programs() -> None:
    found = rows(Results(made()))
    assert [row["method"] for row in found if row["dataset"] == "b"] == [*METHODS, *METHODS, "uncompressed"]  # fmt: skip
    first = found[0]
    assert (first["dataset"], first["k"], first["seeds"]) == ("a", 2, 1)
    assert first["standard_error"] is None
    assert found[4]["standard_error"] > 0
