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
ADDS_FOURS = HAS_AVX512 or (HAS_AVX2 and "+avxvnni" in FEATURES)
SATURATES = HAS_AVX2 and not ADDS_FOURS  # sums of two products stop at 16 bits

ROWS = 4  # of a tile
MOST_BLOCKS = 3  # of a tile: LLVM vectors of query vectors
LANES = 16 if HAS_AVX512 else 8  # query vectors in one LLVM vector
# A tile of a matrix product: its sums, and what they need, fill the registers.
TILE_ROWS, TILE_BLOCKS = (8 if HAS_AVX512 else 6), 2
TILE_COLUMNS = LANES * TILE_BLOCKS
UNIT = 16  # packed rows are filled up to a multiple of so many bytes
ZERO = 128  # the level of a rounded number that is 0
SPLIT = UNIT  # bytes of one row that are split in one step

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
def widen_halves(_context, source, count, target):
    """Write the floats of which `count` upper halves are at an address."""

    def generate(context, builder, _signature, arguments):
        source, count, target = arguments
        wide, one = ir.VectorType(ir.IntType(16), LANES), ir.IntType(16)
        whole = builder.and_(count, _const(-LANES))

        def widen(halves, words, at):
            half_at = builder.add(source, builder.mul(at, _const(2)))
            bits = builder.zext(_load(builder, half_at, halves, align=1), words)
            float_at = builder.add(target, builder.mul(at, _const(4)))
            bits = builder.shl(bits, _const(16, words))
            builder.store(bits, _pointer(builder, float_at, words), align=4)

        with cgutils.for_range_slice(builder, _const(0), whole, _const(LANES)) as (at, _):
            widen(wide, INTS, at)
        with cgutils.for_range_slice(builder, whole, count, _const(1)) as (at, _):
            widen(one, INDEX, at)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 3), generate


@intrinsic
def prefetch(_context, address):
    """Prefetch the memory at an address."""

    def generate(context, builder, _signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), INDEX, INDEX, INDEX])
        bring = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        reading, into_first_cache, data = (_const(value, INDEX) for value in (0, 3, 1))
        place = _pointer(builder, arguments[0], ir.IntType(8))
        builder.call(bring, [place, reading, into_first_cache, data])
        return context.get_dummy_value()

    return types.void(types.intp), generate


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


def add_fours(builder, levels, column, total, exact=False):
    """The same with other levels in each lane. `exact`: no sum may stop at 16 bits."""
    if ADDS_FOURS:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        # the types of LLVM before 22, which later versions still take
        levels, column = (builder.bitcast(bytes_, INTS) for bytes_ in (levels, column))
        return _call(builder, name, INTS, total, levels, column)
    if HAS_AVX2 and not exact:
        pairs = _call(builder, "llvm.x86.avx2.pmadd.ub.sw", PAIRS, levels, column)
        fours = _call(builder, "llvm.x86.avx2.pmadd.wd", INTS, pairs, _const(1, PAIRS))
        return builder.add(total, fours)
    wide = ir.VectorType(ir.IntType(16), SMALL.count)
    products = builder.mul(builder.zext(levels, wide), builder.sext(column, wide))
    products = builder.sext(products, ir.VectorType(INDEX, SMALL.count))
    return builder.add(total, _neighbours(builder, _neighbours(builder, products)))


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


