"""Compiled loops of residual coding: find, choose, pack, unpack and reconstruct."""

import numpy as np

from glie.kernels import residual
from glie.kernels._compiled import _compile

LANES = 4  # rows scored together: each codeword is loaded once for four rows


@_compile
def top_centroids_range(x, centroids, half, first, last, top):
    """top[i] = the centroids c of the largest x_i . c - |c|^2 / 2, best first, for rows
    first..last."""
    probes = top.shape[1]
    scores = np.empty(probes, np.float32)
    for i in range(first, last):
        scores[:] = -np.inf
        top[i] = 0
        for c in range(centroids.shape[0]):
            score = np.float32(0)
            for d in range(centroids.shape[1]):
                score += x[i, d] * centroids[c, d]
            score -= half[c]
            if score > scores[probes - 1]:
                place = probes - 1
                while place > 0 and score > scores[place - 1]:
                    scores[place] = scores[place - 1]
                    top[i, place] = top[i, place - 1]
                    place -= 1
                scores[place] = score
                top[i, place] = c


@_compile
def best_codewords_range(x, rows, bounds, starts, codewords, half, first, last, score, codeword):
    """For the lists first..last: score[j] and codeword[j], the best codeword of list c for row
    rows[j], for every j in bounds[c]..bounds[c + 1]."""
    dim = x.shape[1]
    lanes = np.empty((LANES, dim), np.float32)
    for c in range(first, last):
        for at in range(bounds[c], bounds[c + 1], LANES):
            for lane in range(LANES):
                lanes[lane] = x[rows[min(at + lane, bounds[c + 1] - 1)]]
            best = np.full(LANES, -np.inf, np.float32)
            which = np.zeros(LANES, np.int64)
            for w in range(starts[c], starts[c + 1]):
                a = np.float32(0)
                b = np.float32(0)
                e = np.float32(0)
                f = np.float32(0)
                for d in range(dim):
                    v = codewords[w, d]
                    a += v * lanes[0, d]
                    b += v * lanes[1, d]
                    e += v * lanes[2, d]
                    f += v * lanes[3, d]
                if a - half[w] > best[0]:
                    best[0] = a - half[w]
                    which[0] = w
                if b - half[w] > best[1]:
                    best[1] = b - half[w]
                    which[1] = w
                if e - half[w] > best[2]:
                    best[2] = e - half[w]
                    which[2] = w
                if f - half[w] > best[3]:
                    best[3] = f - half[w]
                    which[3] = w
            for lane in range(min(LANES, bounds[c + 1] - at)):
                score[at + lane] = best[lane]
                codeword[at + lane] = which[lane]


@_compile
def _two_best(row, alive):
    """The two largest values of a row among those alive, and their positions."""
    one = np.float32(-np.inf)
    two = np.float32(-np.inf)
    where = 0
    second = 0
    for i in range(row.shape[0]):
        if alive[i]:
            if row[i] > one:
                two = one
                second = where
                one = row[i]
                where = i
            elif row[i] > two:
                two = row[i]
                second = i
    return one, two, where, second


@_compile
def removal_order(similarity, permanent):
    """The columns after the first `permanent`, the least needed first.

    similarity[i, j] is the inner product of row i of a page with member j of its set. We repeatedly
    drop the member whose removal hurts the page least: the sum, over the rows it is best for, of
    the squared difference to their second best.
    """
    rows, members = similarity.shape
    alive = np.ones(members, np.bool_)
    first = np.empty(rows, np.int64)
    second = np.empty(rows, np.int64)
    fall = np.empty(rows, np.float64)
    cost = np.zeros(members, np.float64)
    for i in range(rows):
        one, two, first[i], second[i] = _two_best(similarity[i], alive)
        fall[i] = (one - two) ** 2
        cost[first[i]] += fall[i]
    order = np.empty(members - permanent, np.int64)
    for step in range(members - permanent):
        leaving = -1
        for j in range(permanent, members):
            if alive[j] and (leaving < 0 or cost[j] < cost[leaving]):
                leaving = j
        alive[leaving] = False
        order[step] = leaving
        if step == members - permanent - 1 and permanent == 0:
            break
        for i in range(rows):
            if first[i] == leaving or second[i] == leaving:
                if first[i] != leaving:
                    cost[first[i]] -= fall[i]
                one, two, first[i], second[i] = _two_best(similarity[i], alive)
                fall[i] = (one - two) ** 2
                cost[first[i]] += fall[i]
    return order


