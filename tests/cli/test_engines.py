"""`glie export` and `glie search --engine`, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest

import glie
from tests.cli.conftest import Run
from tests.documents.test_documents import make_pdf


@pytest.fixture
def reports(run: Run, documents: Path) -> Path:
    assert run("index", documents, "--to", "reports.glie").code in (0, 3)
    return Path("reports.glie")


QUESTION = "capital expenditure in 2018"


@pytest.mark.parametrize("engine", ["qdrant", "qdrant-edge", "lancedb"])
def test_export_and_search(engine: str, run: Run, reports: Path) -> None:
    there = ["--url", "store"]
    first = run("export", reports, "--to", engine, *there, "--json").json
    expected = run("search", reports, QUESTION, "--mode", "late", "--json").json
    for hit in expected["hits"]:
        hit.pop("strength")  # which an engine does not know
    pages = first["pages"]
    assert (first["pages_uploaded"], first["collection"]) == (pages, "reports")
    assert pages == len(expected["hits"])
    again = run("export", reports, "--to", engine, *there)
    assert f"0 pages stored, {pages} unchanged" in again.out
    asked = ["search", "--engine", engine, *there, "--collection", "reports"]
    found = run(*asked, *QUESTION.split(), "--json").json
    assert found["query"] == QUESTION
    assert found["hits"] == expected["hits"]
    assert found["cost"]["seconds"] > 0
    named = run("search", reports, QUESTION, "--engine", engine, "--path", "store", "--json")
    assert named.json["hits"] == expected["hits"]
    best = expected["hits"][0]
    some = run(*asked, "--document", best["document"], "--json", QUESTION).json["hits"]
    assert {hit["document"] for hit in some} == {best["document"]}
    both = ["--document", best["document"], "--where", "not page=2"]
    assert [hit["page"] for hit in some] != [1]
    assert [hit["page"] for hit in run(*asked, *both, "--json", QUESTION).json["hits"]] == [1]
    done = run(*asked, "--mode", "hybrid", QUESTION)
    assert (done.code, "an engine holds no words" in done.err) == (2, True)
    done = run(*asked, "--document", "c.pdf", QUESTION)
    assert (done.code, done.out) == (0, "no page matches\n")
    shown = run(*asked, QUESTION, "--top", 1, "--exact").out
    assert best["id"] in shown
    assert "1,577 million" in shown


def test_prune(run: Run, reports: Path) -> None:
    there = ["--to", "lancedb", "--uri", "store", "--table", "pages"]
    pages = run("export", reports, *there, "--setting", "datatype=float16", "--json").json["pages"]
    make_pdf(Path("reports/new.pdf"), ["One more page"])
    run("add", reports, "reports/new.pdf")
    assert run("delete", reports, glie.Index.open(reports).ids[0]).code == 0
    done = run("export", reports, *there)
    assert f"1 page stored, {pages - 1} unchanged" in done.out
    assert f"holds {pages + 1} pages" in done.out
    assert "1 deleted" in run("export", reports, *there, "--prune").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "nope.glie", "--to", "qdrant", "--url", "x"], "nope.glie: does not exist"),
        (["export", "reports.glie", "--to", "faiss", "--url", "x"], "engine 'faiss' is unknown"),
        (["export", "reports.glie", "--to", "faiss"], "engine 'faiss' is unknown"),
        (["export", "reports.glie", "--to", "lancedb"], "--url: give the address of lancedb"),
        (
            ["export", "reports.glie", "--to", "qdrant", "--url", "http://127.0.0.1:9"],
            "cannot be reached",
        ),
        (
            ["export", "reports.glie", "--to", "lancedb", "--url", "x", "--setting", "a"],
            "--setting: expected NAME=VALUE",
        ),
        (
            ["export", "reports.glie", "--to", "lancedb", "--url", "x", "--setting", "a=1"],
            "settings: a unknown",
        ),
        (
            ["search", "--engine", "lancedb", "--url", "x", "what"],
            "--collection: name the collection",
        ),
        (
            ["search", "--engine", "lancedb", "--url", "x", "--collection", "y", "what"],
            "lancedb at x, table 'y': not there; `glie export` makes it",
        ),
        (["search", "--engine", "lancedb", "reports.glie"], "Missing argument"),
        (["search", "reports.glie", "what", "--url", "x"], "these need --engine"),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_mistakes(arguments: list[str], said: str, run: Run, reports: Path) -> None:
    done = run(*arguments)
    assert done.code in (1, 2)
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1
