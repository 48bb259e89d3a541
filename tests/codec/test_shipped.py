"""The codec that comes with the package fits its encoder, and is small."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import glie
from glie.codec.adapt import fits
from glie.codec.readout.codebook import Codebook
from glie.encoders import load_encoder
from glie.identity import EncoderId


def test_the_shipped_codec() -> None:
    encoder = load_encoder()
    codec = glie.Codec.shipped(encoder)
    assert codec is not None
    assert (codec.k, codec.dim) == (4, 128)
    assert {budget.k for budget in codec.scores} == {2, 4, 8, 16, 32, 64}
    folder = Path(glie.__file__).parent / "codec" / "shipped"
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 12_000_000
    text = "Capital expenditure in 2018 was 1,577 million dollars, most of it for new stores."
    pages = glie.Pages(encoder.encode_pages([text]))
    made = codec.regenerate(codec.compress(pages))
    np.testing.assert_array_equal(made.lengths, pages.lengths)


def test_the_codebook_is_that_of_the_embedded_encoder() -> None:
    encoder = load_encoder()
    book = Codebook.shipped()
    assert book.encoder == EncoderId.of(encoder)
    text = "The library opens at nine, and children under twelve need a library card of their own."
    assert fits(book, glie.Pages(encoder.encode_pages([text] * 3)))


def test_another_revision_has_none() -> None:
    assert glie.Codec.shipped({"name": "minilm", "revision": "other"}) is None
    assert glie.Codec.shipped({"name": "colpali", "revision": None}) is None
    assert glie.Codec.shipped({"name": "../shipped/minilm", "revision": None}) is None
