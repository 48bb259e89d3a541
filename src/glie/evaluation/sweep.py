"""The sweep: raw and normalised k-means and a fitted codec at each k, beside the uncompressed
pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from glie.codec.anchors import anchor, cluster
from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.encoders.base import Encoder
from glie.evaluation.cache import Encoded, check_encoder, encode
from glie.evaluation.datasets import Dataset
from glie.evaluation.measures import DEPTH, ndcg_at_5, search_codes, search_vectors
from glie.pages import Pages, Queries


class Row(NamedTuple):
    """One line of the table."""

    dataset: str
    method: str
    k: int | None  # None: all vectors
    bytes_per_page: float
    ndcg_at_5: float


def sweep(
    dataset: Dataset | Encoded,
    encoder: Encoder | None,
    budgets: Sequence[int],
    codec: Codec | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Iterator[Row]:
    """Encode once, then measure every method at every budget, stored in bfloat16 as an index
    stores it. A fitted codec is measured alone (stage 1) and with regeneration (full)."""
    dataset = encode(dataset, encoder, progress=progress)
    pages, queries = dataset.pages(), dataset.queries
    for k in budgets:
        progress(f"k = {k}")
        clusters = cluster(pages, CodecConfig(k=k))
        free = anchor(pages, clusters)
        raw = dataclasses.replace(free, vectors=clusters.centroids)
        scores = {
            "raw-kmeans": _ndcg(dataset, queries, raw),
            "glie-free": _ndcg(dataset, queries, free),
        }
        if codec is not None:
            scores |= fitted_scores(dataset, queries, pages, free, codec)
        for method, score in scores.items():
            yield Row(dataset.name, method, k, k * (2 * pages.dim + 4), score)
    progress("uncompressed")
    score = ndcg_at_5(dataset, search_vectors(queries, pages, DEPTH))
    mean_bytes = 2 * pages.dim * float(pages.lengths.mean())
    yield Row(dataset.name, "uncompressed", None, mean_bytes, score)


def fitted_scores(
    dataset: Dataset | Encoded, queries: Queries, pages: Pages, free: Codes, codec: Codec
) -> dict[str, float]:
    """nDCG@5 of a codec at the budget of the pages' free codes: stage 1, and full."""
    full = codec.at(free.k)
    code = full.code(pages, free)
    return {
        "glie-stage1": _ndcg(dataset, queries, full.single_stage.code(pages, free)),
        "glie": _ndcg(dataset, queries, code, full.regenerate if full.decoder else None),
    }


def _ndcg(
    dataset: Dataset | Encoded,
    queries: Queries,
    codes: Codes,
    regenerate: Callable[[Codes], Pages] | None = None,
) -> float:
    return ndcg_at_5(dataset, search_codes(queries, codes, regenerate, DEPTH))


def encoded(
    datasets: Sequence[Dataset | Encoded],
    encoder: Encoder | None,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[Pages, Queries, list[list[str]]]:
    """The vectors of all pages and questions of some sets, and which pages answer which question.
    With several sets, ids begin with the set's place and name."""
    sets = [encode(dataset, encoder, progress=progress) for dataset in datasets]
    for one in sets:
        check_encoder(one, sets[0].encoder)
    prefixes = [f"{place}:{one.name}/" if len(sets) > 1 else "" for place, one in enumerate(sets)]
    relevant: list[list[str]] = []
    for prefix, one in zip(prefixes, sets, strict=True):
        known = set(one.page_ids)
        relevant += [
            [prefix + page for page in one.relevant[query] if page in known]
            for query in one.queries.ids
        ]
    if len(sets) == 1:
        return sets[0].pages(), sets[0].queries, relevant
    pages = [one.pages() for one in sets]
    ids = [
        prefix + page for prefix, one in zip(prefixes, sets, strict=True) for page in one.page_ids
    ]
    offsets = np.cumsum([0, *(length for one in sets for length in one.lengths)], dtype=np.int64)
    packed = Pages.packed(np.concatenate([each.vectors for each in pages]), offsets, ids)
    return packed, Queries([query for one in sets for query in one.queries]), relevant
