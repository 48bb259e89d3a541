"""Each term of the objective against a plain double loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from glie.training.losses import (
    best_matches,
    chamfer_loss,
    listwise_loss,
    overshoot_loss,
    pairwise_loss,
    support_loss,
    token_loss,
)

seeds = st.integers(0, 9999)


def unit_vectors(rng: np.random.Generator, *shape: int) -> Tensor:
    rows = rng.normal(size=shape)
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def mask(rng: np.random.Generator, *shape: int) -> Tensor:
    """Some real and some not, at least one real along the last axis."""
    real = rng.random(shape) < 0.6
    real[..., 0] = True
    return torch.from_numpy(real)


@given(seeds)
def test_best_matches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, vectors, real = unit_vectors(rng, 3, 4, 5), unit_vectors(rng, 3, 6, 5), mask(rng, 3, 6)
    found = best_matches(tokens, vectors, real)
    for p in range(3):
        for t in range(4):
            best = max(float(tokens[p, t] @ vectors[p, i]) for i in range(6) if real[p, i])
            assert float(found[p, t]) == pytest.approx(best)


@given(seeds)
def test_token_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    student, teacher = (torch.from_numpy(rng.normal(size=(3, 4, 5))) for _ in range(2))
    real = mask(rng, 3, 5)
    losses = []
    for b in range(3):
        for c in range(4):
            tokens = [t for t in range(5) if real[b, t]]
            total = sum(float(student[b, c, t] - teacher[b, c, t]) ** 2 for t in tokens)
            losses.append(total / len(tokens))
    assert float(token_loss(student, teacher, real)) == pytest.approx(sum(losses) / len(losses))


@given(seeds, st.floats(0.02, 2))
def test_listwise_loss(seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    student, teacher = (torch.from_numpy(rng.normal(size=(3, 6)) / 5) for _ in range(2))

    def distribution(scores: Tensor) -> list[float]:
        powers = [math.exp(float(score) / temperature) for score in scores]
        return [power / sum(powers) for power in powers]

    total = 0.0
    for b in range(3):
        wanted, found = distribution(teacher[b]), distribution(student[b])
        for w, f in zip(wanted, found, strict=True):
            total += w * math.log(w / f) / 3
    assert float(listwise_loss(student, teacher, temperature)) == pytest.approx(total, abs=1e-9)
    assert float(listwise_loss(teacher, teacher, temperature)) == pytest.approx(0, abs=1e-12)


@given(seeds)
def test_pairwise_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.normal(size=(4, 4)))
    relevant = torch.from_numpy(rng.random((4, 4)) < 0.3) | torch.eye(4, dtype=torch.bool)
    losses = []
    for b in range(4):
        others = [float(scores[b, c]) for c in range(4) if not relevant[b, c]]
        above = max(others, default=-math.inf) - float(scores[b, b])
        losses.append(math.log1p(math.exp(above)))
    assert float(pairwise_loss(scores, relevant)) == pytest.approx(sum(losses) / 4)


def test_a_query_without_other_pages_has_no_gradient() -> None:
    scores = torch.zeros(2, 2, requires_grad=True)
    relevant = torch.tensor([[True, True], [False, True]])
    pairwise_loss(scores, relevant).backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, 0.0], [0.25, -0.25]]


@given(seeds)
def test_overshoot_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    student, teacher = (torch.from_numpy(rng.normal(size=(3, 7))) for _ in range(2))
    total = 0.0
    for b in range(3):
        for c in range(7):
            total += max(0.0, float(student[b, c] - teacher[b, c])) / 21
    assert float(overshoot_loss(student, teacher)) == pytest.approx(total)
    assert float(overshoot_loss(teacher - 1, teacher)) == 0


@given(seeds)
def test_chamfer_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    children, patches = unit_vectors(rng, 2, 9, 4), unit_vectors(rng, 2, 7, 4)
    of_child = torch.from_numpy(rng.integers(-1, 3, (2, 9)))
    of_patch = torch.from_numpy(rng.integers(-1, 3, (2, 7)))
    sides: list[list[float]] = [[], []]
    for p in range(2):
        for j in range(3):
            mine = [children[p, i] for i in range(9) if of_child[p, i] == j]
            real = [patches[p, i] for i in range(7) if of_patch[p, i] == j]
            if mine and real:
                for side, (these, those) in enumerate(((real, mine), (mine, real))):
                    nearest = [min(float(((a - b) ** 2).sum()) for b in those) for a in these]
                    sides[side].append(sum(nearest) / len(nearest))
    total = sum(sum(side) / len(side) for side in sides if side)
    assert float(chamfer_loss(children, of_child, patches, of_patch)) == pytest.approx(total)


@given(seeds)
def test_support_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made, vectors, bank = (
        unit_vectors(rng, 2, 5, 4),
        unit_vectors(rng, 2, 6, 4),
        unit_vectors(rng, 8, 4),
    )
    made_real, real = mask(rng, 2, 5), mask(rng, 2, 6)
    total = 0.0
    for p in range(2):
        for d in range(8):
            reach = max(float(made[p, i] @ bank[d]) for i in range(5) if made_real[p, i])
            wanted = max(float(vectors[p, i] @ bank[d]) for i in range(6) if real[p, i])
            total += (reach - wanted) ** 2 / 16
    assert float(support_loss(made, made_real, vectors, real, bank)) == pytest.approx(total)


def test_padding_has_no_gradient() -> None:
    vectors = torch.zeros(1, 3, 2, dtype=torch.double, requires_grad=True)
    real = torch.tensor([[True, True, False]])
    tokens = torch.tensor([[[1.0, 0.0]]], dtype=torch.double)
    torch.autograd.backward(best_matches(tokens, vectors, real).sum())
    assert vectors.grad is not None
    assert not vectors.grad[0, 2].any()
