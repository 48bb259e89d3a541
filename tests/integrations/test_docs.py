"""The examples in docs/frameworks.md, run as they stand: what they print is what they say."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import mcp.client.stdio  # noqa: F401  # its servers write to what is stderr when it is imported
import pytest

import glie
from tests.integrations.conftest import Library
from tests.integrations.test_mteb import Painted, offline, pictured  # noqa: F401

TEXT = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
SECTIONS = {re.split(r"\W", part)[0]: part for part in TEXT.split("\n## ")[1:]}


def block(name: str, kind: str) -> str:
    """The code, or what it prints, of a section."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", SECTIONS[name], re.MULTILINE | re.DOTALL)
    return str(found)


def test_all_are_there() -> None:
    assert list(SECTIONS) == ["LangChain", "LlamaIndex", "Haystack", "MCP", "mteb"]
    assert TEXT.count("```python") == len(SECTIONS)


@pytest.mark.parametrize("name", ["LangChain", "LlamaIndex", "Haystack", "MCP"])
def test_an_example_prints_what_it_says(
    name: str,
    made: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(made.path, tmp_path / "reports.glie")
    monkeypatch.chdir(tmp_path)
    command = tmp_path / "bin" / "glie"  # this glie, whichever is installed
    command.parent.mkdir()
    source = str(Path(glie.__file__).parents[1])
    start = f"import sys; sys.path.insert(0, {source!r}); from glie.cli import main; main()"
    command.write_text(f"#!{sys.executable}\n{start}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    code = compile(block(name, "python"), f"docs/frameworks.md, {name}", "exec")
    exec(code, {"__name__": name})
    assert capsys.readouterr().out == block(name, "text")


def test_the_benchmark_runs_by_name(
    pictured: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a small set and model in place of those that would have to be fetched."""
    import mteb

    known = mteb.get_benchmark

    def small(name: str) -> Any:
        benchmark = known(name)  # or it is not known
        return mteb.Benchmark(name=benchmark.name, tasks=[pictured])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mteb, "get_benchmark", small)
    monkeypatch.setattr(mteb, "get_model", lambda name: Painted())
    exec(block("mteb", "python"), {"__name__": "mteb example"})
    printed = [line.split() for line in capsys.readouterr().out.strip().split("\n")]
    assert [line[:2] for line in printed] == [
        [f"ViDoRe(v{i})", "PaintedRetrieval"] for i in (1, 2, 3)
    ]
    assert all(0.5 < float(line[2]) <= 1 for line in printed)
    assert len(list((tmp_path / "indexes").iterdir())) == 1
    assert len(list((tmp_path / "results").rglob("PaintedRetrieval.json"))) == 1
