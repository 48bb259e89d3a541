"""The small evaluation: sets are read with care, and nDCG is nDCG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.evaluation import encode, joined, load_pages
from glie.evaluation import load as load_any
from glie.evaluation.datasets import Dataset
from glie.index.memory import search_codes
from glie.measures import ndcg_at_5
from tests.test_ingest import WordEncoder

PAGES = [
    {"_id": "p1", "title": "Energy", "text": "tidal power from the sea"},
    {"_id": "p2", "title": "", "text": "rotor blades and their coating"},
    {"_id": "p3", "text": "holiday allowance of staff"},
]
QUESTIONS = [
    {"_id": "q1", "text": "blades coating"},
    {"_id": "q2", "text": "holiday allowance"},
    {"_id": "q3", "text": "never judged"},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\tp2\t1\nq2\tp3\t2\nq2\tp1\t0\n"


class TextWords(WordEncoder):
    def encode_pages(self, pages: Any) -> Any:
        return self.encode_queries(pages)


def load(path: Path) -> Dataset:
    loaded = load_any(path)
    assert isinstance(loaded, Dataset)
    return loaded


def write_set(
    folder: Path, pages: Any = PAGES, questions: Any = QUESTIONS, qrels: str = QRELS
) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", pages), ("queries", questions)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    (folder / "qrels" / "test.tsv").write_text(qrels)
    return folder


def test_loads_a_set(tmp_path: Path) -> None:
    dataset = load(write_set(tmp_path / "small"))
    assert dataset.name == "small"
    assert list(dataset.pages) == ["p1", "p2", "p3"]
    assert dataset.pages["p1"] == "Energy\ntidal power from the sea"
    assert list(dataset.queries) == ["q1", "q2"]
    assert dataset.relevant == {"q1": {"p2": 1}, "q2": {"p3": 2}}


def test_pages_without_text_are_left_out_and_counted(tmp_path: Path) -> None:
    pages = [*PAGES, {"_id": "p4", "title": "", "text": " "}]
    dataset = load(write_set(tmp_path / "holes", pages, qrels=QRELS + "q1\tp4\t1\n"))
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
        load(write_set(tmp_path / "bad", **change))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(glie.DatasetError, match="no such folder"):
        load(tmp_path / "none")
    folder = write_set(tmp_path / "a")
    for name in ("qrels/test.tsv", "queries.jsonl", "corpus.jsonl"):
        (folder / name).unlink()
        with pytest.raises(glie.DatasetError, match=f"{name}: missing"):
            load(folder)


def test_ndcg_by_hand() -> None:
    dataset = Dataset(
        "hand",
        dict.fromkeys("abcdefg", ""),
        {"q": "", "r": ""},
        {"q": {"c": 1}, "r": {"a": 3, "b": 1}},
    )
    found = [np.array([0, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 0])]
    first = 1 / np.log2(4)  # third place
    ideal = 3 + 1 / np.log2(3)
    second = (1 + 3 / np.log2(6)) / ideal  # b first, a fifth
    assert ndcg_at_5(dataset, found) == pytest.approx((first + second) / 2)


def test_codes_are_searched_as_an_index_would() -> None:
    """Equal pages come in order, whatever their names; more pages than asked for stay out."""
    pages = glie.Pages([np.eye(4)[[0]]] * 7, ids=list("zyxwvut"))
    queries, codes = glie.Queries([np.eye(4)[[0]]]), glie.Codec(1).compress(pages)
    found = search_codes(queries, codes, None, 5).positions
    assert found[0].tolist() == [0, 1, 2, 3, 4]
    dataset = Dataset("ties", dict.fromkeys("zyxwvut", ""), {"q": ""}, {"q": {"z": 1}})
    assert ndcg_at_5(dataset, found) == 1.0


def test_several_sets_as_one(tmp_path: Path) -> None:
    sets = [encode(load(write_set(tmp_path / name)), TextWords()) for name in ("one", "two")]
    pages, queries, relevant = joined(sets)
    assert pages.ids == [
        *("0:one/p1", "0:one/p2", "0:one/p3"),
        *("1:two/p1", "1:two/p2", "1:two/p3"),
    ]
    assert len(queries) == 4
    assert relevant == [["0:one/p2"], ["0:one/p3"], ["1:two/p2"], ["1:two/p3"]]


def test_pages_alone(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "a")
    (folder / "queries.jsonl").unlink()
    dataset = load_pages(folder)
    assert isinstance(dataset, Dataset)
    assert (list(dataset.pages), dataset.queries) == (["p1", "p2", "p3"], {})
