"""Innermost loops as LLVM vectors: products of stored rows with query vectors.

A compiler keeps the sums of a plain loop over query vectors in memory, and spends more time on
moving them than on multiplying. Here the sums of a tile, four stored rows by up to three blocks of
query vectors, stay in registers. LLVM vectors run on every processor. Only where a processor can
multiply and add several small numbers a lane, we call that instruction, with a portable form beside
it.
"""

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

# What numba compiles for: this processor, or what NUMBA_CPU_FEATURES says.
FEATURES = config.CPU_FEATURES
if FEATURES is None:
    FEATURES = binding.get_host_cpu_features().flatten()
FEATURES = set(FEATURES.split(","))
HAS_AVX2 = "+avx2" in FEATURES
HAS_AVX512 = {"+avx2", "+avx512f", "+avx512bw", "+avx512vl", "+avx512vnni"} <= FEATURES
HAS_BFLOAT16 = HAS_AVX512 and "+avx512bf16" in FEATURES
ADDS_FOURS = HAS_AVX512 or (HAS_AVX2 and "+avxvnni" in FEATURES)
SATURATES = HAS_AVX2 and not ADDS_FOURS  # sums of two products stop at 16 bits

ROWS = 4  # of a tile
MOST_BLOCKS = 3  # of a tile: LLVM vectors of query vectors
LANES = 16 if HAS_AVX512 else 8  # query vectors in one LLVM vector
# A tile of a matrix product: its sums, and what they need, fill the registers.
TILE_ROWS, TILE_BLOCKS = (8 if HAS_AVX512 else 6), 2
TILE_COLUMNS = LANES * TILE_BLOCKS
SPLIT = 16  # bytes that are split in one step

WORD = ir.IntType(64)  # an address, an offset or a count
INDEX = ir.IntType(32)
FLOAT = ir.FloatType()
INTS = ir.VectorType(INDEX, LANES)
FLOATS = ir.VectorType(FLOAT, LANES)
SMALL = ir.VectorType(ir.IntType(8), 4 * LANES)
PAIRS = ir.VectorType(ir.IntType(16), 2 * LANES)
BYTES = ir.VectorType(ir.IntType(8), SPLIT)


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


