"""What an encoder is given of a set, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.evaluation import Dataset, encode, encoding, joined, load
from glie.identity import EncoderId
from tests.conftest import Floats, unit
from tests.evaluation.counting import COUNT, Counting, Seeing, make_set, only_folder


def test_what_is_encoded(tmp_path: Path) -> None:
    encoder = Counting()
    found = encode(make_set(), encoder, tmp_path / "cache")
    assert (found.name, found.dim) == ("my set/a", 8)
    assert found.encoder == EncoderId("counting", "1")
    assert found.page_ids == [f"p{i}" for i in range(COUNT)]
    assert found.relevant == make_set().relevant
    assert list(found.relevant) == ["q2", "q1"]  # sums go over it in this order
    assert found.warnings == make_set().warnings
    assert found.queries.ids == ["q1", "q2"]
    given = glie.Pages(encoder.encode_pages(list(make_set().pages.values())), found.page_ids)
    pages = found.pages()
    assert found.lengths.tolist() == given.lengths.tolist() == pages.lengths.tolist()
    assert np.linalg.norm(pages.vectors - given.vectors, axis=1).max() < 2**-11
    assert np.abs(np.linalg.norm(pages.vectors, axis=1) - 1).max() < 1e-6
    assert only_folder(tmp_path / "cache").name.startswith("my_set_a-")
    assert sorted(path.name for path in only_folder(tmp_path / "cache").iterdir()) == [
        "lock",
        "pages-00000.safetensors",
        "pages-00001.safetensors",
        "pages-00002.safetensors",
        "queries.safetensors",
        "vectors.json",
    ]


def test_vectors_of_two_sizes_are_refused() -> None:
    class Uneven(Counting):
        def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
            return Counting(dim=4).encode_queries(texts)

    with pytest.raises(glie.EncoderError, match="have 8 and 4 numbers; all must agree"):
        encode(make_set(), Uneven())


def test_blocks_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "SHARD_BYTES", 1)
    found = encode(make_set(), Counting())
    assert found.shard_pages == (32, 32, 32, 32, 22)


def test_what_is_encoded_already_stays(tmp_path: Path) -> None:
    found = encode(make_set(), Counting(), tmp_path)
    assert encode(found, None) is found
    assert encode(found, Counting()) is found
    other = Counting()
    other.revision = "2"
    message = r"vectors of encoder 'counting' \(revision 1\), not encoder 'counting' \(revision 2\)"
    with pytest.raises(glie.EncoderError, match=message):
        encode(found, other)
    with pytest.raises(glie.EncoderError, match=message):
        joined([encode(make_set(), other), found])
    with pytest.raises(glie.InputError, match="an encoder is needed"):
        encode(make_set(), None)
    with pytest.raises(glie.DatasetError, match="cached vectors have no languages"):
        load(only_folder(tmp_path), language="english")


def test_a_text_encoder_gets_text(tmp_path: Path, pictures: Dataset) -> None:
    encoder = Counting()
    found = encode(pictures, encoder, tmp_path / "cache")
    assert [text.strip() for text in encoder.pages] == ["tidal power", "Harbour invoice", "both"]
    assert found.page_ids == ["p1", "p2", "p5"]
    assert found.relevant == {"q1": {"p2": 1}, "q2": {"p3": 2}}  # q2 is asked, and not answered
    blank, damaged = found.warnings[len(pictures.warnings) :]
    assert blank == "1 page without text that OCR can read left out: p3"
    assert damaged.startswith("1 page whose image cannot be read left out: p4.jpg: damaged, or not")
    again = encode(pictures, encoder, tmp_path / "cache")
    assert (len(encoder.pages), again.warnings) == (3, found.warnings)
    assert joined([found])[2] == [[f"0:{found.name}/p2"]]  # what has no answer teaches nothing


def test_without_ocr(tmp_path: Path, pictures: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as hidden:
        hidden.setattr(encoding, "ocr_available", lambda: False)
        found = encode(pictures, Counting(), tmp_path / "cache")
        assert found.page_ids == ["p1", "p5"]
        assert found.warnings[len(pictures.warnings) :] == (
            '3 pages with no text but an image (pip install "glie[ocr]" to read it) left out: '
            "p2, p3, p4",
        )
        alone = pictures._replace(pages={"p3": ""})
        with pytest.raises(glie.DatasetError, match=r"no page is left to encode; .* left out: p3"):
            encode(alone, Counting())
    # with it, the same set is another one
    assert encode(pictures, Counting(), tmp_path / "cache").page_ids == ["p1", "p2", "p5"]


def test_an_encoder_that_sees_gets_images(pictures: Dataset) -> None:
    found = encode(pictures, Seeing())
    assert found.page_ids == ["p2", "p3", "p5"]
    red = unit(np.array([[256.0, 1.0, 1.0]]))
    assert np.allclose(found.take([1])[0], red, atol=1e-3)
    texts, damaged = found.warnings[len(pictures.warnings) :]
    assert texts == "1 page without an image left out: p1"
    assert "p4.jpg: damaged" in damaged
    blind = Seeing()
    blind.reads = "sound"
    with pytest.raises(glie.EncoderError, match="reads 'sound'; expected 'text' or 'image'"):
        encode(pictures, blind)
