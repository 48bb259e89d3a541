"""Smaller codes from stored codes, without the pages.

Anchors are merged by k-means of the stored centroids, each weighted by its count. What the read-out
keeps of a page is made again for the merged anchors (`Readout.shrunk`).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from glie.codec.anchors import MAX_VECTORS, anchor, clusters_of
from glie.codec.budget import bytes_for_text
from glie.codec.codec import Codec
from glie.codec.codes import Codes, quantised
from glie.codec.config import CodecConfig
from glie.errors import InputError
from glie.kernels.quantize import DTYPES
from glie.pages import Pages


def smaller(
    source: Codec, bytes_per_page: int, dim: int, *, text_bytes: int = 0, beside: int = 0
) -> Codec:
    """The codec that stores the same pages in fewer bytes, with the same read-out. Their words take
    `text_bytes` of these, but leave room for codes. `beside`: what their names and the codec's
    files take beyond what a budget leaves for that; it counts if codes fit beside it."""
    text_bytes = bytes_for_text(bytes_per_page, text_bytes)
    candidates = source.config.candidate_bytes
    left = bytes_per_page - text_bytes - candidates
    try:
        config = source.readout.smaller(source.config, left - beside, dim)
    except InputError:
        if not beside:
            raise
        config = source.readout.smaller(source.config, left, dim)
    if left < bytes_per_page or beside:
        config = dataclasses.replace(
            config, bytes_per_page=bytes_per_page, text_bytes=text_bytes, candidate_bytes=candidates
        )
    # words that are part of its budget may take another share of it than was foreseen
    same = source.config.text_bytes > 0 and bytes_per_page >= source.config.bytes_per_page
    if same or _content(config) >= _content(source.config):
        raise InputError(
            f"bytes_per_page: {bytes_per_page} hold as much as is stored already; expected fewer"
        )
    return Codec.from_config(config, source.readout)


def _content(config: CodecConfig) -> tuple[int, ...]:
    """What grows with a budget, the last to shrink first."""
    return config.k, -DTYPES.index(config.dtype), config.codewords, config.residual_bytes


def shrunk(codes: Codes, source: Codec, target: Codec) -> Codes:
    """Codes of one codec as codes of a `smaller` one. A page gives the same code in any batch."""
    anchors = merged(codes, target.config) if target.k < source.k else codes
    if target.k < source.k or target.dtype != source.dtype:
        anchors = quantised(anchors, target.dtype, exact=target.readout.exact)
    return target.readout.shrunk(codes, anchors)


def merged(codes: Codes, config: CodecConfig) -> Codes:
    """Codes of fewer anchors, not yet rounded."""
    used = codes.counts > 0
    means = codes.vectors[used] * codes.norms[used][:, None].astype(np.float32)
    rows = np.repeat(means, codes.counts[used], axis=0)
    offsets = np.concatenate([[0], np.cumsum(codes.counts.sum(axis=1, dtype=np.int64))])
    pages = Pages.packed(rows, offsets, codes.ids)
    clusters = clusters_of(pages, config)
    # counts that were rounded up may add up to more than can be stored
    return anchor(pages, clusters._replace(counts=clusters.counts.clip(max=MAX_VECTORS)))
