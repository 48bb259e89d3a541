"""The sweep: raw and normalised k-means and a fitted codec at each k, beside the uncompressed
pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from glie.codec.anchors import anchor, cluster
from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.encoders.base import Encoder, Floats
from glie.evaluation.datasets import Dataset
from glie.evaluation.measures import DEPTH, ndcg_at_5, search_codes, search_vectors
from glie.pages import Pages, Queries

PAGES_PER_ENCODE = 256


class Row(NamedTuple):
    """One line of the table."""

    dataset: str
    method: str
    k: int | None  # None: all vectors
    bytes_per_page: float
    ndcg_at_5: float


def sweep(
    dataset: Dataset,
    encoder: Encoder,
    budgets: Sequence[int],
    codec: Codec | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Iterator[Row]:
    """Encode once, then measure every method at every budget, stored in bfloat16 as an index
    stores it. A fitted codec is measured alone (stage 1) and with regeneration (full)."""
    pages, queries, _ = encoded([dataset], encoder, progress)
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
    dataset: Dataset, queries: Queries, pages: Pages, free: Codes, codec: Codec
) -> dict[str, float]:
    """nDCG@5 of a codec at the budget of the pages' free codes: stage 1, and full."""
    full = codec.at(free.k)
    code = full.code(pages, free)
    return {
        "glie-stage1": _ndcg(dataset, queries, full.single_stage.code(pages, free)),
        "glie": _ndcg(dataset, queries, code, full.regenerate if full.decoder else None),
    }


def _ndcg(
    dataset: Dataset,
    queries: Queries,
    codes: Codes,
    regenerate: Callable[[Codes], Pages] | None = None,
) -> float:
    return ndcg_at_5(dataset, search_codes(queries, codes, regenerate, DEPTH))


def encoded(
    datasets: Sequence[Dataset],
    encoder: Encoder,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[Pages, Queries, list[list[str]]]:
    """The vectors of all pages and questions of some sets, and which pages answer which question.
    With several sets, ids begin with the set's place and name."""
    arrays: list[Floats] = []
    questions: list[Floats] = []
    ids: list[str] = []
    relevant: list[list[str]] = []
    for place, dataset in enumerate(datasets):
        prefix = "" if len(datasets) == 1 else f"{place}:{dataset.name}/"
        texts = list(dataset.pages.values())
        for at in range(0, len(texts), PAGES_PER_ENCODE):
            progress(f"{dataset.name}: encoding pages, {at} of {len(texts)}")
            arrays.extend(encoder.encode_pages(texts[at : at + PAGES_PER_ENCODE]))
        ids.extend(prefix + page for page in dataset.pages)
        progress(f"{dataset.name}: encoding questions")
        questions.extend(encoder.encode_queries(list(dataset.queries.values())))
        relevant.extend(
            [prefix + page for page in dataset.relevant[query] if page in dataset.pages]
            for query in dataset.queries
        )
    return Pages(arrays, ids), Queries(questions), relevant
