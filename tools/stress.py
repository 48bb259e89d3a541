"""One writer and many concurrent readers, in threads and processes; every answer is checked.

    python tools/stress.py [--seconds 60] [--seed 0]

The writer adds, replaces, deletes and compacts. Readers refresh or reopen their own index, or share
that of the writer. They search by meaning and by words. Every answer must be that of one commit:
the ids, metadata and scores that a plain model has for it.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.lexical.plain import plain_bm25
from tools.faults import Change, K, Model, Page, changes

import glie
from glie.kernels.quantize import Packed

MOST_PAGES = 40
FEWEST = 5  # changes, and answers of each reader, however short the run
QUERIES = [Page(seed, False).vectors for seed in (101, 102, 103)]
WORDS = ["tide", "w2 tide w5"]  # asked in their words alone, numbered behind the queries
ASKED = len(QUERIES) + len(WORDS)


class Answer(NamedTuple):
    """The answer to one search of a reader."""

    generation: int | None  # of the commit; None: any, if another thread commits meanwhile
    query: int
    ids: list[str]
    scores: list[float]
    seeds: list[int]


def ask(index: glie.Index, query: int, generation: int | None) -> Answer:
    if query < len(QUERIES):
        hits = index.search([QUERIES[query]], top=2 * MOST_PAGES)[0]
    else:
        text = [WORDS[query - len(QUERIES)]]
        try:
            hits = index.search(None, top=2 * MOST_PAGES, text=text, mode="lexical")[0]
        except glie.InputError:  # no page has text
            return Answer(generation, query, [], [], [])
    return Answer(generation, query, hits.ids, hits.scores, [m["seed"] for m in hits.metadata])


def answers(path: Path, seconds: float, seed: int) -> Iterator[Answer]:
    """Answers to a reader with its own index, for so many seconds."""
    rng, index = np.random.default_rng(seed), glie.Index.open(path)
    end, given = time.monotonic() + seconds, 0
    while time.monotonic() < end or given < FEWEST:
        given += 1
        if rng.integers(3) == 0:
            index = glie.Index.open(path)
        elif rng.integers(2):
            index.refresh()
        yield ask(index, int(rng.integers(ASKED)), index._state.manifest.generation)


class Commits:
    """The states that were committed, and the answers that each must give."""

    def __init__(self) -> None:
        self.models: dict[int, Model] = {}

    @functools.cache  # noqa: B019 (one object a run)
    def expected(self, generation: int, query: int) -> dict[str, float]:
        model = self.models[generation]
        if not model:
            return {}
        if query >= len(QUERIES):
            texts = [page.text for page in model.values()]
            found, most = plain_bm25(texts, WORDS[query - len(QUERIES)])
            return {name: score / most for name, score in zip(model, found, strict=True) if score}
        codes = glie.Codec(k=K).compress(glie.Pages([page.vectors for page in model.values()]))
        scores = {}
        for name, vectors, counts in zip(model, codes.vectors, codes.counts, strict=True):
            stored = Packed.of(vectors[counts > 0], "bf16").vectors()
            scores[name] = float((QUERIES[query] @ stored.T).max(axis=1).sum())
        return scores

    def check(self, answer: Answer) -> None:
        if answer.generation is not None:
            assert self._is(answer, answer.generation), f"not commit {answer.generation}: {answer}"
        else:
            assert any(self._is(answer, number) for number in self.models), f"no commit: {answer}"

    def _is(self, answer: Answer, generation: int) -> bool:
        model, expected = self.models[generation], self.expected(generation, answer.query)
        if sorted(answer.ids) != sorted(expected):
            return False
        if answer.seeds != [model[name].seed for name in answer.ids]:
            return False
        wanted = [expected[name] for name in answer.ids]
        ordered = all(a >= b for a, b in zip(answer.scores, answer.scores[1:], strict=False))
        return ordered and bool(np.allclose(answer.scores, wanted, rtol=1e-4, atol=1e-6))


def write(index: glie.Index, commits: Commits, seconds: float, seed: int) -> int:
    """Change the index for so many seconds and record each commit; returns their number."""
    model, end, made = Model(), time.monotonic() + seconds, 0
    commits.models[index._state.manifest.generation] = {}
    run, sequence = seed, changes(seed, {})
    while time.monotonic() < end or made < FEWEST:
        change = next(sequence)
        if change.verb == "shrink":
            continue
        if len(model) > MOST_PAGES:
            run += 1
            change = Change("delete", gone=tuple(list(model)[: MOST_PAGES // 2]))
            sequence = changes(run, change.model(model))
        model = change.model(model)
        # before the change: a reader may see it before this thread's next line
        commits.models[index._state.manifest.generation + 1] = model
        change.make(index)
        commits.models[index._state.manifest.generation] = model
        made += 1
    return made


def stress(folder: Path, seconds: float, seed: int, readers: int = 2) -> tuple[int, int]:
    """Run writer and readers; returns the numbers of changes and of answers compared."""
    path, commits, said = folder / "shared.glie", Commits(), list[Answer]()
    index, faults = glie.Index.create(path, glie.Codec(k=K)), list[BaseException]()

    def guarded(answers: Iterator[Answer]) -> None:
        try:
            said.extend(answers)
        except BaseException as fault:
            faults.append(fault)

    def sharing(number: int) -> Iterator[Answer]:
        end, given = time.monotonic() + seconds, 0
        while time.monotonic() < end or given < FEWEST:
            given += 1
            yield ask(index, (number + given) % ASKED, None)

    command = [sys.executable, __file__, "--reader", str(path), str(seconds)]
    others = [
        subprocess.Popen([*command, str(seed + i)], stdout=subprocess.PIPE, text=True)
        for i in range(readers)
    ]
    threads = [
        threading.Thread(target=guarded, args=(source,))
        for i in range(readers)
        for source in (answers(path, seconds, seed + 100 + i), sharing(i))
    ]
    for thread in threads:
        thread.start()
    made = write(index, commits, seconds, seed)
    for thread in threads:
        thread.join()
    for other in others:
        text, _ = other.communicate()
        assert other.returncode == 0, "a reading process failed"
        said.extend(Answer(*json.loads(line)) for line in text.splitlines())
    if faults:
        raise faults[0]
    for answer in said:
        commits.check(answer)
    index.verify()
    return made, len(said)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reader:
        path, seconds, seed = arguments.reader
        for answer in answers(Path(path), float(seconds), int(seed)):
            line: list[Any] = list(answer)
            print(json.dumps(line))
        return
    with tempfile.TemporaryDirectory() as folder:
        made, compared = stress(Path(folder), arguments.seconds, arguments.seed)
    print(f"{made:,} changes by one writer, {compared:,} answers of 6 readers compared, all right")


if __name__ == "__main__":
    main()
