"""Sets of every kind load through one function, and bad ones say what is wrong with them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import glie
from glie.evaluation import Dataset, load, load_pages
from tests.evaluation.test_evaluation import PAGES, QRELS, QUESTIONS, write_set


def png(colour: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(stream, "PNG")
    return stream.getvalue()


def opened(path: str | Path, **options: Any) -> Dataset:
    loaded = load(path, **options)
    assert isinstance(loaded, Dataset)
    return loaded


# a folder in the BEIR shape


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
    with pytest.raises(glie.DatasetError, match="it does not tell languages"):
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


# ViDoRe sets, copied to disk in the schema of the Hub

Tables = Callable[..., Path]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Writes parquet files and the card that names them, as a download leaves them."""
    import datasets

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")

    def write(name: str = "copy", **configurations: Mapping[str, Sequence[Any]]) -> Path:
        folder = tmp_path / name
        card = ["---", "configs:"]
        for configuration, columns in configurations.items():
            (folder / configuration).mkdir(parents=True)
            table = datasets.Dataset.from_dict(dict(columns))
            if "image" in columns:
                table = table.cast_column("image", datasets.Image())
            table.to_parquet(folder / configuration / "test-00000-of-00001.parquet")
            card += [f"- config_name: {configuration}", "  data_files:", "  - split: test"]
            card += [f"    path: {configuration}/test-*"]
        (folder / "README.md").write_text("\n".join([*card, "---", ""]))
        return folder

    return write


RED, BLUE, GREEN = png("red"), png("blue"), png("green")


def first_version(**changes: Sequence[Any]) -> dict[str, Sequence[Any]]:
    rows: dict[str, Sequence[Any]] = {
        "query": ["which red?", "which blue?", None, "which red?", "again blue?", ""],
        "image": [RED, BLUE, GREEN, GREEN, BLUE, RED],
        "image_filename": ["a.png", "a.png", "c.png", "other.png", "b.png", "a.png"],
    }
    return {**rows, **changes}


def test_vidore_1(tables: Tables) -> None:
    """Pages are told apart by their image; the one without a question stays; the same question
    asked of two pages is one that both answer."""
    dataset = opened(tables("docvqa", default=first_version()))
    assert dataset.name == "docvqa"
    assert dataset.pages == {"a.png": "", "a.png#2": "", "c.png": ""}
    assert dataset.queries == {"q1": "which red?", "q2": "which blue?", "q3": "again blue?"}
    assert dataset.relevant == {
        "q1": {"a.png": 1, "c.png": 1},
        "q2": {"a.png#2": 1},
        "q3": {"a.png#2": 1},
    }
    colours = [picture.open().getpixel((0, 0)) for picture in dataset.images.values()]
    assert colours == [(255, 0, 0), (0, 0, 255), (0, 128, 0)]
    assert dataset.warnings == ()
    pages = load_pages(tables("again", default=first_version()))
    assert isinstance(pages, Dataset)
    assert (len(pages.pages), pages.queries) == (3, {})


def test_bad_images_of_vidore_1(tables: Tables) -> None:
    images = [RED, b"not an image", GREEN, GREEN, None, RED]
    dataset = opened(tables(default=first_version(image=images)))
    assert list(dataset.pages) == ["a.png", "c.png"]
    assert dataset.relevant["q2"] == {"a.png#2": 1}  # which cannot be found
    assert dataset.relevant["q3"] == {"b.png": 1}
    assert dataset.warnings == (
        "2 pages whose image cannot be read left out: a.png#2: damaged, or not an image, "
        "b.png: no such file",
    )


def later_version(mark: str, **changes: Any) -> dict[str, dict[str, Sequence[Any]]]:
    query, page = f"query{mark}id", f"corpus{mark}id"
    parts: dict[str, dict[str, Sequence[Any]]] = {
        "corpus": {page: [7, 8, 9], "image": [RED, BLUE, GREEN]},
        "queries": {
            query: [1, 2, 3],
            "query": ["which red?", "quel bleu?", "nothing"],
            "language": ["english", "french", "english"],
        },
        "qrels": {query: [1, 1, 2, 2], page: [7, 9, 8, 7], "score": [2.0, 1.0, 1.0, 0.0]},
    }
    return {name: {**columns, **changes.get(name, {})} for name, columns in parts.items()}