low_bits = _compile(residual.low_bits)


@_compile
def _put(out, at, value, width):
    """Write the `width` low bits of value, the lowest first, at bit `at`."""
    for b in range(width):
        if (value >> b) & 1:
            out[(at + b) >> 3] |= np.uint8(1 << ((at + b) & 7))
    return at + width


@_compile
def write_layer(members, universe, out, at):
    """Rice code of an ascending set: of each gap the quotient in unary, then the low bits."""
    low = low_bits(len(members), universe)
    previous = -1
    for member in members:
        gap = member - previous - 1
        at += gap >> low  # zeros
        at = _put(out, at, 1, 1)
        at = _put(out, at, gap & ((1 << low) - 1), low)
        previous = member
    return at


@_compile
def _read_layer(data, at, universe, members):
    """Fill `members` with the set that write_layer wrote at bit `at`; returns the next bit, or -1
    if the bits are not such a set."""
    low = low_bits(len(members), universe)
    end = 8 * data.shape[0]
    previous = -1
    for i in range(members.shape[0]):
        gap = 0
        while at < end and not (data[at >> 3] >> (at & 7)) & 1:
            gap += 1
            at += 1
        at += 1
        if at + low > end:
            return -1
        gap <<= low
        for b in range(low):
            gap |= np.int64((data[(at + b) >> 3] >> ((at + b) & 7)) & 1) << b
        at += low
        previous += gap + 1
        if previous >= universe:
            return -1
        members[i] = previous
    return at


@_compile
def read_set(data, first_layer, universe, pairs):
    """Fill `pairs` layer by layer; returns how many bytes they took, or -1."""
    at = 0
    first = 0
    last = first_layer
    while first < pairs.shape[0]:
        at = _read_layer(data, at, universe, pairs[first : min(last, pairs.shape[0])])
        if at < 0:
            return -1
        first = last
        last *= 2
    return (at + 7) >> 3


@_compile
def read_sets(data, starts, ends, first_layer, universes, bounds, pairs, taken):
    """read_set for page p in bytes starts[p]..ends[p], into bounds[p]..bounds[p + 1]."""
    for page in range(starts.shape[0]):
        taken[page] = read_set(
            data[starts[page] : ends[page]],
            first_layer,
            universes[page],
            pairs[bounds[page] : bounds[page + 1]],
        )


@_compile
def reconstruct_range(
    anchors, used, codewords, anchor_share, codeword_share, pairs, bounds, offsets, first, last, out
):
    """Write the sets of the pages first..last from row offsets[page] on: the used anchors, then the
    unit vector of anchor_share * anchor + codeword_share * codeword for every pair."""
    count, dim = codewords.shape
    for page in range(first, last):
        at = offsets[page]
        for slot in range(used[page]):
            out[at] = anchors[page, slot]
            at += 1
        for i in range(bounds[page], bounds[page + 1]):
            slot = pairs[i] // count
            codeword = pairs[i] - slot * count
            square = np.float32(0)
            for d in range(dim):
                value = (
                    anchor_share * anchors[page, slot, d] + codeword_share * codewords[codeword, d]
                )
                out[at, d] = value
                square += value * value
            scale = np.float32(1) / max(np.sqrt(square), np.float32(1e-6))
            for d in range(dim):
                out[at, d] *= scale
            at += 1
