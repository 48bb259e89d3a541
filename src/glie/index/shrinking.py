"""Making a smaller index from a stored one, without its page vectors."""

from __future__ import annotations

import math

from glie.codec.budget import CODES_SHARE, OVERHEAD
from glie.codec.codec import Codec
from glie.codec.shrink import shrunk, smaller
from glie.errors import InputError
from glie.index.info import IndexInfo
from glie.index.segment import StoredCodes
from glie.index.snapshot import Snapshot
from glie.index.writer import SegmentWriter
from glie.progress import OnProgress, Progress

PAGES_PER_SHRINK = 64  # in one step: each anchor becomes as many vectors as it stands for


def smaller_codec(
    codec: Codec, info: IndexInfo, state: Snapshot, bytes_per_page: int, place: object
) -> Codec:
    """The codec for the pages of an index in fewer bytes."""
    if info.dim is None or not info.pages:
        raise InputError(f"{place}: it holds no page; make a new index with that budget")
    stored = info.pages + info.deleted
    now = (info.index_bytes - info.candidate_bytes) / stored
    if isinstance(bytes_per_page, int) and bytes_per_page >= now:
        raise InputError(
            f"bytes_per_page: found {bytes_per_page}, but a page of {place} takes {now:,.0f}; "
            "expected fewer"
        )
    words = sum(file.content_bytes for file in state.postings if file)
    codes = sum(segment.code_bytes for segment in state.segments)
    beside = now - (words + codes) / stored  # names, metadata, the folder and the codec's files
    extra = _extra(bytes_per_page, beside, info.codec_bytes / stored)
    text_bytes = math.ceil(words / stored)
    return smaller(codec, bytes_per_page, info.dim, text_bytes=text_bytes, beside=extra)


def _extra(bytes_per_page: int, beside: float, codec: float) -> int:
    """Of a budget, the bytes that no code gets besides those that every budget leaves: with the
    codec's files or, where these would take most of it, without them, or none. Where most of a
    budget is gone in this way, smaller codes would not keep it either."""
    for bytes_beside in (beside, beside - codec):
        extra = math.ceil(bytes_beside - OVERHEAD)
        if extra <= (1 - CODES_SHARE) * bytes_per_page:
            return max(extra, 0)
    return 0


def write_shrunk(
    state: Snapshot, writer: SegmentWriter, codec: Codec, chosen: Codec, progress: OnProgress
) -> None:
    """Write the live pages of a state, whose codes are by `codec`, with codes by `chosen`."""
    done = 0

    def change(stored: StoredCodes) -> StoredCodes:
        nonlocal done
        codes = stored.read([str(page) for page in range(len(stored.counts))])
        done += len(codes)
        progress(Progress("pages", done, len(state)))
        return StoredCodes.of(shrunk(codes, codec, chosen), stored.page_sizes)

    for number in range(len(state.segments)):
        writer.copy(state, number, change=change, step=PAGES_PER_SHRINK)
    writer.flush()
