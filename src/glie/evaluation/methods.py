"""The methods that are compared: each is a function from pages and a budget to codes.

To add a method that needs no training, add it to FREE.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glie.codec.budget import vector_bytes
from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.config import MAX_K
from glie.codec.readout import shared
from glie.codec.readout.codebook import Codebook
from glie.codec.readout.generative import Generative
from glie.errors import InputError
from glie.evaluation.baselines import (
    ResidualCode,
    cluster_merging,
    hierarchical_pooling,
    plaid,
    plaid_bytes,
    raw_kmeans,
    token_pooling,
    token_pooling_raw,
    ward_1bit,
    ward_1bit_bytes,
)
from glie.identity import EncoderId
from glie.pages import Pages

NORM_POWER = -0.1  # docs/experiments.md: The stored norm


class Method(NamedTuple):
    """A way to store a page in k vectors, or in some bytes."""

    name: str  # in options, tables and plots
    citation: str
    compress: Callable[[Pages, int, int], Codes]  # from pages, a budget and a seed
    seeded: bool = False  # whether the seed matters
    baseline: bool = False  # whether margins are measured over it
    by_bytes: bool = False  # whether the budget is in bytes a page, not in vectors
    size: Callable[[Codes], int] | None = None  # bytes of the codes; None: as in an index
    revision: int = 1  # of its definition: what another one has stored is measured again


def glie_free(pages: Pages, k: int, seed: int = 0) -> Codes:
    """Normalised k-means."""
    return Codec(k).with_seed(seed).compress(pages)


def scaled(pages: Pages, k: int, seed: int = 0) -> Codes:
    """Normalised k-means whose vectors have the length |c|^NORM_POWER: wide clusters reach
    further. Length and norm are stored anyway, so this is free."""
    codes = glie_free(pages, k, seed)
    used = codes.counts > 0
    codes.vectors[used] *= codes.norms[used].astype(np.float32)[:, None] ** NORM_POWER
    return codes


def quantised(pages: Pages, bytes_per_page: int, seed: int = 0) -> Codes:
    """Normalised k-means at 2 bits a number: more vectors in the same bytes."""
    k = min(MAX_K, bytes_per_page // vector_bytes(pages.dim, "int2"))
    return Codec(k, dtype="int2").with_seed(seed).compress(pages)


FREE = (
    Method(
        "raw-kmeans",
        "Per-page k-means centroids as they are (Lloyd 1982, k-means++ seeds).",
        raw_kmeans,
        seeded=True,
        baseline=True,
    ),
    Method(
        "token-pooling",
        "Means of consecutive windows, normalised, after Clavié, Chaffin and Adams 2024.",
        token_pooling,
        baseline=True,
        revision=2,  # the first was token-pooling-raw
    ),
    Method(
        "cluster-merging",
        "Hierarchical clustering on cosine, means: Light-ColPali without training, Ma et al. 2025.",
        cluster_merging,
        baseline=True,
    ),
    Method(
        "hierarchical-pooling",
        "Ward clustering, normalised means, by sentence-transformers' HierarchicalTokenPooling.",
        hierarchical_pooling,
        baseline=True,
    ),
    Method(
        "token-pooling-raw",
        "The means of token pooling without normalising: a control, not a baseline.",
        token_pooling_raw,
    ),
    Method(
        "glie-free",
        "Normalised k-means: centroids projected to the sphere, GLIE's training-free code.",
        glie_free,
        seeded=True,
        baseline=True,
    ),
    Method(
        "glie-free-scaled",
        f"Normalised k-means, each vector with the length |c|^{NORM_POWER}, for centroid c before "
        "normalising: a wide cluster reaches further.",
        scaled,
        seeded=True,
    ),
    Method(
        "quantised",
        "Normalised k-means at 2 bits a number, with as many vectors as fit.",
        quantised,
        seeded=True,
        by_bytes=True,
    ),
    Method(
        "ward-1bit",
        "Ward clusters, the sign of each number of their unit means, as many as fit: the "
        "training-free code of optivision-rag 0.5 (HierarchicalMerge, binary).",
        ward_1bit,
        by_bytes=True,
        size=ward_1bit_bytes,
    ),
)


def with_networks(codec: Codec) -> Codec:
    """The same codec, but its networks are used even at a k where they did not pay: the rows of a
    table that are named after them measure them."""
    if isinstance(codec.readout, Generative):
        readout = dataclasses.replace(codec.readout, always=True)
        return Codec.from_config(codec.config, readout)
    return codec


def fitted(codec: Codec) -> tuple[Method, Method]:
    """The two methods of a fitted codec: one stage, and with the shortlist regenerated."""

    def one_stage(pages: Pages, k: int, seed: int) -> Codes:
        return codec.single_stage.at(k).with_seed(seed).compress(pages)

    def two_stages(pages: Pages, k: int, seed: int) -> Codes:
        return codec.at(k).with_seed(seed).compress(pages)

    stage1, full = LEARNED["glie-stage1"], LEARNED["glie"]
    return (
        Method("glie-stage1", stage1, one_stage, seeded=True),
        Method("glie", full, two_stages, seeded=True),
    )


def residual_coded(code: ResidualCode) -> Method:
    """PLAID-style codes, with centroids fitted on other sets."""
    compress = functools.partial(plaid, code)
    return Method(PLAID, LEARNED[PLAID], compress, by_bytes=True, size=plaid_bytes)


def codebook_for(encoder: EncoderId, dim: int) -> Codebook | None:
    """The codebook that glie ships for this encoder, or else the largest that is registered for it
    on this machine."""
    for book in Codebook.all_shipped():
        if book.dim == dim and book.encoder is not None and book.encoder.matches(encoder):
            return book
    return max(shared.made_for(encoder, dim), key=len, default=None)


ORACLE, UNCOMPRESSED, PLAID = "oracle", "uncompressed", "plaid"
WITH_CODEWORDS = SHIPPED, ADAPTED = "glie-bytes", "glie-bytes-adapted"
# what the methods are that need a codec, a codebook or no code at all
LEARNED: dict[str, str] = {
    "glie-stage1": "GLIE's refined code by itself, searched in one stage.",
    "glie": "GLIE as in the paper: the refined code, and the shortlist regenerated.",
    ORACLE: "GLIE's shortlist, reranked with the true vectors.",
    PLAID: (
        "Ward clusters, each mean as a centroid's id and 1 bit a number, after ColBERTv2 and PLAID "
        "(Santhanam et al. 2022); the centroids are fitted on other sets, pooled in the same way."
    ),
    SHIPPED: (
        "GLIE in bytes: anchors at 2 bits a number, and residuals as codewords of the codebook "
        "that glie ships, or that `glie codec make` has made for the encoder; the shortlist is "
        "reconstructed from them and reranked."
    ),
    ADAPTED: (
        "What an index of any other encoder stores: codewords or coordinates, with a table fitted "
        "on the set's own pages, never on a question, whose bytes are counted; or anchors alone."
    ),
    UNCOMPRESSED: "Exact MaxSim over all vectors of every page.",
}
_CITATIONS = {method.name: method.citation for method in FREE} | LEARNED
# The order of rows in tables: the paper's methods as in the paper, then all others.
PAPER = (
    *("raw-kmeans", "token-pooling", "cluster-merging"),
    *("glie-free", "glie-stage1", "glie", ORACLE),
)
CITATIONS = {name: _CITATIONS[name] for name in PAPER} | _CITATIONS
NAMES = tuple(CITATIONS)
BY_BYTES = (*(method.name for method in FREE if method.by_bytes), PLAID, *WITH_CODEWORDS)
BASELINES = tuple(method.name for method in FREE if method.baseline)
LADDER = ("raw-kmeans", "glie-free", "glie-stage1", "glie")
OURS = (*LADDER[1:], "glie-free-scaled", "quantised", *WITH_CODEWORDS)
USUAL = (*LADDER, UNCOMPRESSED)
ALIASES = {"codewords": SHIPPED, "codewords-adapted": ADAPTED}
# methods that need a fitted codec, and those that need other sets
NEEDS_CODEC = ("glie-stage1", "glie", ORACLE)
NEEDS_SETS = (PLAID,)


def chosen_methods(names: str | None, *, codec: bool = False, fits: bool = False) -> list[str]:
    """The methods of a comma-separated list; by default the usual ones, and `all` for every one.

    Of these two, methods that need a codec, or sets to fit on, are left out if there is none.
    """
    wanted = list(USUAL) if names is None else [name.strip() for name in names.split(",")]
    wanted = [ALIASES.get(name, name) for name in wanted]
    if wanted == ["all"]:
        wanted = [*NAMES]
    for name in wanted:
        if name not in NAMES:
            known = ", ".join(NAMES)
            raise InputError(f"--methods: {name!r} is unknown; expected all, or some of: {known}")
    lacking: set[str] = set()
    for needy, given, what in (
        (NEEDS_CODEC, codec or fits, "a fitted codec; give --codec FOLDER or --fit-on DATASET"),
        (NEEDS_SETS, fits, "sets to fit centroids on; give --fit-on DATASET"),
    ):
        mine = set() if given else set(needy) & set(wanted)
        if mine and names not in (None, "all"):
            raise InputError(f"--methods: {', '.join(sorted(mine))} need {what}")
        lacking |= mine
    return [name for name in NAMES if name in wanted and name not in lacking]
