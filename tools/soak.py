"""A long run of searches, additions, deletions and compactions.

    python tools/soak.py [--seconds 3600] [--seed 0]

Memory and open files must stay flat. At regular intervals the index must give exactly the answers
of a new index of the same pages. A line of progress is printed every minute.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.faults import Change, K, Model, Page, changes

import glie

MOST_PAGES = 200
CHANGES_A_ROUND = 40
WARM_UP = 4  # rounds, after which everything is loaded and compiled
MOST_GROWTH = 48 << 20  # bytes of memory: the allocator's reserve varies by some megabytes
QUERIES = [Page(seed, False).vectors for seed in range(201, 209)]
WORDS = [f"tide w{number}" for number in range(len(QUERIES))]


class Use(NamedTuple):
    """Memory and open files of the process."""

    memory: int
    files: int

    @classmethod
    def now(cls) -> Use:
        resident = int(Path("/proc/self/statm").read_text().split()[1])
        files = sum(1 for _ in Path("/proc/self/fd").iterdir())
        return cls(resident * resource.getpagesize(), files)


class Soaked(NamedTuple):
    """The result of a run."""

    rounds: int
    changes: int
    searches: int
    compared: int  # answers compared with those of a new index
    first: Use  # after the warm-up
    last: Use
    seconds: float

    def check(self) -> None:
        assert self.last.files <= self.first.files, f"open files: {self.first} {self.last}"
        growth = self.last.memory - self.first.memory
        assert growth <= MOST_GROWTH, f"memory: {self.first} {self.last}"

    def __str__(self) -> str:
        before, after = self.first.memory / 2**20, self.last.memory / 2**20
        return (
            f"{self.seconds:,.0f} s, {self.changes:,} changes, {self.searches:,} searches, "
            f"{self.compared:,} answers compared with a new index; memory {before:,.0f} MiB "
            f"after the warm-up, {after:,.0f} now; open files {self.first.files}, "
            f"{self.last.files} now"
        )


def soak(
    folder: Path, seconds: float, seed: int, progress: Callable[[str], None] = lambda said: None
) -> Soaked:
    """Run for so many seconds, and at least two rounds after the warm-up."""
    index, model = glie.Index.create(folder / "long.glie", glie.Codec(k=K)), Model()
    began = said = time.monotonic()
    rounds = changed = searched = compared = 0
    first = Use.now()
    while rounds < WARM_UP + 2 or time.monotonic() - began < seconds:
        sequence = changes(seed + rounds, model)
        for _ in range(CHANGES_A_ROUND):
            change = next(sequence)
            if change.verb == "shrink":
                continue
            change.make(index)
            model = change.model(model)
            index.search(QUERIES[:2], top=5, text=WORDS[:2])
            changed, searched = changed + 1, searched + 2
        if len(model) > MOST_PAGES:
            Change("delete", gone=tuple(list(model)[: MOST_PAGES // 2])).make(index)
            model = dict(list(model.items())[MOST_PAGES // 2 :])
        compared += compare(folder / f"fresh-{rounds}.glie", index, model)
        index = glie.Index.open(index.path) if rounds % 3 == 0 else index
        rounds += 1
        if rounds == WARM_UP:
            first = compacted(index)
        if time.monotonic() - said > 60:
            said = time.monotonic()
            now = Soaked(rounds, changed, searched, compared, first, Use.now(), said - began)
            progress(str(now))
    index.verify()
    last = compacted(index)
    return Soaked(rounds, changed, searched, compared, first, last, time.monotonic() - began)


def compacted(index: glie.Index) -> Use:
    """Compact the index, then measure: the number of open segments varies otherwise."""
    index.compact()
    return Use.now()


def compare(path: Path, index: glie.Index, model: Model) -> int:
    """Compare all answers with those of a new index; returns their number."""
    fresh = glie.Index.create(path, glie.Codec(k=K))
    Change("add", model).make(fresh)
    for one, other in zip(
        index.search(QUERIES, top=len(model)), fresh.search(QUERIES, top=len(model)), strict=True
    ):
        assert (one.ids, one.scores, one.metadata) == (other.ids, other.scores, other.metadata)
    for mode in ("lexical", "hybrid"):
        for one, other in zip(
            *(i.search(QUERIES, top=9, text=WORDS, mode=mode) for i in (index, fresh)), strict=True
        ):
            assert (one.ids, one.scores) == (other.ids, other.scores), mode
    assert [index.image(name) for name in model] == [page.picture for page in model.values()]
    for file in sorted(path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    path.rmdir()
    return len(QUERIES)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = soak(
            Path(folder), arguments.seconds, arguments.seed, lambda said: print(said, flush=True)
        )
    print(done)
    done.check()
    print("flat")


if __name__ == "__main__":
    main()
