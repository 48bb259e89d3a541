"""The compiled loops over signatures: vectors assigned to product words, pages listed by cell,
MaxSim estimated."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glie.kernels._compiled import _compile, address
from glie.kernels._tiles import INDEX, WORD, _const, _load, _pointer
from glie.kernels.signatures import LANES, PARTS, WORDS

TOGETHER = 1024  # pages, for which one group of vectors takes its turn
AHEAD = 8  # so many pages before its turn a page is fetched, since candidates lie far apart

BYTE, SHORT = ir.IntType(8), ir.IntType(16)
BYTES, SHORTS = ir.VectorType(BYTE, LANES), ir.VectorType(SHORT, LANES)
INTS = ir.VectorType(INDEX, LANES)


@intrinsic
def _page_estimate(_context, cell_scores, products, cells, codes, k):
    """The sum over LANES tokens of the highest score of k signatures, all but k by address:
    cell_scores (C, LANES) in int16, products (PARTS, WORDS, LANES) in int8, cells (k) in uint16,
    codes (k, PARTS) in bytes. A signature's score is that of its cell and the products of its
    words added up."""

    def generate(_context, builder, _signature, arguments):
        cell_scores, products, cells, codes, k = arguments
        before = builder.block
        loop = builder.append_basic_block("slots")
        after = builder.append_basic_block("slots.after")
        builder.branch(loop)

        builder.position_at_end(loop)
        slot = builder.phi(WORD)
        highest = builder.phi(SHORTS)
        cell = _load(builder, builder.add(cells, builder.mul(slot, _const(2))), SHORT, align=2)
        place = builder.mul(builder.zext(cell, WORD), _const(2 * LANES))
        total = _load(builder, builder.add(cell_scores, place), SHORTS, align=2)
        code = builder.add(codes, builder.mul(slot, _const(PARTS)))
        for part in range(PARTS):
            word = _load(builder, builder.add(code, _const(part)), BYTE, align=1)
            word = builder.add(builder.zext(word, WORD), _const(part * WORDS))
            place = builder.add(products, builder.mul(word, _const(LANES)))
            product = _load(builder, place, BYTES, align=1)
            total = builder.add(total, builder.sext(product, SHORTS))
        higher = builder.icmp_signed(">", total, highest)
        best = builder.select(higher, total, highest)
        following = builder.add(slot, _const(1))
        slot.add_incoming(_const(0), before)
        slot.add_incoming(following, loop)
        highest.add_incoming(_const(-(1 << 15), SHORTS), before)
        highest.add_incoming(best, loop)
        builder.cbranch(builder.icmp_unsigned("<", following, k), loop, after)

        builder.position_at_end(after)
        kind = ir.FunctionType(INDEX, [INTS])
        name = f"llvm.vector.reduce.add.v{LANES}i32"
        add_up = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(add_up, [builder.sext(best, INTS)])

    return types.int32(*[types.intp] * 5), generate


@intrinsic
def _prefetch(_context, address):
    """Have the memory at an address brought near, and go on meanwhile."""

    def generate(context, builder, _signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), INDEX, INDEX, INDEX])
        bring = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        reading, into_first_cache, data = (_const(value, INDEX) for value in (0, 3, 1))
        place = _pointer(builder, arguments[0], BYTE)
        builder.call(bring, [place, reading, into_first_cache, data])
        return context.get_dummy_value()

    return types.void(types.intp), generate


@_compile
def estimates_range(cell_scores, products, cells, codes, rows, first, last, out):
    """out[i] for i in first..last: MaxSim of page rows[i] as its signatures tell it, from
    cell_scores (G, C, LANES) and products (G, PARTS, WORDS, LANES). A group's products stay in the
    cache while some pages pass, and these while the groups take turns."""
    groups, count, _ = cell_scores.shape
    k = cells.shape[1]
    cells_at, codes_at = address(cells), address(codes)
    for start in range(first, last, TOGETHER):
        end = min(start + TOGETHER, last)
        out[start:end] = 0
        for g in range(groups):
            scores = address(cell_scores) + 2 * g * count * LANES
            table = address(products) + g * PARTS * WORDS * LANES
            for i in range(start, end):
                ahead = rows[min(i + AHEAD, last - 1)] * k
                _prefetch(cells_at + 2 * ahead)
                _prefetch(codes_at + PARTS * ahead)
                at = rows[i] * k
                out[i] += _page_estimate(scores, table, cells_at + 2 * at, codes_at + PARTS * at, k)


@_compile
def product_words_range(x, words, half, first, last, codes):
    """codes[i, p] = the word w of the largest x[i, p] . words[p, :, w] - half[p, w], for rows
    first..last."""
    count, width = words.shape[2], words.shape[1]
    scores = np.empty(count, np.float32)
    for i in range(first, last):
        for p in range(words.shape[0]):
            for w in range(count):
                scores[w] = -half[p, w]
            for d in range(width):
                value = x[i, p, d]
                for w in range(count):
                    scores[w] += value * words[p, d, w]
            best = 0
            for w in range(1, count):
                if scores[w] > scores[best]:
                    best = w
            codes[i, p] = best


@_compile
def list_pages(cells, starts, pages):
    """Fill `pages` with the pages that have a vector in each cell, cell by cell: those of cell c
    stand at starts[c]..starts[c + 1], of which starts[1:] comes in as zeros."""
    for page in range(cells.shape[0]):
        for slot in range(cells.shape[1]):
            starts[cells[page, slot] + 1] += 1
    for c in range(1, starts.shape[0]):
        starts[c] += starts[c - 1]
    at = starts[:-1].copy()
    for page in range(cells.shape[0]):
        for slot in range(cells.shape[1]):
            cell = cells[page, slot]
            pages[at[cell]] = page
            at[cell] += 1


@_compile
def mark_pages(starts, pages, picked, marked):
    """Set `marked` for the pages in any of the picked cells."""
    for cell in picked:
        for i in range(starts[cell], starts[cell + 1]):
            marked[pages[i]] = True
