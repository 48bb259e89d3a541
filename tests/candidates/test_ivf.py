"""IVF-PQ: list numbers and PQ codes that stand for vectors, and its file."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import glie
from glie.candidates.ivf import IvfPq, lists_for, sample_for
from glie.candidates.pq import Floats
from tests.conftest import unit


def decoded(ivf_pq: IvfPq, vectors: Floats) -> Floats:
    """The vectors that the PQ codes stand for."""
    pq_codes = ivf_pq.encode(vectors)
    codewords = ivf_pq.codewords[np.arange(len(ivf_pq.codewords)), pq_codes.codes].astype(
        np.float32
    )
    rest = codewords.reshape(len(vectors), -1) @ ivf_pq.rotation.astype(np.float32).T
    return np.asarray(ivf_pq.coarse.codewords[pq_codes.lists] + rest)


@pytest.mark.parametrize("dim", [1, 7, 16, 40])
def test_a_pq_code_is_nearer_than_the_coarse_centroid(dim: int) -> None:
    vectors = unit(np.random.default_rng(dim).normal(size=(3000, dim)))
    ivf_pq = IvfPq.fit(vectors[:2000], len(vectors))
    unseen = vectors[2000:]
    centres = ivf_pq.coarse.codewords[ivf_pq.encode(unseen).lists]
    by_list = ((unseen - centres) ** 2).sum()
    by_pq = ((unseen - decoded(ivf_pq, unseen)) ** 2).sum()
    # 8 bytes keep nearly all of 7 numbers, and a good part of 40
    assert by_pq < (0.5 if dim > 16 else 0.2) * by_list + 1e-3


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_few_vectors_or_equal_ones(count: int) -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(count, 6)))
    for some in (vectors, np.repeat(vectors[:1], 4, axis=0)):
        np.testing.assert_allclose(
            decoded(IvfPq.fit(some, len(some)), some), some, rtol=0, atol=0.15
        )


def test_the_file_of_an_ivf_pq() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(500, 12)))
    ivf_pq = IvfPq.fit(vectors, 500)
    data = ivf_pq.to_bytes()
    again = IvfPq.from_bytes(data, "here")
    for one, two in zip(ivf_pq.encode(vectors), again.encode(vectors), strict=True):
        np.testing.assert_array_equal(one, two)
    assert again.to_bytes() == data
    for broken in (b"", data[:100], data[:-1]):
        with pytest.raises(glie.CodecError, match="here: damaged"):
            IvfPq.from_bytes(broken, "here")


def test_tensors_that_do_not_fit_together_are_refused() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(300, 12)))
    ivf_pq = IvfPq.fit(vectors, 300)
    for wrong in (
        {"rotation": ivf_pq.rotation[:, :-1]},
        {"rotation": ivf_pq.rotation.astype(np.float32)},
        {"codewords": ivf_pq.codewords[:-1]},
        {"codewords": np.full_like(ivf_pq.codewords, np.nan)},
    ):
        data = dataclasses.replace(ivf_pq, **wrong).to_bytes()
        with pytest.raises(glie.CodecError, match=r"damaged: the (rotation|codewords) are"):
            IvfPq.from_bytes(data, "here")


def test_lists_grow_with_the_square_root() -> None:
    assert lists_for(1) >= 1
    assert lists_for(25_000_000) == 10 * lists_for(250_000)
    assert lists_for(8 * 512) == 512
    assert lists_for(10**12) == 65_536
    assert sample_for(100) == 100
    assert sample_for(10**12) == 2**19
