"""Planning a budget: measured on files, the same each time, and worth its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.evaluation import Encoded, encode, sample
from glie.evaluation.datasets import Dataset
from glie.identity import EncoderId
from glie.progress import Progress
from tests.conftest import Floats, make_arrays
from tests.documents.test_documents import make_pdf
from tests.evaluation.sets import write_set


def made_pages(count: int) -> glie.Pages:
    return glie.Pages(make_arrays(count, dim=128, low=60, high=90))


def test_a_row_a_budget() -> None:
    pages = made_pages(60)
    said: list[Progress] = []
    rows = glie.plan(pages, [150, 520], encoder="minilm", progress=said.append)
    assert rows == glie.plan(pages, [150, 520], encoder={"name": "minilm", "revision": None})
    assert [row.budget for row in rows] == [150, 520, None]
    assert str(said[-1]) == "1 of 2 budgets measured"
    for row in rows[:2]:
        assert row.budget is not None
        config = glie.Codec(bytes_per_page=row.budget).for_pages(pages).config
        found = row.k, row.dtype, row.codewords
        assert found == (config.k, config.dtype, config.codewords)
        assert 0.5 * row.budget < row.bytes_per_page <= 1.1 * row.budget
        assert 0 < row.overlap <= 1
        assert 0.9 < row.same_best <= 1
    assert rows[0].error > rows[1].error > 0
    assert rows[0].overlap < rows[1].overlap
    whole = rows[-1]
    assert whole.bytes_per_page == pytest.approx(2 * 128 * len(pages.vectors) / 60)
    assert (whole.k, whole.overlap, whole.same_best, whole.error) == (None, 1, 1, 0)


def test_what_is_printed_is_measured_on_files(tmp_path: Path) -> None:
    pages = made_pages(60)
    index = glie.Index.create(tmp_path / "x", glie.Codec(bytes_per_page=260), encoder="minilm")
    index.add(pages)
    files = sum(path.stat().st_size for path in index.path.rglob("*") if path.is_file())
    (row, _) = glie.plan(pages, [260], encoder="minilm")
    assert row.bytes_per_page == files / 60


def test_few_pages_of_few_vectors() -> None:
    (row, _) = glie.plan(glie.Pages([np.eye(2, 128), np.eye(1, 128, 5)]), [150], encoder="minilm")
    assert row.overlap == 1
    assert row.same_best > 0.98


def test_what_was_tried_on_the_vectors_of_another_encoder() -> None:
    (row, whole) = glie.plan(glie.Pages(make_arrays(150, dim=48)), [300])
    assert set(row.families) == {"coordinates", "codewords", "anchors of 1 bit"}
    assert all(0 < share <= 1 for share in row.families.values())
    assert (whole.families, row.to_dict()["families"]) == ({}, row.families)


def test_of_many_pages_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glie.planning.MOST_PAGES", 20)
    pages = made_pages(60)
    one, again, other = (glie.plan(pages, [150], encoder="minilm", seed=s)[0] for s in (0, 0, 1))
    assert one == again != other


def test_what_cannot_be_planned() -> None:
    with pytest.raises(glie.InputError, match=r"expected glie.Pages, at least one, found \[\]"):
        glie.plan([], [520])  # type: ignore[arg-type]
    with pytest.raises(glie.InputError, match="at least one, found Pages"):
        glie.plan(glie.Pages([]), [520])
    with pytest.raises(glie.InputError, match="bytes_per_page: found 7, at least 65 are needed"):
        glie.plan(made_pages(2), [520, 7], encoder="minilm")


def no_encoder(loaded: Dataset | Encoded) -> Encoded:
    raise AssertionError("vectors need no encoder")


def test_samples_of_vectors_in_a_file(tmp_path: Path) -> None:
    arrays = {f"deck_{i}": array for i, array in enumerate(make_arrays(9))}
    np.savez(tmp_path / "pages.npz", **arrays)  # type: ignore[arg-type]
    drawn = sample(tmp_path / "pages.npz", 4, 0, no_encoder)
    assert len(drawn.pages) == 4
    assert drawn.encoder is None
    for name, rows in zip(drawn.pages.ids, drawn.pages, strict=True):
        np.testing.assert_allclose(rows, arrays[name], atol=1e-6)


class Fake:
    """Encodes a text as the letters it has."""

    name, revision = "fake", "1"

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        letters = np.eye(128, dtype=np.float32)
        return [letters[[ord(letter) % 128 for letter in text]] for text in pages]

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        return self.encode_pages(texts)


def encoded(loaded: Dataset | Encoded) -> Encoded:
    return encode(loaded, Fake())


def test_samples_of_a_set_and_of_documents(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", [{"_id": f"p{i}", "text": f"page {i}"} for i in range(9)])
    (folder / "queries.jsonl").unlink()
    drawn = sample(folder, 4, 0, encoded)
    assert len(drawn.pages) == 4
    assert drawn.encoder == EncoderId("fake", "1")

    make_pdf(tmp_path / "docs" / "a.pdf", ["one", "two", "three"])
    (tmp_path / "docs" / "b.txt").write_text("four")
    (tmp_path / "docs" / "c.pdf").write_bytes(b"no pdf")
    warned: list[str] = []

    def noting(loaded: Dataset | Encoded) -> Encoded:
        warned.extend(loaded.warnings)
        return encoded(loaded)

    drawn = sample(tmp_path / "docs", 9, 0, noting)
    assert sorted(drawn.pages.ids) == ["a.pdf#1", "a.pdf#2", "a.pdf#3", "b.txt#1"]
    assert len(warned) == 1
    assert "c.pdf" in warned[0]
    assert len(sample(tmp_path / "docs", 2, 0, encoded).pages) == 2

    (tmp_path / "empty").mkdir()
    with pytest.raises(glie.DatasetError, match="empty: no pages in it; expected an"):
        sample(tmp_path / "empty", 9, 0, encoded)


def test_a_codec_is_measured_beside_the_budgets() -> None:
    pages = glie.Pages(make_arrays(40, dim=32))
    rows = glie.plan(pages, [], codec=glie.Codec(k=4))
    assert [(row.budget, row.k) for row in rows] == [(None, 4), (None, None)]
    assert rows[0].dtype == "bf16"
    assert 0 < rows[0].overlap <= 1
    more = glie.plan(pages, [], codec=glie.Codec(k=16))[0]
    assert more.error < rows[0].error
    assert more.bytes_per_page > rows[0].bytes_per_page


def test_words_take_their_share() -> None:
    pages = glie.Pages(make_arrays(60, dim=128, low=30))
    texts = [" ".join(f"word{60 * row + n}" for n in range(60)) for row in range(60)]
    without, withal = (
        glie.plan(pages, [520], encoder="minilm", texts=given)[0] for given in (None, texts)
    )
    assert without.text_bytes == 0 < withal.text_bytes
    assert withal.error > without.error  # codes have fewer bytes
    with pytest.raises(glie.InputError, match="texts: found 1 for 60 pages"):
        glie.plan(pages, [520], texts=["one"])
