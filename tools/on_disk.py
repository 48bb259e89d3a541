"""Bytes a page on disk: everything in the folder of an index, divided by its pages.

    python tools/on_disk.py DATASET... [--bytes-per-page 260,520] [--cache DIR]

Each set is stored by `Codec(bytes_per_page=...)`, with the shipped codebook and with one fitted on
its own pages ("adapted"). Sizes are measured, and projected to 10,000 and 1,000,000 pages: files
that are stored once are counted once, and from 200,000 pages on the PQ codes of the candidate index
are added.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from glie.candidates.build import CANDIDATE_PAGES
from glie.cli.shared import encode_sets
from glie.codec.codec import Codec
from glie.evaluation.datasets import load
from glie.evaluation.encoded import Encoded
from glie.index.index import Index, IndexInfo
from glie.kernels.pq import PARTS

SIZES = 10_000, 1_000_000


def stored(encoded: Encoded, codec: Codec) -> IndexInfo:
    """Facts of an index of the set, which is made in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        index = Index.create(Path(folder) / "index", codec, encoder=encoded.encoder)
        index.add(encoded.pages())
        return index.info()


def projected(info: IndexInfo, pages: int) -> float:
    """Bytes a page if there were so many pages."""
    pq_codes = info.k * (2 + PARTS) if pages >= CANDIDATE_PAGES else 0
    return info.lean_bytes / info.pages + info.codec_bytes / pages + pq_codes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--bytes-per-page", default="260,520,1040,2080,4160")
    parser.add_argument("--cache", type=Path, help="folder that caches encoded vectors")
    arguments = parser.parse_args()
    sets = encode_sets([load(path) for path in arguments.datasets], None, arguments.cache)
    print("| set | budget | codebook | bytes a page | at 10,000 pages | at 1,000,000 |")
    print("| --- " * 6 + "|")
    for encoded in sets:
        for budget in map(int, arguments.bytes_per_page.split(",")):
            for adapt in (False, True):
                codec = Codec(bytes_per_page=budget, adapt=adapt)
                info = stored(encoded, codec)
                there = " | ".join(f"{projected(info, pages):,.0f}" for pages in SIZES)
                kind = "adapted" if adapt else "shipped"
                size = (info.lean_bytes + info.codec_bytes) / info.pages
                print(
                    f"| {encoded.name} | {budget:,} | {kind} | {size:,.0f} | {there} |", flush=True
                )


if __name__ == "__main__":
    main()
