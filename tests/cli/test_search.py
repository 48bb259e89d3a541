"""`glie search`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import glie
from glie.candidates import build
from tests.cli.conftest import Run


def test_search_as_json(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--k", 16)
    found = run("search", "x.glie", "vacation days", "--top", 2, "--json").json
    assert found["query"] == "vacation days"
    assert len(found["hits"]) == 2
    hit = found["hits"][0]
    assert (hit["rank"], hit["id"], hit["document"], hit["page"]) == (1, "b.pdf#1", "b.pdf", 1)
    assert hit["path"] == str(documents / "reports" / "b.pdf")
    assert hit["snippet"].startswith("Holiday allowance")
    assert hit["metadata"]["origin"] == "text"
    assert found["cost"]["pages_scanned"] == 3
    assert found["cost"]["bytes_read"] == 3 * 16 * (256 + 2)
    only = run("search", "x.glie", "vacation days", "--document", "a.pdf", "--json").json
    assert {hit["document"] for hit in only["hits"]} == {"a.pdf"}


def test_filters(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--k", 4)
    asked = ["search", "x.glie", "vacation days", "--json"]

    def found(*options: object) -> set[str]:
        return {hit["id"] for hit in run(*asked, *options).json["hits"]}

    assert found("--where", "page >= 2") == {"a.pdf#2"}
    assert found("--where", "page=1") == {"a.pdf#1", "b.pdf#1"}
    assert found("--where", "page=1", "--where", "document != a.pdf") == {"b.pdf#1"}
    assert found("--where", "page < 2", "--document", "a.pdf") == {"a.pdf#1"}
    assert found("--where", '{"or": [{"page": 2}, {"document": "b.pdf"}]}') == {
        *("a.pdf#2", "b.pdf#1")
    }
    none = run("search", "x.glie", "vacation days", "--where", "year exists")
    assert (none.code, none.out) == (0, "no page matches\n")
    wrong = run("search", "x.glie", "vacation days", "--where", "page >=")
    assert wrong.code == 1
    assert "where: character 8: expected a value, found the end, in 'page >=⟨here⟩'" in wrong.err
    assert len(wrong.err.strip().splitlines()) == 1


def test_candidates_or_every_page(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    run("index", "reports", "--to", "x.glie", "--k", 4)
    assert "no candidate index: every page is scanned" in run("info", "x.glie").out
    monkeypatch.setattr(build, "CANDIDATE_PAGES", 2)
    run("compact", "x.glie")
    assert "of these bytes a page, on top of any budget" in run("info", "x.glie").out
    assert run("info", "x.glie", "--json").json["candidate_bytes"] > 0
    asked = ["search", "x.glie", "vacation days"]
    assert "3 pages of 3 estimated scanned" in run(*asked).out
    assert "3 pages scanned" in run(*asked, "--exact").out
    for how, estimated in ((), 3), (("--exact",), 0), (("--candidates",), 3):
        found = run(*asked, *how, "--json").json
        assert found["hits"][0]["id"] == "b.pdf#1"
        assert found["cost"]["pages_estimated"] == estimated


def test_unquoted_questions_versions_and_names(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie")
    found = run("search", "x.glie", "vacation", "days", "--top", 1, "--json").json
    assert (found["query"], found["hits"][0]["id"]) == ("vacation days", "b.pdf#1")
    done = run("search", "x.glie", "days", "--document", "c.pdf")
    assert (done.code, "c.pdf: neither a document nor a page" in done.err) == (1, True)
    assert run("--version").out == f"glie {glie.__version__}\n"
    assert "glie index reports/ --to reports.glie" in run().out


def test_hits_are_shown_where_their_files_cannot_be_read(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "reports", "--to", "x.glie")
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    found = run("search", "x.glie", "vacation days", "--json").json["hits"]
    assert (found[0]["id"], found[0]["snippet"]) == ("b.pdf#1", "")


def test_text_is_shown_as_it_is(run: Run, documents: Path) -> None:
    """Neither markup nor emoji codes nor terminal codes of a document are obeyed."""
    Path("odd [/x]").mkdir(parents=True)
    Path("odd [/x]/[bold]a.md").write_text(
        "Latex: \\alpha and \\[/bold] :dog: \x1b[31m C:\\temp\\alpha"
    )
    assert run("index", "odd [/x]", "--to", "[y].glie").code == 0
    done = run("search", "[y].glie", "what is alpha [/bold] ?")
    assert done.code == 0
    assert "[bold]a.md#1" in done.out
    assert "\\alpha and \\[/bold] :dog:" in done.out
    assert "\x1b" not in done.out
    assert run("info", "[y].glie", "--documents").code == 0


def test_an_empty_index_answers(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie")
    run("delete", "x.glie", "a.pdf", "b.pdf")
    assert run("search", "x.glie", "anything").out == "no pages: the index is empty\n"
    assert run("search", "x.glie", "anything", "--json").json["hits"] == []
    assert run("info", "x.glie").code == 0
