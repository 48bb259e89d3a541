"""What codes keep of an encoder that glie does not know, with real question vectors.

    python tools/kept.py FILE.npz [--bytes-per-page 130,260,520,1040,2080] [--halves]

FILE.npz holds `pages` (all vectors, end to end), `lengths` (vectors of each page) and `queries`
(an (m, D) array a question, stacked). The table has the share of the exact ten best pages that a
search of the codes finds: of the family that an index takes by itself, of each family alone, and of
Ward clusters in 1 bit a number. Tables are fitted on the same pages and count in the bytes; with
--halves they are fitted on the other half of the pages, and do not. Every page is reconstructed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import glie
from glie.codec.adapt import drawn, every
from glie.codec.choose import FAMILIES, Chosen, chosen_for
from glie.errors import InputError
from glie.evaluation.baselines import ward_1bit, ward_1bit_bytes
from glie.index.memory import CodesInMemory
from glie.kernels.maxsim import maxsim
from glie.kernels.top_k import top_k

TOP = 10
WARD = "Ward, 1 bit"


def best(queries: glie.Queries, pages: glie.Pages) -> list[set[int]]:
    rows = pages.offsets[:-1], pages.offsets[1:]
    scores = maxsim(queries.vectors, queries.offsets, pages.vectors, *rows)
    return [set(top_k(row, TOP).tolist()) for row in scores]


def share(queries: glie.Queries, pages: glie.Pages, codes: glie.Pages) -> float:
    pairs = zip(best(queries, pages), best(queries, codes), strict=True)
    return float(np.mean([len(one & two) / len(one) for one, two in pairs]))


def coded(chosen: Chosen, pages: glie.Pages) -> tuple[glie.Pages, float]:
    """The pages as a code keeps them, and the bytes that it takes for each, without its table."""
    codec = glie.Codec.from_config(*chosen)
    codes = codec.compress(pages)
    return codec.regenerate(codes), CodesInMemory([codes]).bytes_per_page


def table_bytes(chosen: Chosen) -> int:
    return sum(map(len, chosen[1].to_files()[1].values()))


def ward(pages: glie.Pages, budget: int) -> tuple[glie.Pages, float]:
    codes = ward_1bit(pages, budget)
    kept = [rows[used > 0] for rows, used in zip(codes.vectors, codes.counts, strict=True)]
    return glie.Pages(kept), ward_1bit_bytes(codes) / len(pages)


def cell(
    name: str, parts: list[tuple[glie.Pages, glie.Pages]], queries: glie.Queries, budget: int
) -> str:
    """What a family keeps, or the one that an index takes (no name): the mean over pairs of pages
    that tables are fitted on and others that are measured."""
    shares, sizes, labels = [], [], set()
    for fitted, tested in parts:
        more = fitted is not tested  # the table does not count
        try:
            if name == WARD:
                kept, size = ward(tested, budget)
            else:
                sample = drawn(fitted)
                chosen = (
                    FAMILIES[name](sample, budget, more)
                    if name
                    else chosen_for(sample, budget, more=more)
                )
                kept, size = coded(chosen, tested)
                size += 0 if more else table_bytes(chosen) / len(tested)
                labels.add(chosen[1].label or "anchors")
        except InputError:  # not for so few bytes
            return ""
        shares.append(share(queries, tested, kept))
        sizes.append(size)
    what = "" if name else ", " + " / ".join(sorted(labels))
    return f"{np.mean(shares):.1%} ({np.mean(sizes):,.0f}{what})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--bytes-per-page", default="130,260,520,1040,2080")
    parser.add_argument("--halves", action="store_true", help="fit tables on the other half")
    arguments = parser.parse_args()
    with np.load(arguments.file, allow_pickle=False) as file:
        ends = np.cumsum(file["lengths"])
        arrays = np.split(file["pages"].astype(np.float32), ends[:-1])
        queries = glie.Queries(list(file["queries"].astype(np.float32)), normalize=True)
    pages = glie.Pages(arrays, normalize=True)
    parts = [(pages, pages)]
    if arguments.halves:
        one, two = every(pages, 2, 0), every(pages, 2, 1)
        parts = [(one, two), (two, one)]
    columns = "", *FAMILIES, WARD
    print("| bytes a page | an index's choice |", " | ".join(columns[1:]), "|")
    print("| --- " * (len(columns) + 1) + "|")
    for budget in map(int, arguments.bytes_per_page.split(",")):
        cells = [cell(name, parts, queries, budget) for name in columns]
        print(f"| {budget:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
