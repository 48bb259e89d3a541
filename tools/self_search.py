"""Check that pages find themselves: a test on real page vectors that come without questions.

    python tools/self_search.py PAGES.npz [--k 1,2,4,8,16,32,64] [--vectors 20]

PAGES.npz holds one (n, D) array a page. The query of a page is a random sample of its vectors.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import glie


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", type=Path)
    parser.add_argument("--k", default="1,2,4,8,16,32,64")
    parser.add_argument("--vectors", type=int, default=20)
    arguments = parser.parse_args()
    with np.load(arguments.pages, allow_pickle=False) as file:
        pages = glie.Pages([file[name] for name in file.files], ids=file.files)
    rng = np.random.default_rng(0)
    count = arguments.vectors
    queries = [page[rng.choice(len(page), count, replace=False)] for page in pages]
    print("| k | bytes a page | find themselves |\n| --- | --- | --- |")
    for k in map(int, arguments.k.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            index = glie.Index.create(Path(folder) / "pages.glie", glie.Codec(k=k))
            index.add(pages)
            hits = index.search(queries, top=1)
            found = sum(h.ids == [name] for h, name in zip(hits, pages.ids, strict=True))
            print(f"| {k} | {index.info().code_bytes_per_page:,} | {found} of {len(pages)} |")


if __name__ == "__main__":
    main()
