"""The compiled loops that score pages of pairs from the products of query vectors with codewords:
no vector of a page is ever written down."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glie.kernels._compiled import _compile, _inline
from glie.kernels._nearest import rotate_row
from glie.kernels._residual import read_set
from glie.kernels._tiles import (
    BYTES,
    FLOAT,
    FLOATS,
    INDEX,
    LANES,
    TILE_ROWS,
    UNIT,
    _call,
    _const,
    _everywhere,
    _load,
    _loop,
    _pointer,
    address,
    multiply_tile,
    prefetch,
    widen_halves,
)
from glie.kernels.nearest import TOP

AHEAD = 12  # pairs between prefetch and use: codewords lie far apart in memory


@intrinsic
def _raise_best(_context, blocks, one, two, scale, best):
    """best[t] = max(best[t], (one[t] + two[t]) * scale), for LANES * blocks tokens. All but blocks
    and the scale are addresses of single precision."""

    def generate(context, builder, _signature, arguments):
        blocks, one, two, scale, best = arguments
        scales = _everywhere(builder, scale)

        def step(b, _values):
            at = builder.mul(b, _const(4 * LANES))
            both = [_load(builder, builder.add(place, at), FLOATS) for place in (one, two)]
            score = builder.fmul(builder.fadd(*both), scales)
            place = _pointer(builder, builder.add(best, at), FLOATS)
            highest = builder.load(place, align=4)
            higher = builder.fcmp_ordered(">", score, highest)
            builder.store(builder.select(higher, score, highest), place, align=4)
            return []

        _loop(builder, "best", blocks, [], step)
        return context.get_dummy_value()

    numbers = [types.intp] * 3 + [types.float32, types.intp]
    return types.void(*numbers), generate


@intrinsic
def _dot_levels(_context, packed, size, row):
    """The product of the numbers in `size` bytes, of 4 bits each, with the floats of a row: first
    the lower ones, then the upper ones. `packed` and `row` are addresses."""

    def generate(_context, builder, _signature, arguments):
        packed, size, row = arguments
        wide, whole = ir.VectorType(FLOAT, UNIT), ir.VectorType(INDEX, UNIT)

        def step(i, totals):
            at = builder.mul(i, _const(UNIT))
            some = _load(builder, builder.add(packed, at), BYTES, align=1)
            halves = builder.and_(some, _const(15, BYTES)), builder.lshr(some, _const(4, BYTES))
            sums = []
            for half, total in zip(halves, totals, strict=True):
                place = builder.mul(builder.add(at, size) if sums else at, _const(4))
                numbers = _load(builder, builder.add(row, place), wide)
                level = builder.sitofp(builder.zext(half, whole), wide)
                name = f"llvm.fmuladd.v{UNIT}f32"
                sums.append(_call(builder, name, wide, level, numbers, total))
            return sums

        steps = builder.udiv(size, _const(UNIT))
        low, high = _loop(builder, "dot", steps, [_const(0.0, wide)] * 2, step)
        both = builder.fadd(low, high)
        kind = ir.FunctionType(FLOAT, [FLOAT, wide])
        name = f"llvm.vector.reduce.fadd.v{UNIT}f32"
        add_up = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(add_up, [_const(0.0, FLOAT), both], fastmath=["reassoc"])

    return types.float32(*[types.intp] * 3), generate


@_compile
def read_pairs_range(
    data, starts, ends, counts, first_layer, used, book, bounds, first, last, slots, words, taken
):
    """For the pages first..last: slot and codeword of each pair, from bounds[page] on, and
    taken[page], the bytes of its set, or -1."""
    pairs = np.empty(counts[first:last].max(), np.int64)
    for page in range(first, last):
        members = pairs[: counts[page]]
        universe = used[page] * book
        taken[page] = read_set(data[starts[page] : ends[page]], first_layer, universe, members)
        if taken[page] < 0:
            continue
        for i in range(counts[page]):
            slot = members[i] // book
            slots[bounds[page] + i] = slot
            words[bounds[page] + i] = members[i] - slot * book


@_compile
def codeword_products_range(tokens, directions, factors, which, first, last, out):
    """out[i] = the products of codeword which[i] with all tokens, for first..last. The codeword is
    factors[which[i]] times the odd integers of its directions; tokens (G, 2 * size, lanes) are in
    the order in which these are unpacked."""
    groups, wide, lanes = tokens.shape
    size = wide // 2
    rows = np.empty((TILE_ROWS, wide), np.float32)
    products = np.empty((TILE_ROWS, groups * lanes), np.float32)
    stride = 4 * groups * lanes
    for at in range(first, last, TILE_ROWS):
        count = min(TILE_ROWS, last - at)
        for r in range(TILE_ROWS):
            word = which[at + min(r, count - 1)]
            factor = factors[word]
            for b in range(size):
                low = np.float32(directions[word, b] & 15)
                high = np.float32(directions[word, b] >> 4)
                rows[r, b] = factor * (np.float32(2) * low - np.float32(TOP))
                rows[r, size + b] = factor * (np.float32(2) * high - np.float32(TOP))
        for g in range(groups):
            column = address(tokens) + 4 * g * wide * lanes
            target = address(products) + 4 * g * lanes
            multiply_tile(lanes // LANES, address(rows), wide, column, target, stride)
        out[at : at + count] = products[:count]


@_inline
def _unpack_anchor(stored, bits, share, signs, block, scratch, numbers, turned, out):
    """out = share times the rotated unit vector of a stored row, in the order in which codewords
    are unpacked; its numbers are floats (32 bits), the upper halves of floats (16) or levels (8 and
    fewer). Returns the square of its length."""
    dim, size = turned.shape[0], out.shape[0] // 2
    square = np.float32(0)
    if bits >= 16:
        if bits == 16:
            widen_halves(address(stored), dim, address(numbers))
        else:
            numbers.view(np.uint8)[:] = stored
        rotate_row(numbers, signs, block, scratch, turned)
        for d in range(dim):
            square += turned[d] * turned[d]
            out[(d >> 1) + (d & 1) * size] = share * turned[d]
        return share * share * square
    each = 8 // bits
    top = (1 << bits) - 1
    for j in range(each):
        for b in range((dim - j + each - 1) // each):
            odd = np.float32(2 * ((np.int32(stored[b]) >> (j * bits)) & top) - top)
            d = b * each + j
            out[(d >> 1) + (d & 1) * size] = odd
            square += odd * odd
    out *= share / np.sqrt(square)
    return share * share


@_compile
def pair_scores_range(
    tokens,
    count,
    anchors,
    bits,
    used,
    bounds,
    slots,
    words,
    places,
    products,
    directions,
    factors,
    squares,
    shares,
    signs,
    block,
    longer,
    first,
    last,
    scores,
):
    """Add to scores[p], for the pages first..last: MaxSim of the first `count` tokens over their
    used anchors and their pairs.

    Tokens (G, 2 * size, lanes) are in the order in which codewords are unpacked. Of codeword w
    times its share, products[places[w]] are the products, and squares[w] is the squared length.
    """
    groups, wide, lanes = tokens.shape
    dim, size = signs.shape[0], wide // 2
    most = -(-anchors.shape[1] // TILE_ROWS) * TILE_ROWS
    scratch, numbers, turned = (
        np.empty(dim, np.float32),
        np.empty(dim, np.float32),
        np.empty(dim, np.float32),
    )
    mine = np.zeros((most, wide), np.float32)  # anchors times their share
    near = np.zeros((most, groups * lanes), np.float32)  # their products with the tokens
    totals = np.empty(most, np.float32)
    own = np.empty(most, np.float32)
    nothing = np.zeros(groups * lanes, np.float32)
    best = np.empty(groups * lanes, np.float32)
    blocks = groups * lanes // LANES
    stride = 4 * groups * lanes
    for page in range(first, last):
        for slot in range(used[page]):
            row = anchors[page, slot], bits, shares[0], signs, block, scratch, numbers, turned
            own[slot] = _unpack_anchor(*row, mine[slot])
            totals[slot] = np.float32(TOP) * mine[slot].sum()
        for at in range(0, used[page], TILE_ROWS):
            for g in range(groups):
                column = address(tokens) + 4 * g * wide * lanes
                target = address(near) + at * stride + 4 * g * lanes
                multiply_tile(
                    lanes // LANES, address(mine) + 4 * at * wide, wide, column, target, stride
                )
        best[:] = -np.inf
        for slot in range(used[page]):
            scale = longer[page] / shares[0]
            there = address(near) + slot * stride
            _raise_best(blocks, there, address(nothing), scale, address(best))
        for i in range(bounds[page], bounds[page + 1]):
            ahead = words[min(i + AHEAD, bounds[last] - 1)]
            prefetch(address(directions) + ahead * size)
            prefetch(address(products) + places[ahead] * stride)
            slot, word = slots[i], words[i]
            there = address(directions) + word * size
            product = _dot_levels(there, size, address(mine) + 4 * slot * wide)
            product = factors[word] * (np.float32(2) * product - totals[slot])
            square = own[slot] + np.float32(2) * product + squares[word]
            scale = longer[page] / np.sqrt(max(square, np.float32(1e-12)))
            there = address(products) + places[word] * stride
            _raise_best(blocks, address(near) + slot * stride, there, scale, address(best))
        total = np.float32(0)
        for t in range(count):
            total += best[t]
        scores[page] += total
    nothing[0] = 0  # used by its address until here
