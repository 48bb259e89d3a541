"""The methods that are compared: each a function from pages and a budget to codes.

A new one joins by being added to FREE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from glie.baselines import cluster_merging, hierarchical_pooling, raw_kmeans, token_pooling
from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.errors import InputError
from glie.pages import Pages


class Method(NamedTuple):
    """A way to store a page in k vectors."""

    name: str
    title: str
    citation: str
    compress: Callable[[Pages, int, int], Codes]  # pages, k and a seed
    seeded: bool = False  # whether a seed changes anything
    ours: bool = False  # not a baseline


def glie_free(pages: Pages, k: int, seed: int = 0) -> Codes:
    """Normalised k-means."""
    return Codec(config=CodecConfig(k=k, seed=seed)).compress(pages)


FREE = (
    Method(
        "raw-kmeans",
        "raw k-means",
        "Per-page k-means centroids as they are (Lloyd 1982, k-means++ seeds).",
        raw_kmeans,
        seeded=True,
    ),
    Method(
        "token-pooling",
        "token pooling",
        "Means of consecutive windows, after Clavié, Chaffin and Adams 2024.",
        token_pooling,
    ),
    Method(
        "cluster-merging",
        "cluster merging",
        "Hierarchical clustering on cosine, means: Light-ColPali without training, Ma et al. 2025.",
        cluster_merging,
    ),
    Method(
        "hierarchical-pooling",
        "hierarchical pooling",
        "Ward clustering, normalised means, by sentence-transformers' HierarchicalTokenPooling.",
        hierarchical_pooling,
    ),
    Method(
        "glie-free",
        "normalised k-means",
        "k-means centroids projected to the sphere: GLIE's training-free code.",
        glie_free,
        seeded=True,
        ours=True,
    ),
)


def fitted(codec: Codec) -> tuple[Method, Method]:
    """The two ways to use a fitted codec: its code alone, and with the shortlist regenerated."""

    def seeded(codec: Codec, k: int, seed: int) -> Codec:
        config = dataclasses.replace(codec.config, k=k, seed=seed)
        return Codec(config=config, fitted=codec.fitted, cascade=codec.cascade)

    def one_stage(pages: Pages, k: int, seed: int) -> Codes:
        return seeded(codec.single_stage, k, seed).compress(pages)

    def two_stages(pages: Pages, k: int, seed: int) -> Codes:
        return seeded(codec, k, seed).compress(pages)

    stage1, full = LEARNED["glie-stage1"], LEARNED["glie"]
    return (
        Method("glie-stage1", *stage1, one_stage, seeded=True, ours=True),
        Method("glie", *full, two_stages, seeded=True, ours=True),
    )


ORACLE, UNCOMPRESSED = "oracle", "uncompressed"
# title and citation of what is measured with a codec, or without any code
LEARNED = {
    "glie-stage1": ("refined, one stage", "GLIE's refined code by itself."),
    "glie": ("full", "GLIE: the refined code, and the shortlist regenerated."),
    ORACLE: ("shortlist oracle", "GLIE's shortlist, rescored with the true vectors."),
    UNCOMPRESSED: ("uncompressed", "Exact MaxSim over all vectors of every page."),
}
CITATIONS = {
    **{method.name: (method.title, method.citation) for method in FREE},
    **LEARNED,
}
TITLES = {name: title for name, (title, _) in CITATIONS.items()}
BASELINES = tuple(method.name for method in FREE if not method.ours)
USUAL = ("raw-kmeans", "glie-free", "glie-stage1", "glie", UNCOMPRESSED)


def chosen_methods(names: str | None, fits: bool) -> list[str]:
    """The methods that a list of names asks for; without one the usual, `all` for every one.
    Those that need a codec are there only if there will be one."""
    wanted = list(USUAL) if names is None else [name.strip() for name in names.split(",")]
    if wanted == ["all"]:
        wanted = list(TITLES)
    for name in wanted:
        if name not in TITLES:
            known = ", ".join(TITLES)
            raise InputError(f"--methods: {name!r} is unknown; expected all, or some of: {known}")
    learned = {"glie-stage1", "glie", ORACLE}
    if names not in (None, "all") and not fits and learned & set(wanted):
        raise InputError(
            f"--methods: {', '.join(sorted(learned & set(wanted)))} need a fitted codec; give "
            "--codec FOLDER or --fit-on DATASET"
        )
    return [name for name in TITLES if name in wanted and (fits or name not in learned)]
