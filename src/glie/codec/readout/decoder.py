"""The decoder: regenerates all N vectors of a page from its k stored ones.

Cluster j has n_j slots. Slot 0 is the stored vector itself. Every other slot takes a step from it
in the tangent plane, shorter than ALPHA, so it stays within arctan(ALPHA) of it.

There are two layouts. In both, a slot adds fixed sine and cosine features of its position to
features of its cluster (anchor, norm, count). In the paper's, the hidden layers read the sum: they
run once a slot. In the light one they read the cluster, once, and a single layer turns the sum into
a step, in proportion to the spread of the cluster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.codec.readout.arrays import Array, dot, library, relu, standardised
from glie.kernels.columns import Columns
from glie.pages import Pages

ALPHA = 0.75
FEATURES = 96  # of a slot's position
PAPER_FEATURES = 12  # with which all seven published sizes are exact
SLOTS_TOGETHER = 512  # a range for one thread: about a millisecond of work


class Decoder(NamedTuple):
    """The weights of the light layout, for a width W and a depth of L blocks."""

    anchor: Array  # (D + 2, W): anchor, norm, log count
    anchor_bias: Array  # (W,)
    up: Array  # (L, W, 2 W)
    up_bias: Array  # (L, 2 W)
    down: Array  # (L, 2 W, W)
    down_bias: Array  # (L, W)
    slot: Array  # (FEATURES, W)
    step: Array  # (W, D)
    step_bias: Array  # (D,)


class PaperDecoder(NamedTuple):
    """The weights of the paper's layout. Its first layer reads anchor, norm, log count and slot: a
    matrix of D + 14 rows, here in two parts."""

    anchor: Array  # (D + 2, W)
    anchor_bias: Array  # (W,)
    norm: Array  # (L, W): of LayerNorm, before each block
    norm_bias: Array  # (L, W)
    up: Array  # (L, W, 2 W)
    up_bias: Array  # (L, 2 W)
    down: Array  # (L, 2 W, W)
    down_bias: Array  # (L, W)
    slot: Array  # (PAPER_FEATURES, W)
    step: Array  # (W, D)
    step_bias: Array  # (D,)


AnyDecoder = Decoder | PaperDecoder


def new_decoder(
    dim: int, rng: np.random.Generator, *, width: int, depth: int, features: int = FEATURES
) -> Decoder:
    """A decoder whose steps are short and random."""

    def normal(*shape: int, gain: float = 1.0) -> npt.NDArray[np.float32]:
        return (rng.normal(0, gain * shape[-2] ** -0.5, shape)).astype(np.float32)

    def zeros(*shape: int) -> npt.NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    return Decoder(
        anchor=normal(dim + 2, width),
        anchor_bias=zeros(width),
        up=normal(depth, width, 2 * width, gain=2**0.5),
        up_bias=zeros(depth, 2 * width),
        down=normal(depth, 2 * width, width, gain=0.5),
        down_bias=zeros(depth, width),
        slot=normal(features, width, gain=2**0.5),
        step=normal(width, dim, gain=0.3 * dim**-0.5),
        step_bias=zeros(dim),
    )


def new_paper_decoder(
    dim: int, rng: np.random.Generator, *, width: int, depth: int
) -> PaperDecoder:
    """The same in the paper's layout."""
    light = new_decoder(dim, rng, width=width, depth=depth, features=PAPER_FEATURES)
    shape = depth, width
    return PaperDecoder(
        **light._asdict(), norm=np.ones(shape, np.float32), norm_bias=np.zeros(shape, np.float32)
    )


def cluster_features(weights: AnyDecoder, anchors: Array, norms: Array, counts: Array) -> Array:
    """Features (..., k, W) of clusters: anchors (..., k, D), norms and counts (..., k)."""
    xp = library(anchors)
    scaled = anchors * anchors.shape[-1] ** 0.5
    sizes = xp.log(counts + 1)
    seen = xp.concatenate([scaled, norms[..., None], sizes[..., None]], axis=-1)
    features = seen @ weights.anchor + weights.anchor_bias
    return features if isinstance(weights, PaperDecoder) else _hidden(weights, features)


def _hidden(weights: AnyDecoder, features: Array) -> Array:
    """Features (..., W) after the residual blocks."""
    blocks = weights.up, weights.up_bias, weights.down, weights.down_bias
    for block, (up, up_bias, down, down_bias) in enumerate(zip(*blocks, strict=True)):
        read = features
        if isinstance(weights, PaperDecoder):
            read = standardised(read) * weights.norm[block] + weights.norm_bias[block]
        features = features + relu(read @ up + up_bias) @ down + down_bias
    return features


