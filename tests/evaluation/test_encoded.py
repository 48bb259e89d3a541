"""Encoded sets: blocks, rows, files and joins."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import glie
from glie.evaluation import (
    encode,
    joined,
)
from glie.evaluation.encoded import Half
from glie.identity import EncoderId
from tests.evaluation.counting import COUNT, Counting, make_set, only_folder
from tests.evaluation.sets import TextWords, write_set
from tests.evaluation.test_datasets import opened


@pytest.mark.parametrize("on_disk", [True, False])
def test_blocks_and_takes_are_the_pages(tmp_path: Path, on_disk: bool) -> None:
    found = encode(make_set(), Counting(), tmp_path if on_disk else None)
    pages, blocks = found.pages(), list(found.blocks())
    assert [len(block) for block in blocks] == [64, 64, 22]
    assert [page for block in blocks for page in block.ids] == pages.ids
    assert np.array_equal(np.concatenate([block.vectors for block in blocks]), pages.vectors)
    rows = np.array([149, 0, 64, 63, 5])
    taken = found.take(rows)
    assert taken.ids == ["p149", "p0", "p64", "p63", "p5"]
    for row, vectors in zip(rows, taken, strict=True):
        assert np.array_equal(vectors, pages[int(row)])
    assert len(found.take([])) == 0
    with pytest.raises(IndexError):
        found.take([150])


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    found = encode(make_set(), Counting(), tmp_path)
    (only_folder(tmp_path) / "pages-00001.safetensors").write_bytes(b"")
    assert found.take([0, 149]).ids == ["p0", "p149"]
    blocks = found.blocks()
    assert len(next(blocks)) == 64
    with pytest.raises(glie.DatasetError, match=r"pages-00001\.safetensors: damaged: 0 bytes"):
        next(blocks)


def test_files_that_are_no_vectors() -> None:
    from safetensors.numpy import save

    half = np.zeros((3, 2), dtype=np.float16)
    ends: npt.NDArray[np.int64] = np.array([0, 3])
    Half.from_bytes(save({"vectors": half, "offsets": ends}))
    for tensors in (
        {"vectors": half},
        {"vectors": half, "offsets": ends, "more": ends},
        {"vectors": half.astype(np.float32), "offsets": ends},
        {"vectors": half[0], "offsets": ends},
        {"vectors": half, "offsets": ends[:0]},
        {"vectors": half, "offsets": np.array([0, 2])},
        {"vectors": half, "offsets": np.array([0, 3, 3])},
    ):
        with pytest.raises(ValueError, match="offsets"):
            Half.from_bytes(save(tensors))
    with pytest.raises(ValueError, match="not a file of vectors and offsets"):
        Half.from_bytes(b"pickle")


def test_sets_as_one_from_the_cache(tmp_path: Path) -> None:
    sets = [encode(make_set(name=name), Counting(), tmp_path) for name in ("a", "b")]
    pages, queries, relevant = joined(sets)
    assert len(pages) == 2 * COUNT
    assert (pages.ids[3], pages.ids[COUNT + 3]) == ("0:a/p3", "1:b/p3")
    assert np.array_equal(pages[COUNT + 3], sets[1].take([3])[0])
    assert np.array_equal(queries[3], queries[1])
    assert relevant == [["0:a/p1"], ["0:a/p3", "0:a/p140"], ["1:b/p1"], ["1:b/p3", "1:b/p140"]]


def test_several_sets_as_one(tmp_path: Path) -> None:
    sets = [encode(opened(write_set(tmp_path / name)), TextWords()) for name in ("one", "two")]
    pages, queries, relevant = joined(sets)
    assert pages.ids == [
        *("0:one/p1", "0:one/p2", "0:one/p3"),
        *("1:two/p1", "1:two/p2", "1:two/p3"),
    ]
    assert len(queries) == 4
    assert relevant == [["0:one/p2"], ["0:one/p3"], ["1:two/p2"], ["1:two/p3"]]


def test_questions_as_a_search_asks_them() -> None:
    encoded = encode(make_set(), Counting())
    assert encoded.asked is encoded.queries
    weighted = dataclasses.replace(encoded, encoder=EncoderId("english", "1"))
    assert (weighted.asked.vectors[:, -1] == 0).all()
    np.testing.assert_array_equal(weighted.asked.vectors[:, :-1], encoded.queries.vectors[:, :-1])
