"""Small indexes of every format, by the code that wrote it, opened and changed by that of today."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from tools.specimen import answers, codeword_codec, queries

import glie
from glie.codec.readout.codebook import Codebook
from glie.evaluation import Encoded, load
from glie.index.format import SEGMENT_HEADER
from glie.storage import checksum

DATA = Path(__file__).parent.parent / "data"
FORMATS = sorted(path.stem for path in (DATA / "formats").glob("*.json"))


@pytest.fixture(params=FORMATS)
def specimen(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what was committed: nothing is written where it lies."""
    shutil.copy(DATA / "formats" / f"{request.param}.json", tmp_path)
    shutil.copytree(DATA / "formats" / request.param, tmp_path / request.param)
    return tmp_path / str(request.param)


def test_it_answers_as_it_did(specimen: Path) -> None:
    """The codecs of the first day regenerated in steps that were not yet in proportion to a
    cluster's spread, so theirs is asked without: `shortlist` 0, the codes alone."""
    index = glie.Index.open(specimen)
    expected = json.loads(specimen.with_suffix(".json").read_text())
    found = json.loads(json.dumps(answers(index, expected.pop("shortlist", None))))
    np.testing.assert_allclose(found.pop("scores"), expected.pop("scores"), rtol=1e-5)
    if "words" in expected:
        one, other = found.pop("words"), expected.pop("words")
        assert one[0] == other[0]
        np.testing.assert_allclose(one[1], other[1], rtol=1e-5)
    assert found == expected
    assert index.encoder is not None
    assert index.verify().whole
    assert index.dim is not None
    candidates = index.search(queries(index.dim), top=32, exact=False)[0]
    assert sorted(candidates.ids) == sorted(found["ids"])


def test_it_goes_on(specimen: Path) -> None:
    index = glie.Index.open(specimen)
    ids, codes = index.ids, index.codes(index.ids)
    assert index.dim is not None
    index.add(glie.Pages([np.eye(index.dim)], ids=["new"]))
    index.delete(ids[:1])
    index.compact()
    again = glie.Index.open(specimen)
    assert again.ids == [*ids[1:], "new"]
    assert again.verify().whole
    np.testing.assert_array_equal(again.codes(ids[1:]).vectors, codes.vectors[1:])


def test_it_gains_words(specimen: Path) -> None:
    """Every index can be searched by words once its pages are given theirs."""
    index = glie.Index.open(specimen)
    assert index.dim is not None
    ids, late = index.ids, index.search(queries(index.dim), top=9, exact=True)[0]
    had = index.info().pages_with_text
    index.compact(lambda page_id, metadata: f"given {page_id.partition('.')[0]}")
    again = glie.Index.open(specimen)
    assert (again.ids, again.info().pages_with_text) == (ids, len(ids))
    given = again.search(None, top=99, text=["given"], mode="lexical")[0]
    assert len(given) == len(ids) - had
    after = again.search(queries(index.dim), top=9, exact=True)[0]
    assert (after.ids, after.scores) == (late.ids, late.scores)
    assert again.verify().whole


def test_every_version_is_kept() -> None:
    """And every type, with words and without."""
    folders = [DATA / "formats" / name for name in FORMATS]
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in folders]
    assert {manifest["version"] for manifest in manifests} == {1, 2, 3, 4}
    texts = [manifest["text"]["language"] for manifest in manifests if "text" in manifest]
    assert sorted(texts, key=str) == [None, "german", "german"]
    settings = [manifest["codec"] for manifest in manifests]
    assert {one.get("dtype", "bf16") for one in settings} == {"bf16", "int4", "int2", "int1"}
    assert {"words", "bytes_per_page", "codebook", "fitted"} <= {
        key for one in settings for key in one
    }
    segments = {path.read_bytes()[8] for path in DATA.rglob("*.seg")}
    assert segments == {1, 2}
    for kind in ("img", "del"):
        assert {path.read_bytes()[8] for path in DATA.rglob(f"*.{kind}")} == {1, 2}, kind
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 250_000


def test_shipped_codebooks_stay() -> None:
    """Indexes name one by its digest alone. Another may join them, and never replace one."""
    assert [book.digest for book in Codebook.all_shipped()] == [
        "1c87eb80a247157d",
        "88068ca6018ff2d3",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "2026-11-16-displaced-words",
            r"displaced belongs to a codec from before .*index the documents again",
        ),
        (
            "2026-11-16-another-codebook",
            r"the codebook 6ad9fb0a73a7065a.*index the documents again",
        ),
    ],
)
def test_what_is_read_no_more_is_told(tmp_path: Path, name: str, says: str) -> None:
    """It is whole, so nobody is told to repair it, and a repair leaves it alone."""
    path = Path(shutil.copytree(DATA / "refused" / name, tmp_path / name))
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for act in (glie.Index.open, glie.Index.examine, glie.Index.repair):
        with pytest.raises(glie.CorruptIndexError, match=says) as caught:
            act(path)
        assert "damaged" not in str(caught.value)
        assert "repair" not in str(caught.value)
    for leftover in ("lock", "writer.json"):
        (path / leftover).unlink(missing_ok=True)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def refused(path: Path) -> None:
    """Opening, examining and repairing tell the remedy; nothing is lost."""
    for act in (glie.Index.open, glie.Index.examine, glie.Index.repair):
        with pytest.raises(glie.CorruptIndexError, match=r"99.*upgrade glie$"):
            act(path)


def test_a_newer_manifest_is_refused_with_the_remedy(specimen: Path) -> None:
    manifest = specimen / "manifest.json"
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**body, "version": 99}))
    refused(specimen)


def test_a_newer_segment_is_refused_with_the_remedy(specimen: Path) -> None:
    """A repair would take it for damaged, and its pages for lost."""
    segment = min(specimen.glob("segments/*.seg"))
    data = bytearray(segment.read_bytes())
    data[8:12] = struct.pack("<I", 99)
    end = SEGMENT_HEADER.size
    data[end - 8 : end] = struct.pack("<Q", checksum(bytes(data[: end - 8])))
    segment.write_bytes(data)
    refused(specimen)


def test_a_newer_codec_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("glie.codec.store.VERSION", 99)
        glie.Index.create(tmp_path / "index", codeword_codec())
    refused(tmp_path / "index")
    with pytest.raises(glie.CodecError, match=r"version 99.*upgrade glie$"):
        glie.Codec.load(tmp_path / "index" / "codec")


def test_settings_of_a_newer_codec_are_refused_with_the_remedy(tmp_path: Path) -> None:
    codeword_codec().save(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "invented": 1}))
    with pytest.raises(glie.CodecError, match=r"invented is unknown to this version.*upgrade"):
        glie.Codec.load(tmp_path)


def test_cached_vectors_are_what_was_encoded() -> None:
    folder = DATA / "vectors" / "2026-11-16"
    encoded = load(folder)
    assert isinstance(encoded, Encoded)
    assert encoded.encoder == {"name": "specimen", "revision": "1"}
    expected = json.loads(folder.with_suffix(".json").read_text())
    found = {
        name: rows
        for block in encoded.blocks()
        for name, rows in zip(block.ids, block, strict=True)
    }
    assert list(found) == list(expected)
    for name, rows in found.items():
        np.testing.assert_allclose(rows, expected[name], atol=1e-3)
    assert encoded.relevant == {"q1": {"p1": 1}}
