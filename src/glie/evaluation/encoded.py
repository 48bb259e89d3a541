"""Encoded sets: pages and queries as vectors, in memory or on disk, read block by block."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.identity import EncoderId, Identified, check_match
from glie.pages import Pages, Queries, VectorSets

Bools = npt.NDArray[np.bool_]


class Half(NamedTuple):
    """Packed vectors in float16. The rounding error is at most 2**-11 of a vector's length, a
    quarter of that of bfloat16 codes."""

    vectors: npt.NDArray[np.float16]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, sets: VectorSets) -> Half:
        return cls(sets.vectors.astype(np.float16), sets.offsets)

    def to_bytes(self) -> bytes:
        from safetensors.numpy import save

        data: bytes = save(self._asdict())
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Half:
        """Read what `to_bytes` wrote; a ValueError says what is wrong."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            half = cls(**load(data))
        except (SafetensorError, TypeError, KeyError) as error:
            raise ValueError(f"not a file of vectors and offsets: {error}") from None
        vectors, offsets = half
        whole = vectors.dtype == np.float16 and vectors.ndim == 2
        whole = whole and offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 0
        ends = (offsets[0], offsets[-1]) if whole else None
        if ends != (0, len(vectors)) or (np.diff(offsets) < 1).any():
            raise ValueError("its offsets are not those of its vectors")
        return half


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Encoded:
    """The pages and questions of a set as vectors. Pages are read on demand, so that a corpus may
    be larger than memory."""

    name: str
    encoder: EncoderId
    page_ids: list[str]
    lengths: npt.NDArray[np.int64]  # number of vectors of each page
    dim: int
    queries: Queries
    relevant: dict[str, dict[str, int]]  # by query, then page: 1 or a grade
    warnings: tuple[str, ...]  # what loading and encoding left out
    shard_pages: tuple[int, ...]  # number of pages of each shard
    read_shard: Callable[[int], Half]

    @property
    def query_ids(self) -> list[str]:
        return list(self.queries.ids)

    @property
    def asked(self) -> Queries:
        """The questions as a search of codes asks them: as an index does, without the dimension
        that only the weights of their words use."""
        return self.queries.without_last() if self.encoder.weighted else self.queries

    def blocks(self) -> Iterator[Pages]:
        """All pages, in order, in blocks of bounded size."""
        for shard in range(len(self.shard_pages)):
            yield self._block(shard)

    def pages(self) -> Pages:
        """All pages in memory."""
        return self.take(range(len(self.page_ids)))

    def take(self, rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> Pages:
        """Some pages, by row, in this order; reads only the blocks that hold them."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self.page_ids):
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} of {len(self.page_ids)} pages")
        offsets = np.concatenate([[0], np.cumsum(self.lengths[wanted])])
        vectors = np.empty((int(offsets[-1]), self.dim), dtype=np.float32)
        shard_of = np.searchsorted(self._firsts, wanted, side="right") - 1
        for shard in np.unique(shard_of):
            block, first = self._block(int(shard)), self._firsts[shard]
            for place in np.flatnonzero(shard_of == shard):
                vectors[offsets[place] : offsets[place + 1]] = block[int(wanted[place] - first)]
        return Pages.packed(vectors, offsets, [self.page_ids[row] for row in wanted])

    def part(self, name: str, pages: Bools, questions: Bools) -> Encoded:
        """Some of the pages and questions as a set with its own name. Its pages are read on demand,
        from the blocks of this one."""
        kept = [pages[first:last] for first, last in pairwise(self._firsts)]
        shards = [shard for shard, mine in enumerate(kept) if mine.any()]
        asked, ends = _chosen(self.queries.vectors, self.queries.offsets, questions)
        ids = [query for query, mine in zip(self.queries.ids, questions, strict=True) if mine]

        def read_shard(place: int) -> Half:
            shard = shards[place]
            return Half(*_chosen(*self.read_shard(shard), kept[shard]))

        return dataclasses.replace(
            self,
            name=name,
            page_ids=[page for page, mine in zip(self.page_ids, pages, strict=True) if mine],
            lengths=self.lengths[pages],
            queries=Queries.packed(asked, ends, ids),
            relevant={query: self.relevant[query] for query in ids},
            shard_pages=tuple(int(kept[shard].sum()) for shard in shards),
            read_shard=read_shard,
        )

    @functools.cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.shard_pages)]).astype(np.int64)

    def _block(self, shard: int) -> Pages:
        first, last = self._firsts[shard : shard + 2]
        return Pages.restored(*self.read_shard(shard), self.page_ids[first:last])

    def __repr__(self) -> str:
        return f"Encoded({self.name!r}, {len(self.page_ids)} pages, {len(self.queries)} queries)"


def check_set(encoded: Encoded, encoder: Identified) -> None:
    """Refuse vectors of another encoder."""
    remedy = "use that one, or encode the set again"
    check_match(encoded.encoder, EncoderId.of(encoder), f"{encoded.name}: vectors of", remedy)


def joined(
    sets: Sequence[Encoded], share: float = 1.0, seed: int = 0
) -> tuple[Pages, Queries, list[list[str]]]:
    """Join sets for a fit: pages, queries, and the relevant pages of each query.

    With a `share` below 1, that share of all pages is drawn, as evenly from each set as whole
    pages allow, with the queries that these pages answer. Ids begin with the number and the name
    of their set.
    """
    for one in sets:
        check_set(one, sets[0].encoder)
    chosen = _drawn([len(one.page_ids) for one in sets], share, seed)
    lengths = [one.lengths[rows] for one, rows in zip(sets, chosen, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    vectors = np.empty((int(offsets[-1]), sets[0].dim), np.float32)
    ids: list[str] = []
    asked: list[npt.NDArray[np.float32]] = []
    relevant: list[list[str]] = []
    done = 0
    for place, (one, rows) in enumerate(zip(sets, chosen, strict=True)):
        pages = one.take(rows)
        vectors[done : done + len(pages.vectors)] = pages.vectors
        done += len(pages.vectors)
        prefix, known = f"{place}:{one.name}/", set(pages.ids)
        ids.extend(prefix + page for page in pages.ids)
        for query, tokens in zip(one.queries.ids, one.queries, strict=True):
            found = [prefix + page for page in one.relevant[query] if page in known]
            if found:
                asked.append(tokens)
                relevant.append(found)
    return Pages.packed(vectors, offsets, ids), Queries(asked), relevant


def _chosen(
    vectors: npt.NDArray[Any], offsets: npt.NDArray[np.int64], chosen: Bools
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The packed vectors and the offsets of some items."""
    lengths = np.diff(offsets)
    ends = np.concatenate([[0], np.cumsum(lengths[chosen])])
    return vectors[np.repeat(chosen, lengths)], ends.astype(np.int64)


def _drawn(totals: Sequence[int], share: float, seed: int) -> list[npt.NDArray[np.int64]]:
    """Random rows of each set, in order: of all sets together the share, to the nearest row."""
    ends = np.round(share * np.cumsum(totals)).astype(np.int64)
    ends[-1] = max(1, ends[-1])
    return [
        np.sort(np.random.default_rng([seed, place]).permutation(total)[:count])
        for place, (total, count) in enumerate(zip(totals, np.diff(ends, prepend=0), strict=True))
    ]
