"""From the sample documents to answers: the whole way, with the embedded encoder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import glie
from glie.encoders import load_encoder
from glie.ingest import Report, ingest

SAMPLES = Path(__file__).parent.parent / "samples"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    subprocess.run([sys.executable, SAMPLES / "make_samples.py", folder], check=True)
    return folder


def build(folder: Path, documents: Path, k: int) -> tuple[glie.Index, Report]:
    encoder = load_encoder()
    named = {"name": encoder.name, "revision": encoder.revision}
    index = glie.Index.create(folder / f"{k}.glie", glie.Codec(k=k), encoder=named)
    return index, ingest(index, encoder, [documents])


def test_questions_find_their_pages(made: Path, tmp_path: Path) -> None:
    answers = json.loads((SAMPLES / "answers.json").read_text())
    queries = load_encoder().encode_queries(list(answers))
    first = {}
    for k in (4, 16):
        index, report = build(tmp_path, made, k)
        assert report.problems == []
        assert (report.pages_added, report.pages_by_ocr) == (27, 1)
        hits = index.search(queries, top=5)
        first[k] = sum(h.ids[0] == page for h, page in zip(hits, answers.values(), strict=True))
        assert all(page in h.ids for h, page in zip(hits, answers.values(), strict=True))
    assert first[4] >= 11
    assert first[16] >= 12


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
