"""Random pages, block by block: only what is needed is read and encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glie
from glie.errors import DatasetError
from glie.evaluation import Dataset, Encoded, blocks, encode, sampling
from tests.conftest import make_arrays
from tests.evaluation.sets import TextWords, write_set

COUNT = 40
TEXTS = {f"p{page}": " ".join([f"word{page}"] * (1 + page % 5)) for page in range(COUNT)}


class Counting:
    """An encoder of words that counts the pages it was given."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def __call__(self, dataset: Dataset | Encoded) -> Encoded:
        self.pages += dataset.page_ids
        return encode(dataset, None if isinstance(dataset, Encoded) else TextWords())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "BLOCK", 8)


def corpus(folder: Path) -> Path:
    rows = [{"_id": page, "text": text} for page, text in TEXTS.items()]
    write_set(folder, rows, [], "")
    (folder / "queries.jsonl").unlink()
    return folder


def test_a_set_is_encoded_until_there_are_enough_vectors(tmp_path: Path) -> None:
    folder, counting = corpus(tmp_path / "set"), Counting()
    found = list(blocks(folder, 30, 0, counting))
    vectors = [len(block.pages.vectors) for block in found]
    assert sum(vectors[:-1]) < 30 <= sum(vectors)
    assert len(counting.pages) == 8 * len(found) < COUNT
    assert counting.pages != list(TEXTS)[: len(counting.pages)]  # in random order
    assert found[0].encoder is not None
    everything = [
        page for block in blocks(folder, 10**9, 1, Counting()) for page in block.pages.ids
    ]
    assert sorted(everything) == sorted(TEXTS)


def test_documents_and_vectors(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    for page, text in TEXTS.items():
        (reports / f"{page}.txt").write_text(text)
    counting = Counting()
    first = next(blocks(reports, 10**9, 0, counting))
    assert len(first.pages) == len(counting.pages) == 8
    assert sum(len(block.pages) for block in blocks(reports, 10**9, 0, Counting())) == COUNT
    arrays = make_arrays(20)
    np.savez(tmp_path / "pages.npz", *arrays)
    found = list(blocks(tmp_path / "pages.npz", 10**9, 0, Counting()))
    assert [len(block.pages) for block in found] == [8, 8, 4]
    assert {block.encoder for block in found} == {None}
    assert sum(len(block.pages.vectors) for block in found) == sum(map(len, arrays))
    assert len(list(blocks(tmp_path / "pages.npz", 1, 0, Counting()))) == 1


def test_cached_vectors_are_read_shard_by_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glie.evaluation.encoding.SHARD_PAGES", 10)
    monkeypatch.setattr("glie.evaluation.encoding.TEXTS_PER_BATCH", 5)
    encode(Dataset("set", TEXTS, {}, {}), TextWords(), tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    found = list(blocks(folder, 10**9, 0, Counting()))
    assert sorted(page for block in found for page in block.pages.ids) == sorted(TEXTS)
    assert len(found) > 2
    assert len(list(blocks(folder, 1, 0, Counting()))) == 1


def test_pages_that_an_encoder_cannot_read_are_left_out(tmp_path: Path) -> None:
    """Unless there are no others: a part of a set may be scanned pages alone."""
    folder = corpus(tmp_path / "set")

    def some(dataset: Dataset | Encoded) -> Encoded:
        if "p3" in dataset.page_ids:
            raise DatasetError("no page is left to encode")
        return Counting()(dataset)

    assert sum(len(block.pages) for block in blocks(folder, 10**9, 0, some)) == COUNT - 8

    def none(dataset: Dataset | Encoded) -> Encoded:
        raise DatasetError(f"{dataset.name}: no page is left to encode")

    with pytest.raises(DatasetError, match="set: no page is left"):
        list(blocks(folder, 10**9, 0, none))
    (tmp_path / "empty").mkdir()
    for place in ("empty", "nowhere"):
        with pytest.raises(glie.DatasetError, match=f"{place}: no .*; expected an"):
            list(blocks(tmp_path / place, 10**9, 0, Counting()))
