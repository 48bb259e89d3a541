"""Innermost loops as LLVM vectors of eight lanes: products of rows, and unpacking.

A compiler keeps the sums of a plain loop over query vectors in memory, and spends more time on
moving them than on multiplying. Here the sums of a tile, up to four stored rows by up to 24 query
vectors, stay in registers. LLVM vectors run on every processor. Where a processor has a better
instruction that LLVM does not choose by itself, we call it, with the portable form beside it.
"""

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glie.kernels.maxsim import LANES

HAS_AVX2 = binding.get_host_cpu_features().get("avx2", False)
TOGETHER = 4  # small integers that a lane multiplies in one step
SPLIT = 16  # bytes that are split in one step

WORD = ir.IntType(64)  # an address, an offset or a count
INDEX = ir.IntType(32)
FLOAT = ir.FloatType()
BYTES = ir.VectorType(ir.IntType(8), LANES)
INTS = ir.VectorType(ir.IntType(32), LANES)
FLOATS = ir.VectorType(FLOAT, LANES)
SMALL = ir.VectorType(ir.IntType(8), TOGETHER * LANES)
PAIRS = ir.VectorType(ir.IntType(16), 2 * LANES)
SOME = ir.VectorType(ir.IntType(8), SPLIT)


def _const(value, kind=WORD):
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def _pointer(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


def _load(builder, address, kind, align=4):
    return builder.load(_pointer(builder, address, kind), align=align)


def _everywhere(builder, number):
    """One number in all lanes."""
    nothing = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    first = builder.insert_element(nothing, number, _const(0, INDEX))
    return builder.shuffle_vector(first, nothing, _const(0, INTS))


def _multiply_add(builder, a, b, c):
    kind = ir.FunctionType(FLOATS, [FLOATS] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    return builder.call(function, [a, b, c])


def _loop(builder, name, count, starting, body):
    """Run body(i, values) `count` times, at least once, each on the values of the last; returns the
    last values."""
    before = builder.block
    inside = builder.append_basic_block(name)
    after = builder.append_basic_block(f"{name}.after")
    builder.branch(inside)
    builder.position_at_end(inside)
    i = builder.phi(WORD)
    values = [builder.phi(value.type) for value in starting]
    results = body(i, values)
    following = builder.add(i, _const(1))
    end = builder.block
    i.add_incoming(_const(0), before)
    i.add_incoming(following, end)
    for value, first, result in zip(values, starting, results, strict=True):
        value.add_incoming(first, before)
        value.add_incoming(result, end)
    builder.cbranch(builder.icmp_unsigned("<", following, count), inside, after)
    builder.position_at_end(after)
    return results


def _products(builder, rows, blocks, stored, dim, columns):
    """products[r][b] of `rows` rows (dim,) with `blocks` blocks of eight columns (dim, 8 * blocks),
    both given by address. The builder is left behind the loop over dim."""
    row_size = builder.mul(dim, _const(4))
    row_at = [builder.add(stored, builder.mul(row_size, _const(r))) for r in range(rows)]

    def step(d, sums):
        columns_at = builder.add(columns, builder.mul(d, _const(4 * LANES * blocks)))
        column = [
            _load(builder, builder.add(columns_at, _const(4 * LANES * b)), FLOATS)
            for b in range(blocks)
        ]
        offset = builder.mul(d, _const(4))
        following = []
        for r in range(rows):
            number = _load(builder, builder.add(row_at[r], offset), FLOAT)
            number = _everywhere(builder, number)
            following += [
                _multiply_add(builder, number, column[b], sums[r * blocks + b])
                for b in range(blocks)
            ]
        return following

    products = _loop(builder, "products", dim, [_const(0.0, FLOATS)] * (rows * blocks), step)
    return [products[r * blocks : (r + 1) * blocks] for r in range(rows)]


def _tile(rows, blocks):
    """`rows` stored rows by `blocks` blocks of query vectors."""

    @intrinsic
    def tile(_context, stored, dim, tokens, scales, best):
        """best[t] = max(best[t], scales[r] * stored[r] . token t), all given by address: stored
        (rows, dim), tokens (dim, 8 * blocks), scales (rows), best (8 * blocks), in float32."""

        def generate(context, builder, _signature, arguments):
            stored, dim, tokens, scales, best = arguments
            products = _products(builder, rows, blocks, stored, dim, tokens)
            scale = [
                _everywhere(builder, _load(builder, builder.add(scales, _const(4 * r)), FLOAT))
                for r in range(rows)
            ]
            for b in range(blocks):
                place = _pointer(builder, builder.add(best, _const(4 * LANES * b)), FLOATS)
                highest = builder.load(place, align=4)
                for r in range(rows):
                    score = builder.fmul(products[r][b], scale[r])
                    higher = builder.fcmp_ordered(">", score, highest)
                    highest = builder.select(higher, score, highest)
                builder.store(highest, place, align=4)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), generate

    return tile


@intrinsic
def multiply_6x2(_context, rows, dim, columns, out, stride):
    """out[r, c] = rows[r] . column c, for six rows (dim,) and sixteen columns (dim, 16), all given
    by address; the rows of `out` are `stride` bytes apart."""

    def generate(context, builder, _signature, arguments):
        rows, dim, columns, out, stride = arguments
        products = _products(builder, 6, 2, rows, dim, columns)
        for r in range(6):
            for b in range(2):
                offset = builder.add(builder.mul(stride, _const(r)), _const(4 * LANES * b))
                place = _pointer(builder, builder.add(out, offset), FLOATS)
                builder.store(products[r][b], place, align=4)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), generate


