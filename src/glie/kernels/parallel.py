"""Running a compiled loop over ranges of pages in plain threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def over_ranges(run: Callable[[int, int], object], total: int, *, chunk: int) -> None:
    """Call run(first, last) on consecutive ranges of at most `chunk` until all are done.

    The pool lives for one call: no threads linger, and a fork later finds none missing.
    """
    ranges = [(first, min(first + chunk, total)) for first in range(0, total, chunk)]
    workers = min(cores(), len(ranges))
    if workers <= 1:
        for first, last in ranges:
            run(first, last)
        return
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(run, first, last) for first, last in ranges]:
            done.result()
