"""What regeneration guarantees whatever the weights: property tests over random ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glie
from glie.codec.readout.decoder import (
    ALPHA,
    PAPER_FEATURES,
    Unrolled,
    children,
    cluster_features,
    new_decoder,
    new_paper_decoder,
    position_features,
    regenerated,
    spread,
)
from glie.kernels.maxsim import maxsim
from glie.training.fitter import new_networks
from glie.training.recipe import Recipe
from tests.codec.networks import drawn, random_codec
from tests.conftest import make_arrays, unit

sizes = st.sampled_from([0.01, 0.3, 3.0, 30.0])
layouts = st.sampled_from(["light", "paper"])


def token_bests(tokens: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Each token's best score, by the kernel that search uses."""
    each = np.arange(len(tokens) + 1)
    rows = np.array([0]), np.array([len(vectors)])
    return maxsim(tokens, each, vectors, *rows)[:, 0]


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 999), sizes, layouts)
def test_regeneration_keeps_its_promises(
    count: int, k: int, seed: int, size: float, layout: str
) -> None:
    pages = glie.Pages(make_arrays(count, seed=seed, low=1))
    codec = random_codec(16, seed, k, size, layout)
    codes = codec.compress(pages)
    made = codec.regenerate(codes)
    # the slots of a page sum to N
    np.testing.assert_array_equal(made.lengths, pages.lengths)
    assert made.ids == pages.ids
    # unit norm
    np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-6)
    tokens = unit(np.random.default_rng(seed).normal(size=(9, 16)))
    for page in range(count):
        counts = codes.counts[page].astype(int)
        stored = codes.vectors[page][counts > 0]
        owners = np.repeat(np.arange(len(stored)), counts[counts > 0])
        # every child within arctan(0.75) of its anchor
        cosines = (made[page] * stored[owners]).sum(axis=1)
        assert (cosines >= math.cos(math.atan(ALPHA)) - 1e-5).all()
        # slot 0 is the stored vector, bit for bit
        firsts = np.cumsum(counts[counts > 0]) - counts[counts > 0]
        assert made[page][firsts].tobytes() == stored.tobytes()
        # no token's best score falls, exactly
        assert (token_bests(tokens, made[page]) >= token_bests(tokens, stored)).all()


@pytest.mark.parametrize(
    "rows",
    [np.eye(6)[:1], np.eye(6)[:2], np.eye(6)[[0, 0, 0, 0, 0]], np.eye(6)[[0, 1, 1]]],
    ids=["one vector", "fewer than k", "identical", "repeated"],
)
def test_pages_with_little_in_them(rows: np.ndarray) -> None:
    pages = glie.Pages([rows])
    codec = random_codec(6, 0)
    made = codec.regenerate(codec.compress(pages))
    assert made.lengths.tolist() == [len(rows)]
    np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("layout", ["light", "paper"])
def test_a_page_is_regenerated_alike_alone_and_among_others(layout: str) -> None:
    pages = glie.Pages(make_arrays(6, high=300))
    codec = random_codec(16, 1, layout=layout)
    codes = codec.compress(pages)
    together = codec.regenerate(codes)
    for page in (5, 0, 3):
        alone = random_codec(16, 1, layout=layout).regenerate(codes.take(np.array([page])))
        assert alone.vectors.tobytes() == together[page].tobytes()


def test_without_a_decoder_a_cluster_repeats_its_anchor() -> None:
    pages = glie.Pages(make_arrays(3))
    codec = glie.Codec(k=2)
    codes = codec.compress(pages)
    made = codec.regenerate(codes)
    np.testing.assert_array_equal(made.lengths, pages.lengths)
    assert {row.tobytes() for row in made[0]} == {row.tobytes() for row in codes.vectors[0]}


def test_codes_stored_in_16_bits() -> None:
    """Rounding takes a stored vector off the sphere; children are on it, slot 0 is untouched."""
    codec = random_codec(16, 2)
    codes = codec.compress(glie.Pages(make_arrays(4)))
    rounded = np.round(codes.vectors, 2)
    made = codec.regenerate(glie.Codes(rounded, codes.norms, codes.counts, codes.ids))
    assert made[0][0].tobytes() == rounded[0, 0].tobytes()
    np.testing.assert_allclose(np.linalg.norm(made[0][1:3], axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("width", "depth", "parameters"),
    [
        *((128, 1, "184K"), (128, 3, "316K"), (256, 1, "415K"), (512, 1, "1.3M")),
        *((512, 3, "3.4M"), (1024, 1, "4.6M"), (1024, 3, "13.0M")),
    ],
)
def test_the_capacities_of_the_paper(width: int, depth: int, parameters: str) -> None:
    recipe = Recipe(width=width, depth=depth)
    networks = new_networks(recipe, 128, np.random.default_rng(0))
    size = sum(array.size for network in networks for array in network)
    assert (f"{size / 1e3:.0f}K" if size < 1e6 else f"{size / 1e6:.1f}M") == parameters


def test_any_dimension() -> None:
    for dim in (1, 3, 5, 96, 384):
        rng = np.random.default_rng(dim)
        pages = glie.Pages([unit(rng.normal(size=(9, dim)))])
        codec = random_codec(dim, dim, k=3)
        made = codec.regenerate(codec.compress(pages))
        np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-6)


