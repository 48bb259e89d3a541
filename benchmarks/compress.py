"""Time to compress a page, compared with scikit-learn, faiss and sentence-transformers' pooling.

    python benchmarks/compress.py [--pages FILE.npz] [--count 40] [--k 4,16,64] [--rounds 5]

FILE.npz holds one (n, D) array a page; without it, synthetic pages of 1,031 x 128 with the same
geometry are used. Objectives are sums of squared distances to the cluster means, relative to
scikit-learn's. All contenders run on the same pages, in turns. Then come whole codes of a budget of
520 bytes, on one core: with the shipped codebook, and with coordinates fitted to these pages.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import faiss
import numpy as np
import torch
from common import interleaved, load_pages, machine, publish, synthetic_pages
from sentence_transformers.multi_vector_encoder.modules.token_pooling import (
    HierarchicalTokenPooling,
)
from sklearn.cluster import KMeans

import glie
from glie.codec.adapt import drawn
from glie.codec.anchors import cluster
from glie.codec.choose import FAMILIES
from glie.pages import Floats

BUDGET = 520  # the default of an index
COLQWEN = 779  # vectors of a page, as ColQwen2 makes them


def sklearn_objectives(pages: glie.Pages, k: int) -> list[float]:
    return [float(KMeans(k, n_init=2, random_state=0).fit(page).inertia_) for page in pages]


def faiss_objectives(pages: glie.Pages, k: int) -> list[float]:
    objectives = []
    for page in pages:
        kmeans = faiss.Kmeans(
            page.shape[1], k, niter=10, nredo=2, seed=0, min_points_per_centroid=1
        )
        kmeans.train(page)
        objectives.append(objective(page, np.asarray(kmeans.centroids)))
    return objectives


def faiss_train(pages: glie.Pages, k: int) -> None:
    for page in pages:
        faiss.Kmeans(page.shape[1], k, niter=10, nredo=2, seed=0, min_points_per_centroid=1).train(
            page
        )


def ward(pages: glie.Pages, k: int) -> list[Floats]:
    """sentence-transformers' pooling to k vectors, not normalised, to compare objectives."""
    pooled = []
    for page in pages:
        pooling = HierarchicalTokenPooling(
            len(page) / k, num_protected_tokens=0, normalize_embeddings=False
        )
        pooled.append(pooling.pool([torch.from_numpy(page)])[0].numpy())
    return pooled


def objective(page: Floats, centroids: Floats) -> float:
    """Sum of squared distances to the nearest centroid."""
    distances = ((page[:, None] - centroids[None]) ** 2).sum(axis=2)
    return float(distances.min(axis=1).sum())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--k", default="4,16,64")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    pages = load_pages(arguments.pages, arguments.count)
    kind = arguments.pages.name if arguments.pages else "synthetic"
    print(f"{len(pages)} {kind} pages of {pages.lengths.mean():.0f} x {pages.dim}; {machine()}")
    print("| k | method | ms a page | times glie's | objective |")
    print("| --- | --- | --- | --- | --- |")
    for k in map(int, arguments.k.split(",")):
        config = glie.CodecConfig(k=k)
        seconds = interleaved(
            {
                "glie (2 restarts)": lambda config=config: cluster(pages, config),
                "faiss (2 restarts, 10 iterations)": lambda k=k: faiss_train(pages, k),
                "sentence-transformers, Ward": lambda k=k: ward(pages, k),
                "scikit-learn (2 restarts)": lambda k=k: sklearn_objectives(pages, k),
            },
            arguments.rounds,
        )
        reference = np.array(sklearn_objectives(pages, k))
        objectives = {
            "glie (2 restarts)": cluster(pages, config).objective,
            "faiss (2 restarts, 10 iterations)": np.array(faiss_objectives(pages, k)),
            "sentence-transformers, Ward": np.array(
                [objective(page, c) for page, c in zip(pages, ward(pages, k), strict=True)]
            ),
            "scikit-learn (2 restarts)": reference,
        }
        mine = seconds["glie (2 restarts)"]
        for name, taken in seconds.items():
            if not name.startswith("glie"):
                each = 1000 * mine / len(pages), 1000 * taken / len(pages)
                publish(f"anchors of a page, k = {k}", each[0], peer=name, theirs=each[1])
            quality = float(np.mean(objectives[name] / reference))
            print(
                f"| {k} | {name} | {taken / len(pages) * 1000:.2f} | {taken / mine:.1f} "
                f"| {quality:.4f} |",
                flush=True,
            )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    if arguments.pages is None:
        pages = glie.Pages(synthetic_pages(arguments.count, n=COLQWEN), normalize=True)
    of_budget(pages, arguments.rounds)


def of_budget(pages: glie.Pages, rounds: int) -> None:
    """Codewords and coordinates at the same budget, beside their anchors alone."""
    codewords = glie.Codec(bytes_per_page=BUDGET)
    coordinates = glie.Codec.from_config(*FAMILIES["coordinates"](drawn(pages), BUDGET, True))
    seconds = interleaved(
        {
            "codewords": lambda: codewords.compress(pages),
            "of which: anchors": lambda: cluster(pages, codewords.config),
            "coordinates": lambda: coordinates.compress(pages),
        },
        rounds,
    )
    each = 1000 * seconds["codewords"] / len(pages)
    size = f"{pages.lengths.mean():,.0f} vectors"
    publish(f"compress a page of {size} to {BUDGET} bytes, one core", each, goal="4 ms")
    print(f"\n| {BUDGET} bytes a page | ms a page |\n| --- | --- |")
    for name, taken in seconds.items():
        print(f"| {name} | {taken / len(pages) * 1000:.2f} |")


if __name__ == "__main__":
    main()
