"""`glie cluster index`, and its old spelling `glie index --ray`. tests/distributed runs it."""

from __future__ import annotations

import pytest

from glie.cli.app import current_spelling
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reports"], "Missing option '--to' (or --engine)"),
        (["reports", "--to", "x", "--engine", "lancedb"], "Missing option '--to' (or --engine)"),
        (["reports", "--engine", "lancedb", "--url", "x"], "--collection: name the collection"),
        (["reports", "--to", "x", "--text", "some"], "text: expected auto, layer, ocr, none"),
        (["reports", "--engine", "lancedb", "--language", "de"], "an engine holds no words"),
        (["reports", "--engine", "a", "--url", "x", "--collection", "y"], "'a' is unknown"),
        (["reports", "--engine", "lancedb", "--collection", "y"], "--url: give the address"),
    ],
)
@pytest.mark.parametrize("verb", [("cluster", "index"), ("index", "--ray")])
def test_mistakes(verb: tuple[str, str], arguments: list[str], said: str, run: Run) -> None:
    done = run(*verb, *arguments)
    assert done.code in (1, 2)
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("option", ["--workers", "--engine"])
def test_options_of_a_cluster_need_one(run: Run, option: str) -> None:
    done = run("index", "reports", "--to", "x", option, "2")
    said = f"glie: {option}: an option of `glie cluster index`, not of `glie index`\n"
    assert (done.code, done.err) == (2, said)


def test_the_old_spelling() -> None:
    typed = ["index", "reports", "--ray", "--to", "x.glie", "--workers", "8"]
    new = ["cluster", "index", "reports", "--to", "x.glie", "--workers", "8"]
    assert current_spelling(typed) == new
    for other in (
        new,
        ["search", "x.glie", "--ray"],
        ["index", "reports", "--to", "x.glie"],
        ["index", "--to", "x", "--", "--ray"],
        [],
    ):
        assert current_spelling(other) == other


def test_help(run: Run) -> None:
    shown = run("cluster", "index", "--help").out
    for option in ("--to", "--workers", "--gpus", "--shards", "--engine", "--url", "--json"):
        assert option in shown
    shown = run("index", "--help").out
    for option in ("--ray", "--workers", "--engine", "--url", "--collection"):
        assert option not in shown
