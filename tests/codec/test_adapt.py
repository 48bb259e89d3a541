"""Adapting to a corpus: when a codebook is made, of which pages, and what it costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec import adapt
from glie.codec.readout.codebook import Codebook
from tests.conftest import make_arrays

DIM = 32


def pages_of(count: int, seed: int = 0, high: int = 60) -> glie.Pages:
    return glie.Pages(make_arrays(count, seed=seed, dim=DIM, low=1, high=high))


def test_an_index_adapts_to_its_first_pages(tmp_path: Path) -> None:
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    pages = pages_of(200)
    with pytest.raises(glie.CodecError, match="adapted"):
        codec.compress(pages)
    glie.Index.create(tmp_path / "i", codec)
    index = glie.Index.open(tmp_path / "i")  # the promise is kept from one process to the next
    index.add(pages)
    index = glie.Index.open(tmp_path / "i")
    assert not index.codec.adapts
    assert index.codec.same_as(codec.adapted(pages))
    with pytest.raises(glie.InputError, match="bytes_per_page"):
        index.codec.adapted(pages)
    info = index.info()
    assert 0 < info.codec_bytes < info.bytes <= 400 * len(pages)
    [hits] = index.search([pages[3][:4]], 3)
    assert "3" in hits.ids
    before = index.codec
    index.add(glie.Pages(make_arrays(5, seed=9, dim=DIM), ids=[f"new{i}" for i in range(5)]))
    assert index.codec.same_as(before)


def test_an_index_adapts_where_the_shipped_codebook_does_not_fit(tmp_path: Path) -> None:
    pages = glie.Pages(make_arrays(60, dim=128))  # nobody's vectors
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=400))
    index.add(pages)
    assert not index.codec.adapts
    assert index.codec.codebook is not Codebook.shipped()
    assert index.info().bytes <= 1.05 * 60 * 400
    refused = glie.Index.create(tmp_path / "j", glie.Codec(bytes_per_page=400, adapt=False))
    refused.add(pages)
    assert len(refused.codec.codebook or ()) == 65_536


def test_the_shipped_codebook_fits_its_encoder(tmp_path: Path) -> None:
    codewords = Codebook.shipped().codewords
    rng = np.random.default_rng(0)
    anchors = make_arrays(1, dim=128, low=40, high=40)[0]
    arrays = []
    for anchor in anchors:  # what the codewords were made for: anchors, and codewords around them
        rows = 0.5 * anchor + codewords[rng.integers(len(codewords), size=30)]
        arrays.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=260))
    index.add(glie.Pages(arrays))
    assert index.codec.same_as(glie.Codec(bytes_per_page=260))
    assert index.info().codec_bytes == 0


def test_a_stream_is_adapted_to_by_its_first_pages(tmp_path: Path) -> None:
    pages = pages_of(600, high=20)
    parts = [pages.slice(at, at + 100) for at in range(0, 600, 100)]
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=400, adapt=True))
    index.add(glie.Batch(part) for part in parts)
    assert index.ids == pages.ids
    assert index.codec.notes["adapted_to"] == 500


@pytest.mark.parametrize("size", [1, 64, 499, 500, 501, 600])
def test_a_stream_is_adapted_to_alike_in_any_batches(size: int, tmp_path: Path) -> None:
    pages = pages_of(600, high=20)
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    index = glie.Index.create(tmp_path / "i", codec)
    index.add(glie.Batch(pages.slice(at, min(at + size, 600))) for at in range(0, 600, size))
    assert index.codec.same_as(codec.adapted(pages.slice(0, 500), more=True))


def test_a_stream_that_ends_with_the_first_pages_is_all_there_is(tmp_path: Path) -> None:
    pages = pages_of(500, high=20)
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    index = glie.Index.create(tmp_path / "i", codec)
    index.add(glie.Batch(pages.slice(at, at + 100)) for at in range(0, 500, 100))
    assert index.codec.same_as(codec.adapted(pages))


def test_a_sample_is_drawn_over_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in any blocks, of a bounded size, of pages at even distances."""
    monkeypatch.setattr(adapt, "MOST_NUMBERS", 400 * DIM)
    pages = pages_of(200, high=30)
    whole = adapt.drawn(pages)
    assert (whole.of_pages, whole.of_vectors) == (200, len(pages.vectors))
    assert 200 <= len(whole.pages.vectors) <= 400 < len(pages.vectors)
    step = 200 // len(whole.pages)
    for page, rows in enumerate(whole.pages):
        np.testing.assert_array_equal(rows, pages[step * page])
    for size in (1, 7, 199):
        blocks = [pages.slice(at, min(at + size, 200)) for at in range(0, 200, size)]
        sample = adapt.drawn(iter(blocks))
        assert sample[1:] == whole[1:]
        np.testing.assert_array_equal(sample.pages.vectors, whole.pages.vectors)
        np.testing.assert_array_equal(sample.pages.offsets, whole.pages.offsets)
        assert not any(np.shares_memory(sample.pages.vectors, block.vectors) for block in blocks)
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    assert codec.adapted(iter(blocks)).same_as(codec.adapted(pages))


def test_what_cannot_be_adapted_to() -> None:
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    for nothing in ([], glie.Pages([]), [glie.Pages([])]):
        with pytest.raises(glie.InputError, match="at least one"):
            codec.adapted(nothing)
    for wrong in (3, [make_arrays(1)[0]]):
        with pytest.raises(glie.InputError, match=r"expected glie\.Pages, found"):
            codec.adapted(wrong)  # type: ignore[arg-type]
    with pytest.raises(glie.VectorError, match="have 8 numbers, and later 16"):
        codec.adapted([glie.Pages(make_arrays(2, dim=8)), glie.Pages(make_arrays(2))])


def test_adapting_takes_other_dimensions_and_single_pages(tmp_path: Path) -> None:
    for dim, count in ((384, 3), (7, 20), (1, 2)):
        pages = glie.Pages(make_arrays(count, dim=dim))
        index = glie.Index.create(tmp_path / str(dim), glie.Codec(bytes_per_page=900, adapt=True))
        index.add(pages)
        [hits] = index.search([pages[1][:2]], 1)
        assert len(hits) == 1
