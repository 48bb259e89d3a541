"""The compiled loops over signatures: vectors assigned to product words, pages listed by cell,
MaxSim estimated."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glie.kernels._compiled import _compile
from glie.kernels._tiles import FLOATS, LANES, WORD, _const, _load, _pointer

PARTS = 8
WORDS = 256


def _estimate(blocks):
    """One stored vector by `blocks` blocks of query vectors."""

    @intrinsic
    def estimate(_context, cell, products, code, best):
        """best[t] = max(best[t], cell[t] + the sum over parts p of products[p, code[p], t]), all
        given by address: cell and best (8 * blocks), products (PARTS, WORDS, 8 * blocks), in
        float32, code (PARTS) in bytes."""

        def generate(context, builder, _signature, arguments):
            cell, products, code, best = arguments
            size = 4 * LANES
            offsets = [_const(size * b) for b in range(blocks)]
            sums = [_load(builder, builder.add(cell, offset), FLOATS) for offset in offsets]
            for part in range(PARTS):
                word = _load(builder, builder.add(code, _const(part)), ir.IntType(8), align=1)
                word = builder.add(builder.zext(word, WORD), _const(part * WORDS))
                place = builder.add(products, builder.mul(word, _const(size * blocks)))
                sums = [
                    builder.fadd(total, _load(builder, builder.add(place, offset), FLOATS))
                    for total, offset in zip(sums, offsets, strict=True)
                ]
            for total, offset in zip(sums, offsets, strict=True):
                place = _pointer(builder, builder.add(best, offset), FLOATS)
                highest = builder.load(place, align=4)
                higher = builder.fcmp_ordered(">", total, highest)
                builder.store(builder.select(higher, total, highest), place, align=4)
            return context.get_dummy_value()

        return types.void(*[types.uintp] * 4), generate

    return estimate


estimate_1, estimate_2, estimate_3 = _estimate(1), _estimate(2), _estimate(3)


@_compile
def estimates_range(cell_scores, products, cells, codes, rows, tokens, first, last, out):
    """out[i] for i in first..last: MaxSim of page rows[i] as its signatures tell it.

    cell_scores (G, C, lanes) and products (G, PARTS, WORDS, lanes): token g * lanes + l is lane l
    of group g.
    """
    groups, count, lanes = cell_scores.shape
    k = cells.shape[1]
    best = np.empty(groups * lanes, np.float32)
    for i in range(first, last):
        best[:] = -np.inf
        page = rows[i]
        for g in range(groups):
            scores = cell_scores.ctypes.data + 4 * g * count * lanes
            table = products.ctypes.data + 4 * g * PARTS * WORDS * lanes
            place = best.ctypes.data + 4 * g * lanes
            for slot in range(k):
                cell = scores + 4 * np.int64(cells[page, slot]) * lanes
                code = codes.ctypes.data + (page * k + slot) * PARTS
                if lanes == 3 * LANES:
                    estimate_3(cell, table, code, place)
                elif lanes == 2 * LANES:
                    estimate_2(cell, table, code, place)
                else:
                    estimate_1(cell, table, code, place)
        total = np.float32(0)
        for t in range(tokens):
            total += best[t]
        out[i] = total


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
