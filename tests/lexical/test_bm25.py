"""BM25, against bm25s."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import bm25s
import numpy as np
import pytest

from glie.index.lexical_file import LexicalFile
from glie.lexical.bm25 import K1, B, bm25
from tests.lexical.files import lexical_bytes


def random_texts(rng: np.random.Generator, pages: int) -> list[list[str]]:
    lengths = rng.integers(1, 80, pages)
    return [[f"w{n}" for n in np.minimum(rng.zipf(1.3, length), 200)] for length in lengths]


def files_of(folder: Path, segments: list[list[list[str]]]) -> list[LexicalFile]:
    files = []
    for number, texts in enumerate(segments):
        path = folder / f"{number}.lex"
        path.write_bytes(lexical_bytes([Counter(text) for text in texts], number))
        files.append(LexicalFile(path))
    return files


def expected(texts: list[list[str]], asked: list[str], k1: float, b: float) -> np.ndarray:
    oracle = bm25s.BM25(method="lucene", k1=k1, b=b)
    oracle.index(texts, show_progress=False)
    known = [term for term in asked if term in oracle.vocab_dict]
    return np.asarray(oracle.get_scores(known) if known else np.zeros(len(texts)))


@pytest.mark.parametrize(("k1", "b"), [(K1, B), (0.9, 0.4), (2.0, 1.0), (1.2, 0.0)])
@pytest.mark.parametrize("sizes", [(1,), (120,), (40, 1, 90)])
def test_scores_are_those_of_bm25s(
    tmp_path: Path, sizes: tuple[int, ...], k1: float, b: float
) -> None:
    rng = np.random.default_rng(sum(sizes))
    segments = [random_texts(rng, size) for size in sizes]
    files = files_of(tmp_path, segments)
    asked = ["w1", "w2", "w2", "w7", "w30", "w150", "unknown"]
    scores = bm25(files, [None] * len(files), Counter(asked), k1=k1, b=b).pages
    assert [len(some) for some in scores] == list(sizes)
    texts = [text for segment in segments for text in segment]
    np.testing.assert_allclose(np.concatenate(scores), expected(texts, asked, k1, b), atol=1e-4)


def test_deleted_pages_do_not_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    segments = [random_texts(rng, size) for size in (50, 70, 3)]
    live = [rng.random(50) < 0.5, None, np.zeros(3, bool)]
    asked = ["w1", "w3", "w3", "w9"]
    scores = bm25(files_of(tmp_path, segments), live, Counter(asked)).pages
    masks = [np.ones(len(s), bool) if m is None else m for s, m in zip(segments, live, strict=True)]
    kept = np.concatenate(masks)
    texts = [text for segment in segments for text in segment]
    alive = [text for text, stays in zip(texts, kept, strict=True) if stays]
    np.testing.assert_allclose(
        np.concatenate(scores)[kept], expected(alive, asked, K1, B), atol=1e-4
    )
    assert not np.concatenate(scores)[~kept].any()


def test_nothing_to_score(tmp_path: Path) -> None:
    assert bm25([], [], {"a": 1}).pages == []
    files = files_of(tmp_path, [[[], []], [["a"]]])
    for terms in ({}, {"nowhere": 1}):
        assert [scores.tolist() for scores in bm25(files, [None, None], terms).pages] == [
            [0, 0],
            [0],
        ]
    gone = [np.zeros(2, bool), np.zeros(1, bool)]
    assert [scores.tolist() for scores in bm25(files, gone, {"a": 1}).pages] == [[0, 0], [0]]


def test_a_page_scores_the_same_in_one_segment_and_in_several(tmp_path: Path) -> None:
    texts = random_texts(np.random.default_rng(2), 60)
    (tmp_path / "one").mkdir()
    one = bm25(files_of(tmp_path / "one", [texts]), [None], {"w1": 1, "w4": 2}).pages
    three = bm25(
        files_of(tmp_path, [texts[:9], texts[9:40], texts[40:]]), [None] * 3, {"w1": 1, "w4": 2}
    )
    np.testing.assert_array_equal(one[0], np.concatenate(three.pages))
