"""Where words find their evidence: the places of vectors, and how warm they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

import glie
from glie.documents import Word
from glie.encoders import load_encoder
from glie.encoders.base import Encoder, Floats, Grid
from glie.encoders.text import TextEncoder
from glie.server.app import create_app
from glie.server.heatmap import heat, owners, patch_places, span_places, word_places, words_of
from tests.conftest import unit
from tests.encoders.test_encoders import Network


def boxed(*texts: str) -> list[Word]:
    return [Word(text, i / 10, 0.0, (i + 1) / 10, 0.1) for i, text in enumerate(texts)]


def test_vectors_belong_to_the_word_they_begin_in() -> None:
    words = words_of("an oil sample")
    assert words == [(0, 2), (3, 6), (7, 13)]
    # two tokens of one word, one that stands between words, one of no characters, one behind all
    spans = [(0, 2), (7, 10), (10, 13), (2, 3), (3, 3), (13, 13)]
    assert owners(words, spans).tolist() == [0, 2, 2, -1, -1, -1]
    assert owners([], [(0, 1)]).tolist() == [-1]


def test_text_encoders_say_where_their_vectors_come_from(encoder: Encoder, tmp_path: Path) -> None:
    """One span a vector, of texts that are read in several windows too."""
    long = " ".join(f"Turbine {i} stands in {i * 7} metres of water." for i in range(60))
    onnx = load_encoder(Network().save(tmp_path))
    for one, text in ((encoder, long), (encoder, "naïve 🐟 fish"), (onnx, "w1 w7  w9 " * 30)):
        assert isinstance(one, TextEncoder)
        spans = one.spans(text)
        assert len(spans) == len(one.encode_pages([text])[0])
        assert text[slice(*spans[0])] == text.split()[0]
        assert text[slice(*spans[-1])] in text.split()[-1]
        starts = [start for start, _ in spans]
        assert starts == sorted(starts)


def test_a_word_that_a_line_parted_is_found_at_its_beginning() -> None:
    """The text joins what stands as two words on the page, and the reverse."""
    text = "the turbine and thewinter end"
    spans = words_of(text)
    words = boxed("the", "tur", "bine", "and", "the", "winter", "end")
    found = word_places(text, spans, words)
    assert found.of_vector.tolist() == [0, 1, 3, 4, 6]
    assert found.labels[1] == "tur"
    assert word_places(text, spans, []).of_vector.tolist() == [-1] * 5
    lost = word_places("one two three", words_of("one two three"), boxed("one", "three"))
    assert lost.of_vector.tolist() == [0, -1, 1]


def test_heat_rises_to_the_best_place() -> None:
    text = "alpha beta gamma delta"
    places = span_places(text, words_of(text))
    page = np.eye(4, 6, dtype=np.float32)
    asked = unit(np.array([[0.0, 1, 0, 0, 0, 1], [0, 0, 1, 0.7, 0, 0]]))
    first, second = heat("beta? the", [(0, 4), (6, 9)], asked, page, places)
    assert (first.text, first.common, second.text, second.common) == ("beta", False, "the", True)
    assert [(w.place, w.heat) for w in first.warm] == [(1, 1.0)]
    assert first.score == pytest.approx(0.5**0.5)
    assert [w.place for w in second.warm] == [2, 3]
    assert second.warm[0].heat == 1.0
    # of the way from the usual similarity, which is the median, to the best: squared
    usual = np.median(asked[1] @ page.T)
    part = (asked[1][3] - usual) / (asked[1][2] - usual)
    assert second.warm[1].heat == pytest.approx(part**2)


def test_a_word_of_several_vectors_adds_them_up() -> None:
    places = span_places("x y", [(0, 1), (2, 3)])
    page = np.eye(2, dtype=np.float32)
    (word,) = heat("word", [(0, 2), (2, 4)], np.eye(2, dtype=np.float32), page, places)
    assert word.score == pytest.approx(2)
    assert {w.place for w in word.warm} == {0, 1}


def test_a_question_that_cannot_be_divided_is_one_word() -> None:
    places = span_places("x y", [(0, 1), (2, 3)])
    page = np.eye(2, dtype=np.float32)
    (word,) = heat("what is x", [], page[:1], page, places)
    assert (word.text, word.start, word.end) == ("what is x", 0, 9)
    assert word.warm[0].place == 0


def test_patches_stand_row_by_row() -> None:
    # the first vector and the last are an instruction's; the picture is scanned downwards
    places = patch_places(Grid(np.array([[1, 3, 5], [2, 4, 6]])), 8)
    assert places.of_vector.tolist() == [-1, 0, 3, 1, 4, 2, 5, -1]
    assert places.places[0] == (0, 0, 1 / 3, 1 / 2)
    assert places.places[5] == pytest.approx((2 / 3, 1 / 2, 1, 1))


class Looking:
    """An encoder that looks: the darkness of six parts of a page, behind an instruction."""

    name, revision, reads = "looking", "1", "image"

    def encode_pages(self, pages: Any) -> list[Floats]:
        return [self._page(page) for page in pages]

    def _page(self, picture: Image.Image) -> Floats:
        dark = 255 - np.asarray(picture.convert("L").resize((3, 2), Image.Resampling.BOX), float)
        rows = np.eye(7, 8)
        rows[1:, 7] = dark.ravel() / 8
        return unit(rows)

    def encode_queries(self, texts: Any) -> list[Floats]:
        return [unit(np.eye(8)[[7]]) for _ in texts]

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [(0, len(text))]

    def patches(self, picture: Image.Image) -> Grid | None:
        return Grid(np.arange(1, 7).reshape(2, 3)) if picture.width > 30 else None


@pytest.mark.parametrize("wide", [900, 30])
def test_an_encoder_that_looks(tmp_path: Path, wide: int) -> None:
    """Its heat map is made of patches; where it tells none apart, that is said."""
    picture = Image.new("L", (wide, 600), 255)
    picture.paste(0, (wide * 2 // 3, 300, wide, 600))  # the last patch of six
    picture.save(tmp_path / "spot.png")
    encoder = Looking()
    made = glie.Index.create(
        tmp_path / "l.glie", glie.Codec(k=4), encoder={"name": "looking", "revision": "1"}
    )
    from glie.documents.original import file_digest

    metadata = {
        "document": "spot.png",
        "page": 1,
        "path": str(tmp_path / "spot.png"),
        "digest": file_digest(tmp_path / "spot.png"),
        "origin": "none",
    }
    made.add(glie.Pages(encoder.encode_pages([picture]), ids=["spot.png#1"]), [metadata])
    ours = TestClient(create_app(tmp_path / "l.glie", encoder=encoder), "http://127.0.0.1")
    at = f"/pages/{quote('spot.png#1')}/heatmap"
    found = ours.get(at, params={"query": "dark"}).json()
    if wide == 30:
        assert found["kind"] == "none"
        assert found["reason"] == "encoder 'looking' does not tell its patches apart"
        return
    assert found["kind"] == "boxes"
    assert found["words"][0]["warm"][0]["place"] == 5
    assert found["places"][5] == pytest.approx([2 / 3, 0.5, 1, 1], abs=1e-4)


def test_an_encoder_that_does_not_tell(index_path: Path, encoder: Encoder) -> None:
    """It is asked, but for the heat map."""

    class Silent:
        name, revision = encoder.name, encoder.revision
        encode_pages, encode_queries = encoder.encode_pages, encoder.encode_queries

    ours = TestClient(create_app(index_path, encoder=Silent()), "http://127.0.0.1")
    assert ours.post("/search", json={"query": "holiday"}).json()["hits"][0]["id"] == "b.pdf#1"
    found = ours.get("/pages/b.pdf%231/heatmap?query=holiday").json()
    assert found["reason"] == "encoder 'english' does not say where its vectors come from"
