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
MOST_WORDS = 128  # not displaced: more of them give a page more chances to score by accident


def config_for(bytes_per_page: int, dim: int, words: int) -> CodecConfig:
    """The settings for pages of so many bytes on disk, with a codebook of so many words."""
    unsettled_config(bytes_per_page)
    room = bytes_per_page - OVERHEAD
    anchor = row_bytes(dim, ANCHOR_TYPE) + 1  # and its count
    k = max((n for n in ANCHORS if n * anchor <= ANCHOR_SHARE * room), default=1)

    def fits(count: int, displaced: int = 0) -> bool:
        return k * anchor + 2 + most_evidence(k, words, dim, count, displaced) <= room

    if not fits(1):
        raise InputError(
            f"bytes_per_page: found {bytes_per_page}, at least {least_bytes(dim, words)} are "
            f"needed at D = {dim}"
        )
    count = max(n for n in range(1, min(MOST_WORDS, k * words) + 1) if fits(n))
    displaced = max(n for n in range(count + 1) if fits(count, n))
    while displaced == count < k * words and fits(count + 1, count + 1):
        count = displaced = count + 1
    return CodecConfig(k=k, dtype=ANCHOR_TYPE, words=count, displaced=displaced)


def least_bytes(dim: int, words: int) -> int:
    """The smallest budget: one anchor and one word."""
    return OVERHEAD + row_bytes(dim, ANCHOR_TYPE) + 3 + most_evidence(1, words, dim, 1, 0)


def unsettled_config(bytes_per_page: int) -> CodecConfig:
    """Nothing but the budget: all else is chosen when pages are seen."""
    whole = isinstance(bytes_per_page, int) and not isinstance(bytes_per_page, bool)
    if not whole or bytes_per_page < 1:
        raise InputError(f"bytes_per_page: expected a whole number, found {bytes_per_page!r}")
    return CodecConfig(bytes_per_page=bytes_per_page)
