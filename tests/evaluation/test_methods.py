"""Methods by name."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import glie
from glie.codec.make import make_codebook
from glie.codec.readout import shared
from glie.codec.readout.generative import FitScores
from glie.evaluation.fits import facts
from glie.evaluation.methods import (
    ADAPTED,
    NORM_POWER,
    SHIPPED,
    chosen_methods,
    codebook_for,
    fitted,
    glie_free,
    scaled,
    with_networks,
)
from glie.identity import EncoderId
from tests.codec.networks import fitted_codec, fitted_of, random_codec
from tests.conftest import make_arrays
from tests.evaluation.topics import (
    ALL,
)


def test_methods_are_asked_for_by_name() -> None:
    assert chosen_methods(None) == ["raw-kmeans", "glie-free", "uncompressed"]
    assert chosen_methods(None, codec=True)[-2:] == ["glie", "uncompressed"]
    assert chosen_methods("all", fits=True) == ALL
    assert chosen_methods("all", codec=True) == [name for name in ALL if name != "plaid"]
    assert chosen_methods("codewords, codewords-adapted") == [SHIPPED, ADAPTED]
    assert not {"glie", "plaid"} & set(chosen_methods("all"))
    with pytest.raises(glie.InputError, match="'best' is unknown; expected all, or some of: raw"):
        chosen_methods("best")
    with pytest.raises(glie.InputError, match="glie need a fitted codec"):
        chosen_methods("glie")
    with pytest.raises(glie.InputError, match="plaid need sets to fit centroids on; give --fit"):
        chosen_methods("plaid", codec=True)


def test_the_codebook_of_an_encoder() -> None:
    """The shipped one, or the largest of those registered for it; never that of another."""
    pages, mine = glie.Pages(make_arrays(40, dim=32)), EncoderId("mine", "1")
    assert codebook_for(mine, 32) is None
    books = [make_codebook(pages, mine, codewords) for codewords in (20, 50, 30)]
    for book in books:
        shared.register(book)
    found = codebook_for(EncoderId("mine"), 32)
    assert found is not None
    assert found.digest == books[1].digest
    assert codebook_for(EncoderId("mine", "2"), 32) is None
    assert codebook_for(mine, 16) is None
    shipped = codebook_for(EncoderId("english"), 128)
    assert shipped is not None
    assert shipped.is_shipped
    assert facts(glie.Codec.with_codebook(found, 300)) == {}  # it is not part of an index


def test_scaled_vectors_are_longer_the_wider_their_cluster() -> None:
    pages = glie.Pages(make_arrays(5, low=1))
    free, found = glie_free(pages, 4), scaled(pages, 4)
    used = free.counts > 0
    lengths = np.linalg.norm(found.vectors[used], axis=1)
    np.testing.assert_allclose(lengths, free.norms[used].astype(float) ** NORM_POWER, rtol=1e-3)
    np.testing.assert_allclose(
        found.vectors[used] / lengths[:, None], free.vectors[used], atol=1e-6
    )
    assert lengths.max() > 1.01
    assert not found.vectors[~used].any()


def test_rows_named_after_networks_measure_them_where_they_did_not_pay() -> None:
    pages = glie.Pages(make_arrays(5, low=1))
    paying = random_codec(pages.dim, seed=1)
    scores = FitScores(4, free=0.3, single_stage=0.2, cascade=0.2, step=0.0)
    fit = dataclasses.replace(fitted_of(paying), budgets=(scores,))
    codec = fitted_codec(fit, 4)
    assert (codec.refiner, codec.decoder) == (None, None)
    for used, measured in zip(fitted(paying), fitted(with_networks(codec)), strict=True):
        expected = used.compress(pages, 4, 0)
        np.testing.assert_array_equal(measured.compress(pages, 4, 0).vectors, expected.vectors)
        assert not np.array_equal(expected.vectors, glie_free(pages, 4).vectors)
    regenerated = paying.regenerate(paying.compress(pages))
    found = with_networks(codec).regenerate(paying.compress(pages))
    np.testing.assert_array_equal(found.vectors, regenerated.vectors)
