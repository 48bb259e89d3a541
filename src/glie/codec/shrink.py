"""Smaller codes made of stored ones, without the pages.

Anchors are merged: k-means of the stored ones, each as often as it stands for a vector, is k-means
of the page as far as its anchors tell. Words that say where the vectors were around the old
anchors are found anew around the merged ones, those first that the page needed most; where the
anchors stay, the codewords stay, the most needed of them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from glie.codec.anchors import MAX_VECTORS, anchor, clusters_of
from glie.codec.budget import reduced
from glie.codec.codec import Codec
from glie.codec.codes import Blobs, Codes, quantised
from glie.codec.config import CodecConfig
from glie.codec.readout.residual import read_residual_codes, residual_blob, residual_codes
from glie.errors import InputError
from glie.kernels.quantize import DTYPES
from glie.kernels.residual import layers, most_needed
from glie.pages import Pages

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def smaller(source: Codec, bytes_per_page: int, dim: int) -> Codec:
    """The codec for the pages of another in fewer bytes; it reads with the same codebook, or
    regenerates with the same decoder."""
    if source.codebook is None:
        sizes = source.decoder is not None
        config = reduced(source.config, bytes_per_page, dim, sizes=sizes)
    else:
        config = Codec(bytes_per_page=bytes_per_page, codebook=source.codebook).config
    if _content(config) >= _content(source.config):
        raise InputError(
            f"bytes_per_page: {bytes_per_page} hold as much as is stored already; expected fewer"
        )
    return Codec(
        config=config, fitted=source.fitted, cascade=source.cascade, codebook=source.codebook
    )


def _content(config: CodecConfig) -> tuple[int, int, int]:
    """What grows with a budget, that first which shrinks last."""
    return config.k, -DTYPES.index(config.dtype), config.codewords


def shrunk(codes: Codes, source: Codec, target: Codec) -> Codes:
    """The codes of one codec as those of a `smaller` one. A page gives the same code alone and in
    any batch."""
    book = target.codebook
    anchors = merged(codes, target.config) if target.k < source.k else codes
    if target.k < source.k or target.dtype != source.dtype:
        anchors = quantised(anchors, target.dtype, sizes=target.decoder is not None)
    if book is None:
        return anchors
    if target.k == source.k:
        residual = _cut(codes, source, target)
    else:
        stored = source.regenerate(codes)
        need = _need(codes, stored)
        residual = residual_codes(stored, anchors, book, target.config.codewords, need)
    return dataclasses.replace(anchors, residual=residual)


def merged(codes: Codes, config: CodecConfig) -> Codes:
    """Codes of fewer anchors, not rounded yet."""
    used = codes.counts > 0
    means = codes.vectors[used] * codes.norms[used][:, None].astype(np.float32)
    rows = np.repeat(means, codes.counts[used], axis=0)
    offsets = np.concatenate([[0], np.cumsum(codes.counts.sum(axis=1, dtype=np.int64))])
    pages = Pages.packed(rows, offsets, codes.ids)
    clusters = clusters_of(pages, config)
    # counts that were rounded up may add up to more than can be stored
    return anchor(pages, clusters._replace(counts=clusters.counts.clip(max=MAX_VECTORS)))


def _need(codes: Codes, stored: Pages) -> Floats:
    """How much each stored vector counts. The page's own vectors decided which codewords came first, so
    a layer counts half as much as the one before it, and the first as much as the anchors."""
    need = np.ones(len(stored.vectors), np.float32)
    used = np.count_nonzero(codes.counts, axis=1)
    for start, end in zip(stored.offsets[:-1] + used, stored.offsets[1:], strict=True):
        for place, (first, last) in enumerate(layers(end - start)):
            need[start + first : start + last] = 0.5**place
    return need


def _cut(codes: Codes, source: Codec, target: Codec) -> Blobs:
    """The residual of the same anchors with fewer codewords."""
    book = target.codebook
    assert book is not None
    pairs, bounds = read_residual_codes(codes, book)
    stored = source.regenerate(codes)
    blobs = []
    for page, rows in enumerate(stored):
        mine = pairs[bounds[page] : bounds[page + 1]]
        used = len(rows) - len(mine)
        kept = _kept(rows, used, target.config.codewords)
        blobs.append(residual_blob(mine[kept], used * len(book)))
    return Blobs.of(blobs)


def _kept(rows: Floats, used: int, codewords: int) -> Ints:
    """Which codewords of a page stay, by place: the first layers whole, and of the layer that is cut
    those that its stored rows need most."""
    count = len(rows) - used
    if count <= codewords:
        return np.arange(count)
    whole, last = next(layer for layer in layers(count) if layer[1] > codewords)
    order = most_needed(rows @ rows[: used + last].T, used + whole) - used
    return np.concatenate([np.arange(whole), np.sort(order[: codewords - whole])])
