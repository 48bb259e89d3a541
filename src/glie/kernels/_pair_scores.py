"""The compiled loop that scores pages of pairs: their vectors are made four at a time, and never
all written down."""

import numpy as np

from glie.kernels._compiled import _compile, _score_rows, address, sums, unpack_levels
from glie.kernels._nearest import rotate_row
from glie.kernels._residual import read_set
from glie.kernels._tiles import LANES, ROWS
from glie.kernels.nearest import TOP


@_compile
def pair_scores_range(
    tokens,
    token_offsets,
    data,
    starts,
    ends,
    counts,
    first_layer,
    anchors,
    used,
    directions,
    factors,
    shares,
    signs,
    block,
    longer,
    first,
    last,
    taken,
    scores,
):
    """For the pages first..last: taken[p], the bytes of its set, or -1; and scores[q, p].

    tokens[g, :, l] is token g * lanes + l, rotated and in the order in which numbers are unpacked.
    Codeword c times its share is factors[c] times the odd integers of directions[c].
    """
    groups, wide, lanes = tokens.shape
    dim, size, book = anchors.shape[2], wide // 2, factors.shape[0]
    scratch = np.empty(dim, np.float32)
    turned = np.empty(dim, np.float32)
    mine = np.zeros((anchors.shape[1], wide), np.float32)
    squares = np.empty(anchors.shape[1], np.float32)
    buffer = np.empty((ROWS, wide), np.float32)
    levels = np.empty(wide, np.uint8)
    scales = np.empty(ROWS, np.float32)
    offsets = np.zeros(lanes, np.float32)
    best = np.empty(groups * lanes, np.float32)
    most = counts[first:last].max()
    pairs = np.empty(most, np.int64)
    # gathered before they are used, so that several are on their way from memory at once
    packed = np.empty((most, directions.shape[1]), np.uint8)
    weights = np.empty(most, np.float32)
    for page in range(first, last):
        members = pairs[: counts[page]]
        universe = used[page] * book
        taken[page] = read_set(data[starts[page] : ends[page]], first_layer, universe, members)
        if taken[page] < 0:
            continue
        for i in range(counts[page]):
            word = members[i] % book
            members[i] //= book
            weights[i] = factors[word]
            for b in range(directions.shape[1]):
                packed[i, b] = directions[word, b]
        for slot in range(used[page]):
            rotate_row(anchors[page, slot], signs, block, scratch, turned)
            square = np.float32(0)
            for d in range(dim):
                square += turned[d] * turned[d]
            squares[slot] = shares[0] * shares[0] * square
            for i in range((dim + 1) // 2):
                mine[slot, i] = shares[0] * turned[2 * i]
                if 2 * i + 1 < dim:
                    mine[slot, size + i] = shares[0] * turned[2 * i + 1]
        best[:] = -np.inf
        end = used[page] + counts[page]
        for at in range(0, end, ROWS):
            for lane in range(ROWS):
                row = buffer[lane]
                place = min(at + lane, end - 1)  # the last repeats: no maximum changes
                if place < used[page]:
                    row[:] = mine[place]
                    scales[lane] = longer[page] / shares[0]
                    continue
                i = place - used[page]
                slot, weight = members[i], weights[i]
                there = address(packed) + i * packed.shape[1]
                length = np.float32(1) / unpack_levels(there, size, 4, dim, address(levels))
                product = np.float32(0)
                for d in range(wide):
                    odd = np.float32(2) * np.float32(levels[d]) - np.float32(TOP)
                    product += mine[slot, d] * odd
                    row[d] = mine[slot, d] + weight * odd
                square = squares[slot] + np.float32(2) * weight * product
                square += (weight * length) ** 2
                scales[lane] = longer[page] / np.sqrt(max(square, np.float32(1e-12)))
            for g in range(groups):
                _score_rows(
                    lanes // LANES,
                    address(buffer),
                    wide,
                    address(tokens) + 4 * g * wide * lanes,
                    address(offsets),
                    address(scales),
                    address(best) + 4 * g * lanes,
                )
        sums(best, token_offsets, page, scores)
