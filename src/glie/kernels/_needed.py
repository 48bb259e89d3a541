"""Compiled loops that choose the pairs of a page: its vectors beside the anchors, the similarity to
every pair that was found, and the removal of the least needed."""

import numpy as np

from glie.kernels._compiled import _compile, _inline, _inner
from glie.kernels._integers import COLUMNS, NUMBERS, ROWS, best_of_16, scores_4x16, two_best_16
from glie.kernels._nearest import four_rows, rotate_row, round_row
from glie.kernels._tiles import address, lowest_bit


@_compile
def beside_range(
    vectors,
    offsets,
    anchors,
    used,
    share,
    signs,
    block,
    first,
    last,
    near,
    slots,
    numbers,
    steps,
    sums,
    rest_numbers,
    rest_steps,
    rest_sums,
):
    """For the vectors of the pages first..last: near[i] and slots[i], the products with the anchors
    of the page and the nearest of these; and, rounded, the vector and what `share` of that anchor
    leaves of it."""
    dim = vectors.shape[1]
    scratch = np.empty(dim, np.float32)
    row = np.empty(dim, np.float32)
    turned = np.empty(anchors.shape[1:], np.float32)
    for page in range(first, last):
        for slot in range(used[page]):
            rotate_row(anchors[page, slot], signs, block, scratch, turned[slot])
        for i in range(offsets[page], offsets[page + 1]):
            nearest = 0
            for slot in range(used[page]):
                product = np.float32(0)
                for d in range(dim):
                    product += vectors[i, d] * anchors[page, slot, d]
                near[i, slot] = product
                nearest = slot if product > near[i, nearest] else nearest
            slots[i] = nearest
            rotate_row(vectors[i], signs, block, scratch, row)
            steps[i], sums[i] = round_row(row, numbers[i])
            for d in range(dim):
                row[d] -= share * turned[nearest, d]
            rest_steps[i], rest_sums[i] = round_row(row, rest_numbers[i])


