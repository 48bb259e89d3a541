"""A codebook for an encoder: how many codewords, of which vectors."""

from __future__ import annotations

import numpy as np
import pytest

import glie
from glie.codec import adapt
from glie.codec.length_norm import length_norm_of
from glie.codec.make import codewords_for, make_codebook, vectors_for
from glie.codec.readout.codebook import fit_codebook
from glie.identity import EncoderId
from tests.conftest import make_arrays


@pytest.mark.parametrize(
    ("vectors", "asked", "codewords"),
    [
        (10, None, 2),  # as many as there can be
        (40_000, None, 10_000),
        (100_000, None, 16_384),  # at least
        (500_000, None, 31_250),  # 16 vectors each
        (5_000_000, None, 65_536),  # at most
        (5_000_000, 300_000, 300_000),
        (40_000, 10_000, 10_000),
    ],
)
def test_as_many_codewords_as_the_vectors_support(
    vectors: int, asked: int | None, codewords: int
) -> None:
    assert codewords_for(vectors, asked) == codewords


@pytest.mark.parametrize("asked", [0, -1, 10_001])
def test_more_codewords_than_that_are_refused(asked: int) -> None:
    with pytest.raises(glie.InputError, match="1 to 10,000 for pages of 40,000 vectors"):
        codewords_for(40_000, asked)


def test_how_many_vectors_to_sample() -> None:
    assert vectors_for() == 1_048_576 == vectors_for(65_536)
    assert vectors_for(16_384) == 262_144


def test_it_is_the_codebook_of_the_residuals_of_all_blocks() -> None:
    pages = glie.Pages(make_arrays(60, dim=32))
    blocks = (pages.slice(at, at + 20) for at in range(0, 60, 20))
    book = make_codebook(blocks, "colpali", 50, notes={"fitted_on": "x"})
    expected = fit_codebook(
        adapt.residuals_of(pages),
        50,
        encoder=EncoderId("colpali"),
        notes={"fitted_on": "x"},
        length_norm=length_norm_of(pages),
    )
    assert book.digest == expected.digest
    assert book.length_norm > 0
    assert (len(book), book.encoder) == (50, EncoderId("colpali"))
    assert make_codebook(pages, "colpali", 50, notes={"fitted_on": "x"}).digest == book.digest
    assert make_codebook(pages, "colpali", 50, seed=1).digest != book.digest


def test_pages_that_make_none() -> None:
    with pytest.raises(glie.InputError, match="at least one"):
        make_codebook([], "x")
    blocks = [glie.Pages(make_arrays(3, dim=dim)) for dim in (16, 32)]
    with pytest.raises(glie.VectorError, match="16 numbers, and later 32"):
        make_codebook(blocks, "x")


def test_a_codec_keeps_the_codebook_that_it_was_given() -> None:
    pages = glie.Pages(make_arrays(40, dim=32))
    book = make_codebook(pages, "colpali", 50)
    codec = glie.Codec.with_codebook(book, 300, adapt=True)
    assert codec.adapts
    assert codec.encoder == EncoderId("colpali")
    unlike = glie.Pages(make_arrays(40, seed=9, dim=32))
    assert codec.for_pages(unlike) is codec
    beside = codec.beside_text(100)
    assert beside.codebook is book
    assert beside.k < codec.k
    assert not glie.Codec.with_codebook(book, 300).adapts


def test_a_large_corpus_makes_a_large_codebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all its pages, within its share of the bytes, and if the sample has vectors enough."""
    monkeypatch.setattr(adapt, "MOST_CODEWORDS", 64)
    monkeypatch.setattr(adapt, "LARGEST", 100)
    pages = glie.Pages(make_arrays(200, dim=32))

    def codewords(*, more: bool = False) -> int:
        return len(adapt.adapted_to(adapt.drawn(pages), 400, more=more)[1])

    assert len(pages.vectors) // 16 > 100
    assert codewords() == 100
    assert codewords(more=True) == 64  # of the first pages of a corpus of unknown size
    monkeypatch.setattr(adapt, "LARGEST", 10_000)
    assert codewords() == len(pages.vectors) // 16
    monkeypatch.setattr(adapt, "MOST_NUMBERS", 80 * 16 * 32)
    held = len(adapt.drawn(pages).pages.vectors)
    assert codewords() == max(64, held // 16) < len(pages.vectors) // 16
    monkeypatch.setattr(adapt, "BOOK_SHARE", 0.016)
    assert codewords() == 0.016 * 400 * 200 // 18 < held // 16


def test_a_sample_of_all_pages_is_no_copy() -> None:
    pages = glie.Pages(make_arrays(10, dim=32))
    assert adapt.drawn([pages]).pages is pages
    halves = adapt.drawn([pages.slice(0, 5), pages.slice(5, 10)])
    np.testing.assert_array_equal(halves.pages.vectors, pages.vectors)
