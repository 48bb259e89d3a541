"""Reports: files that stand alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

from glie.evaluation import Encoded
from glie.evaluation.experiment import run
from glie.evaluation.methods import SHIPPED
from glie.evaluation.report import STYLE, write_report
from glie.evaluation.results import Results
from glie.evaluation.store import Result, Store
from tests.evaluation.topics import (
    ALL,
    plan,
)


def test_of_uncompressed_vectors_alone(sets: list[Encoded], tmp_path: Path) -> None:
    results = Results(run(sets, plan(["uncompressed"]), None, Store(None)))
    assert results.methods == []
    write_report(tmp_path, results, sets, "glie evaluate")
    assert "| uncompressed |" in (tmp_path / "report.md").read_text()
    assert not list(tmp_path.glob("*.png"))


def test_a_report_stands_alone(sets: list[Encoded], results: list[Result], tmp_path: Path) -> None:
    write_report(tmp_path, Results(results), sets, "glie evaluate one two", ["Zero-shot."])
    written = json.loads((tmp_path / "results.json").read_text())
    assert {row["method"] for row in written["rows"]} == set(ALL) - {SHIPPED}
    assert {"main", "ladder", "projected", "shortlist", "capacity", "data"} <= set(
        written["tables"]
    )
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert 'src="http' not in page
    assert "<script" not in page
    text = (tmp_path / "report.md").read_text()
    for name in ("quality.png", "margin.png", "headroom.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert f"({name})" in text
    assert "| method | k = 1, 36 bytes | k = 2, 72 bytes |" in text


def test_a_report_of_bytes(
    long_sets: list[Encoded], byte_results: list[Result], tmp_path: Path
) -> None:
    write_report(tmp_path, Results(byte_results), long_sets, "glie evaluate one two")
    text = (tmp_path / "report.md").read_text()
    assert "| method | 300 bytes | 1,000 bytes |" in text
    assert "## Projected: bytes of glie-bytes-adapted" in text
    assert "Santhanam et al. 2022" in text
    assert "never on a question" in text
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {(row["k"], row["budget_bytes"]) for row in rows if row["method"] == "glie-free"} == {
        (1, 300),
        (3, 1000),
    }


def test_the_page_is_dark_where_the_system_is() -> None:
    """Colours are named once for each scheme, and only there."""
    schemes, rest = STYLE.split("body {", 1)
    assert "prefers-color-scheme: dark" in schemes
    assert set(re.findall(r"#[0-9a-f]{3,6}\b", rest)) == {"#fff"}  # behind plots
