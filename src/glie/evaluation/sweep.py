"""The training-free sweep: raw and normalised k-means at each k, beside the uncompressed pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.anchors import anchor, cluster
from glie.codec.codes import used_rows
from glie.codec.config import CodecConfig
from glie.encoders.base import Encoder
from glie.evaluation.datasets import Dataset
from glie.evaluation.measures import ndcg_at_5
from glie.index.format import to_bfloat16
from glie.kernels.maxsim import maxsim
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
    progress: Callable[[str], None] = lambda what: None,
) -> Iterator[Row]:
    """Encode once, then measure every method at every budget, stored in bfloat16 as an index
    stores it."""
    progress("encoding questions")
    queries = Queries(encoder.encode_queries(list(dataset.queries.values())))
    vectors = []
    texts = list(dataset.pages.values())
    for at in range(0, len(texts), PAGES_PER_ENCODE):
        progress(f"encoding pages {at} of {len(texts)}")
        vectors.extend(encoder.encode_pages(texts[at : at + PAGES_PER_ENCODE]))
    pages = Pages(vectors, list(dataset.pages))
    del vectors

    for k in budgets:
        progress(f"k = {k}")
        config = CodecConfig(k=k)
        clusters = cluster(pages, config)
        codes = anchor(pages, clusters)
        for method, code in (("raw-kmeans", clusters.centroids), ("glie-free", codes.vectors)):
            stored = to_bfloat16(code).reshape(-1, pages.dim)
            score = _ndcg(dataset, queries, stored, *used_rows(codes.counts))
            yield Row(dataset.name, method, k, k * (2 * pages.dim + 4), score)
    progress("uncompressed")
    score = _ndcg(dataset, queries, pages.vectors, pages.offsets[:-1], pages.offsets[1:])
    mean_bytes = 2 * pages.dim * float(pages.lengths.mean())
    yield Row(dataset.name, "uncompressed", None, mean_bytes, score)


def _ndcg(
    dataset: Dataset,
    queries: Queries,
    vectors: npt.NDArray[np.float32] | npt.NDArray[np.uint16],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> float:
    scores = maxsim(queries.vectors, queries.offsets, vectors, starts, ends)
    return ndcg_at_5(dataset, scores)
