"""Filters and small changes at scale.

    python benchmarks/filters.py [--pages 200000] [--rounds 5]

An index of made-up pages is built: one vector a page, and metadata like that of documents. Each
filter is new to the index: it is opened again before, and the time is that of finding the pages
from the columns; once, for comparison, from the records, as in an index without columns. Filters
run in one thread: theirs is CPU time, which other processes disturb less. Then changes by an index
that was just opened, by the clock. Times are medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, publish

import glie
from glie.filters import parse
from glie.index.adding import Batch

DIM = 32
STEP = 5000  # pages a batch
PAGES_A_DOCUMENT = 20
LANGUAGES = ("en", "de", "fr", "ja")
FILTERS = (
    "year >= 2020",
    'lang = "de"',
    "document = 'reports/00777.pdf'",
    "document ^= 'reports/001'",
    "date < 2021-06-01 and lang in (en, fr)",
    "page = 3",
    "price > 99.5",
    "missing exists",
)


def batches(pages: int) -> Iterator[Batch]:
    rng = np.random.default_rng(0)
    for at in range(0, pages, STEP):
        numbers = range(at, min(at + STEP, pages))
        rows = rng.normal(size=(len(numbers), 1, DIM)).astype(np.float32)
        yield Batch(
            glie.Pages(list(rows), [name_of(n) for n in numbers], normalize=True),
            [metadata_of(n) for n in numbers],
        )


def name_of(page: int) -> str:
    return f"{document_of(page)}#{page % PAGES_A_DOCUMENT + 1}"


def document_of(page: int) -> str:
    return f"reports/{page // PAGES_A_DOCUMENT:05}.pdf"


def metadata_of(page: int) -> dict[str, Any]:
    document = page // PAGES_A_DOCUMENT
    return {
        "document": document_of(page),
        "page": page % PAGES_A_DOCUMENT + 1,
        "year": 2000 + document * 7919 % 25,
        "lang": LANGUAGES[document * 31 % len(LANGUAGES)],
        "date": f"20{document % 25:02}-{document % 12 + 1:02}-{document % 28 + 1:02}",
        "price": round(document * 0.37 % 100, 2),
    }


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def new_filter(path: Path, text: str, *, columns: bool) -> tuple[float, int]:
    """Milliseconds to find the pages of a filter in an index that was just opened, and how many
    they are."""
    state = glie.Index.open(path)._state
    if not columns:
        state.columns = [None] * len(state.segments)
    where = parse(text)
    began = time.process_time()
    found = state.allowed(None, where)
    seconds = time.process_time() - began
    assert found is not None
    return 1000 * seconds, int(found.sum())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    pages = arguments.pages
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made.glie")
        index = glie.Index.create(path, glie.Codec(k=1, dtype="int8"))
        seconds = timed(lambda: index.add(batches(pages)))
        info = index.info()
        print(
            f"{machine()}; {info.pages:,} pages in {info.segments} segments, built in "
            f"{seconds:.0f} s; {info.bytes / pages:.0f} bytes a page, columns "
            f"{info.column_bytes / pages:.1f}"
        )
        slow, expected = new_filter(path, FILTERS[0], columns=False)
        assert new_filter(path, FILTERS[0], columns=True)[1] == expected
        print(f"\na filter from the records: {slow:,.0f} ms")
        print("\n| new filter | pages | ms | records / columns |")
        print("| --- | --- | --- | --- |")
        for text in FILTERS:
            quick = [new_filter(path, text, columns=True) for _ in range(arguments.rounds)]
            middle, found = statistics.median(ms for ms, _ in quick), quick[0][1]
            if text in (FILTERS[0], FILTERS[2]):
                new = f"a new filter over {pages:,} pages: {text}"
                publish(new, middle, peer="reading records", theirs=slow, goal="20 ms")
            print(f"| {text} | {found:,} | {middle:.1f} | {slow / middle:,.0f} |")
        print("\n| change | ms |")
        print("| --- | --- |")
        for name, times in changes(path, pages, arguments.rounds).items():
            middle = 1000 * statistics.median(times)
            publish(f"{name}, {pages:,} pages", middle, goal="100 ms")
            print(f"| {name} | {middle:.0f} |")


def open_writer(path: Path) -> None:
    """Open an index, take its lock and look up an id, as an addition does."""
    index = glie.Index.open(path)
    with index.writing():
        assert "no such page" not in index


def changes(path: Path, pages: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of small changes."""
    found: dict[str, list[float]] = {}
    vectors = [np.eye(1, DIM, dtype=np.float32)]
    reader = glie.Index.open(path)
    for turn in range(rounds):
        document = document_of(turn * 1000 % pages)
        ids = [f"{document}#{n + 1}" for n in range(PAGES_A_DOCUMENT)]
        writer = glie.Index.open(path)
        new = glie.Pages(vectors, [f"new#{turn}"])
        steps: dict[str, Callable[[], object]] = {
            "open a writer": partial(open_writer, path),
            "add a page": partial(writer.add, new, [{"page": 1}]),
            "refresh a reader": reader.refresh,
            "delete a document": partial(writer.delete, ids),
        }
        for name, step in steps.items():
            found.setdefault(name, []).append(timed(step))
    return found


if __name__ == "__main__":
    main()
