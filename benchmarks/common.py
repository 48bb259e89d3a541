"""Shared by the benchmarks: pages to measure on, fair timing on a noisy machine, and the table that
`make bench` makes of all of them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import glie
from glie.kernels.parallel import cores
from glie.pages import Floats

# OpenMP's threads keep a core busy for a while after the contender before has finished.
PAUSE = 0.3


def load_pages(path: Path | None, count: int) -> glie.Pages:
    """Real page vectors from an .npz file with one (n, D) array a page, or synthetic ones."""
    if path is None:
        return glie.Pages(synthetic_pages(count), normalize=True)
    with np.load(path, allow_pickle=False) as file:
        arrays = [file[name] for name in file.files]
    dim = arrays[0].shape[1]
    arrays = [array for array in arrays if array.shape[1] == dim]
    return glie.Pages([arrays[i % len(arrays)] for i in range(count)])


def synthetic_pages(count: int, *, n: int = 1031, dim: int = 128, seed: int = 0) -> list[Floats]:
    """Pages with the geometry of real ones: points of a curved five-dimensional surface, a fifth of
    them close together like the empty margins of a page."""
    rng = np.random.default_rng(seed)
    pages = []
    for _ in range(count):
        frequencies = rng.normal(size=(5, 64)) * 1.2
        mixing = rng.normal(size=(64, dim)) / 8
        latent = rng.normal(size=(n, 5))
        latent[: n // 5] *= 0.05
        surface = np.sin(latent @ frequencies + rng.uniform(0, 6.3, 64)) @ mixing
        surface += rng.normal(size=dim) * 0.5  # shared by all patches of a page
        surface += rng.normal(size=(n, dim)) * 0.02
        pages.append(surface.astype(np.float32))
    return pages


def interleaved(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each contender; they run in turns, so that noise affects all alike. With
    the compiled loops: benchmarks/start.py measures the work before them."""
    import glie.kernels._compiled  # noqa: F401

    for run in contenders.values():
        run()  # compile, load and warm up
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            time.sleep(PAUSE)
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in seconds.items()}


def publish(
    what: str,
    ours: float,
    unit: str = "ms",
    *,
    peer: str = "",
    theirs: float | None = None,
    goal: str = "",
) -> None:
    """Add a row to the table of `make bench` (tools/figures.py): a figure of ours, the same of
    another library, and a goal, such as "6 times" the peer or "4 ms". GLIE_BENCH names the file
    of the rows; without it, this does nothing."""
    row = {"what": what, "ours": ours, "unit": unit, "peer": peer, "theirs": theirs, "goal": goal}
    if file := os.environ.get("GLIE_BENCH"):
        with Path(file).open("a") as rows:
            rows.write(json.dumps(row) + "\n")


def machine() -> str:
    return f"{platform.machine()}, {cores()} cores, Python {platform.python_version()}"
