"""From the sample documents to answers: the whole way, with the embedded encoder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import glie
from glie.encoders import Encoder, load_encoder
from glie.indexing import open_or_create
from glie.ingest import ingest
from tests.conftest import Floats

SAMPLES = Path(__file__).parent.parent / "samples"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    subprocess.run([sys.executable, SAMPLES / "make_samples.py", folder], check=True)
    return folder


class Recording:
    """An encoder that keeps the vectors of the pages it has encoded."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.vectors = encoder, list[Floats]()
        self.name, self.revision = encoder.name, encoder.revision

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        found = self.encoder.encode_pages(pages)
        self.vectors += found
        return found

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        return self.encoder.encode_queries(texts)


def test_questions_find_their_pages(made: Path, tmp_path: Path) -> None:
    """With the encoder of earlier versions, from documents at k = 4; at k = 16 from the same vectors,
    so that nothing is read twice."""
    answers = json.loads((SAMPLES / "answers.json").read_text())
    encoder = Recording(load_encoder("minilm"))
    queries = encoder.encode_queries(list(answers))
    named = {"name": encoder.name, "revision": encoder.revision}
    indexes = {
        k: glie.Index.create(tmp_path / f"{k}.glie", glie.Codec(k=k), encoder=named)
        for k in (4, 16)
    }
    report = ingest(indexes[4], encoder, [made])
    assert report.problems == []
    assert (report.pages_added, report.pages_by_ocr) == (27, 1)
    indexes[16].add(glie.Pages(encoder.vectors, ids=indexes[4].ids))
    first = {}
    for k, index in indexes.items():
        hits = index.search(queries, top=5)
        first[k] = sum(h.ids[0] == page for h, page in zip(hits, answers.values(), strict=True))
        assert all(page in h.ids for h, page in zip(hits, answers.values(), strict=True))
    assert first[4] >= 11
    assert first[16] >= 12


def test_questions_find_their_pages_as_users_ask(made: Path, tmp_path: Path) -> None:
    """With the embedded encoder, at the default budget."""
    answers = json.loads((SAMPLES / "answers.json").read_text())
    index, encoder = open_or_create(tmp_path / "x.glie", [made])
    ingest(index, encoder, [made])
    hits = index.search(encoder.encode_queries(list(answers)), top=5)
    found = [
        (h.ids[0] == page, page in h.ids) for h, page in zip(hits, answers.values(), strict=True)
    ]
    assert sum(first for first, _ in found) >= 11
    assert all(among for _, among in found)


def test_the_questions_that_are_asked_have_answers() -> None:
    answers = json.loads((SAMPLES / "answers.json").read_text())
    asked = (SAMPLES / "questions.txt").read_text().strip().split("\n")
    assert len(asked) == 3
    assert set(asked) <= set(answers)


def test_making_them_again_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, SAMPLES / "make_samples.py", tmp_path], check=True)
    names = sorted(p.relative_to(made) for p in made.rglob("*") if p.is_file())
    assert len(names) == 9
    for name in names:
        assert (made / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_help_writes_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SAMPLES / "make_samples.py", "--help"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "FOLDER" in done.stdout
    assert not list(tmp_path.iterdir())
