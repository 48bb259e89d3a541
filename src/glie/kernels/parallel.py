"""Run a compiled loop over ranges of pages, in threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def over_ranges(
    run: Callable[[int, int], object], total: int, *, chunk: int, threads: int | None = None
) -> None:
    """Call run(first, last) for consecutive ranges of at most `chunk`, up to `total`, in as many
    threads as there are cores, or in `threads`.

    The calling thread works too, so that small work does not wait for another thread to start. The
    pool lives for one call: no thread is left that a later fork would lose.
    """
    ranges = [(first, min(first + chunk, total)) for first in range(0, total, chunk)]
    ahead = iter(ranges)

    def work() -> None:
        for first, last in ahead:  # the threads share the iterator
            run(first, last)

    others = min(cores() if threads is None else threads, len(ranges)) - 1
    if others <= 0:
        work()
        return
    with ThreadPoolExecutor(others) as pool:
        working = [pool.submit(work) for _ in range(others)]
        work()
        for done in working:
            done.result()
