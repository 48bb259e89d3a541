"""Unpacking of stored rows to levels, as LLVM vectors: numbers of 8 to 1 bits one a byte, and
numbers in bfloat16 rounded to 8 bits."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glie.kernels._tiles import (
    BYTES,
    FLOAT,
    FLOATS,
    INDEX,
    INTS,
    LANES,
    ROWS,
    SMALL,
    SPLIT,
    UNIT,
    WORD,
    ZERO,
    _call,
    _const,
    _everywhere,
    _load,
    _loop,
    _pointer,
    add_fours,
)


def _split(bits):
    """Unpacking of numbers of `bits` bits."""
    top = (1 << bits) - 1
    shorts, ints = ir.VectorType(ir.IntType(16), SPLIT), ir.VectorType(INDEX, SPLIT)

    @intrinsic
    def split(_context, packed, size, levels):
        """Fill `levels` with the numbers in `size` bytes, a multiple of 16: first the lowest bits
        of every byte, then the next. Both are addresses. Returns the sum of level * (top - level),
        from which follows the length of the vector of odd integers 2 * level - top."""

        def generate(_context, builder, _signature, arguments):
            packed, size, levels = arguments

            def step(i, sums):
                at = builder.mul(i, _const(SPLIT))
                some = _load(builder, builder.add(packed, at), BYTES, align=1)
                total = sums[0]
                for place in range(8 // bits):
                    level = builder.lshr(some, _const(place * bits, BYTES))
                    level = builder.and_(level, _const(top, BYTES))
                    offset = builder.add(builder.mul(size, _const(place)), at)
                    there = _pointer(builder, builder.add(levels, offset), BYTES)
                    builder.store(level, there, align=1)
                    if bits > 1:  # a level of one bit is 0 or the top
                        level = builder.zext(level, shorts)
                        both = builder.mul(level, builder.sub(_const(top, shorts), level))
                        total = builder.add(total, builder.zext(both, ints))
                return [total]

            (sums,) = _loop(
                builder, "split", builder.udiv(size, _const(SPLIT)), [_const(0, ints)], step
            )
            sums = builder.zext(sums, ir.VectorType(WORD, SPLIT))
            return _call(builder, f"llvm.vector.reduce.add.v{SPLIT}i64", WORD, sums)

        return types.int64(*[types.intp] * 3), generate

    return split


@intrinsic
def split_rows(_context, bits, packed, size, levels, sums):
    """Fill `levels` with the numbers in four rows of `size` bytes, a multiple of UNIT: of all rows
    first the lowest bits of every byte, then the next. Fill `sums` (4, size / UNIT), in int32, with
    the sums of level * (top - level); not for 1 bit, where they are 0. All but the number of bits
    and the size are addresses."""

    def generate(context, builder, _signature, arguments):
        bits, *rest = arguments
        for some in (8, 4, 2, 1):
            with builder.if_then(builder.icmp_unsigned("==", bits, _const(some))):
                _split_rows(builder, some, *rest)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), generate


def _split_rows(builder, bits, packed, size, levels, sums):
    top = (1 << bits) - 1
    behind = builder.mul(size, _const(ROWS))  # bytes of all rows
    # A level and what it lacks to the top, as an unsigned and a signed byte. In 8 bits that is 128
    # more than can be signed, so 128 levels are added.
    signed = min(top, 127)
    units = ir.VectorType(INDEX, 4 * LANES // UNIT)

    def step(i, _values):
        at = builder.mul(i, _const(4 * LANES))
        some = _load(builder, builder.add(packed, at), SMALL, align=1)
        total = _const(0, INTS)
        for place in range(8 // bits):
            level = some
            if bits < 8:
                level = builder.lshr(some, _const(place * bits, SMALL))
                level = builder.and_(level, _const(top, SMALL))
            offset = builder.add(builder.mul(behind, _const(place)), at)
            there = _pointer(builder, builder.add(levels, offset), SMALL)
            builder.store(level, there, align=1)
            if bits > 1:
                lacking = builder.xor(level, _const(signed, SMALL))
                total = add_fours(builder, level, lacking, total, exact=bits == 8)
                if bits == 8:
                    ones = add_fours(builder, level, _const(1, SMALL), _const(0, INTS))
                    total = builder.add(total, builder.shl(ones, _const(7, INTS)))
        if bits > 1:
            for apart in (1, 2):
                lanes = [lane ^ apart for lane in range(LANES)]
                other = builder.shuffle_vector(total, total, ir.Constant(INTS, lanes))
                total = builder.add(total, other)
            firsts = ir.Constant(units, list(range(0, LANES, UNIT // 4)))
            total = builder.shuffle_vector(total, total, firsts)
            offset = builder.mul(i, _const(4 * units.count))
            there = _pointer(builder, builder.add(sums, offset), units)
            builder.store(total, there, align=4)
        return []

    _loop(builder, "rows", builder.udiv(behind, _const(4 * LANES)), [], step)


@intrinsic
def round_halves(_context, packed, count, levels):
    """Fill `levels` with `count` numbers in bfloat16, a multiple of UNIT for each of four rows:
    number = step * (level - ZERO), but for half a step. Returns the step, that of the largest
    number; all but the count are addresses."""

    def generate(_context, builder, _signature, arguments):
        packed, count, levels = arguments
        half = ir.IntType(16)
        halves = ir.VectorType(half, 2 * LANES)

        def larger(i, highest):
            at = builder.mul(i, _const(4 * LANES))
            some = _load(builder, builder.add(packed, at), halves, align=1)
            size = builder.and_(some, _const(0x7FFF, halves))  # ordered as the numbers are
            above = builder.icmp_unsigned(">", size, highest[0])
            return [builder.select(above, size, highest[0])]

        turns = builder.udiv(count, _const(2 * LANES))
        (highest,) = _loop(builder, "larger", turns, [_const(0, halves)], larger)
        name = f"llvm.vector.reduce.umax.v{2 * LANES}i16"
        largest = builder.zext(_call(builder, name, half, highest), INDEX)
        largest = builder.bitcast(builder.shl(largest, _const(16, INDEX)), FLOAT)
        inverse = builder.fdiv(_const(float(ZERO - 1), FLOAT), largest)
        nothing = builder.fcmp_ordered("<=", largest, _const(1e-30, FLOAT))
        inverse = builder.select(nothing, _const(0.0, FLOAT), inverse)
        inverses = _everywhere(builder, inverse)
        # a float this large has no fraction: its lowest bits are the rounded number
        whole = _const(float(3 << 22) + ZERO, FLOATS)
        halves, bytes_ = ir.VectorType(half, LANES), ir.VectorType(ir.IntType(8), LANES)

        def round_some(i, _values):
            at = builder.mul(i, _const(2 * LANES))
            bits = builder.zext(_load(builder, builder.add(packed, at), halves, align=1), INTS)
            number = builder.bitcast(builder.shl(bits, _const(16, INTS)), FLOATS)
            name = f"llvm.fmuladd.v{LANES}f32"
            rounded = _call(builder, name, FLOATS, number, inverses, whole)
            level = builder.trunc(builder.bitcast(rounded, INTS), bytes_)
            there = builder.add(levels, builder.mul(i, _const(LANES)))
            builder.store(level, _pointer(builder, there, bytes_), align=1)
            return []

        _loop(builder, "round", builder.udiv(count, _const(LANES)), [], round_some)
        return builder.fmul(largest, _const(1 / (ZERO - 1), FLOAT))

    return types.float32(*[types.intp] * 3), generate


split_8, split_4, split_2, split_1 = (_split(bits) for bits in (8, 4, 2, 1))
