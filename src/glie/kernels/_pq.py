"""The compiled loops over PQ codes: encode vectors, fill posting lists, estimate MaxSim."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glie.kernels._compiled import _compile, address
from glie.kernels._tiles import INDEX, WORD, _const, _load, prefetch
from glie.kernels.pq import CODEWORDS, LANES, PARTS

TOGETHER = 1024  # pages that one group of query vectors scores before the next group
AHEAD = 8  # pages between prefetch and use: candidates lie far apart in memory

BYTE, SHORT = ir.IntType(8), ir.IntType(16)
BYTES, SHORTS = ir.VectorType(BYTE, LANES), ir.VectorType(SHORT, LANES)
INTS = ir.VectorType(INDEX, LANES)


@intrinsic
def _page_estimate(_context, list_scores, products, lists, codes, k):
    """The sum over LANES tokens of the highest score of k PQ codes. All arguments but k are
    addresses: list_scores (C, LANES) in int16, products (PARTS, CODEWORDS, LANES) in int8, lists
    (k) in uint16, codes (k, PARTS) in bytes. A PQ code scores as its list does, plus the products
    of its codewords."""

    def generate(_context, builder, _signature, arguments):
        list_scores, products, lists, codes, k = arguments
        before = builder.block
        loop = builder.append_basic_block("slots")
        after = builder.append_basic_block("slots.after")
        builder.branch(loop)

        builder.position_at_end(loop)
        slot = builder.phi(WORD)
        highest = builder.phi(SHORTS)
        list_ = _load(builder, builder.add(lists, builder.mul(slot, _const(2))), SHORT, align=2)
        place = builder.mul(builder.zext(list_, WORD), _const(2 * LANES))
        total = _load(builder, builder.add(list_scores, place), SHORTS, align=2)
        code = builder.add(codes, builder.mul(slot, _const(PARTS)))
        for part in range(PARTS):
            codeword = _load(builder, builder.add(code, _const(part)), BYTE, align=1)
            codeword = builder.add(builder.zext(codeword, WORD), _const(part * CODEWORDS))
            place = builder.add(products, builder.mul(codeword, _const(LANES)))
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


@_compile
def estimates_range(list_scores, products, lists, codes, rows, first, last, out):
    """out[i] for i in first..last: MaxSim of page rows[i], estimated from its PQ codes with
    list_scores (G, C, LANES) and products (G, PARTS, CODEWORDS, LANES). Pages go in blocks of
    TOGETHER, and within a block group by group: the products of a group stay in the cache."""
    groups, count, _ = list_scores.shape
    k = lists.shape[1]
    lists_at, codes_at = address(lists), address(codes)
    for start in range(first, last, TOGETHER):
        end = min(start + TOGETHER, last)
        out[start:end] = 0
        for g in range(groups):
            scores = address(list_scores) + 2 * g * count * LANES
            table = address(products) + g * PARTS * CODEWORDS * LANES
            for i in range(start, end):
                ahead = rows[min(i + AHEAD, last - 1)] * k
                prefetch(lists_at + 2 * ahead)
                prefetch(codes_at + PARTS * ahead)
                at = rows[i] * k
                out[i] += _page_estimate(scores, table, lists_at + 2 * at, codes_at + PARTS * at, k)


@_compile
def pq_encode_range(x, codewords, half, first, last, codes):
    """codes[i, p] = the w with the largest x[i, p] . codewords[p, :, w] - half[p, w], for rows
    first..last."""
    count, width = codewords.shape[2], codewords.shape[1]
    scores = np.empty(count, np.float32)
    for i in range(first, last):
        for p in range(codewords.shape[0]):
            for w in range(count):
                scores[w] = -half[p, w]
            for d in range(width):
                value = x[i, p, d]
                for w in range(count):
                    scores[w] += value * codewords[p, d, w]
            best = 0
            for w in range(1, count):
                if scores[w] > scores[best]:
                    best = w
            codes[i, p] = best


@_compile
def list_pages(lists, starts, pages):
    """Fill `pages` with the pages that have a vector in each list, list by list: list c is at
    starts[c]..starts[c + 1]. On entry, `starts` is zeros."""
    for page in range(lists.shape[0]):
        for slot in range(lists.shape[1]):
            starts[lists[page, slot] + 1] += 1
    for c in range(1, starts.shape[0]):
        starts[c] += starts[c - 1]
    at = starts[:-1].copy()
    for page in range(lists.shape[0]):
        for slot in range(lists.shape[1]):
            list_ = lists[page, slot]
            pages[at[list_]] = page
            at[list_] += 1


@_compile
def mark_pages(starts, pages, picked, marked):
    """Set marked[page] for the pages in the picked lists."""
    for list_ in picked:
        for i in range(starts[list_], starts[list_ + 1]):
            marked[pages[i]] = True