@pytest.mark.parametrize("mark", ["-", "_"])
def test_vidore_2_and_3(tables: Tables, mark: str) -> None:
    folder = tables("esg", **later_version(mark))
    dataset = opened(folder)
    assert dataset.pages == {"7": "", "8": "", "9": ""}
    assert dataset.queries == {"1": "which red?", "2": "quel bleu?"}
    assert dataset.relevant == {"1": {"7": 2, "9": 1}, "2": {"8": 1}}
    assert dataset.images["8"].open().getpixel((0, 0)) == (0, 0, 255)
    assert dataset.warnings == ("1 question without a relevant page left out: 3",)
    dataset = opened(folder, language="french")
    assert (dataset.name, list(dataset.relevant)) == ("esg-french", ["2"])


def test_the_text_of_vidore_3(tables: Tables) -> None:
    text = {"markdown": ["# Red", None, "green"], "image": [RED, BLUE, None]}
    parts = later_version("_", corpus=text)
    parts["documents_metadata"] = {"doc_id": ["a"]}
    dataset = opened(tables(**parts))
    assert dataset.pages == {"7": "# Red", "8": "", "9": "green"}
    assert list(dataset.images) == ["7", "8"]
    assert dataset.warnings[0] == ("1 page whose image cannot be read, with text: 9: no such file")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"default": {"question": ["a"]}}, "expected a column 'query', found question"),
        ({"default": first_version(query=[None] * 6)}, "no question has a relevant page"),
        ({"default": first_version(), "other": first_version()}, "found configurations default"),
        (later_version("-", corpus={"corpus-id": [7, 7, 9]}), r"corpus, row 1: the id '7' is giv"),
        (later_version("-", queries={"query-id": [1, 2, 2]}), "queries, row 2: the id '2' is"),
        (later_version("-", qrels={"corpus-id": [7, 9, 6, 7]}), "qrels, row 2: page '6' is not"),
        (later_version("-", qrels={"query-id": [1, 1, 5, 2]}), "qrels, row 2: query '5' is not"),
        (later_version("-", qrels={"score": [1.0, 0.5, 1.0, 1.0]}), "row 1: expected a whole numb"),
        (later_version("-", corpus={"image": [b"x"] * 3}), "no page that can be used; 3 pages"),
    ],
)
def test_bad_vidore_sets_are_named(tables: Tables, parts: Any, message: str) -> None:
    with pytest.raises(glie.DatasetError, match=message):
        load(tables(**parts))


def test_a_table_without_its_split_or_with_damage(tables: Tables) -> None:
    folder = tables(default=first_version())
    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("split: test", "split: train"))
    with pytest.raises(glie.DatasetError, match=r"copy: cannot be read \(Unknown split \"test\""):
        load(folder)
    (folder / "README.md").write_text(card)
    (folder / "default" / "test-00000-of-00001.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(glie.DatasetError, match="copy: cannot be read"):
        load(folder)


def test_names_of_the_hub(tables: Tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name is asked for as it is; what has no place on this disk or the Hub says both."""
    import datasets

    folder = tables(**later_version("-"))
    asked: list[tuple[str, ...]] = []
    names, table = datasets.get_dataset_config_names, datasets.load_dataset

    def named(name: str) -> Any:
        if name != "vidore/esg_reports_v2":
            raise ConnectionError("out of reach\nand more")
        return names(str(folder))

    def loaded(name: str, configuration: str, split: str) -> Any:
        asked.append((name, configuration, split))
        return table(str(folder), configuration, split=split)

    monkeypatch.setattr(datasets, "get_dataset_config_names", named)
    monkeypatch.setattr(datasets, "load_dataset", loaded)
    monkeypatch.chdir(tmp_path)
    assert opened("vidore/esg_reports_v2").name == "esg_reports_v2"
    assert asked[0] == ("vidore/esg_reports_v2", "corpus", "test")
    with pytest.raises(glie.DatasetError) as error:
        load("vidore/none")
    told = "vidore/none: no such folder, nor to be had as a set (out of reach)"
    assert str(error.value) == told
    with pytest.raises(glie.DatasetError, match="none: no such folder; expected one with corpus"):
        load("none")