@_inline
def _two_best(row, dead, columns, best, groups):
    """The two largest of a row and their columns, where several are equal the first ones. Row and
    `dead`, -inf where a column does not count, are addresses; the rest is scratch."""
    two_best_16(row, address(dead), columns // COLUMNS, address(best), address(groups))
    first = best_of_16(address(best), address(groups))
    lane = first % COLUMNS
    one = best[0, lane]
    best[0, lane], groups[0, lane] = best[1, lane], groups[1, lane]
    second = best_of_16(address(best), address(groups))
    return one, best[0, second % COLUMNS], first, second


@_compile
def remove(similarity, rows, dead, free, order):
    """Fill `order` with columns among the free ones, the least needed first.

    similarity[i, j] is the inner product of row i of a page, of the first `rows`, with member j of
    its set; the number of columns is a multiple of 16. We repeatedly drop the member whose removal
    hurts the page least: the sum, over the rows it is best for, of the squared difference to their
    second best.
    """
    columns = similarity.shape[1]
    best = np.empty((2, COLUMNS), np.float32)
    groups = np.empty((2, COLUMNS), np.int32)
    first = np.empty(rows, np.int64)
    second = np.empty(rows, np.int64)
    fall = np.empty(rows, np.float64)
    cost = np.empty(columns, np.float64)
    cost[:] = 0
    for i in range(rows):
        row = address(similarity) + 4 * i * columns
        high, low, first[i], second[i] = _two_best(row, dead, columns, best, groups)
        fall[i] = (high - low) ** 2
        cost[first[i]] += fall[i]
    for step in range(order.shape[0]):
        leaving = -1
        for j in range(columns):
            if free[j] and (leaving < 0 or cost[j] < cost[leaving]):
                leaving = j
        order[step] = leaving
        dead[leaving] = -np.inf
        free[leaving] = False
        if step == order.shape[0] - 1:
            break
        for i in range(rows):
            if first[i] == leaving or second[i] == leaving:
                if first[i] != leaving:
                    cost[first[i]] -= fall[i]
                row = address(similarity) + 4 * i * columns
                high, low, first[i], second[i] = _two_best(row, dead, columns, best, groups)
                fall[i] = (high - low) ** 2
                cost[first[i]] += fall[i]


@_inline
def _members(found, begin, end, flags, pairs):
    """Fill `pairs` with the different numbers in found[begin:end], ascending; returns how many.
    `flags` has a bit for every number, all off before and after."""
    for i in range(begin, end):
        flags[found[i] >> 6] |= np.uint64(1) << np.uint64(found[i] & 63)
    count = 0
    for place in range(flags.shape[0]):
        word = flags[place]
        while word:
            pairs[count] = 64 * place + lowest_bit(word)
            count += 1
            word &= word - np.uint64(1)
        flags[place] = np.uint64(0)
    return count


@_inline
def _gather(
    pairs, count, book, levels, scales, halves, places, mine, mine_scales, mine_halves, names
):
    """The codewords of ascending pairs in groups of 16 with the same anchor, and the pair of each
    place, -1 for none. Returns the number of groups."""
    groups = 0
    lane = COLUMNS
    before = -1
    for p in range(count):
        pair = pairs[p]
        slot = pair // book
        if lane == COLUMNS or slot != before:
            for filling in range(COLUMNS):
                mine_scales[groups, filling] = 0
                mine_halves[groups, filling] = 0
                names[groups, filling] = -1
            groups += 1
            lane = 0
            before = slot
        place = places[pair - slot * book]
        group, source = place // COLUMNS, place % COLUMNS
        for q in range(levels.shape[1]):
            mine[groups - 1, q, lane] = levels[group, q, source]
        mine_scales[groups - 1, lane] = scales[group, source]
        mine_halves[groups - 1, lane] = halves[group, source]
        names[groups - 1, lane] = pair
        lane += 1
    return groups


@_inline
def _scores(at, shifts, factors, shares, g, levels, scales, halves, out, stride):
    """Four prepared rows with group g of the codewords."""
    scores_4x16(
        at[0],
        at[1],
        at[2],
        at[3],
        address(levels) + 4 * g * levels.shape[1] * COLUMNS,
        levels.shape[1] * 4 // NUMBERS,
        address(factors),
        address(shifts),
        address(shares),
        address(scales) + 4 * g * COLUMNS,
        address(halves) + 4 * g * COLUMNS,
        out,
        stride,
    )


@_inner
def _weigh(anchors, page, signs, block, shares, book, levels, scales, halves, names, groups):
    """Pair (anchor, codeword) stands for alpha * anchor + beta * codeword of length 1: multiply
    `scales` by beta, and fill `halves` with alpha."""
    dim = anchors.shape[2]
    numbers = np.empty((1, levels.shape[1] * 4), np.int8)
    numbers[:] = 0
    steps = np.empty(1, np.float32)
    sums = np.empty(1, np.int32)
    row = np.empty(dim, np.float32)
    scratch = np.empty(dim, np.float32)
    products = np.empty((ROWS, COLUMNS), np.float32)
    rows = np.empty(ROWS, np.int64)
    rows[:] = 0
    at = np.empty(ROWS, np.int64)
    shifts = np.empty(ROWS, np.int32)
    factors = np.empty(ROWS, np.float32)
    nothing = np.empty(ROWS, np.float32)
    nothing[:] = 0
    square = np.float32(0)
    before = -1
    for g in range(groups):
        slot = names[g, 0] // book
        if slot != before:
            rotate_row(anchors[page, slot], signs, block, scratch, row)
            steps[0], sums[0] = round_row(row, numbers[0])
            four_rows(numbers, steps, sums, rows, at, shifts, factors)
            square = np.float32(0)
            for d in range(dim):
                square += row[d] * row[d]
            before = slot
        there = address(products)
        _scores(at, shifts, factors, nothing, g, levels, scales, halves, there, 4 * COLUMNS)
        for lane in range(COLUMNS):
            length = shares[0] * shares[0] * square
            length += 2 * shares[1] * shares[1] * halves[g, lane]
            length += 2 * shares[0] * shares[1] * products[0, lane]
            inverse = np.float32(1) / np.sqrt(max(length, np.float32(1e-12)))
            halves[g, lane] = shares[0] * inverse
            scales[g, lane] *= shares[1] * inverse


@_inner
def _fill(
    begin,
    end,
    near,
    numbers,
    steps,
    sums,
    weights,
    book,
    groups,
    levels,
    scales,
    halves,
    names,
    similarity,
):
    """Weight times the product of the rows begin..end with each pair, in groups; the places before
    these are for the anchors."""
    rows = np.empty(ROWS, np.int64)
    at = np.empty(ROWS, np.int64)
    shifts = np.empty(ROWS, np.int32)
    factors = np.empty(ROWS, np.float32)
    products = np.empty(ROWS, np.float32)
    stride = 4 * similarity.shape[1]
    ahead = similarity.shape[1] - COLUMNS * groups
    for first in range(begin, end, ROWS):
        for r in range(ROWS):
            rows[r] = min(first + r, end - 1)
        four_rows(numbers, steps, sums, rows, at, shifts, factors)
        for r in range(ROWS):
            factors[r] *= weights[rows[r]]
        out = address(similarity) + (first - begin) * stride + 4 * ahead
        for g in range(groups):
            slot = names[g, 0] // book
            for r in range(ROWS):
                products[r] = -weights[rows[r]] * near[rows[r], slot]
            there = out + 4 * g * COLUMNS
            _scores(at, shifts, factors, products, g, levels, scales, halves, there, stride)
    for i in range(begin, end):
        for slot in range(ahead):
            own = near[i, slot] if slot < near.shape[1] else np.float32(0)
            similarity[i - begin, slot] = weights[i] * own


@_compile
def needed_range(
    near,
    numbers,
    steps,
    sums,
    offsets,
    anchors,
    used,
    found,
    weights,
    signs,
    block,
    shares,
    levels,
    scales,
    halves,
    places,
    unordered,
    first,
    last,
    kept,
    counts,
):
    """For the pages first..last: the pairs found for the vectors of the page that it needs most, at
    most as many as kept[page] holds, the most needed first; the first `unordered` in any order.
    levels[g, q, c] are four levels of codeword c of group g."""
    book, limit = places.shape[0], kept.shape[1]
    flags = np.empty((anchors.shape[1] * book + 63) // 64, np.uint64)
    flags[:] = 0
    for page in range(first, last):
        begin, end = offsets[page], offsets[page + 1]
        pairs = np.empty(end - begin, np.int64)
        count = _members(found, begin, end, flags, pairs)
        counts[page] = min(count, limit)
        leave = count - min(unordered, limit)
        if leave <= 0:
            for i in range(count):
                kept[page, i] = pairs[i]
            continue
        most = count // COLUMNS + used[page] + 1
        mine = np.empty((most, levels.shape[1], COLUMNS), np.uint32)
        mine[:] = 0
        mine_scales = np.empty((most, COLUMNS), np.float32)
        mine_halves = np.empty((most, COLUMNS), np.float32)
        names = np.empty((most, COLUMNS), np.int64)
        own = mine, mine_scales, mine_halves, names
        groups = _gather(pairs, count, book, levels, scales, halves, places, *own)
        _weigh(anchors, page, signs, block, shares, book, *own, groups)
        ahead = -(-used[page] // COLUMNS) * COLUMNS  # the anchors stay
        columns = ahead + groups * COLUMNS
        # four rows are written at a time
        similarity = np.empty((-(-(end - begin) // ROWS) * ROWS, columns), np.float32)
        _fill(begin, end, near, numbers, steps, sums, weights, book, groups, *own, similarity)
        dead = np.empty(columns, np.float32)
        free = np.empty(columns, np.bool_)
        for j in range(columns):
            is_pair = j >= ahead and names[(j - ahead) // COLUMNS, j % COLUMNS] >= 0
            free[j] = is_pair
            dead[j] = 0 if is_pair or j < used[page] else -np.inf
        order = np.empty(leave, np.int64)
        remove(similarity, end - begin, dead, free, order)
        at = 0
        for j in range(columns):
            if free[j]:
                kept[page, at] = names[(j - ahead) // COLUMNS, j % COLUMNS]
                at += 1
        for step in range(leave):
            if at < limit:
                j = order[leave - 1 - step]
                kept[page, at] = names[(j - ahead) // COLUMNS, j % COLUMNS]
                at += 1
