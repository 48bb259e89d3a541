"""A budget in bytes a page, and what is best kept for it."""

from __future__ import annotations

import dataclasses

from glie.codec.config import CodecConfig
from glie.codec.readout.residual import most_residual_bytes
from glie.errors import InputError
from glie.kernels.quantize import BFLOAT16, DTYPES, row_bytes

OVERHEAD = 26  # bytes a page of what is not its code: id, metadata, and its share of the folder
ANCHOR_TYPE = "int2"
ANCHOR_SHARE = 0.57  # of the bytes, while codewords are few
MOST_CODEWORDS = 128  # more of them give a page more chances to score by accident
MOST_ANCHORS = 128


def config_for(bytes_per_page: int, dim: int, codewords: int) -> CodecConfig:
    """The settings for pages of so many bytes on disk, with a codebook of so many codewords: anchors
    and codewords at first, then anchors alone, and then bits of the anchors."""
    room = _room(bytes_per_page)
    most = min(MOST_CODEWORDS, codewords)

    def fits(k: int, count: int, dtype: str = ANCHOR_TYPE) -> bool:
        residual = most_residual_bytes(k, codewords, count)
        return k * vector_bytes(dim, dtype) + 2 + residual <= room

    if not fits(1, 1):
        raise _too_few(bytes_per_page, least_bytes(dim, codewords), dim)
    most_anchors = int(ANCHOR_SHARE * room) // vector_bytes(dim, ANCHOR_TYPE)
    k = max(n for n in range(1, MOST_ANCHORS + 1) if n == 1 or (n <= most_anchors and fits(n, 1)))
    count = max(n for n in range(1, most + 1) if fits(k, n))
    if count == most:
        k = max(n for n in range(1, MOST_ANCHORS + 1) if fits(n, count))
    dtype = next(dtype for dtype in DTYPES if dtype == ANCHOR_TYPE or fits(k, count, dtype))
    return CodecConfig(k=k, dtype=dtype, codewords=count, bytes_per_page=bytes_per_page)


def least_bytes(dim: int, codewords: int) -> int:
    """The smallest budget: one anchor and one codeword."""
    return OVERHEAD + vector_bytes(dim, ANCHOR_TYPE) + 2 + most_residual_bytes(1, codewords, 1)


def adaptive_config(bytes_per_page: int) -> CodecConfig:
    """Nothing but the budget: all else is chosen when pages are seen."""
    if _room(bytes_per_page) < 1:
        raise InputError(f"bytes_per_page: found {bytes_per_page}, expected more than {OVERHEAD}")
    return CodecConfig(bytes_per_page=bytes_per_page, adapt=True)


def reduced(config: CodecConfig, bytes_per_page: int, dim: int, *, sizes: bool) -> CodecConfig:
    """Settings without codewords, made to fit: of the vectors as many as there is room for in 2 bits
    a number, and then the most bits in which there is room for these."""
    room = _room(bytes_per_page)
    types = DTYPES[DTYPES.index(config.dtype) :]  # bits that are not there cannot come back
    fitting = {dtype: room // vector_bytes(dim, dtype, sizes=sizes) for dtype in types}
    k = min(config.k, max(1, fitting.get(ANCHOR_TYPE, fitting[types[-1]])))
    for dtype in types:
        if fitting[dtype] >= k:
            return dataclasses.replace(config, k=k, dtype=dtype)
    least = OVERHEAD + vector_bytes(dim, types[-1], sizes=sizes)
    raise _too_few(bytes_per_page, least, dim)


def vector_bytes(dim: int, dtype: str, *, sizes: bool = False) -> int:
    """The bytes of a stored vector with its norm and its count, of which a norm and an exact
    count are stored where `sizes` are needed, and in bfloat16."""
    beside = 4 if dtype == BFLOAT16 else 3 if sizes else 1
    return row_bytes(dim, dtype) + beside


def _room(bytes_per_page: int) -> int:
    if not isinstance(bytes_per_page, int) or isinstance(bytes_per_page, bool):
        raise InputError(f"bytes_per_page: expected a whole number, found {bytes_per_page!r}")
    return bytes_per_page - OVERHEAD


def _too_few(found: int, least: int, dim: int) -> InputError:
    return InputError(f"bytes_per_page: found {found}, at least {least} are needed at D = {dim}")