def _unpack(bits):
    """Unpacking of numbers of `bits` bits."""

    @intrinsic
    def unpack(_context, packed, size, row):
        """Fill `row` with the odd integers that `size` bytes stand for, a multiple of eight: first
        the lowest bits of every byte, then the next. Both are addresses; the numbers of a place in
        the byte begin `size` floats after those of the last. Returns the sum of their squares."""

        def generate(_context, builder, _signature, arguments):
            packed, size, row = arguments
            top = (1 << bits) - 1

            def step(i, squares):
                at = builder.mul(i, _const(LANES))
                some = _load(builder, builder.add(packed, at), BYTES, align=1)
                total = squares[0]
                for place in range(8 // bits):
                    level = builder.lshr(some, _const(place * bits, BYTES))
                    level = builder.and_(level, _const(top, BYTES))
                    level = builder.sitofp(builder.zext(level, INTS), FLOATS)
                    odd = _multiply_add(
                        builder, level, _const(2.0, FLOATS), _const(-float(top), FLOATS)
                    )
                    offset = builder.add(builder.mul(size, _const(place)), at)
                    there = builder.add(row, builder.mul(offset, _const(4)))
                    builder.store(odd, _pointer(builder, there, FLOATS), align=4)
                    total = _multiply_add(builder, odd, odd, total)
                return [total]

            eights = builder.udiv(size, _const(LANES))
            (squares,) = _loop(builder, "unpack", eights, [_const(0.0, FLOATS)], step)
            kind = ir.FunctionType(FLOAT, [FLOAT, FLOATS])
            add_up = cgutils.get_or_insert_function(
                builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32"
            )
            return builder.call(add_up, [_const(0.0, FLOAT), squares], fastmath=("reassoc",))

        return types.float32(*[types.intp] * 3), generate

    return unpack


def _multiply_small(builder, unsigned, signed):
    """Sums of neighbouring products of 8-bit integers, in 16 bits, which must not overflow."""
    if HAS_AVX2:
        return _call(builder, "llvm.x86.avx2.pmadd.ub.sw", PAIRS, unsigned, signed)
    wide = ir.VectorType(ir.IntType(16), SMALL.count)
    product = builder.mul(builder.zext(unsigned, wide), builder.sext(signed, wide))
    return _neighbours(builder, product)


def _multiply_pairs(builder, left, right):
    """Sums of neighbouring products of 16-bit integers, in 32 bits."""
    if HAS_AVX2:
        return _call(builder, "llvm.x86.avx2.pmadd.wd", INTS, left, right)
    wide = ir.VectorType(INDEX, PAIRS.count)
    return _neighbours(builder, builder.mul(builder.sext(left, wide), builder.sext(right, wide)))


def _call(builder, name, kind, left, right):
    function = ir.FunctionType(kind, [left.type, right.type])
    return builder.call(
        cgutils.get_or_insert_function(builder.module, function, name), [left, right]
    )


def _neighbours(builder, vector):
    half = ir.VectorType(INDEX, vector.type.count // 2)
    even = ir.Constant(half, list(range(0, vector.type.count, 2)))
    odd = ir.Constant(half, list(range(1, vector.type.count, 2)))
    return builder.add(
        builder.shuffle_vector(vector, vector, even), builder.shuffle_vector(vector, vector, odd)
    )


def _small_tile(rows, blocks):
    """`rows` rows of levels below 16 by `blocks` blocks of query vectors in 8 bits."""

    @intrinsic
    def tile(_context, levels, size, tokens, chunks, steps, shifted, offsets, scales, best):
        """best[t] = max(best[t], scales[r] * (2 * levels[r] . token t - offsets[t])), all given by
        address: levels (rows, size), tokens (size / 4, 8 * blocks, 4), scales (rows), offsets and
        best (8 * blocks). Sums of `steps` products of four must fit into 16 bits; there are
        `chunks` such sums. Before chunk number `shifted`, sums are multiplied by 16."""

        def generate(context, builder, _signature, arguments):
            levels, size, tokens, chunks, steps, shifted, offsets, scales, best = arguments
            row_at = [builder.add(levels, builder.mul(size, _const(r))) for r in range(rows)]

            def chunk(number, totals):
                begin = builder.mul(number, steps)

                def step(i, sums):
                    at = builder.add(begin, i)
                    size = TOGETHER * LANES
                    tokens_at = builder.add(tokens, builder.mul(at, _const(size * blocks)))
                    token = [
                        _load(builder, builder.add(tokens_at, _const(size * b)), SMALL, align=1)
                        for b in range(blocks)
                    ]
                    offset = builder.mul(at, _const(TOGETHER))
                    following = []
                    for r in range(rows):
                        four = _load(builder, builder.add(row_at[r], offset), INDEX, align=1)
                        four = builder.bitcast(_everywhere(builder, four), SMALL)
                        following += [
                            builder.add(
                                sums[r * blocks + b], _multiply_small(builder, four, token[b])
                            )
                            for b in range(blocks)
                        ]
                    return following

                sums = _loop(builder, "step", steps, [_const(0, PAIRS)] * (rows * blocks), step)
                shift = builder.select(
                    builder.icmp_unsigned("==", number, shifted), _const(4, INTS), _const(0, INTS)
                )
                return [
                    builder.add(
                        builder.shl(total, shift),
                        _multiply_pairs(builder, pairs, _const(1, PAIRS)),
                    )
                    for total, pairs in zip(totals, sums, strict=True)
                ]

            totals = _loop(builder, "chunk", chunks, [_const(0, INTS)] * (rows * blocks), chunk)
            scale = [
                _everywhere(builder, _load(builder, builder.add(scales, _const(4 * r)), FLOAT))
                for r in range(rows)
            ]
            for b in range(blocks):
                offset = _load(builder, builder.add(offsets, _const(4 * LANES * b)), FLOATS)
                place = _pointer(builder, builder.add(best, _const(4 * LANES * b)), FLOATS)
                highest = builder.load(place, align=4)
                for r in range(rows):
                    total = builder.sitofp(totals[r * blocks + b], FLOATS)
                    twice = builder.fadd(total, total)
                    score = builder.fmul(builder.fsub(twice, offset), scale[r])
                    higher = builder.fcmp_ordered(">", score, highest)
                    highest = builder.select(higher, score, highest)
                builder.store(highest, place, align=4)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), generate

    return tile


def _split(bits):
    """Unpacking to one number a byte; numbers of 8 bits as their upper and lower half."""

    @intrinsic
    def split(_context, packed, size, levels):
        """Fill `levels` with the numbers of `size` bytes, a multiple of 16, in the order of
        `unpack`; of 8 bits, the upper halves come first. Both are addresses."""

        def generate(context, builder, _signature, arguments):
            packed, size, levels = arguments
            width = min(bits, 4)
            places = range(0, 8, width) if bits < 8 else (4, 0)

            def step(i, _):
                at = builder.mul(i, _const(SPLIT))
                some = _load(builder, builder.add(packed, at), SOME, align=1)
                for number, place in enumerate(places):
                    level = builder.lshr(some, _const(place, SOME))
                    level = builder.and_(level, _const((1 << width) - 1, SOME))
                    offset = builder.add(builder.mul(size, _const(number)), at)
                    there = _pointer(builder, builder.add(levels, offset), SOME)
                    builder.store(level, there, align=1)
                return []

            _loop(builder, "split", builder.udiv(size, _const(SPLIT)), [], step)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 3), generate

    return split


