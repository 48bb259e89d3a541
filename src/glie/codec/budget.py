"""From a budget in bytes a page to the settings that use it best."""

from __future__ import annotations

import dataclasses

from glie.codec.config import CodecConfig
from glie.codec.readout.pairs import most_residual_bytes
from glie.errors import InputError
from glie.kernels.quantize import BFLOAT16, DTYPES, row_bytes
from glie.kernels.residual import ONE_LAYER

OVERHEAD = 26  # bytes a page besides its code: id, metadata, its share of the folder
CODES_SHARE = 0.5  # of a budget at least, however many bytes the words of a page take
LEAST_FOR_CODES = 130  # of a small budget
ANCHOR_TYPE = "int2"
ANCHOR_SHARE = 0.57  # of the bytes, while codewords are few
MOST_CODEWORDS = 128  # a page, of a small codebook
# A large codebook fits vectors well, so that codewords are worth more than anchors:
# docs/experiments.md, Long pages.
LARGE_CODEBOOK = 16_384
LARGE_ANCHOR_SHARE = 0.425  # of the bytes, while they are few; else so many and this share:
LARGE_ANCHOR_BYTES, LARGE_FURTHER_SHARE = 125, 0.16
MOST_OF_LARGE = 512
MOST_ANCHORS = 128
# With coordinates (docs/experiments.md, Coordinates):
TRANSFORM_ANCHOR_SHARE = 0.28  # of the bytes
LARGE_ANCHOR = 0.5  # of the bytes: such an anchor is stored in 1 bit a number
LEAST_COORDINATES = 36  # bytes: two or three groups
MOST_RESIDUAL = 2**16 - 1
# Few anchors of a long text are better each of one part of it: docs/experiments.md, Anchors of
# neighbours. Many are not, nor are those of a picture.
POSITION = 96
FEW_ANCHORS = 8


def config_for(
    bytes_per_page: int,
    dim: int,
    codewords: int,
    *,
    of_text: bool = False,
    length_norm: int = 0,
    first_layer: int = ONE_LAYER,
) -> CodecConfig:
    """The settings for pages of `bytes_per_page` on disk and a codebook of `codewords`; `of_text`:
    the vectors of a page are in the order of its words.

    A larger budget buys anchors and codewords first, then anchors alone, then more bits a number.
    """
    room = _room(bytes_per_page)
    large = codewords >= LARGE_CODEBOOK
    most = min(MOST_OF_LARGE if large else MOST_CODEWORDS, codewords)
    share = ANCHOR_SHARE * room
    if large:
        share = min(LARGE_ANCHOR_SHARE * room, LARGE_ANCHOR_BYTES + LARGE_FURTHER_SHARE * room)

    def fits(k: int, count: int, dtype: str = ANCHOR_TYPE) -> bool:
        residual = most_residual_bytes(k, codewords, count, first_layer)
        return k * vector_bytes(dim, dtype) + 2 + residual <= room

    if not fits(1, 1):
        raise _too_few(bytes_per_page, least_bytes(dim, codewords), dim)
    most_anchors = int(share) // vector_bytes(dim, ANCHOR_TYPE)
    k = max(n for n in range(1, MOST_ANCHORS + 1) if n == 1 or (n <= most_anchors and fits(n, 1)))
    count = max(n for n in range(1, most + 1) if fits(k, n))
    if count == most:
        k = max(n for n in range(1, MOST_ANCHORS + 1) if fits(n, count))
    dtype = next(dtype for dtype in DTYPES if dtype == ANCHOR_TYPE or fits(k, count, dtype))
    position = POSITION if of_text and k <= FEW_ANCHORS else 0
    return CodecConfig(
        k=k,
        dtype=dtype,
        codewords=count,
        bytes_per_page=bytes_per_page,
        position=position,
        length_norm=length_norm,
        first_layer=first_layer,
    )


def transform_config(bytes_per_page: int, dim: int) -> CodecConfig:
    """The settings for pages of `bytes_per_page` on disk and a table of coordinates: some anchors,
    of 1 bit a number where 2 would take most of the bytes, and the rest for coordinates."""
    room = _room(bytes_per_page) - 2  # the length of the residual
    large = vector_bytes(dim, ANCHOR_TYPE) > LARGE_ANCHOR * room
    dtype = "int1" if large else ANCHOR_TYPE
    each = vector_bytes(dim, dtype)
    k = min(MOST_ANCHORS, max(1, int(TRANSFORM_ANCHOR_SHARE * room) // each))
    if room - k * each < LEAST_COORDINATES:
        least = OVERHEAD + 2 + vector_bytes(dim, "int1") + LEAST_COORDINATES
        raise _too_few(bytes_per_page, least, dim)
    residual = min(room - k * each, MOST_RESIDUAL)
    return CodecConfig(k=k, dtype=dtype, bytes_per_page=bytes_per_page, residual_bytes=residual)


def least_bytes(dim: int, codewords: int) -> int:
    """The smallest budget: one anchor and one codeword a page."""
    return OVERHEAD + vector_bytes(dim, ANCHOR_TYPE) + 2 + most_residual_bytes(1, codewords, 1)


def bytes_for_text(bytes_per_page: int, text_bytes: int) -> int:
    """Of a budget, those for the words of a page, which take `text_bytes`: what CODES_SHARE and
    LEAST_FOR_CODES leave, at most."""
    room = _room(bytes_per_page) + OVERHEAD
    return max(0, min(text_bytes, int((1 - CODES_SHARE) * room), room - LEAST_FOR_CODES))


def adaptive_config(bytes_per_page: int) -> CodecConfig:
    """The budget alone: the first pages choose the other settings."""
    if _room(bytes_per_page) < 1:
        raise InputError(f"bytes_per_page: found {bytes_per_page}, expected more than {OVERHEAD}")
    return CodecConfig(bytes_per_page=bytes_per_page, adapt=True)


def reduced(config: CodecConfig, bytes_per_page: int, dim: int, *, exact: bool) -> CodecConfig:
    """Settings without codewords for fewer bytes: as many vectors as fit in 2 bits a number, then
    the most bits in which these fit."""
    room = _room(bytes_per_page)
    types = DTYPES[DTYPES.index(config.dtype) :]  # bits that were dropped cannot come back
    fitting = {dtype: room // vector_bytes(dim, dtype, exact=exact) for dtype in types}
    k = min(config.k, max(1, fitting.get(ANCHOR_TYPE, fitting[types[-1]])))
    for dtype in types:
        if fitting[dtype] >= k:
            return dataclasses.replace(config, k=k, dtype=dtype)
    least = OVERHEAD + vector_bytes(dim, types[-1], exact=exact)
    raise _too_few(bytes_per_page, least, dim)


def vector_bytes(dim: int, dtype: str = BFLOAT16, *, exact: bool = False) -> int:
    """The bytes of a stored vector with its norm and count: 4 beside it in bfloat16; in fewer bits
    3 if norms and exact counts are kept (`exact`), else 1, a rounded count."""
    beside = 4 if dtype == BFLOAT16 else 3 if exact else 1
    return row_bytes(dim, dtype) + beside


def _room(bytes_per_page: int) -> int:
    if not isinstance(bytes_per_page, int) or isinstance(bytes_per_page, bool):
        raise InputError(f"bytes_per_page: expected a whole number, found {bytes_per_page!r}")
    return bytes_per_page - OVERHEAD


def _too_few(found: int, least: int, dim: int) -> InputError:
    return InputError(f"bytes_per_page: found {found}, at least {least} are needed at D = {dim}")
