"""Innermost loops, written as vectors of eight lanes: products of rows, and unpacking.

A compiler turns a plain loop over query vectors into one that keeps its sums in memory, and spends
more time on moving than on multiplying. Here the sums of a tile, up to four stored rows by up to 24
query vectors, stay in registers. The instructions are LLVM's own vectors, which every processor
has: nothing here is made for one of them.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8

WORD = ir.IntType(64)  # an address, an offset or a count
INDEX = ir.IntType(32)
FLOAT = ir.FloatType()
BYTES = ir.VectorType(ir.IntType(8), LANES)
INTS = ir.VectorType(ir.IntType(32), LANES)
FLOATS = ir.VectorType(FLOAT, LANES)


def _const(value, kind=WORD):
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def _pointer(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


def _load(builder, address, kind, align=4):
    return builder.load(_pointer(builder, address, kind), align=align)


def _everywhere(builder, number):
    """One number in all lanes."""
    nothing = ir.Constant(FLOATS, ir.Undefined)
    first = builder.insert_element(nothing, number, _const(0, INDEX))
    return builder.shuffle_vector(first, nothing, _const(0, INTS))


def _multiply_add(builder, a, b, c):
    kind = ir.FunctionType(FLOATS, [FLOATS] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    return builder.call(function, [a, b, c])


def _products(builder, rows, blocks, stored, dim, columns):
    """products[r][b] of `rows` rows (dim,) with `blocks` blocks of eight columns (dim, 8 * blocks),
    both given by address. The builder is left behind the loop over dim."""
    row_size = builder.mul(dim, _const(4))
    row_at = [builder.add(stored, builder.mul(row_size, _const(r))) for r in range(rows)]
    before = builder.block
    loop = builder.append_basic_block("products")
    after = builder.append_basic_block("products.after")
    builder.branch(loop)

    builder.position_at_end(loop)
    d = builder.phi(WORD)
    sums = [[builder.phi(FLOATS) for _ in range(blocks)] for _ in range(rows)]
    columns_at = builder.add(columns, builder.mul(d, _const(4 * LANES * blocks)))
    column = [
        _load(builder, builder.add(columns_at, _const(4 * LANES * b)), FLOATS)
        for b in range(blocks)
    ]
    offset = builder.mul(d, _const(4))
    products = []
    for r in range(rows):
        number = _load(builder, builder.add(row_at[r], offset), FLOAT)
        number = _everywhere(builder, number)
        products.append(
            [_multiply_add(builder, number, column[b], sums[r][b]) for b in range(blocks)]
        )
    following = builder.add(d, _const(1))
    d.add_incoming(_const(0), before)
    d.add_incoming(following, loop)
    for r in range(rows):
        for b in range(blocks):
            sums[r][b].add_incoming(_const(0.0, FLOATS), before)
            sums[r][b].add_incoming(products[r][b], loop)
    builder.cbranch(builder.icmp_unsigned("<", following, dim), loop, after)
    builder.position_at_end(after)
    return products


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

        return types.void(*[types.uintp] * 5), generate

    return tile


@intrinsic
def multiply_4x2(_context, rows, dim, columns, out, stride):
    """out[r, c] = rows[r] . column c, for four rows (dim,) and sixteen columns (dim, 16), all given
    by address; the rows of `out` are `stride` bytes apart."""

    def generate(context, builder, _signature, arguments):
        rows, dim, columns, out, stride = arguments
        products = _products(builder, 4, 2, rows, dim, columns)
        for r in range(4):
            for b in range(2):
                offset = builder.add(builder.mul(stride, _const(r)), _const(4 * LANES * b))
                place = _pointer(builder, builder.add(out, offset), FLOATS)
                builder.store(products[r][b], place, align=4)
        return context.get_dummy_value()

    return types.void(*[types.uintp] * 5), generate


def _unpack(bits):
    """Numbers of so many bits."""

    @intrinsic
    def unpack(_context, packed, size, row):
        """Fill `row` with the odd integers that `size` bytes stand for, a multiple of eight: first
        the lowest bits of every byte, then the next. Both are addresses; the numbers of a place in
        the byte begin `size` floats after those of the last. Returns the sum of their squares."""

        def generate(_context, builder, _signature, arguments):
            packed, size, row = arguments
            top = (1 << bits) - 1
            before = builder.block
            loop = builder.append_basic_block("unpack")
            after = builder.append_basic_block("unpack.after")
            builder.branch(loop)

            builder.position_at_end(loop)
            at = builder.phi(WORD)
            squares = builder.phi(FLOATS)
            some = _load(builder, builder.add(packed, at), BYTES, align=1)
            total = squares
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
            following = builder.add(at, _const(LANES))
            at.add_incoming(_const(0), before)
            at.add_incoming(following, loop)
            squares.add_incoming(_const(0.0, FLOATS), before)
            squares.add_incoming(total, loop)
            builder.cbranch(builder.icmp_unsigned("<", following, size), loop, after)

            builder.position_at_end(after)
            kind = ir.FunctionType(FLOAT, [FLOAT, FLOATS])
            add_up = cgutils.get_or_insert_function(
                builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32"
            )
            return builder.call(add_up, [_const(0.0, FLOAT), total], fastmath=("reassoc",))

        return types.float32(*[types.uintp] * 3), generate

    return unpack


tile_4x3, tile_2x3, tile_1x3 = _tile(4, 3), _tile(2, 3), _tile(1, 3)
tile_4x2, tile_2x2, tile_1x2 = _tile(4, 2), _tile(2, 2), _tile(1, 2)
tile_4x1, tile_2x1, tile_1x1 = _tile(4, 1), _tile(2, 1), _tile(1, 1)
unpack_8, unpack_4, unpack_2, unpack_1 = _unpack(8), _unpack(4), _unpack(2), _unpack(1)
