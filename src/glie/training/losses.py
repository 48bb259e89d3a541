"""The losses: pure functions of tensors, each a mean over its batch.

B queries, each with C candidate pages (the relevant one first) and m tokens. `real` masks are
false for padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

NOTHING = -4.0  # below any inner product of unit vectors, and finite: no NaN in gradients


def best_matches(tokens: Tensor, vectors: Tensor, real: Tensor) -> Tensor:
    """(..., m): the best inner product of each token (..., m, D) with the real rows of `vectors`
    (..., N, D). These are the terms of MaxSim, in differentiable form."""
    products = vectors @ tokens.mT
    return products.masked_fill(~real[..., None], NOTHING).amax(-2)


def token_loss(student: Tensor, teacher: Tensor, real: Tensor) -> Tensor:
    """Squared difference of best matches (B, C, m), averaged over the real tokens (B, m)."""
    squared = (student - teacher).square() * real[:, None]
    return (squared.sum(-1) / real.sum(-1)[:, None]).mean()


def listwise_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL divergence from the teacher's distribution over a query's pages to the student's, of
    scores (B, C)."""
    target = torch.log_softmax(teacher / temperature, -1)
    found = torch.log_softmax(student / temperature, -1)
    return (target.exp() * (target - found)).sum(-1).mean()


def pairwise_loss(scores: Tensor, relevant: Tensor) -> Tensor:
    """ColPali's loss of scores (B, B) of queries and pages, each query's own page on the diagonal:
    softplus of how far the best other page lies above it. Other pages that are `relevant` (B, B)
    to the query are ignored."""
    others = scores.masked_fill(relevant, -torch.inf).amax(1)
    return torch.nn.functional.softplus(others - scores.diagonal()).mean()


def overshoot_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean excess of the scores (B, C - 1) of pages that are not relevant over the teacher's."""
    return (student - teacher).relu().mean()


def chamfer_loss(
    children: Tensor, child_cluster: Tensor, patches: Tensor, patch_cluster: Tensor
) -> Tensor:
    """Chamfer distance within each cluster, averaged over the clusters of P pages.

    Unit vectors (P, S, D) and (P, R, D), each with its cluster; -1 marks padding. The squared
    distances to the nearest vector of the other side are averaged over each side.
    """
    same = patch_cluster[:, :, None] == child_cluster[:, None, :]
    same &= (patch_cluster >= 0)[:, :, None]
    products = (patches @ children.mT).masked_fill(~same, NOTHING)
    clusters = int(max(child_cluster.max(), patch_cluster.max())) + 1
    total = products.new_zeros(())
    for nearest, cluster in ((products.amax(2), patch_cluster), (products.amax(1), child_cluster)):
        member = torch.nn.functional.one_hot(cluster + 1, clusters + 1)[..., 1:].to(products.dtype)
        member = (
            member * (nearest > NOTHING)[..., None]
        )  # the other side has vectors in the cluster
        sizes = member.sum(1)
        distances = ((2 - 2 * nearest)[..., None] * member).sum(1) / sizes.clamp(min=1)
        present = (sizes > 0).sum()
        total = total + distances.sum() / present.clamp(min=1)
    return total


def support_loss(
    regenerated: Tensor,
    regenerated_real: Tensor,
    vectors: Tensor,
    vectors_real: Tensor,
    directions: Tensor,
) -> Tensor:
    """Squared difference of the support functions of two sets, (P, S, D) and (P, N, D), along
    directions (K, D)."""
    bank = directions.expand(len(vectors), *directions.shape)
    reach = best_matches(bank, regenerated, regenerated_real)
    return (reach - best_matches(bank, vectors, vectors_real)).square().mean()
