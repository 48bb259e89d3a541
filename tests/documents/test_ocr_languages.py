"""OCR in languages by name, on a drawn German page."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest
from PIL import Image, ImageDraw, ImageFont

import glie
from glie.documents import read_image, scanned_text
from glie.documents.ocr_languages import data_folder
from glie.documents.original import original_text
from glie.encoders import load_encoder
from glie.identity import EncoderId
from glie.index.index import Index
from glie.ingest import Reading, ingest, read_words
from glie.retriever import Retriever

GERMAN = """Größe der Fläche und Höhe des Gebäudes
Die Straße führt über die Brücke nach Köln
und von dort zu den Feldern mit dem Roggen
Äpfel und Öl sind nicht im Angebot"""


# Pillow's own font has no umlauts
FONT = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")


def german_scan(path: Path) -> Path:
    picture = Image.new("RGB", (1200, 420), "white")
    font = ImageFont.truetype(FONT, 44)
    ImageDraw.Draw(picture).text((40, 40), GERMAN, fill="black", font=font, spacing=24)
    picture.save(path)
    return path


def origin(index: Index) -> list[tuple[str, object]]:
    return [(page, metadata.get("ocr_lang")) for page, metadata in index.records()]


def test_a_language_is_asked_for_recorded_and_used_again(tmp_path: Path) -> None:
    path, folder = german_scan(tmp_path / "a.png"), tmp_path / "x.glie"
    encoder = load_encoder()
    index = Index.create(folder, glie.Codec(2), encoder=EncoderId.of(encoder))
    ingest(index, encoder, [path])
    assert origin(index) == [("a.png#1", None)]
    assert "Straße" not in scanned_text(path, 1)

    # the same file in another language is read again, and stays as it is without the option
    assert ingest(index, encoder, [path], ocr_lang="deu").documents_changed == 1
    assert ingest(index, encoder, [path]).documents_unchanged == 1
    assert origin(index) == [("a.png#1", "deu")]
    metadata = index.metadata("a.png#1")
    assert "Die Straße führt über die Brücke" in original_text(metadata, ocr=True)
    assert Retriever(index).search("Straße", mode="lexical").ids == ["a.png#1"]

    # what comes later is read in the recorded language
    german_scan(tmp_path / "b.png")
    report = ingest(index, encoder, [tmp_path / "b.png"])
    assert (report.pages_added, report.pages_not_english) == (1, 1)
    assert origin(index)[1] == ("b.png#1", "deu")
    assert Retriever(index).encode_image(path).shape == encoder.encode_pages([GERMAN])[0].shape


def test_words_for_an_older_index_are_of_its_language(tmp_path: Path) -> None:
    path, encoder = german_scan(tmp_path / "a.png"), load_encoder()
    index = Index.create(tmp_path / "x.glie", glie.Codec(2), encoder=EncoderId.of(encoder))
    ingest(index, encoder, [path], ocr_lang="deu+eng", text="none")
    assert read_words(index, language="de").pages == 1
    assert Retriever(index).search("Fläche", mode="lexical").ids == ["a.png#1"]


def test_a_missing_language_names_what_to_install_and_what_is_there() -> None:
    with pytest.raises(glie.InputError) as caught:
        Reading(ocr_lang="deu+chi_sim")
    said = str(caught.value)
    assert said.startswith("ocr_lang: no data for chi_sim, only for ")
    assert {"deu", "eng"} <= set(said.partition("only for ")[2].partition(";")[0].split(", "))
    assert "apt install tesseract-ocr-chi-sim, pip install tessdata.chi-sim, or put" in said
    with pytest.raises(glie.InputError, match=r"expected names of tesseract's, like deu"):
        Reading(ocr_lang="../deu")
    with pytest.raises(glie.InputError, match="OCR is switched off"):
        Reading(ocr=False, ocr_lang="deu")


def test_the_folder_of_the_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = data_folder("deu")
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    assert data_folder("deu") == packaged
    (tmp_path / "xyz.traineddata").write_bytes(b"not it")
    assert data_folder("xyz") == tmp_path
    with pytest.raises(glie.InputError, match="in several folders, and tesseract reads one"):
        data_folder("deu+xyz")
    with pytest.raises(glie.DocumentError, match=f"expected sound data in {tmp_path}"):
        read_image(Image.new("RGB", (50, 50)), "xyz")


def test_a_recorded_language_that_is_missing_costs_scans_alone(tmp_path: Path) -> None:
    """An index that was made elsewhere: its language is not an option of this run."""
    german_scan(tmp_path / "a.png")
    (tmp_path / "b.md").write_text("An English page about tidal energy.")
    encoder = load_encoder()
    index = Index.create(tmp_path / "x.glie", glie.Codec(2), encoder=EncoderId.of(encoder))
    page = encoder.encode_pages(["old"])[0]
    index.add(glie.Pages([page], ["old.png#1"]), [{"document": "old.png", "ocr_lang": "xyz"}])
    report = ingest(index, encoder, [tmp_path / "a.png", tmp_path / "b.md"])
    assert report.documents_added == 1
    (problem,) = report.problems
    assert problem.startswith("a.png, page 1: cannot be read by OCR: no data for xyz, only for ")