@intrinsic
def address(context, array):
    """The address of an array as a signed number: signed plus unsigned would be a float. An array
    that a loop knows only by its address has to be used once more behind the loop, or its memory is
    freed before."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, WORD)

    return types.int64(array), generate


@intrinsic
def copy_bytes(_context, source, target, size):
    """Copy `size` bytes; all are addresses, but for the size."""

    def generate(context, builder, _signature, arguments):
        source, target, size = arguments
        byte = ir.IntType(8)
        cgutils.raw_memcpy(
            builder, _pointer(builder, target, byte), _pointer(builder, source, byte), size, 1
        )
        return context.get_dummy_value()

    return types.void(*[types.intp] * 3), generate


@intrinsic
def load_half(_context, address):
    """The float of which an address holds the upper half."""

    def generate(_context, builder, _signature, arguments):
        bits = builder.zext(_load(builder, arguments[0], ir.IntType(16), align=1), INDEX)
        return builder.bitcast(builder.shl(bits, _const(16, INDEX)), FLOAT)

    return types.float32(types.intp), generate


@intrinsic
def lowest_bit(_context, word):
    """The place of the lowest bit of a number that is not 0."""

    def generate(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], _const(1, ir.IntType(1)))

    return types.int64(types.uint64), generate


def _call(builder, name, kind, *arguments):
    """Call an LLVM function that returns a `kind`."""
    function = ir.FunctionType(kind, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, function, name)
    return builder.call(function, arguments)


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


def _add_float(builder, four_bytes, column, total):
    """total + column * a number in single precision."""
    number = _everywhere(builder, builder.bitcast(four_bytes, FLOAT))
    return _call(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, number, column, total)


def _add_small(builder, four_bytes, column, total):
    """total + the sum of four products in each lane, of levels in 0..255 and signed bytes."""
    levels = builder.bitcast(_everywhere(builder, four_bytes), SMALL)
    return add_fours(builder, levels, column, total)


def add_fours(builder, levels, column, total):
    """The same with other levels in each lane."""
    if ADDS_FOURS:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        # the types of LLVM before 22, which later versions still take
        levels, column = (builder.bitcast(bytes_, INTS) for bytes_ in (levels, column))
        return _call(builder, name, INTS, total, levels, column)
    if HAS_AVX2:
        pairs = _call(builder, "llvm.x86.avx2.pmadd.ub.sw", PAIRS, levels, column)
        fours = _call(builder, "llvm.x86.avx2.pmadd.wd", INTS, pairs, _const(1, PAIRS))
        return builder.add(total, fours)
    wide = ir.VectorType(ir.IntType(16), SMALL.count)
    products = builder.mul(builder.zext(levels, wide), builder.sext(column, wide))
    products = builder.sext(products, ir.VectorType(INDEX, SMALL.count))
    return builder.add(total, _neighbours(builder, _neighbours(builder, products)))


def _add_pairs(builder, four_bytes, column, total):
    """total + the sum of two products in each lane, of numbers in bfloat16."""
    pair = _everywhere(builder, four_bytes)
    if HAS_BFLOAT16:
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}"
        return _call(builder, name, FLOATS, total, pair, column)
    for cut in (
        lambda bits: builder.shl(bits, _const(16, INTS)),
        lambda bits: builder.and_(bits, _const(0xFFFF0000, INTS)),
    ):
        factors = (builder.bitcast(cut(bits), FLOATS) for bits in (pair, column))
        total = _call(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, *factors, total)
    return total


def _neighbours(builder, vector):
    """The sums of two numbers each."""
    half = ir.VectorType(INDEX, vector.type.count // 2)
    even = ir.Constant(half, list(range(0, vector.type.count, 2)))
    odd = ir.Constant(half, list(range(1, vector.type.count, 2)))
    return builder.add(
        builder.shuffle_vector(vector, vector, even), builder.shuffle_vector(vector, vector, odd)
    )


def _products(builder, rows, blocks, stored, steps, columns, kinds):
    """products[r][b] of `rows` rows of `steps` times four bytes with `blocks` blocks of columns
    (steps, LANES * blocks), of four bytes too, both given by address. `kinds` are the LLVM vectors
    of columns and of sums, and what adds to a sum. The builder is left behind the loop."""
    column_kind, sum_kind, add = kinds
    row_size = builder.mul(steps, _const(4))
    row_at = [builder.add(stored, builder.mul(row_size, _const(r))) for r in range(rows)]

    def step(i, sums):
        columns_at = builder.add(columns, builder.mul(i, _const(4 * LANES * blocks)))
        column = [
            _load(builder, builder.add(columns_at, _const(4 * LANES * b)), column_kind)
            for b in range(blocks)
        ]
        offset = builder.mul(i, _const(4))
        following = []
        for r in range(rows):
            four_bytes = _load(builder, builder.add(row_at[r], offset), INDEX)
            following += [
                add(builder, four_bytes, column[b], sums[r * blocks + b]) for b in range(blocks)
            ]
        return following

    nothing = [_const(0 if sum_kind is INTS else 0.0, sum_kind)] * (rows * blocks)
    products = _loop(builder, "products", steps, nothing, step)
    return [products[r * blocks : (r + 1) * blocks] for r in range(rows)]


IN_FLOATS = (FLOATS, FLOATS, _add_float)
IN_SMALL = (SMALL, INTS, _add_small)
IN_PAIRS = (INTS, FLOATS, _add_pairs)


def _tile(kinds, rows=ROWS):
    """Four stored rows, `rows` at a time, by one to three blocks of query vectors."""

    @intrinsic
    def tile(_context, blocks, stored, steps, tokens, offsets, scales, best):
        """best[t] = max(best[t], scales[r] * (stored[r] . token t - offsets[t])), all given by
        address: stored (4, steps) and tokens (steps, LANES * blocks) in items of four bytes, which
        are a number in single precision, two in bfloat16, or four small integers; scales (4),
        offsets and best (LANES * blocks) in single precision."""

        def generate(context, builder, _signature, arguments):
            for some in range(1, MOST_BLOCKS + 1):
                with builder.if_then(builder.icmp_unsigned("==", arguments[0], _const(some))):
                    _score(builder, some, kinds, rows, *arguments[1:])
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), generate

    return tile


def _score(builder, blocks, kinds, rows, stored, steps, tokens, offsets, scales, best):
    """A tile of `blocks` blocks."""
    products = []
    for first in range(0, ROWS, rows):
        at = builder.add(stored, builder.mul(steps, _const(4 * first)))
        products += _products(builder, rows, blocks, at, steps, tokens, kinds)
    scale = [
        _everywhere(builder, _load(builder, builder.add(scales, _const(4 * r)), FLOAT))
        for r in range(ROWS)
    ]
    for b in range(blocks):
        offset = _load(builder, builder.add(offsets, _const(4 * LANES * b)), FLOATS)
        place = _pointer(builder, builder.add(best, _const(4 * LANES * b)), FLOATS)
        highest = builder.load(place, align=4)
        for r in range(ROWS):
            total = products[r][b]
            if total.type != FLOATS:
                total = builder.sitofp(total, FLOATS)
            score = builder.fmul(builder.fsub(total, offset), scale[r])
            higher = builder.fcmp_ordered(">", score, highest)
            highest = builder.select(higher, score, highest)
        builder.store(highest, place, align=4)


@intrinsic
def multiply_tile(_context, rows, dim, columns, out, stride):
    """out[r, c] = rows[r] . column c, for TILE_ROWS rows (dim,) and TILE_COLUMNS columns (dim,
    TILE_COLUMNS), all given by address; the rows of `out` are `stride` bytes apart."""

    def generate(context, builder, _signature, arguments):
        rows, dim, columns, out, stride = arguments
        products = _products(builder, TILE_ROWS, TILE_BLOCKS, rows, dim, columns, IN_FLOATS)
        for r in range(TILE_ROWS):
            for b in range(TILE_BLOCKS):
                offset = builder.add(builder.mul(stride, _const(r)), _const(4 * LANES * b))
                place = _pointer(builder, builder.add(out, offset), FLOATS)
                builder.store(products[r][b], place, align=4)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), generate


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


split_8, split_4, split_2, split_1 = (_split(bits) for bits in (8, 4, 2, 1))
score_floats, score_pairs = _tile(IN_FLOATS), _tile(IN_PAIRS)
# without VNNI the sums of four rows and what they need do not fit into the registers
score_small = _tile(IN_SMALL, ROWS if ADDS_FOURS else ROWS // 2)
