"""Recall of the candidate index (IVF-PQ) against the exact scan: the trials behind its constants.

    python tools/candidates.py DATASET... [--k 4] [--dtype int2] [--cache DIR]
    python tools/candidates.py DATASET... --bytes-per-page 520

Every set is an index, and all sets together are one more. The table has, over all questions: the
share of the exact top 10 that is found by the codes alone and after reranking, the share of the
pages whose codes are read, and the share whose scores are estimated from PQ codes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

import glie
from glie.cli.shared import encode_sets
from glie.evaluation.datasets import load
from glie.evaluation.encoded import Encoded
from glie.index.index import Batch
from glie.search.results import Hits

TOP = 10
QUESTIONS_AT_ONCE = 64


def batches(sets: Sequence[Encoded]) -> Iterator[Batch]:
    for number, encoded in enumerate(sets):
        for pages in encoded.blocks():
            ids = [f"{number}-{page_id}" for page_id in pages.ids]
            yield Batch(glie.Pages.packed(pages.vectors, pages.offsets, ids))


def asked(index: glie.Index, sets: Sequence[Encoded], shortlist: int | None) -> list[list[Hits]]:
    """Hits of the exact scan, and hits through the candidate index."""
    found: list[list[Hits]] = [[], []]
    for encoded in sets:
        bounds = [*range(0, len(encoded.queries), QUESTIONS_AT_ONCE), len(encoded.queries)]
        for first, last in pairwise(bounds):
            some = encoded.queries.slice(first, last)
            for hits, exact in zip(found, (True, False), strict=True):
                hits += index.search(some, TOP, shortlist=shortlist, exact=exact)
    return found


def agreement(exact: list[Hits], found: list[Hits]) -> float:
    shares = [
        len(set(a.ids) & set(b.ids)) / max(len(a), 1) for a, b in zip(exact, found, strict=True)
    ]
    return float(np.mean(shares))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--dtype", default="int2")
    parser.add_argument("--bytes-per-page", type=int)
    parser.add_argument("--cache", type=Path, help="folder that caches encoded vectors")
    arguments = parser.parse_args()
    sets = encode_sets([load(path) for path in arguments.datasets], None, arguments.cache)
    groups = [[encoded] for encoded in sets] + ([sets] if len(sets) > 1 else [])
    print("| set | pages | questions | top 10 by codes | reranked | codes read | estimated |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for group in groups:
        codec = (
            glie.Codec(k=arguments.k, dtype=arguments.dtype)
            if arguments.bytes_per_page is None
            else glie.Codec(bytes_per_page=arguments.bytes_per_page)
        )
        with tempfile.TemporaryDirectory() as folder:
            index = glie.Index.create(Path(folder) / "set.glie", codec)
            index.add(batches(group))
            by_codes = asked(index, group, 0)
            reranked = asked(index, group, None) if index.codec.regenerates else by_codes
        # a batch shares its cost
        costs = {id(hits.cost): hits.cost for hits in by_codes[1]}.values()
        read = sum(cost.pages_scanned for cost in costs)
        estimated = sum(cost.pages_estimated for cost in costs)
        every = len(index) * len(by_codes[1])
        name = group[0].name if len(group) == 1 else "all together"
        print(
            f"| {name} | {len(index):,} | {len(by_codes[1]):,} | {agreement(*by_codes):.2%} | "
            f"{agreement(*reranked):.2%} | {read / every:.2%} | {estimated / every:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
