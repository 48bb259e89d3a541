"""Milliseconds a step of a fit, with a profile, and peak memory.

    python benchmarks/fit.py [--pages 1000] [--vectors 1031] [--dim 128] [--k 4] [--steps 15]
                             [--recipe default]

Uses synthetic pages with the geometry of real ones, and pseudo-queries.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource

import torch
from common import machine, synthetic_pages
from torch.profiler import ProfilerActivity, profile

import glie
from glie.training.recipe import recipe_of


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("pages", 1000), ("vectors", 1031), ("dim", 128), ("k", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--recipe", default="default")
    arguments = parser.parse_args()
    arrays = synthetic_pages(arguments.pages, n=arguments.vectors, dim=arguments.dim)
    pages = glie.Pages(arrays, normalize=True)
    del arrays

    recipe = dataclasses.replace(
        recipe_of(arguments.recipe),
        epochs=None,
        code_steps=arguments.steps,
        steps=arguments.steps,
        measurements=1,
    )

    def run() -> glie.Codec:
        return glie.fit(pages, k=arguments.k, recipe=recipe)

    codec = run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    notes = codec.notes
    print(
        f"{arguments.pages:,} pages of {arguments.vectors:,} x {arguments.dim}, k = {arguments.k}, "
        f"{arguments.recipe} recipe; {machine()}, torch with {torch.get_num_threads()} threads"
    )
    rest = notes["steps"] - notes["code_steps"]
    spent = (
        notes["steps"] * notes["step_seconds"] - notes["code_steps"] * notes["code_step_seconds"]
    )
    if notes["code_steps"]:
        print(f"{1000 * notes['code_step_seconds']:.0f} ms a step of the refiner alone")
    print(
        f"{1000 * spent / rest:.0f} ms a step of the rest; peak memory {peak:.2f} GB, of which "
        f"{pages.vectors.nbytes / 1e9:.2f} GB for the pages"
    )
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run()
    print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=12))


if __name__ == "__main__":
    main()
