"""MaxSim of pages that are stored as pairs, without writing their vectors down.

The vectors of 200 pages take 19 MB, and writing them and reading them again takes longer than the
products. Here each page is scored as its pairs are read. Scores are those of `reconstruct` and
`maxsim`, up to the rounding of float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.maxsim import in_lanes, in_passes
from glie.kernels.quantize import odd_integers, rotation, scan_order

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

TOGETHER = 16  # bytes of a codeword that the loop reads at once
WORK = 8


class Unpackable(NamedTuple):
    """Codewords of 4 bits a number, in the layout of the loop."""

    directions: Bytes  # (K, B), filled up to a multiple of 16 bytes
    factors: Floats  # (K,): share * length / that of the odd integers
    shares: Floats  # of anchor and codeword


def unpackable(packed: Bytes, lengths: Floats, dim: int, shares: tuple[float, float]) -> Unpackable:
    """Codewords whose directions are packed in 4 bits."""
    filled = np.pad(packed, [(0, 0), (0, -packed.shape[1] % TOGETHER)])
    odd = odd_integers(packed, "int4", dim)
    factors = np.float32(shares[1]) * lengths / np.sqrt((odd * odd).sum(axis=1))
    return Unpackable(filled, factors, np.array(shares, np.float32))


def pair_scores(
    tokens: Floats,
    token_offsets: Ints,
    sets: tuple[Bytes, Ints, Ints, Ints, int],
    anchors: Floats,
    used: Ints,
    book: Unpackable,
    longer: Floats,
) -> tuple[Floats, Ints]:
    """Scores (Q, P) of the first used[p] of anchors (P, k, D) and the pairs of a packed set, all
    longer[p] times as long; and the bytes that each set took, -1 where they are not a set.
    `sets` are the bytes, where each page starts and ends, its count, and the first layer."""
    from glie.kernels import _pair_scores

    scores = np.full((len(token_offsets) - 1, len(used)), -np.inf, np.float32)
    taken = np.empty(len(used), np.int64)
    counts = sets[3]
    how = *sets, np.ascontiguousarray(anchors), used, *book, *rotation(anchors.shape[2])
    ordered = scan_order(np.asarray(tokens, np.float32), "int4")

    def some(queries: slice, offsets: Ints) -> Callable[[int, int], None]:
        mine = in_lanes(ordered[offsets[0] : offsets[-1]])
        out = scores[queries]

        def run(first: int, last: int) -> None:
            _pair_scores.pair_scores_range(
                mine, offsets - offsets[0], *how, longer, first, last, taken, out
            )

        return run

    # in small ranges: a row takes longer to make than to score
    in_passes(token_offsets, np.zeros_like(counts), WORK * (used + counts), some)
    return scores, taken
