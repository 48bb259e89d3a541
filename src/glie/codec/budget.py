"""A budget in bytes a page, and what is best kept for it."""

from __future__ import annotations

from glie.codec.config import CodecConfig
from glie.codec.evidence import most_evidence
from glie.errors import InputError
from glie.kernels.quantize import row_bytes

OVERHEAD = 26  # bytes a page of what is not its code: id, metadata, and its share of the folder
ANCHOR_TYPE = "int2"
ANCHOR_SHARE = 0.57  # of the bytes, at most; the rest are words
ANCHORS = (1, 2, 3, 4, 6, 8, 12, 16)
MOST_WORDS = 128  # of any page: more give a page more chances to score by accident


def config_for(bytes_per_page: int, dim: int, words: int) -> CodecConfig:
    """The settings for pages of so many bytes on disk, with a codebook of so many words."""
    if not isinstance(bytes_per_page, int) or isinstance(bytes_per_page, bool):
        raise InputError(f"bytes_per_page: expected a whole number, found {bytes_per_page!r}")
    room = bytes_per_page - OVERHEAD
    anchor = row_bytes(dim, ANCHOR_TYPE) + 1  # and its count
    k = max((n for n in ANCHORS if n * anchor <= ANCHOR_SHARE * room), default=1)

    def taken(count: int, displaced: int = 0) -> int:
        return k * anchor + 2 + most_evidence(k, words, dim, count, displaced)

    if taken(1) > room:
        least = taken(1) + OVERHEAD
        raise InputError(
            f"bytes_per_page: found {bytes_per_page}, at least {least} are needed at D = {dim}"
        )
    count = max(n for n in range(1, MOST_WORDS + 1) if taken(n) <= room)
    displaced = max(n for n in range(count + 1) if taken(count, n) <= room)
    return CodecConfig(k=k, dtype=ANCHOR_TYPE, words=count, displaced=displaced)
