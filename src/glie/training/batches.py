"""Batches: the padded tensors of one step, cut from packed pages and queries."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glie.codec.codes import Codes
from glie.pages import Pages, Queries, VectorSets


class TrainingBatch(NamedTuple):
    """B queries with C candidate pages each, the relevant one first: P = B * C pages.

    At most n of a page's N vectors are read, and as many of its slots are regenerated. Entry i of
    a packed tensor is row `at[i]` of page `page[i]` in a padded (P, n, ...) tensor.
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
    start: Tensor  # (P,): the first packed slot of a page
    owner: Tensor  # packed: its cluster, numbered over all pages: P * k
    position: Tensor  # packed: its position in the cluster

    @property
    def used(self) -> Tensor:
        """(P, k): whether the cluster exists."""
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
    """Pages, codes and queries on the training device."""

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
        # a page longer than the limit: one random row of each of `limit` equal stretches
        jitter = torch.rand(len(at), generator=generator, device=self.device, dtype=torch.float64)
        spread = ((at + jitter) * (whole / seen)[page]).long().clamp(max=whole[page] - 1)
        row = torch.where(whole[page] > seen[page], spread, at)
        vectors = self.pages.vectors[self.pages.offsets[flat][page] + row]
        # the same rows as slots: each cluster owns consecutive slots
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
    """The item of each packed row, the row's place in it, and the first row of each item."""
    start = lengths.cumsum(0) - lengths
    item = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    return item, torch.arange(len(item), device=lengths.device) - start[item], start


def padded(rows: Tensor, item: Tensor, at: Tensor, items: int) -> Tensor:
    """Packed rows as (items, longest, ...), padded with zeros; differentiable."""
    shape = (items, int(at.max()) + 1, *rows.shape[1:])
    return rows.new_zeros(shape).index_put((item, at), rows)
