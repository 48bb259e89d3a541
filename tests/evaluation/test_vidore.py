"""ViDoRe sets of all versions, and errors that name what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import glie
from glie.evaluation import Dataset, load, load_pages, sets_in
from tests.evaluation.test_datasets import opened, png

# sets copied to disk in the schema of the Hub
RED, BLUE, GREEN = png("red"), png("blue"), png("green")
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


def first_version(**changes: Sequence[Any]) -> dict[str, Sequence[Any]]:
    rows: dict[str, Sequence[Any]] = {
        "query": ["which red?", "which blue?", None, "which red?", "again blue?", ""],
        "image": [RED, BLUE, GREEN, GREEN, BLUE, RED],
        "image_filename": ["a.png", "a.png", "c.png", "other.png", "b.png", "a.png"],
    }
    return {**rows, **changes}


def test_vidore_1(tables: Tables) -> None:
    """Pages are told apart by their image; the one without a question stays; the same question
    in two rows is two, each with the page of its row."""
    dataset = opened(tables("docvqa", default=first_version()))
    assert dataset.name == "docvqa"
    assert dataset.pages == {"a.png": "", "a.png#2": "", "c.png": ""}
    texts = ["which red?", "which blue?", "which red?", "again blue?"]
    assert dataset.queries == {f"q{i}": text for i, text in enumerate(texts, start=1)}
    assert dataset.relevant == {
        "q1": {"a.png": 1},
        "q2": {"a.png#2": 1},
        "q3": {"c.png": 1},
        "q4": {"a.png#2": 1},
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
    assert dataset.relevant["q4"] == {"b.png": 1}
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


def test_pages_of_vidore_2_with_the_same_image_are_one(tables: Tables) -> None:
    """The first; of two grades the higher counts, wherever it stands. Pages without an image, and
    with one that cannot be read, are not alike."""
    corpus = {"corpus-id": [*range(4, 11)], "image": [RED, BLUE, RED, RED, None, None, BLUE]}
    corpus["markdown"] = [f"text {page}" for page in corpus["corpus-id"]]
    queries = {"query-id": [1, 2, 3, 4], "query": ["a?", "b?", "c?", "d?"]}
    judged = [(1, 4, 1), (1, 6, 2), (1, 7, 1), (2, 7, 1), (3, 10, 2), (3, 5, 1), (4, 9, 1)]
    columns = zip(*judged, strict=True)
    qrels = dict(zip(("query-id", "corpus-id", "score"), columns, strict=True))
    dataset = opened(tables("esg", corpus=corpus, queries=queries, qrels=qrels))
    assert dataset.pages == {page: f"text {page}" for page in ("4", "5", "8", "9")}
    assert list(dataset.images) == ["4", "5"]
    assert dataset.relevant == {"1": {"4": 2}, "2": {"4": 1}, "3": {"5": 2}, "4": {"9": 1}}
    assert dataset.warnings[0] == "3 pages merged with one of the same image: 6, 7, 10"


def test_the_text_of_vidore_3(tables: Tables) -> None:
    text = {"markdown": ["# Red", None, "green"], "image": [RED, BLUE, None]}
    parts = later_version("_", corpus=text)
    parts["documents_metadata"] = {"doc_id": ["a"]}
    dataset = opened(tables(**parts))
    assert dataset.pages == {"7": "# Red", "8": "", "9": "green"}
    assert list(dataset.images) == ["7", "8"]
    assert dataset.warnings[0] == ("1 page whose image cannot be read, with text: 9: no such file")


def test_a_folder_of_copies_is_no_copy(tables: Tables, tmp_path: Path) -> None:
    """With cards, as downloaded, and without them, where only the files were copied."""
    one = tables("v1/one", default=first_version())
    two = tables("v1/two", **later_version("-"))
    assert sets_in(one) == [str(one)]
    assert sets_in(two) == [str(two)]
    (tmp_path / "v1" / "README.md").write_text("# Sets of the first version\n")
    assert sets_in(tmp_path / "v1") == [str(one), str(two)]
    for folder in (one, two):
        (folder / "README.md").unlink()
    (one / "default").rename(one / "data")
    assert sets_in(tmp_path / "v1") == [str(one), str(two)]
    assert opened(one).query_ids == ["q1", "q2", "q3", "q4"]


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
    told = "vidore/none: no such folder, and no set on the Hub (out of reach)"
    assert str(error.value) == told
    with pytest.raises(glie.DatasetError, match="none: no such folder; expected one with corpus"):
        load("none")
