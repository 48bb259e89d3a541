"""Checksums of 64 pages each: what is undamaged of a damaged segment.

A search never reads them: it compares the checksums of whole sections. A repair does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from glie.index.format import BLOCK, CODES, RESIDUAL
from glie.storage import checksum

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

IN_BLOCKS = (*CODES, *RESIDUAL)  # the sections with a checksum every 64 pages


def block_checksums(
    sections: Mapping[str, bytes], pages: int, starts: Ints | None
) -> npt.NDArray[np.uint64]:
    """The block checksums of a segment. `starts`: where the residual of each page starts, and the
    end."""
    sums = [
        checksum(memoryview(section)[start:end])
        for name in IN_BLOCKS
        if (section := sections.get(name, b""))
        for start, end in _bounds(name, len(section), pages, starts)
    ]
    return np.array(sums, "<u8")


def sound_pages(
    name: str,
    section: npt.NDArray[np.uint8],
    sums: npt.NDArray[np.uint64],
    pages: int,
    starts: Ints | None,
) -> Mask:
    """The pages whose part of a section matches its block checksum."""
    bounds = _bounds(name, len(section), pages, starts)
    sound = [checksum(section[a:b]) == s for (a, b), s in zip(bounds, sums.tolist(), strict=True)]
    return np.repeat(sound, BLOCK)[:pages]


def _bounds(name: str, size: int, pages: int, starts: Ints | None) -> list[tuple[int, int]]:
    """Where the blocks of a section start and end."""
    rows = [*range(0, pages, BLOCK), pages]
    if name == RESIDUAL[1]:
        assert starts is not None
        places = starts[rows].tolist()
    else:
        places = [row * (size // pages) for row in rows]
    return list(itertools.pairwise(places))
