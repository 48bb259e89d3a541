"""Fixtures: run `glie` as a user types it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from glie.cli import main
from tests.documents.test_documents import make_pdf
from tests.evaluation.sets import write_set


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["glie", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Done(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_pdf(
        Path("reports/a.pdf"),
        [
            "Capital expenditure in 2018 was 1,577 million dollars",
            "Rotor blades are inspected twice a year",
        ],
    )
    make_pdf(Path("reports/b.pdf"), ["Holiday allowance is 25 days for full-time staff"])
    return tmp_path


WORDS = [
    "tide",
    "rotor",
    "cable",
    "harbour",
    "staff",
    "budget",
    "tunnel",
    "fabric",
    "copper",
    "valley",
    "engine",
    "orchard",
]


def question_set(folder: Path) -> Path:
    """24 pages of two words each, and a question for each page."""
    pairs = [(a, b) for a in WORDS[:6] for b in WORDS[6:10]]
    return write_set(
        folder,
        [
            {"_id": f"p{i}", "text": f"the {a} and its {b} in the year"}
            for i, (a, b) in enumerate(pairs)
        ],
        [{"_id": f"q{i}", "text": f"what {b} has the {a}?"} for i, (a, b) in enumerate(pairs)],
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\tp{i}\t1\n" for i in range(24)),
    )
