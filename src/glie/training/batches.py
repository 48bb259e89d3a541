"""From packed pages and queries to the padded tensors of one step, without a loop over pages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glie.codec.codes import Codes
from glie.pages import Pages, Queries, VectorSets


class TrainingBatch(NamedTuple):
    """B queries with C candidate pages each, P = B * C pages in all, the relevant one first.

    A page is seen through at most n of its N vectors; as many of its slots are regenerated. Row
    `at` of page `page` in a padded (P, n, ...) tensor is entry i of the packed ones.
    """

    tokens: Tensor  # (B, m, D)
    tokens_real: Tensor  # (B, m)
    vectors: Tensor  # (P, n, D)
    real: Tensor  # (P, n)
    anchors: Tensor  # (P, k, D)
    norms: Tensor  # (P, k)
    counts: Tensor  # (P, k)
    page: Tensor  # packed: the page of a slot
    at: Tensor  # packed: its row in that page
    start: Tensor  # (P,): where a page's slots start among the packed
    owner: Tensor  # packed: its cluster, counted over all pages: P * k
    position: Tensor  # packed: its place in the cluster

    @property
    def used(self) -> Tensor:
        """(P, k): whether there is such a cluster."""
        return self.counts > 0

    @property
    def candidates(self) -> int:
        return len(self.vectors) // len(self.tokens)


class _Packed:
    """Packed vectors on a device."""

    def __init__(self, sets: VectorSets, device: Any) -> None:
        self.vectors = torch.from_numpy(sets.vectors).to(device)
        self.offsets = torch.from_numpy(sets.offsets).to(device)
        self.lengths = self.offsets.diff()


class Corpus:
    """Everything that batches are cut from, on the device that computes."""

    def __init__(
        self,
        pages: Pages,
        codes: dict[int, Codes],
        queries: Queries,
        device: Any,
        limit: int | None,
    ) -> None:
        self.pages, self.queries = _Packed(pages, device), _Packed(queries, device)
        self.device, self.limit = device, limit
        self.codes = {
            k: tuple(
                torch.from_numpy(array).to(device)
                for array in (
                    code.vectors,
                    code.norms.astype(np.float32),
                    code.counts.astype(np.int64),
                )
            )
            for k, code in codes.items()
        }

    def batch(
        self, queries: Tensor, pages: Tensor, k: int, generator: torch.Generator
    ) -> TrainingBatch:
        """Queries (B,) with candidates (B, C), at budget k."""
        tokens = self._rows(self.queries, queries, self.queries.lengths[queries])
        flat = pages.reshape(-1)
        anchors, norms, counts = (array[flat] for array in self.codes[k])
        whole = self.pages.lengths[flat]
        seen = whole if self.limit is None else whole.clamp(max=self.limit)
        page, at, start = _packed_rows(seen)
        # of a page longer than the limit: one row from each of `limit` stretches of equal length
        jitter = torch.rand(len(at), generator=generator, device=self.device, dtype=torch.float64)
        spread = ((at + jitter) * (whole / seen)[page]).long().clamp(max=whole[page] - 1)
        row = torch.where(whole[page] > seen[page], spread, at)
        vectors = self.pages.vectors[self.pages.offsets[flat][page] + row]
        # the same rows, as slots: clusters own consecutive ones
        ends = counts.reshape(-1).cumsum(0)
        slot = (whole.cumsum(0) - whole)[page] + row
        owner = torch.searchsorted(ends, slot, right=True)
        return TrainingBatch(
            *tokens,
            padded(vectors, page, at, len(flat)),
            padded(torch.ones_like(at, dtype=torch.bool), page, at, len(flat)),
            anchors,
            norms,
            counts,
            page,
            at,
            start,
            owner,
            slot - (ends - counts.reshape(-1))[owner],
        )

    def _rows(self, packed: _Packed, items: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        item, at, _ = _packed_rows(lengths)
        rows = packed.vectors[packed.offsets[items][item] + at]
        real = torch.ones_like(at, dtype=torch.bool)
        return padded(rows, item, at, len(items)), padded(real, item, at, len(items))


def _packed_rows(lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For items of these lengths end to end: the item and the place in it of each row, and where
    each item starts."""
    start = lengths.cumsum(0) - lengths
    item = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    return item, torch.arange(len(item), device=lengths.device) - start[item], start


def padded(rows: Tensor, item: Tensor, at: Tensor, items: int) -> Tensor:
    """Packed rows as (items, longest, ...), zero where there is none. Gradients pass."""
    shape = (items, int(at.max()) + 1, *rows.shape[1:])
    return rows.new_zeros(shape).index_put((item, at), rows)