def _products_of_levels(builder, rows, blocks, stored, size, steps, columns):
    """The same for levels as `split_rows` leaves them: all rows' levels of one place in a byte,
    `size` for each row, before those of the next."""
    column_size = 4 * LANES * blocks
    # a sum that waits for the one before would take longer than the units need
    chains = 4 // blocks if HAS_AVX512 and blocks < 3 else 1
    unit, next_place = _const(UNIT), builder.mul(size, _const(ROWS - 1))
    row_at = [builder.add(stored, builder.mul(size, _const(r))) for r in range(rows)]

    def step(i, values):
        offset, left, *sums = values
        for quad in range(UNIT // 4):
            at = builder.add(builder.mul(i, _const(UNIT // 4)), _const(quad))
            columns_at = builder.add(columns, builder.mul(at, _const(column_size)))
            column = [
                _load(builder, builder.add(columns_at, _const(4 * LANES * b)), SMALL)
                for b in range(blocks)
            ]
            for r in range(rows):
                place = builder.add(builder.add(row_at[r], offset), _const(4 * quad))
                four_bytes = _load(builder, place, INDEX, align=1)
                for b in range(blocks):
                    which = (quad % chains * rows + r) * blocks + b
                    sums[which] = _add_small(builder, four_bytes, column[b], sums[which])
        offset, left = builder.add(offset, unit), builder.sub(left, unit)
        ended = builder.icmp_unsigned("==", left, _const(0))
        offset = builder.select(ended, builder.add(offset, next_place), offset)
        return [offset, builder.select(ended, size, left), *sums]

    every = rows * blocks
    nothing = [_const(0, INTS)] * (chains * every)
    turns = builder.udiv(steps, _const(UNIT // 4))
    products = _loop(builder, "products", turns, [_const(0), size, *nothing], step)[2:]
    for chain in range(1, chains):
        others = products[chain * every : (chain + 1) * every]
        products[:every] = map(builder.add, products, others)
    return [products[r * blocks : (r + 1) * blocks] for r in range(rows)]


IN_FLOATS = (FLOATS, FLOATS, _add_float)
IN_SMALL = (SMALL, INTS, _add_small)


@intrinsic
def score_floats(_context, blocks, stored, dim, tokens, offsets, scales, best):
    """best[t] = max(best[t], scales[r] * (stored[r] . token t - offsets[t])), for four rows (dim)
    and one to three blocks of tokens (dim, LANES * blocks); scales (4), offsets and best (LANES *
    blocks). All but blocks and dim are addresses of single precision."""

    def generate(context, builder, _signature, arguments):
        blocks, stored, dim, tokens, *rest = arguments
        for some in range(1, MOST_BLOCKS + 1):
            with builder.if_then(builder.icmp_unsigned("==", blocks, _const(some))):
                products = _products(builder, ROWS, some, stored, dim, tokens, IN_FLOATS)
                _keep_best(builder, products, *rest)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 7), generate


@intrinsic
def score_levels(_context, blocks, stored, size, steps, tokens, offsets, scales, best):
    """The same for four rows of levels, `size` for each place in a byte, and tokens in signed bytes
    (steps, LANES * blocks, 4)."""
    # without VNNI the sums of four rows and what they need do not fit into the registers
    rows = ROWS if ADDS_FOURS else ROWS // 2

    def generate(context, builder, _signature, arguments):
        blocks, stored, size, steps, tokens, *rest = arguments
        for some in range(1, MOST_BLOCKS + 1):
            with builder.if_then(builder.icmp_unsigned("==", blocks, _const(some))):
                products = []
                for first in range(0, ROWS, rows):
                    at = builder.add(stored, builder.mul(size, _const(first)))
                    case = rows, some, at, size, steps, tokens
                    products += _products_of_levels(builder, *case)
                _keep_best(builder, products, *rest)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 8), generate


def _keep_best(builder, products, offsets, scales, best):
    """The end of a tile, from products[r][b] on."""
    scale = [
        _everywhere(builder, _load(builder, builder.add(scales, _const(4 * r)), FLOAT))
        for r in range(len(products))
    ]
    for b in range(len(products[0])):
        offset = _load(builder, builder.add(offsets, _const(4 * LANES * b)), FLOATS)
        place = _pointer(builder, builder.add(best, _const(4 * LANES * b)), FLOATS)
        highest = builder.load(place, align=4)
        for r, row in enumerate(products):
            total = row[b]
            if total.type != FLOATS:
                total = builder.sitofp(total, FLOATS)
            score = builder.fmul(builder.fsub(total, offset), scale[r])
            higher = builder.fcmp_ordered(">", score, highest)
            highest = builder.select(higher, score, highest)
        builder.store(highest, place, align=4)


@intrinsic
def multiply_tile(_context, blocks, rows, dim, columns, out, stride):
    """out[r, c] = rows[r] . column c, for TILE_ROWS rows (dim,) and LANES * blocks columns (dim,
    LANES * blocks), up to TILE_BLOCKS blocks. All but blocks and dim are given by address; the rows
    of `out` are `stride` bytes apart."""

    def generate(context, builder, _signature, arguments):
        blocks, rows, dim, columns, out, stride = arguments
        for some in range(1, TILE_BLOCKS + 1):
            with builder.if_then(builder.icmp_unsigned("==", blocks, _const(some))):
                products = _products(builder, TILE_ROWS, some, rows, dim, columns, IN_FLOATS)
                for r in range(TILE_ROWS):
                    for b in range(some):
                        offset = builder.add(builder.mul(stride, _const(r)), _const(4 * LANES * b))
                        place = _pointer(builder, builder.add(out, offset), FLOATS)
                        builder.store(products[r][b], place, align=4)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), generate
