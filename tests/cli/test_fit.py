"""`glie fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import glie
from tests.cli.conftest import Run, question_set


def test_fit_index_search_and_evaluate(run: Run, documents: Path) -> None:
    folder = question_set(Path("small"))
    fitted = run("fit", folder, "--k", "1,2", "--to", "my.codec", "--epochs", "1", "--json")
    assert fitted.code == 0
    assert [budget["k"] for budget in fitted.json["budgets"]] == [1, 2]
    assert fitted.json["steps"] == 1 + 3  # 19 questions: the code, 48 at a time; then 8 at a time
    codec = glie.Codec.load("my.codec")
    assert codec.encoder is not None
    assert codec.encoder["name"] == "english"
    assert run("index", "reports", "--to", "x.glie", "--codec", "my.codec").code == 0
    assert glie.Index.open("x.glie").codec.scores
    assert glie.Index.open("x.glie").codec.k == 1
    hits = run("search", "x.glie", "rotor blades", "--shortlist", "2", "--json").json
    assert hits["cost"]["pages_regenerated"] in (0, 2)  # 0 where fitting did not help
    rows = run("evaluate", folder, "--k", "2", "--codec", "my.codec", "--json").json
    assert [row["method"] for row in rows] == [
        *("raw-kmeans", "glie-free", "glie-stage1", "glie", "uncompressed")
    ]
    shown = run("evaluate", folder, "--k", "2", "--codec", "my.codec").out
    assert "glie-stage1" in shown


def test_fit_without_questions(run: Run, documents: Path) -> None:
    folder = question_set(Path("sets/small"))
    (folder / "queries.jsonl").unlink()
    done = run("fit", "sets", "--to", "my.codec", "--epochs", "1", "--no-queries")
    assert done.code == 0
    assert "made of page vectors" in done.out
    assert "on 5 questions held out, about 5 other pages" in done.out
    assert "4 of 4 steps" in done.err  # progress, where nobody watches
    assert glie.Codec.load("my.codec").k == 4


def test_an_interrupted_fit_keeps_the_best(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import glie.training.fitter

    steps = []

    terms = glie.training.fitter.Fitter._code_terms

    def interrupted(self: Any, queries: Any, k: int) -> Any:
        steps.append(queries)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return terms(self, queries, k)

    monkeypatch.setattr(glie.training.fitter.Fitter, "_code_terms", interrupted)
    done = run("fit", question_set(Path("small")), "--to", "my.codec")
    assert done.code == 130
    assert "interrupted after 1 steps; my.codec is the best so far" in done.err
    assert glie.Codec.load("my.codec").scores
