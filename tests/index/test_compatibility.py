"""A small index of every released format, opened and changed by the code of today."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tools.specimen import SPECIMENS, answers, queries

import glie

FORMATS = Path(__file__).parent.parent / "data" / "formats"


@pytest.fixture(params=SPECIMENS)
def specimen(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what was committed: nothing is written where it lies."""
    shutil.copy(FORMATS / f"{request.param}.json", tmp_path)
    shutil.copytree(FORMATS / request.param, tmp_path / request.param)
    return tmp_path / str(request.param)


def test_it_answers_as_it_did(specimen: Path) -> None:
    index = glie.Index.open(specimen)
    expected = json.loads(specimen.with_suffix(".json").read_text())
    found = json.loads(json.dumps(answers(index)))
    np.testing.assert_allclose(found.pop("scores"), expected.pop("scores"), rtol=1e-5)
    assert found == expected
    assert index.encoder == {"name": "specimen", "revision": None}
    assert index.verify().whole
    candidates = index.search(queries(), top=32, exact=False)[0]
    assert sorted(candidates.ids) == sorted(found["ids"])


def test_it_goes_on(specimen: Path) -> None:
    index = glie.Index.open(specimen)
    ids = index.ids
    index.add(glie.Pages([np.eye(8)], ids=["new"]))
    index.delete(ids[:1])
    index.compact()
    assert glie.Index.open(specimen).ids == [*ids[1:], "new"]
    assert index.verify().whole


def test_every_version_that_can_be_written_is_kept() -> None:
    versions = {
        json.loads((FORMATS / name / "manifest.json").read_text())["version"] for name in SPECIMENS
    }
    assert versions == {1, 2}
    segments = {path.read_bytes()[8] for path in FORMATS.rglob("*.seg")}
    assert segments == {1, 2}
    assert sum(path.stat().st_size for path in FORMATS.rglob("*") if path.is_file()) < 100_000


def test_a_newer_one_is_refused_with_the_remedy(specimen: Path) -> None:
    manifest = specimen / "manifest.json"
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**body, "version": 99}))
    with pytest.raises(glie.CorruptIndexError, match=r"format version 99.*upgrade glie"):
        glie.Index.open(specimen)
    codec = specimen / "codec" / "config.json"
    if codec.exists():
        codec.write_text(json.dumps({**json.loads(codec.read_text()), "version": 99}))
        with pytest.raises(glie.CodecError, match=r"version 99.*upgrade glie"):
            glie.Codec.load(codec.parent)
