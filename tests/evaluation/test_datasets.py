"""Sets in the BEIR format: pages, images, questions, and errors that name what is wrong."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import glie
from glie.evaluation import Dataset, load, load_pages, sets_in
from tests.evaluation.sets import PAGES, QRELS, QUESTIONS, write_set


def png(colour: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(stream, "PNG")
    return stream.getvalue()


def opened(path: str | Path, **options: Any) -> Dataset:
    loaded = load(path, **options)
    assert isinstance(loaded, Dataset)
    return loaded


def pictured_set(folder: Path, pages: Sequence[Any], images: Mapping[str, bytes]) -> Path:
    write_set(folder, [*PAGES, *pages])
    (folder / "images").mkdir()
    for name, data in images.items():
        (folder / "images" / name).write_bytes(data)
    return folder


def test_a_page_has_text_an_image_or_both(tmp_path: Path) -> None:
    pages = [
        {"_id": "p4", "image": "images/4.png"},
        {"_id": "p5", "title": "Harbour", "text": "the quay", "image": "images/5.png"},
        {"_id": "p6", "text": None, "image": "images/5.png"},
    ]
    images = {"4.png": png("red"), "5.png": png("blue")}
    dataset = opened(pictured_set(tmp_path / "a", pages, images))
    assert dataset.pages["p4"] == ""
    assert dataset.pages["p5"] == "Harbour\nthe quay"
    assert list(dataset.images) == ["p4", "p5", "p6"]
    assert dataset.images["p4"].open().getpixel((0, 0)) == (255, 0, 0)
    assert dataset.images["p4"].digest != dataset.images["p5"].digest
    assert dataset.images["p5"].digest == dataset.images["p6"].digest
    assert dataset.without_text == ()
    assert dataset.warnings == ("1 question without a relevant page left out: q3",)


def test_bad_images_are_counted_and_named(tmp_path: Path) -> None:
    whole = png("red")
    pages = [
        {"_id": "p4", "image": "images/gone.png"},
        {"_id": "p5", "image": "images/text.png"},
        {"_id": "p6", "text": "words remain", "image": "images/flipped.png"},
        {"_id": "p7", "image": "images/\0.png"},
    ]
    images = {"text.png": b"<html>", "flipped.png": whole[:45] + b"!!" + whole[47:]}
    dataset = opened(pictured_set(tmp_path / "a", pages, images))
    assert list(dataset.pages) == ["p1", "p2", "p3", "p6"]
    assert dict(dataset.images) == {}
    left_out, kept, _ = dataset.warnings
    assert left_out.startswith("3 pages whose image cannot be read left out: images/gone.png: no ")
    assert "images/text.png: damaged, or not an image" in left_out
    assert kept.startswith("1 page whose image cannot be read, with text: images/flipped.png: dam")


def test_a_set_of_which_nothing_remains(tmp_path: Path) -> None:
    pages = [{"_id": page["_id"], "image": "gone.png"} for page in PAGES]
    folder = write_set(tmp_path / "a", pages)
    for loader in (load, load_pages):
        with pytest.raises(glie.DatasetError, match=r"no page that can be used; 3 pages whose"):
            loader(folder)


@pytest.mark.parametrize(
    "name", ["../a.png", "/a.png", "x/../../a.png", "..\\a.png", "C:\\a.png", "C:a.png", "\\a.png"]
)
def test_images_stay_inside_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.png").write_bytes(png("red"))
    folder = write_set(tmp_path / "a", [*PAGES, {"_id": "p4", "image": name}])
    with pytest.raises(glie.DatasetError, match=r"line 4: expected an image inside the folder"):
        load(folder)


def test_questions_that_cannot_be_judged_are_counted(tmp_path: Path) -> None:
    more = [{"_id": f"q{i}", "text": "x" if i % 2 else " "} for i in range(10, 26)]
    qrels = QRELS + "q10\tp1\t1\n"
    dataset = opened(write_set(tmp_path / "a", questions=[*QUESTIONS, *more], qrels=qrels))
    assert list(dataset.queries) == list(dataset.relevant) == ["q1", "q2"]
    assert dataset.warnings == (
        "8 questions without text left out: q10, q12, q14, q16, q18, …",
        "9 questions without a relevant page left out: q3, q11, q13, q15, q17, …",
    )


def test_questions_in_one_language(tmp_path: Path) -> None:
    spoken = [{**row, "language": language} for row, language in zip(QUESTIONS, "aba", strict=True)]
    folder = write_set(tmp_path / "a", questions=spoken)
    assert list(opened(folder).queries) == ["q1", "q2"]
    dataset = opened(folder, language="b")
    assert dataset.name == "a-b"
    assert (list(dataset.queries), list(dataset.relevant)) == (["q2"], ["q2"])
    assert dataset.warnings == ()
    with pytest.raises(glie.DatasetError, match="no question in 'c'; found a, b"):
        load(folder, language="c")
    with pytest.raises(glie.DatasetError, match="the set names no languages"):
        load(write_set(tmp_path / "b"), language="a")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ({"_id": "p4", "image": 4}, "line 4: expected a string 'image', found 4"),
        ({"_id": "p4", "image": ""}, "line 4: expected a string 'text', found None"),
        ({"_id": "", "text": "x"}, "line 4: expected a non-empty string"),
    ],
)
def test_bad_pages_are_named(tmp_path: Path, page: Any, message: str) -> None:
    with pytest.raises(glie.InputError, match=message):
        load(write_set(tmp_path / "bad", [*PAGES, page]))


def test_a_folder_of_sets_stands_for_them(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    for name in ("b", "a", "c"):
        write_set(folder / name)
    (folder / ".hidden").mkdir()
    (folder / "notes.txt").write_text("about these sets")
    assert sets_in(folder) == [str(folder / name) for name in "abc"]
    assert sets_in(str(folder / "b")) == [str(folder / "b")]  # a set is one, its folders are not
    assert sets_in("vidore/esg_reports_v2") == ["vidore/esg_reports_v2"]
    assert sets_in("none") == ["none"]
    (folder / "b" / "corpus.jsonl").unlink()
    with pytest.raises(glie.DatasetError, match=r"b: not a set, unlike others in .*all; move it"):
        sets_in(folder)
    assert sets_in(folder / "b") == [str(folder / "b")]  # and `load` names what is missing
    (tmp_path / "empty").mkdir()
    with pytest.raises(glie.DatasetError, match=r"empty: an empty folder; expected a set, or a"):
        sets_in(tmp_path / "empty")


def test_loads_a_set(tmp_path: Path) -> None:
    dataset = opened(write_set(tmp_path / "small"))
    assert dataset.name == "small"
    assert list(dataset.pages) == ["p1", "p2", "p3"]
    assert dataset.pages["p1"] == "Energy\ntidal power from the sea"
    assert list(dataset.queries) == ["q1", "q2"]
    assert dataset.relevant == {"q1": {"p2": 1}, "q2": {"p3": 2}}


def test_pages_without_text_are_left_out_and_counted(tmp_path: Path) -> None:
    pages = [*PAGES, {"_id": "p4", "title": "", "text": " "}]
    dataset = opened(write_set(tmp_path / "holes", pages, qrels=QRELS + "q1\tp4\t1\n"))
    assert dataset.without_text == ("p4",)
    assert list(dataset.pages) == ["p1", "p2", "p3"]
    assert dataset.relevant["q1"] == {"p2": 1, "p4": 1}  # half of the answer cannot be found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pages": [*PAGES, PAGES[0]]}, r"corpus\.jsonl, line 4: the id 'p1' is given twice"),
        ({"pages": []}, r"corpus\.jsonl: empty"),
        ({"pages": [*PAGES, "{"]}, r"corpus\.jsonl, line 4: not JSON"),
        ({"pages": [*PAGES, "[]"]}, r"corpus\.jsonl, line 4: expected a JSON object"),
        ({"pages": [*PAGES, {"_id": "p4"}]}, r"line 4: expected a string 'text', found None"),
        ({"questions": [{"text": "a"}]}, r"queries\.jsonl, line 1: expected a string '_id'"),
        ({"qrels": QRELS + "q1\tp9\t1\n"}, r"test\.tsv, line 5: page 'p9' is not in the set"),
        ({"qrels": QRELS + "q9\tp1\t1\n"}, r"test\.tsv, line 5: query 'q9' is not in the set"),
        ({"qrels": QRELS + "q1\tp1\n"}, r"test\.tsv, line 5: expected query, page and grade"),
        ({"qrels": QRELS + "q1\tp1\t--1\n"}, r"test\.tsv, line 5: expected query, page and grade"),
        ({"qrels": "header\n"}, "no question has a relevant page"),
    ],
)
def test_bad_sets_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(glie.DatasetError, match=message):
        opened(write_set(tmp_path / "bad", **change))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(glie.DatasetError, match="no such folder"):
        opened(tmp_path / "none")
    folder = write_set(tmp_path / "a")
    for name in ("qrels/test.tsv", "queries.jsonl", "corpus.jsonl"):
        (folder / name).unlink()
        with pytest.raises(glie.DatasetError, match=f"{name}: missing"):
            opened(folder)


def test_pages_alone(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "a")
    (folder / "queries.jsonl").unlink()
    dataset = load_pages(folder)
    assert isinstance(dataset, Dataset)
    assert (list(dataset.pages), dataset.queries) == (["p1", "p2", "p3"], {})
