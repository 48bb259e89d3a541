"""How far the scan is from what memory and the product units allow.

    python benchmarks/limits.py [--pages 100000] [--k 4] [--rounds 9]

First what the machine gives: bytes read a second, and products a second in registers, of each type
that the scan multiplies. Then milliseconds of a scan of random codes with 20 query vectors, of
numpy, and, where it is installed, of NumKong's products of the same rows, without a maximum. On one
thread and on all cores; within each, all take turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from common import interleaved, machine

import glie.kernels._tiles
from glie.kernels import parallel
from glie.kernels.coarse import coarse_maxsim, is_worthwhile
from glie.kernels.maxsim import maxsim
from glie.kernels.quantize import DTYPES, Packed
from glie.pages import Floats

_tiles: Any = glie.kernels._tiles

DIM, TOKENS = 128, 20
STEPS = 500_000  # of the loop that only multiplies
BYTES = 200_000_000  # read to measure memory
ROWS_PER_BLOCK = 2048  # of NumKong's products
CHAINS = 12  # of products at once: enough to hide how long one takes
# What adds products, and how many of them in a lane. Coarse scans are in int8, of bfloat16 too.
UNITS = {
    "float32": (_tiles.IN_FLOATS, 1),
    "int8": (_tiles.IN_SMALL, 4),
}


def in_registers(kinds: Any) -> Callable[[], object]:
    """STEPS steps of CHAINS products each, which read no memory, in every thread."""
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def products(_context: Any, count: Any, number: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            count, number = arguments
            column_kind, sum_kind, add = kinds
            lanes = _tiles._everywhere(builder, number)
            column = builder.bitcast(lanes, column_kind)
            # every chain begins elsewhere, or the compiler would keep one of them
            begins = [
                builder.add(lanes, ir.Constant(_tiles.INTS, [chain] * _tiles.LANES))
                for chain in range(CHAINS)
            ]
            sums = _tiles._loop(
                builder,
                "chains",
                count,
                [builder.bitcast(begin, sum_kind) for begin in begins],
                lambda _, sums: [add(builder, number, column, total) for total in sums],
            )
            mixed = builder.bitcast(sums[0], _tiles.INTS)
            for total in sums[1:]:
                mixed = builder.xor(mixed, builder.bitcast(total, _tiles.INTS))
            return builder.extract_element(mixed, ir.Constant(_tiles.INDEX, 0))

        return types.int32(types.intp, types.int32), generate

    @njit(nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
    def run(count: int, number: int) -> Any:
        return products(count, number)

    def one(_first: int, _last: int) -> None:
        run(STEPS, np.int32(0x01010101))

    return lambda: parallel.over_ranges(one, parallel.cores(), chunk=1)


def with_numkong(name: str, rows: Any, query: Any, product: str) -> Callable[[], object]:
    """All products of rows and query vectors, a block of the cache at a time; no maximum."""
    import numkong

    def tensor(array: Any) -> Any:
        return numkong.from_pointer(array.ctypes.data, array.shape, name, owner=array)

    packed = numkong.dots_pack(tensor(query))

    def some(first: int, last: int) -> None:
        block = numkong.zeros((ROWS_PER_BLOCK, len(query)), dtype=product)
        for at in range(first, last, ROWS_PER_BLOCK):
            these = rows[at : at + ROWS_PER_BLOCK]
            out = block if len(these) == ROWS_PER_BLOCK else None
            numkong.dots_packed(tensor(these), packed, out=out)

    return lambda: parallel.over_ranges(some, len(rows), chunk=16 * ROWS_PER_BLOCK)


def scans(rows: Floats, query: Floats, pages: int, k: int) -> dict[str, Callable[[], object]]:
    starts = np.arange(0, pages * k, k)
    case = (starts, starts + k)
    offsets = np.array([0, len(query)])
    flat = rows.T
    runs: dict[str, Callable[[], object]] = {
        "numpy": lambda: (query @ flat).reshape(len(query), pages, k).max(2).sum(0),
        "scan, float32": partial(maxsim, query, offsets, rows, *case),
    }
    for dtype in DTYPES:
        stored = Packed.of(rows, dtype)
        runs[f"scan, {dtype}, exact"] = partial(maxsim, query, offsets, stored, *case)
        if is_worthwhile(stored):
            runs[f"scan, {dtype}, coarse"] = partial(coarse_maxsim, query, offsets, stored, *case)
    if importlib.util.find_spec("numkong"):

        def small(numbers: Floats) -> Any:
            return np.rint(numbers * 400).clip(-127, 127).astype(np.int8)

        def halves(numbers: Floats) -> Any:
            return Packed.of(numbers, "bf16").rows.view(np.uint16)

        runs["numkong's products, int8"] = with_numkong("int8", small(rows), small(query), "int32")
        runs["numkong's products, bf16"] = with_numkong(
            "bfloat16", halves(rows), halves(query), "float32"
        )
        runs["numkong's products, float32"] = with_numkong("float32", rows, query, "float64")
    else:
        print("numkong is not installed (pip install 'glie[bench]') and left out", file=sys.stderr)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    count = arguments.pages * arguments.k
    rows = rng.standard_normal((count, DIM), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query = rows[rng.choice(count, TOKENS)] + 0
    much = np.ones(BYTES // 8, np.int64)

    def read() -> None:
        part = len(much) // parallel.cores()
        parallel.over_ranges(lambda first, last: much[first:last].sum(), len(much), chunk=part)

    runs = {
        "read": read,
        **{unit: in_registers(kinds) for unit, (kinds, _) in UNITS.items()},
        **scans(rows, query, arguments.pages, arguments.k),
    }
    taken = {}
    for threads in sorted({1, parallel.cores()}):
        with mock.patch.object(parallel, "cores", lambda threads=threads: threads):
            taken[threads] = interleaved(runs, arguments.rounds)
    print(f"{arguments.pages:,} pages, k = {arguments.k}, D = {DIM}, {TOKENS} vectors; {machine()}")
    head = [f"{threads} thread{'s' * (threads > 1)}" for threads in taken]
    print("| | " + " | ".join(head) + " |\n| --- |" + " --- |" * len(taken))
    for name in runs:
        cells = []
        for threads, seconds in taken.items():
            if name == "read":
                cells.append(f"{BYTES / seconds[name] / 1e9:.1f} GB/s")
            elif name in UNITS:
                products = threads * STEPS * CHAINS * _tiles.LANES * UNITS[name][1]
                cells.append(f"{products / seconds[name] / 1e9:.0f} billion products/s")
            else:
                cells.append(f"{seconds[name] * 1000:.1f} ms")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
