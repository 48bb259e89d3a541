"""Pages of pairs scored as they are read, against reconstructing and scoring them."""

from __future__ import annotations

import numpy as np
import pytest

from glie.kernels.maxsim import maxsim_reference
from glie.kernels.pair_scores import pair_scores, unpackable
from glie.kernels.quantize import DTYPES, Packed, pack, unpack
from glie.kernels.residual import ONE_LAYER, pack_set, reconstruct, unpack_set

SHARES = 0.5, 0.6
BOOK = 50


def unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / lengths, np.float32)


@pytest.mark.parametrize("dim", [1, 7, 48, 128])
@pytest.mark.parametrize("dtype", [None, *DTYPES])
@pytest.mark.parametrize("first_layer", [4, ONE_LAYER])
def test_scores_are_those_of_the_reconstructed_vectors(
    dim: int, dtype: str | None, first_layer: int
) -> None:
    rng = np.random.default_rng(dim)
    packed = pack(rng.normal(size=(BOOK, dim)).astype(np.float32), "int4")
    lengths = rng.uniform(0.3, 0.8, BOOK).astype(np.float32)
    codewords = unpack(packed, "int4", dim) * lengths[:, None]
    anchors = unit(rng.normal(size=(5, 9, dim)))
    stored: np.ndarray | Packed = anchors
    if dtype is not None:
        stored = Packed.of(anchors, dtype)
        anchors = stored.vectors()
    used, counts = np.array([3, 1, 9, 3, 1]), np.array([20, 0, 1, 33, 6])
    sets = [
        pack_set(rng.permutation(u * BOOK)[:n], u * BOOK, first_layer)
        for u, n in zip(used, counts, strict=True)
    ]
    ends = np.cumsum([len(some) for some in sets])
    starts = ends - [len(some) for some in sets]
    longer = rng.uniform(1, 1.2, 5).astype(np.float32)
    tokens = unit(rng.normal(size=(130, dim)))
    asked = np.array([0, 1, 27, 127, 130])  # one is longer than what is scored at once
    scores, taken = pair_scores(
        tokens,
        asked,
        (np.concatenate(sets), starts, ends, counts, first_layer),
        stored,
        used,
        unpackable(packed, lengths, dim, SHARES),
        longer,
    )
    np.testing.assert_array_equal(taken, ends - starts)
    pairs, bounds = [], np.concatenate([[0], np.cumsum(counts)])
    for some, u, n in zip(sets, used, counts, strict=True):
        found = unpack_set(some, int(n), int(u * BOOK), first_layer)
        assert found is not None
        pairs.append(found[0])
    rows, offsets = reconstruct(anchors, used, codewords, SHARES, np.concatenate(pairs), bounds)
    rows *= np.repeat(longer, np.diff(offsets))[:, None]
    expected = maxsim_reference(tokens, asked, rows, offsets[:-1], offsets[1:])
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_bytes_that_are_not_a_set_are_told() -> None:
    packed = pack(np.eye(8, dtype=np.float32), "int4")
    book = unpackable(packed, np.ones(8, np.float32), 8, SHARES)
    sets = np.zeros(3, np.uint8), np.array([0]), np.array([3]), np.array([4]), ONE_LAYER
    anchors = np.eye(8, dtype=np.float32)[None, :1]
    ones = np.ones(1, np.float32)
    found = pair_scores(anchors[0], np.array([0, 1]), sets, anchors, np.array([1]), book, ones)
    assert found[1].tolist() == [-1]
