"""A step as tensors against the plain way: page by page, slot by slot."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import glie
from glie.codec.codes import Codes
from glie.codec.readout.decoder import Decoder, Unrolled, new_decoder, regenerated
from glie.codec.readout.refiner import Refiner, refined
from glie.training.batches import Corpus, TrainingBatch
from glie.training.losses import best_matches, listwise_loss
from glie.training.objective import Slots, code_objective, objective, sampled_patches
from glie.training.recipe import PAPER, Recipe
from tests.codec.networks import random_refiner
from tests.conftest import make_arrays

K = 3


def corpus(limit: int | None = None) -> tuple[Corpus, glie.Pages, glie.Queries, Codes]:
    pages = glie.Pages(make_arrays(12, low=1))
    queries = glie.Queries(make_arrays(5, seed=1, low=2, high=6))
    codes = glie.Codec(K).compress(pages)
    return Corpus(pages, {K: codes}, queries, torch.device("cpu"), limit), pages, queries, codes


def batch_of(limit: int | None = None) -> TrainingBatch:
    queries = torch.tensor([4, 0])
    candidates = torch.tensor([[7, 1, 2], [3, 11, 0]])
    return corpus(limit)[0].batch(queries, candidates, K, torch.Generator().manual_seed(0))


def weights() -> tuple[Refiner, Decoder]:
    rng = np.random.default_rng(0)
    refiner = random_refiner(16, rng, 0.1)
    decoder = new_decoder(16, rng, width=8, depth=1)
    return (
        Refiner(*(torch.from_numpy(a).requires_grad_() for a in refiner)),
        Decoder(*(torch.from_numpy(a * 3).requires_grad_() for a in decoder)),
    )


def test_a_batch_holds_its_pages_queries_and_slots() -> None:
    _, pages, queries, codes = corpus()
    batch = batch_of()
    assert batch.candidates == 3
    for row, query in enumerate((4, 0)):
        np.testing.assert_array_equal(batch.tokens[row][batch.tokens_real[row]], queries[query])
    for row, page in enumerate((7, 1, 2, 3, 11, 0)):
        np.testing.assert_array_equal(batch.vectors[row][batch.real[row]], pages[page])
        np.testing.assert_array_equal(batch.anchors[row], codes.vectors[page])
        mine = batch.page == row
        owners = (batch.owner[mine] - K * row).numpy()
        np.testing.assert_array_equal(np.bincount(owners, minlength=K), codes.counts[page])
        for cluster, count in enumerate(codes.counts[page]):
            positions = batch.position[mine][owners == cluster]
            np.testing.assert_array_equal(positions, np.arange(count))


def test_a_limit_takes_rows_and_slots_from_all_of_a_page() -> None:
    _, pages, _, codes = corpus()
    batch = batch_of(limit=6)
    assert batch.vectors.shape[1] == 6
    for row, page in enumerate((7, 1, 2, 3, 11, 0)):
        seen = batch.vectors[row][batch.real[row]].numpy()
        assert len(seen) == min(6, len(pages[page]))
        places = [int((pages[page] == vector).all(axis=1).argmax()) for vector in seen]
        assert places == sorted(set(places))  # in order, none twice
        counts = codes.counts[page].astype(int)
        owners = (batch.owner[batch.page == row] - K * row).numpy()
        assert (batch.position[batch.page == row].numpy() < counts[owners]).all()


def test_slots_are_what_search_regenerates() -> None:
    _, decoder = weights()
    batch = batch_of()
    code = batch.anchors
    slots = Slots(decoder, code, batch)
    made = slots.vectors(torch.arange(len(batch.at))).detach().numpy()
    plain = Decoder(*(weight.detach().numpy() for weight in decoder))
    codes = Codes(
        code.numpy(), batch.norms.numpy().astype(np.float16),
        batch.counts.numpy().astype(np.uint16), [str(i) for i in range(6)],
    )  # fmt: skip
    np.testing.assert_allclose(made, regenerated(Unrolled(plain), codes).vectors, atol=1e-5)


def test_gradients_through_winners_are_gradients_through_all() -> None:
    _, decoder = weights()
    batch = batch_of()
    code = batch.anchors.clone().requires_grad_()
    tokens = batch.tokens.repeat_interleave(3, 0)
    inputs = [code, *decoder]

    def grads(loss: torch.Tensor) -> list[torch.Tensor]:
        found = torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
        return [torch.zeros(()) if g is None else g for g in found]

    slots = Slots(decoder, code, batch)
    by_winners = slots.best_matches(tokens)
    every = slots.vectors(torch.arange(len(batch.at)))
    padded = torch.zeros(*batch.real.shape, 16).index_put((batch.page, batch.at), every)
    by_all = best_matches(tokens, padded, batch.real)
    torch.testing.assert_close(by_winners, by_all)
    for one, other in zip(grads(by_winners.sum()), grads(by_all.sum()), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_patches_are_of_their_clusters() -> None:
    batch = batch_of()
    found, owner = sampled_patches(batch, slice(0, None, 3), 2, torch.Generator().manual_seed(0))
    for row, page in enumerate((0, 3)):
        centroids = batch.anchors[page] * batch.norms[page][:, None]
        for patch, cluster in zip(found[row], owner[row], strict=True):
            if cluster >= 0:
                distances = (patch - centroids).square().sum(1)[batch.used[page]]
                assert int(distances.argmin()) == cluster
        assert all(int((owner[row] == cluster).sum()) <= 2 for cluster in range(K))
        assert int((owner[row] >= 0).sum()) >= 2


def terms(recipe: Recipe) -> dict[str, float]:
    directions = torch.nn.functional.normalize(torch.randn(8, 16), dim=-1)
    refiner, decoder = weights()
    found = objective(
        refiner, decoder, batch_of(), recipe, directions, torch.Generator().manual_seed(0)
    )
    torch.autograd.backward(torch.stack(list(found.values())).sum())
    for weight in (*refiner, *decoder):
        assert weight.grad is not None
        assert torch.isfinite(weight.grad).all()
    return {name: float(term.detach()) for name, term in found.items()}


def test_the_weights_of_the_terms() -> None:
    torch.manual_seed(0)
    usual = terms(PAPER)
    torch.manual_seed(0)
    doubled = terms(Recipe(of_regenerated=2, of_code=1, chamfer=1, overshoot=1, support=0.2))
    assert set(usual) == {
        *("token", "listwise", "code token", "code listwise"),
        *("overshoot", "chamfer", "support"),
    }
    for name, term in usual.items():
        assert doubled[name] == pytest.approx(2 * term)


def test_of_a_settled_code_there_are_no_terms() -> None:
    refiner, decoder = weights()
    frozen = Refiner(*(weight.detach() for weight in refiner))
    directions = torch.nn.functional.normalize(torch.randn(8, 16), dim=-1)
    found = objective(
        frozen, decoder, batch_of(), PAPER, directions, torch.Generator().manual_seed(0)
    )
    assert set(found) == {"token", "listwise", "overshoot", "chamfer", "support"}


def test_the_code_alone_ranks_every_page_for_every_query() -> None:
    whole, pages, queries, codes = corpus()
    rows = torch.tensor([7, 1, 3, 11])
    batch = whole.batch(torch.tensor([4, 0]), rows, K, torch.Generator().manual_seed(0))
    wanted = torch.rand(2, 4)
    refiner, _ = weights()
    term = code_objective(refiner, batch, wanted, 0.07)["code listwise"]
    plain = Refiner(*(weight.detach().numpy() for weight in refiner))
    moved = refined(plain, codes, pages)
    scores = [
        [
            (queries[query] @ moved.vectors[page][moved.counts[page] > 0].T).max(axis=1).mean()
            for page in rows.tolist()
        ]
        for query in (4, 0)
    ]
    expected = listwise_loss(torch.tensor(np.array(scores)), wanted.double(), 0.07)
    assert float(term.detach()) == pytest.approx(float(expected), rel=1e-4)
