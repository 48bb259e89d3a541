"""The forward pass of one step: codes, regenerated pages, and the terms of the objective."""

from __future__ import annotations

import torch
from torch import Tensor

from glie.codec.readout.decoder import (
    AnyDecoder,
    children,
    cluster_features,
    position_features,
    spread,
)
from glie.codec.readout.refiner import AnyRefiner, refine
from glie.training.batches import TrainingBatch, padded
from glie.training.losses import (
    NOTHING,
    best_matches,
    chamfer_loss,
    listwise_loss,
    overshoot_loss,
    support_loss,
    token_loss,
)
from glie.training.recipe import Recipe

Terms = dict[str, Tensor]


def code_objective(
    refiner: AnyRefiner, batch: TrainingBatch, wanted: Tensor, temperature: float
) -> Terms:
    """The term of the refiner alone: each query ranks all pages of the batch by their code as the
    `wanted` scores (B, P) do. Scores are MaxSim divided by the number of tokens."""
    code = refine(refiner, batch.anchors, batch.vectors, batch.real)
    queries, tokens, dim = batch.tokens.shape
    products = code.reshape(-1, dim) @ batch.tokens.reshape(-1, dim).mT
    products = products.reshape(*batch.used.shape, -1).masked_fill(~batch.used[..., None], NOTHING)
    matches = products.amax(1).reshape(-1, queries, tokens).swapaxes(0, 1)
    scores = _scores(matches, batch.tokens_real)
    return {"code listwise": listwise_loss(scores, wanted, temperature)}


def objective(
    refiner: AnyRefiner,
    decoder: AnyDecoder,
    batch: TrainingBatch,
    recipe: Recipe,
    directions: Tensor,
    generator: torch.Generator,
) -> Terms:
    """The weighted terms, whose sum is minimised. A frozen code has no terms of its own."""
    tokens = batch.tokens.repeat_interleave(
        batch.candidates, 0
    )  # (P, m, D): the query of each page
    with torch.no_grad():
        true = best_matches(tokens, batch.vectors, batch.real)
    code = refine(refiner, batch.anchors, batch.vectors, batch.real) * batch.used[..., None]
    in_code = best_matches(tokens, code, batch.used)
    read = torch.zeros_like(code) if recipe.blind else jittered(code, recipe.jitter, generator)
    slots = Slots(decoder, code, batch, read)
    regenerated = torch.maximum(in_code, slots.best_matches(tokens))

    real = batch.tokens_real
    shape = (len(real), batch.candidates, -1)
    true, in_code, regenerated = (x.reshape(shape) for x in (true, in_code, regenerated))
    wanted, by_code, by_page = (_scores(x, real) for x in (true, in_code, regenerated))
    terms = {
        "token": recipe.of_regenerated * token_loss(regenerated, true, real),
        "listwise": recipe.of_regenerated * listwise_loss(by_page, wanted, recipe.temperature),
        "overshoot": recipe.overshoot * overshoot_loss(by_page[:, 1:], wanted[:, 1:]),
    }
    if code.requires_grad:
        listed = listwise_loss(by_code, wanted, recipe.temperature)
        terms["code token"] = recipe.of_code * token_loss(in_code, true, real)
        terms["code listwise"] = recipe.of_code * listed

    # terms of the relevant pages, the first of each query's candidates
    first = slice(0, None, batch.candidates)
    vectors, seen = batch.vectors[first], batch.real[first]
    page, cluster = slots.of_first_candidates()
    patches, patch_cluster = sampled_patches(batch, first, recipe.patches, generator)
    terms["chamfer"] = recipe.chamfer * chamfer_loss(page, cluster, patches, patch_cluster)
    terms["support"] = recipe.support * support_loss(page, seen, vectors, seen, directions)
    return terms


def _scores(matches: Tensor, real: Tensor) -> Tensor:
    """MaxSim divided by the number of tokens (B, C), from best matches (B, C, m): a temperature
    then means the same for long and short queries."""
    return (matches * real[:, None]).sum(-1) / real.sum(-1)[:, None]


def jittered(code: Tensor, length: float, generator: torch.Generator) -> Tensor:
    """The code with random noise, so that a decoder cannot memorise pages by their code."""
    if not length:
        return code
    noise = torch.randn(code.shape, generator=generator, device=code.device)
    return torch.nn.functional.normalize(code + noise * (length * code.shape[-1] ** -0.5), dim=-1)


