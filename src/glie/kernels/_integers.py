"""The innermost loops of products in small integers: rows in 8 bits with codewords in 4.

The numbers of a row are -127 to 127, the levels of a codeword 0 to 15. Integer sums are exact: a
product is the same in any batch.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glie.kernels._tiles import (
    FLOAT,
    FLOATS,
    INDEX,
    INTS,
    LANES,
    ROWS,
    SMALL,
    WORD,
    _call,
    _const,
    _everywhere,
    _load,
    _loop,
    _pointer,
    add_fours,
)

COLUMNS = 16  # codewords side by side
BLOCKS = COLUMNS // LANES
QUADS = 8  # steps of four numbers in one turn of the loop
NUMBERS = 4 * QUADS  # rows are filled up to a multiple of these with zeros


def _scores(builder, rows, columns, chunks, steps, shifts, shares, scales, halves):
    """score[r][b] = (2 row r . codeword - shifts[r]) * steps[r] * scale - shares[r] * half, for
    each block of codewords. All are addresses, but for the number of chunks."""
    size = 4 * LANES

    def chunk(number, totals):
        begin = builder.mul(number, _const(QUADS))
        for i in range(QUADS):
            at = builder.add(begin, _const(i))
            column_at = builder.add(columns, builder.mul(at, _const(size * BLOCKS)))
            column = [
                _load(builder, builder.add(column_at, _const(size * b)), SMALL, align=1)
                for b in range(BLOCKS)
            ]
            offset = builder.mul(at, _const(4))
            fours = [_load(builder, builder.add(row, offset), INDEX, align=1) for row in rows]
            fours = [builder.bitcast(_everywhere(builder, four), SMALL) for four in fours]
            totals = [
                add_fours(builder, column[b], fours[r], totals[r * BLOCKS + b])
                for r in range(ROWS)
                for b in range(BLOCKS)
            ]
        return totals

    totals = _loop(builder, "chunk", chunks, [_const(0, INTS)] * (ROWS * BLOCKS), chunk)
    scores = []
    for r in range(ROWS):
        step = _everywhere(builder, _load(builder, builder.add(steps, _const(4 * r)), FLOAT))
        shift = _everywhere(builder, _load(builder, builder.add(shifts, _const(4 * r)), INDEX))
        share = _everywhere(builder, _load(builder, builder.add(shares, _const(4 * r)), FLOAT))
        for b in range(BLOCKS):
            place = _const(4 * LANES * b)
            scale = _load(builder, builder.add(scales, place), FLOATS)
            half = _load(builder, builder.add(halves, place), FLOATS)
            total = totals[r * BLOCKS + b]
            product = builder.sitofp(builder.sub(builder.add(total, total), shift), FLOATS)
            product = builder.fmul(builder.fmul(product, step), scale)
            scores.append(builder.fsub(product, builder.fmul(share, half)))
    return scores


@intrinsic
def scores_4x16(
    _context,
    one,
    two,
    three,
    four,
    columns,
    chunks,
    steps,
    shifts,
    shares,
    scales,
    halves,
    out,
    stride,
):
    """out[r, c] = the score of row r and codeword c, all given by address: four rows of `chunks`
    times 32 int8, codewords (8 chunks, 16, 4) in uint8, out in float32, rows `stride` bytes
    apart."""

    def generate(context, builder, _signature, arguments):
        *rows, columns, chunks, steps, shifts, shares, scales, halves, out, stride = arguments
        scores = _scores(builder, rows, columns, chunks, steps, shifts, shares, scales, halves)
        for place, score in enumerate(scores):
            row, block = divmod(place, BLOCKS)
            at = builder.add(out, builder.mul(stride, _const(row)))
            at = builder.add(at, _const(4 * LANES * block))
            builder.store(score, _pointer(builder, at, FLOATS), align=4)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 13), generate


@intrinsic
def best_4x16(
    _context,
    one,
    two,
    three,
    four,
    columns,
    chunks,
    steps,
    shifts,
    shares,
    scales,
    halves,
    best,
    groups,
    group,
):
    """The same, where a score is above best[r, c]: that becomes the score, and groups[r, c], in
    int32, becomes `group`."""

    def generate(context, builder, _signature, arguments):
        *rows, columns, chunks, steps, shifts, shares, scales, halves = arguments[:-3]
        best, groups, group = arguments[-3:]
        scores = _scores(builder, rows, columns, chunks, steps, shifts, shares, scales, halves)
        name = _everywhere(builder, builder.trunc(group, INDEX))
        for place, score in enumerate(scores):
            offset = _const(4 * LANES * place)
            best_at = _pointer(builder, builder.add(best, offset), FLOATS)
            name_at = _pointer(builder, builder.add(groups, offset), INTS)
            before, known = builder.load(best_at, align=4), builder.load(name_at, align=4)
            higher = builder.fcmp_ordered(">", score, before)
            builder.store(builder.select(higher, score, before), best_at, align=4)
            builder.store(builder.select(higher, name, known), name_at, align=4)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 14), generate


@intrinsic
def two_best_16(_context, row, dead, groups, best, which):
    """Of each lane the two largest of row + dead, `groups` times 16 floats: best (2, 16); and which
    groups they are in, where several are equal the first: which (2, 16) in int32. All are
    addresses, but for the number of groups."""

    def generate(context, builder, _signature, arguments):
        row, dead, groups, best, which = arguments
        size = 4 * LANES

        def step(g, values):
            at = builder.mul(g, _const(size * BLOCKS))
            group = _everywhere(builder, builder.trunc(g, INDEX))
            following = []
            for b in range(BLOCKS):
                one, two, first, second = values[4 * b : 4 * b + 4]
                place = builder.add(at, _const(size * b))
                value = _load(builder, builder.add(row, place), FLOATS)
                value = builder.fadd(value, _load(builder, builder.add(dead, place), FLOATS))
                highest = builder.fcmp_ordered(">", value, one)
                higher = builder.fcmp_ordered(">", value, two)
                two = builder.select(higher, value, two)
                second = builder.select(higher, group, second)
                following += [
                    builder.select(highest, value, one),
                    builder.select(highest, one, two),
                    builder.select(highest, group, first),
                    builder.select(highest, first, second),
                ]
            return following

        nothing = [_const(float("-inf"), FLOATS)] * 2 + [_const(0, INTS)] * 2
        values = _loop(builder, "two", groups, nothing * BLOCKS, step)
        for b in range(BLOCKS):
            for number, value in enumerate(values[4 * b : 4 * b + 4]):
                at = builder.add((best, best, which, which)[number], _const(size * b))
                at = builder.add(at, _const(size * BLOCKS * (number % 2)))
                builder.store(value, _pointer(builder, at, value.type), align=4)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), generate


def _reduced(builder, name, kind, vectors):
    """The largest or least number of all vectors."""
    name = f"llvm.vector.reduce.{name}.v{LANES}{'f32' if kind is FLOATS else 'i32'}"
    one, *others = [_call(builder, name, kind.element, vector) for vector in vectors]
    for other in others:
        if kind is FLOATS:
            less = builder.fcmp_ordered("<", one, other)
        else:
            less = builder.icmp_signed(">", one, other)
        one = builder.select(less, other, one)
    return one


@intrinsic
def best_of_16(_context, values, groups):
    """The column, 16 * group + lane, of the largest of sixteen floats; where several are equal the
    first column. Both are addresses; groups are int32."""

    def generate(_context, builder, _signature, arguments):
        values, groups = arguments
        value = [
            _load(builder, builder.add(values, _const(4 * LANES * b)), FLOATS)
            for b in range(BLOCKS)
        ]
        highest = _everywhere(builder, _reduced(builder, "fmax", FLOATS, value))
        columns = []
        for b in range(BLOCKS):
            group = _load(builder, builder.add(groups, _const(4 * LANES * b)), INTS)
            lanes = ir.Constant(INTS, list(range(LANES * b, LANES * b + LANES)))
            column = builder.add(builder.mul(group, _const(COLUMNS, INTS)), lanes)
            is_best = builder.fcmp_ordered("==", value[b], highest)
            columns.append(builder.select(is_best, column, _const(2**31 - 1, INTS)))
        return builder.sext(_reduced(builder, "smin", INTS, columns), WORD)

    return types.int64(*[types.intp] * 2), generate
