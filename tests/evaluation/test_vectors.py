"""Page vectors in files, and errors that name what is wrong."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.evaluation import encode, read_corpora
from glie.evaluation.vectors import grouped
from glie.geometry import (
    measure,
)
from tests.evaluation.counting import COUNT, Counting, make_set, only_folder
from tests.test_geometry import wound


def test_corpora_by_their_keys() -> None:
    keys = [f"one/ab12_{i}" for i in range(3)]
    keys += [f"two/deck4_{i}" for i in range(2)] + [f"two/slide_{i}_1024" for i in range(2)]
    keys += ["three/talk_p0", "four/1", "four/2", "five/annual.pdf#1", "five/other.pdf", "six/x/p7"]
    assert {name: len(mine) for name, mine in grouped(keys, "file").items()} == {
        "one": 3, "two/deck4": 2, "two/slide": 2, "three": 1, "four": 2, "five": 2, "six/x": 1,
    }  # fmt: skip
    assert [key for mine in grouped(keys, "file").values() for key in mine] == keys
    assert grouped(["arr_0", "arr_1"], "file") == {"file": ["arr_0", "arr_1"]}
    assert grouped(["a_1", "a_2", "b_1", "b_2"], "file") == {
        "a": ["a_1", "a_2"],
        "b": ["b_1", "b_2"],
    }


def test_a_file_is_read_by_corpus(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {f"slides/deck_{i}": wound(30, seed=i) for i in range(3)}
    arrays["notes/1"] = wound(25).astype(np.float16)
    np.savez_compressed(tmp_path / "pages.npz", **arrays)
    corpora = {name: list(pages) for name, pages in read_corpora(tmp_path / "pages.npz").items()}
    assert list(corpora) == ["slides", "notes"]
    assert [page for page, _ in corpora["slides"]] == [
        "slides/deck_0",
        "slides/deck_1",
        "slides/deck_2",
    ]
    assert np.array_equal(corpora["slides"][1][1], arrays["slides/deck_1"])
    assert corpora["notes"][0][1].dtype == np.float16


def saved(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def bad_npz_files(folder: Path) -> dict[str, str]:
    """Files that cannot be measured, and what is said of each."""
    folder.mkdir()
    (folder / "folder").mkdir()
    whole = saved(page=np.arange(4000.0).reshape(1000, 4))
    at = len(whole) // 2
    single = io.BytesIO()
    np.save(single, np.eye(3))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "hello")
    files = {
        "text": b"not an archive",
        "empty": b"",
        "cut": whole[:at],
        "flipped": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
        "single": single.getvalue(),
        "none": saved(),
        "other": other.getvalue(),
        "objects": saved(page=np.array([{"a": 1}], dtype=object)),
        "line": saved(fine=np.eye(3), page=np.arange(3.0)),
        "words": saved(page=np.array([["a", "b"]])),
        "rows": saved(page=np.zeros((0, 4))),
        "nan": saved(page=np.array([[0.0, 1.0], [np.nan, 0.0]])),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {
        "missing": "missing: no such file; expected an .npz file",
        "folder": "folder: a folder; expected an .npz file",
        "text": "text: cannot be read (",
        "empty": "empty: cannot be read (No data left in file)",
        "cut": "cut: cannot be read (File is not a zip file)",
        "flipped": "flipped, key 'page': Bad CRC-32",
        "single": "single: a single array of shape (3, 3); expected an .npz file",
        "none": "none: no arrays in it; expected an .npz file",
        "other": "other, key 'readme.txt': expected an (n, D) array, found shape ()",
        "objects": "objects, key 'page': Object arrays cannot be loaded",
        "line": "line, key 'page': expected an (n, D) array, found shape (3,)",
        "words": "words, key 'page': expected numbers, found <U1",
        "rows": "rows, key 'page': no vectors (shape (0, 4)); expected at least one",
        "nan": "nan, key 'page', row 1: not finite",
    }


def test_bad_files_are_named(tmp_path: Path) -> None:
    for name, message in bad_npz_files(tmp_path / "bad").items():
        with pytest.raises(glie.InputError) as error:
            measure(read_corpora(tmp_path / "bad" / name))
        assert f"{tmp_path / 'bad'}/{message}" in str(error.value)


def test_a_cache_is_a_corpus(tmp_path: Path) -> None:
    found = encode(make_set(), Counting(), tmp_path)
    ((name, pages),) = read_corpora(only_folder(tmp_path)).items()
    assert name == "my set/a"
    for (page, vectors), row in zip(pages, range(COUNT), strict=True):
        assert page == f"p{row}"
        assert np.array_equal(vectors, found.take([row])[0])