def _rows(table: Tensor, rows: Tensor) -> Tensor:
    """table[rows], with a deterministic gradient: that of indexing sums in any order."""
    return table.index_select(0, rows.reshape(-1)).reshape(*rows.shape, table.shape[1])


class Slots:
    """The slots of a batch's pages, and the vectors that a decoder regenerates there."""

    def __init__(
        self, decoder: AnyDecoder, code: Tensor, batch: TrainingBatch, read: Tensor | None = None
    ) -> None:
        """`read` is the code that the network sees, by default `code`."""
        self.decoder, self.batch = decoder, batch
        seen = code if read is None else read
        hidden = cluster_features(decoder, seen, batch.norms, batch.counts.to(code.dtype))
        self.anchors = code.reshape(-1, code.shape[-1])
        self.clusters = hidden.reshape(-1, hidden.shape[-1])
        self.spreads = spread(batch.norms).reshape(-1, 1)
        slots = int(batch.counts.max())
        features = torch.from_numpy(position_features(0, slots, len(decoder.slot)))
        self.positions = features.to(code.device) @ decoder.slot

    def vectors(self, slots: Tensor) -> Tensor:
        """The vectors of some of the packed slots."""
        owner, position = self.batch.owner[slots], self.batch.position[slots]
        anchors = _rows(self.anchors, owner)
        clusters, positions = _rows(self.clusters, owner), _rows(self.positions, position)
        spreads = _rows(self.spreads, owner)
        made = children(self.decoder, anchors, clusters, spreads, positions)
        return torch.where((position == 0)[..., None], anchors, made)

    def best_matches(self, tokens: Tensor) -> Tensor:
        """Best matches (P, m) of tokens (P, m, D). The gradient of a maximum only reaches the
        winner: all slots are regenerated without gradients, the winners again with them."""
        batch = self.batch
        with torch.no_grad():
            every = torch.arange(len(batch.at), device=batch.at.device)
            made = padded(self.vectors(every), batch.page, batch.at, len(batch.real))
            products = (made @ tokens.mT).masked_fill_(~batch.real[..., None], NOTHING)
            winners = batch.start[:, None] + products.argmax(1)
        return (self.vectors(winners) * tokens).sum(-1)

    def of_first_candidates(self) -> tuple[Tensor, Tensor]:
        """The regenerated relevant pages (B, n, D) and the cluster of each vector, or -1."""
        batch = self.batch
        mine = torch.nonzero(batch.page % batch.candidates == 0)[:, 0]
        place = batch.page[mine] // batch.candidates, batch.at[mine]
        shape = (len(batch.tokens), batch.real.shape[1])
        empty = batch.vectors.new_zeros(*shape, batch.vectors.shape[-1])
        nowhere = torch.full(shape, -1, device=mine.device)
        return (
            empty.index_put(place, self.vectors(mine)),
            nowhere.index_put(place, batch.owner[mine] % batch.counts.shape[1]),
        )


def sampled_patches(
    batch: TrainingBatch, pages: slice, patches: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """At most `patches` random real vectors of each cluster, and their clusters; -1 pads clusters
    that have fewer."""
    vectors, real = batch.vectors[pages], batch.real[pages]
    norms, used = batch.norms[pages], batch.used[pages]
    centroids = batch.anchors[pages] * norms[..., None]
    nearness = vectors @ centroids.mT - norms.square()[:, None] / 2
    cluster = nearness.masked_fill(~used[:, None], -torch.inf).argmax(-1)
    lots = torch.rand(real.shape, generator=generator, device=real.device)
    member = torch.nn.functional.one_hot(cluster, used.shape[1]).bool() & real[..., None]
    drawn = torch.where(member, lots[..., None], -1.0).mT  # (B, k, n)
    best = drawn.topk(min(patches, drawn.shape[-1]), -1)
    rows = best.indices.flatten(1)
    owner = cluster.gather(1, rows).masked_fill(best.values.flatten(1) < 0, -1)
    return vectors.gather(1, rows[..., None].expand(-1, -1, vectors.shape[-1])), owner