@intrinsic
def sum_below(_context, levels, size, top):
    """The sum of level * (level - top) over `size` bytes at an address, a multiple of 16; top is
    at most 255."""

    def generate(_context, builder, _signature, arguments):
        levels, size, top = arguments
        nothing = ir.Constant(PAIRS, ir.Undefined)
        first = builder.insert_element(
            nothing, builder.trunc(top, ir.IntType(16)), _const(0, INDEX)
        )
        everywhere = _const(0, ir.VectorType(INDEX, PAIRS.count))
        highest = builder.shuffle_vector(first, nothing, everywhere)

        def step(i, sums):
            at = builder.add(levels, builder.mul(i, _const(SPLIT)))
            level = builder.zext(_load(builder, at, SOME, align=1), PAIRS)
            below = builder.sub(level, highest)
            return [builder.add(sums[0], _multiply_pairs(builder, level, below))]

        steps = builder.udiv(size, _const(SPLIT))
        (sums,) = _loop(builder, "below", steps, [_const(0, INTS)], step)
        kind = ir.FunctionType(INDEX, [INTS])
        add_up = cgutils.get_or_insert_function(
            builder.module, kind, f"llvm.vector.reduce.add.v{LANES}i32"
        )
        return builder.call(add_up, [sums])

    return types.int32(*[types.intp] * 3), generate


tile_4x3, tile_2x3, tile_1x3 = _tile(4, 3), _tile(2, 3), _tile(1, 3)
tile_4x2, tile_2x2, tile_1x2 = _tile(4, 2), _tile(2, 2), _tile(1, 2)
tile_4x1, tile_2x1, tile_1x1 = _tile(4, 1), _tile(2, 1), _tile(1, 1)
unpack_8, unpack_4, unpack_2, unpack_1 = _unpack(8), _unpack(4), _unpack(2), _unpack(1)
small_2x3, small_1x3 = _small_tile(2, 3), _small_tile(1, 3)
small_2x2, small_1x2 = _small_tile(2, 2), _small_tile(1, 2)
small_2x1, small_1x1 = _small_tile(2, 1), _small_tile(1, 1)
split_8, split_4, split_2, split_1 = _split(8), _split(4), _split(2), _split(1)
