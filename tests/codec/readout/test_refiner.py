"""The refiner starts as nothing, stays on the sphere, and sees one page at a time."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import glie
from glie.codec.readout.refiner import (
    HEADS,
    Refiner,
    new_paper_refiner,
    new_refiner,
    refine,
    refined,
    with_strength,
)
from tests.codec.networks import random_paper_refiner, random_refiner
from tests.conftest import Floats, make_arrays, unit


def attention(weights: Refiner, anchors: Floats, vectors: Floats) -> Floats:
    """The same as the definition reads: keys and values projected, head by head."""
    dim = anchors.shape[1]
    u, x = anchors * dim**0.5, vectors * dim**0.5
    queries = np.split(u @ weights.query + weights.query_bias, HEADS, axis=1)
    keys = np.split(x @ weights.key, HEADS, axis=1)
    values = np.split(x @ weights.value, HEADS, axis=1)
    heads = []
    for q, k, v in zip(queries, keys, values, strict=True):
        powers = np.exp(q @ k.T / np.sqrt(q.shape[1]))
        heads.append(powers / powers.sum(axis=1, keepdims=True) @ v)
    moved = anchors + np.concatenate(heads, axis=1) @ weights.output + weights.output_bias
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True), np.float32)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(2, 24), st.integers(0, 999))
def test_it_is_cross_attention(n: int, k: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = random_refiner(dim, rng, 0.2)
    anchors, vectors = unit(rng.normal(size=(k, dim))), unit(rng.normal(size=(n, dim)))
    np.testing.assert_allclose(
        refine(weights, anchors, vectors), attention(weights, anchors, vectors), atol=2e-5
    )


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 999))
def test_the_paper_s_is_torch_s_attention(n: int, k: int, seed: int) -> None:
    """Multi-head attention of torch with its own output, and a projection after it."""
    dim, rng = 16, np.random.default_rng(seed)
    weights = random_paper_refiner(dim, rng, 0.2)
    anchors, vectors = unit(rng.normal(size=(k, dim))), unit(rng.normal(size=(n, dim)))
    w = type(weights)(*map(torch.from_numpy, weights))
    layer = torch.nn.MultiheadAttention(dim, HEADS)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([w.query.T, w.key.T, w.value.T]))
        layer.in_proj_bias.copy_(torch.cat([w.query_bias, w.key_bias, w.value_bias]))
        layer.out_proj.weight.copy_(w.mix.T)
        layer.out_proj.bias.copy_(w.mix_bias)
        u, x = (torch.from_numpy(rows * dim**0.5) for rows in (anchors, vectors))
        moved = torch.from_numpy(anchors) + layer(u, x, x)[0] @ w.output + w.output_bias
    expected = torch.nn.functional.normalize(moved, dim=1)
    np.testing.assert_allclose(refine(weights, anchors, vectors), expected.numpy(), atol=2e-5)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 40), st.integers(0, 999))
def test_fresh_it_changes_no_bit(n: int, k: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    anchors, vectors = unit(rng.normal(size=(k, dim))), unit(rng.normal(size=(n, dim)))
    for weights in (new_refiner(dim, rng), new_paper_refiner(dim, rng)):
        assert refine(weights, anchors, vectors).tobytes() == anchors.tobytes()
        tensors = type(weights)(*map(torch.from_numpy, weights))
        as_tensor = refine(tensors, torch.from_numpy(anchors), torch.from_numpy(vectors))
        assert as_tensor.numpy().tobytes() == anchors.tobytes()


def test_a_fresh_one_can_learn() -> None:
    weights = Refiner(
        *(torch.from_numpy(a).requires_grad_() for a in new_refiner(8, np.random.default_rng(0)))
    )
    anchors, vectors = (torch.from_numpy(make_arrays(2, dim=8)[i]) for i in (0, 1))
    torch.autograd.backward(refine(weights, anchors, vectors)[..., 0].sum())
    assert weights.output.grad.abs().sum() > 0


@given(st.integers(0, 999))
def test_a_page_gives_the_same_code_alone_in_a_batch_and_padded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = random_refiner(16, rng)
    pages = glie.Pages(make_arrays(5, seed=seed))
    free = glie.Codec(k=4).compress(pages)
    together = refined(weights, free, pages)
    for page in range(5):
        alone = refined(weights, free.take(np.array([page])), pages.slice(page, page + 1))
        assert alone.vectors.tobytes() == together.vectors[page].tobytes()
    # and as fitting sees it: padded with rubbish, masked
    longest = int(pages.lengths.max())
    padded = torch.full((5, longest, 16), 7.0)
    real = torch.zeros(5, longest, dtype=torch.bool)
    for page, rows in enumerate(pages):
        padded[page, : len(rows)] = torch.from_numpy(rows)
        real[page, : len(rows)] = True
    tensors = Refiner(*map(torch.from_numpy, weights))
    in_batch = refine(tensors, torch.from_numpy(free.vectors), padded, real).numpy()
    used = free.counts > 0
    np.testing.assert_allclose(in_batch[used], together.vectors[used], atol=1e-5)


def test_its_size() -> None:
    def size(dim: int) -> int:
        return sum(array.size for array in new_refiner(dim, np.random.default_rng(0)))

    assert 65_000 < size(128) < 67_000
    assert size(3072) < 2_000_000  # the inner width does not grow with D


def test_unused_slots_stay_empty() -> None:
    pages = glie.Pages([unit(np.eye(6))[:2]])
    free = glie.Codec(k=4).compress(pages)
    moved = refined(random_refiner(6, np.random.default_rng(0)), free, pages)
    assert not moved.vectors[0, 2:].any()
    np.testing.assert_allclose(np.linalg.norm(moved.vectors[0, :2], axis=1), 1, atol=1e-6)


def test_its_strength_lies_between_nothing_and_all() -> None:
    rng = np.random.default_rng(0)
    weights = random_refiner(8, rng, 0.2)
    anchors, vectors = unit(rng.normal(size=(3, 8))), unit(rng.normal(size=(20, 8)))
    near = [
        (refine(with_strength(weights, share), anchors, vectors) * anchors).sum(axis=1)
        for share in (0.0, 0.5, 1.0)
    ]
    assert np.array_equal(refine(with_strength(weights, 0.0), anchors, vectors), anchors)
    assert (near[0] > near[1]).all()
    assert (near[1] > near[2]).all()