def test_the_paper_s_decoder_is_an_mlp_of_anchor_norm_count_and_slot() -> None:
    """Against torch's own layers, on all inputs side by side."""
    rng = np.random.default_rng(0)
    weights = drawn(new_paper_decoder(8, rng, width=16, depth=2), rng, 0.2)
    anchors = unit(rng.normal(size=(5, 8)))
    norms, counts = rng.random(5).astype(np.float32), np.arange(1, 6, dtype=np.float32)
    slots = position_features(0, 5, PAPER_FEATURES)
    features = cluster_features(weights, anchors, norms, counts)
    made = children(weights, anchors, features, spread(norms), slots @ weights.slot)

    w = type(weights)(*map(torch.from_numpy, weights))
    u = torch.from_numpy(anchors)
    columns = [u * 8**0.5, torch.from_numpy(norms)[:, None], torch.from_numpy(counts + 1).log()]
    inputs = torch.cat([*columns[:2], columns[2][:, None], torch.from_numpy(slots)], 1)
    hidden = inputs @ torch.cat([w.anchor, w.slot]) + w.anchor_bias
    for block in range(2):
        read = torch.nn.functional.layer_norm(hidden, (16,), w.norm[block], w.norm_bias[block])
        read = torch.relu(read @ w.up[block] + w.up_bias[block])
        hidden = hidden + read @ w.down[block] + w.down_bias[block]
    step = hidden @ w.step + w.step_bias
    step = step - (step * u).sum(1, keepdim=True) * u
    length = step.norm(dim=1, keepdim=True)
    step = step * ALPHA / (ALPHA**2 + length**2).sqrt()
    expected = torch.nn.functional.normalize(u + step, dim=1)
    np.testing.assert_allclose(made, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("layout", ["light", "paper"])
def test_tensors_and_arrays_agree(layout: str) -> None:
    """Fitting and serving run the same lines; here on the same numbers."""
    rng = np.random.default_rng(0)
    _, weights = new_networks(Recipe(layout=layout, width=16, depth=2), 8, rng)
    tensors = type(weights)(*map(torch.from_numpy, weights))
    anchors = unit(rng.normal(size=(5, 8)))
    norms, counts = np.full(5, 0.8, np.float32), np.arange(1, 6, dtype=np.float32)
    slots = position_features(0, 5, len(weights.slot)) @ weights.slot
    features = cluster_features(weights, anchors, norms, counts)
    plain = children(weights, anchors, features, spread(norms), slots)
    a, n, c, s = map(torch.from_numpy, (anchors, norms, counts, slots))
    torched = children(tensors, a, cluster_features(tensors, a, n, c), spread(n), s)
    np.testing.assert_allclose(torched.numpy(), plain, atol=1e-5)
    np.testing.assert_array_equal(Unrolled(weights).positions(5)[:5].shape, slots.shape)


@given(st.integers(1, 40), st.integers(1, 70), st.integers(1, 5), st.integers(0, 99))
def test_the_compiled_loop_equals_the_plain_one(dim: int, width: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = new_decoder(dim, rng, width=width, depth=1)
    anchors = unit(rng.normal(size=(1, k, dim)))
    norms = rng.uniform(0, 1, (1, k)).astype(np.float16)
    counts = rng.integers(1, 12, (1, k)).astype(np.uint16)
    made = regenerated(Unrolled(weights), glie.Codes(anchors, norms, counts, ["a"]))
    features = cluster_features(
        weights, anchors[0], norms[0].astype(np.float32), counts[0].astype(np.float32)
    )
    place = 0
    for j, size in enumerate(counts[0].tolist()):
        slots = position_features(0, size) @ weights.slot
        spreads = spread(norms[0, j : j + 1].astype(np.float32))
        plain = children(weights, anchors[0, j : j + 1], features[j : j + 1], spreads, slots)
        plain[0] = anchors[0, j]
        np.testing.assert_allclose(made.vectors[place : place + size], plain, atol=1e-5)
        place += size


def test_a_cluster_of_equal_vectors_is_regenerated_as_it_was() -> None:
    rows = unit(np.eye(6))[[0, 0, 0, 1, 1]]
    codec = random_codec(6, 0, k=2)
    codes = codec.compress(glie.Pages([rows]))
    made = codec.regenerate(codes)
    np.testing.assert_allclose(made.vectors, codes.vectors[0][[0, 0, 0, 1, 1]], atol=1e-6)


def test_what_the_decoder_reads() -> None:
    """Anchor, norm and count each change what comes out; other pages do not."""
    codec = random_codec(16, 3, k=1)
    codes = codec.compress(glie.Pages(make_arrays(2)))
    before = codec.regenerate(codes)
    longer = glie.Codes(codes.vectors, codes.norms, codes.counts + np.uint16(1), codes.ids)
    assert not np.allclose(codec.regenerate(longer)[0][1:3], before[0][1:3])
    wider = glie.Codes(codes.vectors, codes.norms * np.float16(0.5), codes.counts, codes.ids)
    assert not np.allclose(codec.regenerate(wider)[0][1:3], before[0][1:3])