def position_features(first: int, last: int, features: int = FEATURES) -> npt.NDArray[np.float32]:
    """Sines and cosines of positions, at frequencies 1 to 1/10,000: (last - first, features)."""
    frequencies = 10_000.0 ** -(np.arange(features // 2) / (features // 2))
    angles = np.arange(first, last)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def spread(norms: Array) -> Array:
    """The distance (..., 1) of a cluster's members from their mean, sqrt(1 - |c|^2), from the norms
    (...). It is 0 if all members are equal."""
    xp = library(norms)
    return xp.sqrt((1 - norms * norms).clip(0, None))[..., None]


def children(
    weights: AnyDecoder, anchors: Array, clusters: Array, spreads: Array, positions: Array
) -> Array:
    """The unit vectors (..., D) of slots, from the unit anchor, features (..., W) and spread
    (..., 1) of their clusters, and the features (..., W) of their positions."""
    xp = library(anchors)
    if isinstance(weights, PaperDecoder):
        step = _hidden(weights, clusters + positions) @ weights.step + weights.step_bias
    else:
        step = (relu(clusters + positions) @ weights.step + weights.step_bias) * spreads
    step = step - dot(step, anchors) * anchors  # into the tangent plane
    squared = dot(step, step)
    # from |step| to ALPHA |step| / sqrt(ALPHA^2 + |step|^2): short steps stay, all are below ALPHA
    shrink = ALPHA / xp.sqrt(ALPHA**2 + squared)
    step = step * shrink
    return (anchors + step) / xp.sqrt(1 + squared * shrink**2)


def with_steps(weights: AnyDecoder, share: float) -> AnyDecoder:
    """A decoder whose steps are scaled by `share`, before they are bounded."""
    return weights._replace(step=weights.step * share, step_bias=weights.step_bias * share)


class Unrolled:
    """A decoder prepared for serving: a table of the position features, and the matrices in the
    layout of the compiled loops.

    The table grows by blocks of fixed size, so its numbers do not depend on which page came first.
    """

    BLOCK = 256

    def __init__(self, decoder: AnyDecoder) -> None:
        self.features = decoder.slot.shape[0]
        self.decoder = decoder._replace(
            anchor=Columns(decoder.anchor),
            up=list(map(Columns, decoder.up)),
            down=list(map(Columns, decoder.down)),
            step=Columns(decoder.step),
        )
        self._table = np.empty((0, decoder.slot.shape[1]), np.float32)

    def positions(self, slots: int) -> npt.NDArray[np.float32]:
        """The features of at least `slots` positions, (..., W)."""
        table = self._table
        new = [
            position_features(first, first + self.BLOCK, self.features) @ self.decoder.slot
            for first in range(len(table), slots, self.BLOCK)
        ]
        if new:
            self._table = table = np.concatenate([table, *new])
        return table


def regenerated(unrolled: Unrolled, codes: Codes) -> Pages:
    """All vectors of every page; none depends on another page."""
    counts = codes.counts.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    used = counts > 0
    sizes, anchors = counts[used], codes.vectors[used]
    if not len(sizes):
        return Pages.packed(np.empty((0, codes.dim), np.float32), offsets, codes.ids)
    # vectors stored in 16 bits are not exactly normalised; children are
    unit = anchors / np.sqrt(dot(anchors, anchors))
    norms = codes.norms[used].astype(np.float32)
    hidden = cluster_features(unrolled.decoder, unit, norms, sizes.astype(np.float32))
    vectors = np.empty((int(offsets[-1]), codes.dim), np.float32)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    if isinstance(unrolled.decoder, PaperDecoder):
        _fill_by_slot(unrolled, unit, hidden, starts, vectors)
    else:
        _fill(unrolled, unit, hidden, spread(norms)[:, 0], starts, vectors)
    vectors[starts[:-1]] = anchors  # verbatim
    return Pages.packed(vectors, offsets, codes.ids)


def _fill(
    unrolled: Unrolled,
    anchors: npt.NDArray[np.float32],
    hidden: npt.NDArray[np.float32],
    spreads: npt.NDArray[np.float32],
    starts: npt.NDArray[np.int64],
    vectors: npt.NDArray[np.float32],
) -> None:
    """`children` of every slot but the first of each cluster, into `vectors`."""
    from glie.kernels._decoder import children_range
    from glie.kernels.parallel import over_ranges

    slots = int(np.diff(starts).max())
    positions = unrolled.positions(slots)

    def run(first: int, last: int) -> None:
        children_range(
            anchors,
            hidden,
            spreads,
            positions,
            unrolled.decoder.step.groups,
            unrolled.decoder.step_bias,
            np.float32(ALPHA),
            starts,
            first,
            last,
            vectors,
        )

    over_ranges(run, int(starts[-1]), chunk=SLOTS_TOGETHER)


def _fill_by_slot(
    unrolled: Unrolled,
    anchors: npt.NDArray[np.float32],
    clusters: npt.NDArray[np.float32],
    starts: npt.NDArray[np.int64],
    vectors: npt.NDArray[np.float32],
) -> None:
    """The same in the paper's layout, whose hidden layers run once a slot."""
    from glie.kernels.parallel import over_ranges

    sizes = np.diff(starts)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(owner)) - starts[owner]
    positions = unrolled.positions(int(sizes.max()))

    def run(first: int, last: int) -> None:
        mine, slots = owner[first:last], positions[place[first:last]]
        vectors[first:last] = children(unrolled.decoder, anchors[mine], clusters[mine], None, slots)

    over_ranges(run, len(owner), chunk=SLOTS_TOGETHER)
