"""What a new process pays: to import glie, compress a page and search, with and without a cache of
compiled loops.

    python benchmarks/start.py [--pages 1000] [--rounds 5]

Each row is a process of its own: medians of its steps in milliseconds. The loops are compiled, or
loaded from the cache, where the work is worth it: that is the row of many pages.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import load_pages, machine, publish

import glie

STEPS = """
import json, sys, time
began = time.perf_counter()
import glie
steps = {"import": time.perf_counter() - began}
import numpy as np
pages = np.load(sys.argv[1])["pages"][: int(sys.argv[3])]
for name, codec in (("k = 4", glie.Codec(4)), ("520 bytes", glie.Codec(bytes_per_page=520).frozen)):
    began = time.perf_counter()
    codec.compress(glie.Pages(list(pages)))
    steps["compress, " + name] = time.perf_counter() - began
index, question = glie.Index.open(sys.argv[2]), pages[0][:20]
began = time.perf_counter()
index.search([question])
steps["search"] = time.perf_counter() - began
steps["compiled loops"] = "numba" in sys.modules
print(json.dumps(steps))
"""


def steps(cache: str, *arguments: object) -> dict[str, float]:
    """The seconds of each step, in a new process whose compiled loops are in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS, *map(str, arguments)],
        env=os.environ | {"NUMBA_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=1000, help="in the index that is searched")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    some = load_pages(None, 100)
    with tempfile.TemporaryDirectory() as folder:
        file, path = Path(folder) / "pages.npz", Path(folder) / "index"
        np.savez(file, pages=np.stack(list(some)))
        index = glie.Index.create(path, glie.Codec(bytes_per_page=520).frozen)
        for first in range(0, arguments.pages, len(some)):
            count = min(len(some), arguments.pages - first)
            ids = [str(first + i) for i in range(count)]
            index.add(glie.Pages(list(some)[:count], ids=ids))
        print(f"an index of {arguments.pages:,} pages; {machine()}")
        rows: dict[str, dict[str, float]] = {}
        for count in (1, len(some)):
            empty = Path(folder) / f"cache-{count}"
            empty.mkdir()
            title = f"{count} page{'s'[: count > 1]} to compress"
            rows[f"{title}, empty cache"] = steps(str(empty), file, path, count)
            again = [steps(str(empty), file, path, count) for _ in range(arguments.rounds)]
            rows[title] = {
                name: float(np.median([one[name] for one in again])) for name in again[0]
            }
    for title, goal in (
        ("1 page to compress, empty cache", "1000 ms"),
        ("1 page to compress", "300 ms"),
    ):
        row = rows[title]
        seconds = row["import"] + row["compress, 520 bytes"] + row["search"]
        begin = "a new process" + ", nothing compiled" * ("empty" in title)
        what = f"{begin}: import, compress a page, search {arguments.pages:,}"
        publish(what, 1000 * seconds, goal=goal)
    names = list(next(iter(rows.values())))
    print("| process |", " | ".join(names), "|")
    print("| --- " * (len(names) + 1) + "|")
    for title, row in rows.items():
        shown = [f"{1000 * row[name]:,.0f}" for name in names[:-1]]
        print(f"| {title} | {' | '.join(shown)} | {'yes' if row[names[-1]] else 'no'} |")


if __name__ == "__main__":
    main()
