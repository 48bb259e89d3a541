"""The examples in docs/ run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def run_examples(name: str) -> None:
    """Run the Python of a document, in the current folder."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})


@pytest.mark.parametrize("name", ["engines.md"])  # that of ray.md waits for a cluster
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(name)
