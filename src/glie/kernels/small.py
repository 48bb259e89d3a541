"""Small work runs in numpy: to load the compiled loops, or even compile them, takes longer.

This is the only place that chooses. Both ways compute the same, up to the rounding of float32, so
pages whose scores differ by less may change places. Pages with equal vectors have equal scores
either way, and keep their order.
"""

from __future__ import annotations

import functools
import sys

from glie.kernels.loop_cache import some_are_kept

# Products of two numbers that a process computes in numpy, half a second to a second of work.
MOST_PRODUCTS = 2_000_000_000
# The same where loops were never compiled on this machine, which takes ten seconds.
BEFORE_COMPILING = 4 * MOST_PRODUCTS

# About what compressing a page of 400 vectors takes: pages of documents have 100 to 1,000.
PRODUCTS_A_PAGE = 200_000_000
COMPILING_SECONDS = 15.0  # on two cores of a laptop

_LOOPS = "glie.kernels._compiled"  # every other file of loops imports it
_done = 0


def is_small(products: int) -> bool:
    """Whether work of so many products, after all that this process has done in numpy, still takes
    less time than loading the loops, or compiling them. Once they are loaded, nothing is small."""
    if _LOOPS in sys.modules:
        return False
    work = _done + products
    return work <= MOST_PRODUCTS or (work <= BEFORE_COMPILING and not _are_kept())


def compiling_ahead(pages: int) -> bool:
    """Whether compressing so many pages will probably compile the loops, as it does once on a
    machine."""
    return (
        _LOOPS not in sys.modules and pages * PRODUCTS_A_PAGE > BEFORE_COMPILING and not _are_kept()
    )


@functools.cache
def _are_kept() -> bool:
    return some_are_kept("_compiled")


def in_numpy(products: int) -> bool:
    """`is_small`, for work that is done now."""
    global _done
    small = is_small(products)
    _done += products if small else 0
    return small
