"""Small work runs in numpy: to load the compiled loops, or even compile them, takes longer.

This is the only place that chooses. Both ways compute the same, up to the rounding of float32, so
pages whose scores differ by less may change places. Pages with equal vectors have equal scores
either way, and keep their order.
"""

from __future__ import annotations

import sys

# Products of two numbers that a process computes in numpy, half a second to a second of work.
MOST_PRODUCTS = 2_000_000_000

_LOOPS = "glie.kernels._compiled"  # every other file of loops imports it
_done = 0


def is_small(products: int) -> bool:
    """Whether work of so many products, after all that this process has done in numpy, still takes
    less time than loading the loops. Once they are loaded, nothing is small."""
    return _LOOPS not in sys.modules and _done + products <= MOST_PRODUCTS


def in_numpy(products: int) -> bool:
    """`is_small`, for work that is done now."""
    global _done
    small = is_small(products)
    _done += products if small else 0
    return small
