"""Damage files at random: reading must give the right answer or a GlieError.

    python tools/fuzz.py [--count 2000] [--seed 0] [--only index]

An index, a codec or cached vectors are copied, one of the files is damaged, and everything is read.
A crash, a hang, an allocation of more than a gigabyte, an error that is not a GlieError or a
different answer ends the run with the seed that repeats it. For forged files, whose checksums are
valid, any answer is accepted.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.codec.networks import random_codec

import glie
from glie.candidates import build
from glie.evaluation import Dataset, encode
from glie.evaluation import cache as caching
from glie.index import column_file, lexical_file, writer
from glie.index import format as formats
from glie.storage import checksum, json_digest

MOST_MEMORY = 1 << 30  # more than at the start
MOST_SECONDS = 30  # for one input
KINDS = ("flip", "bits", "cut", "grow", "zeros", "number", "swap", "other", "gone", "forge")
NUMBERS = (0, 1, 2**15, 2**31 - 1, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)
HEADERS = {
    ".seg": formats.SEGMENT_HEADER.size,
    ".sig": formats.PQ_HEADER.size,
    ".lex": lexical_file.LEXICAL_HEADER.size,
    ".col": column_file.COLUMNS_HEADER.size,
}


@dataclasses.dataclass(frozen=True)
class Harm:
    """A kind of damage to a file. Numbers are taken modulo the number of files and bytes."""

    kind: str
    file: int
    at: int
    value: int

    @classmethod
    def random(cls, rng: np.random.Generator) -> Harm:
        kind = KINDS[rng.integers(len(KINDS))]
        return cls(kind, *rng.integers(2**62, size=3).tolist())

    def do(self, folder: Path) -> bool:
        """Damage a file in the folder; returns whether its checksum is valid."""
        files = sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
        path, other = files[self.file % len(files)], files[self.value % len(files)]
        data = bytearray(path.read_bytes())
        at = self.at % len(data)
        if self.kind == "flip":
            data[at] ^= 1 << self.value % 8
        elif self.kind == "bits":
            noise = np.random.default_rng(self.value).integers(256, size=1 + self.value % 64)
            data[at : at + len(noise)] = noise.astype(np.uint8).tobytes()
        elif self.kind == "cut":
            del data[at:]
        elif self.kind == "grow":
            data += bytes([self.value % 256]) * (1 + self.at % 5000)
        elif self.kind == "zeros":
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        elif self.kind in ("number", "forge"):
            return self._number(path, data)
        elif self.kind == "gone":
            path.unlink()
            return False
        else:
            path.write_bytes(other.read_bytes())
            if self.kind == "swap":
                other.write_bytes(data)
            return False
        path.write_bytes(data)
        return False

    def _number(self, path: Path, data: bytearray) -> bool:
        """Write an absurd number into a header or JSON; `forge` makes the checksum valid."""
        number, forge = NUMBERS[self.value % len(NUMBERS)], self.kind == "forge"
        if path.suffix in (".json", ".copy", ".jsonl"):
            places = list(re.finditer(rb"(?<=[ :\[])\d+", data))
            place = places[self.at % len(places)]
            data[place.start() : place.end()] = str(number).encode()
            if forge:
                with contextlib.suppress(ValueError, KeyError):
                    data = bytearray(_forged_json(path.name, bytes(data)))
        else:
            size = HEADERS.get(path.suffix, min(len(data), 128))
            width = 4 if self.value % 2 else 8
            at = self.at % max(1, size // width) * width
            data[at : at + width] = (number % 256**width).to_bytes(width, "little")
            if forge and path.suffix in HEADERS and len(data) >= size:
                data[size - 8 : size] = struct.pack("<Q", checksum(bytes(data[: size - 8])))
        path.write_bytes(data)
        return forge


def _forged_json(name: str, data: bytes) -> bytes:
    body = json.loads(data)
    del body["checksum"]
    digest = json_digest(body, ascii=not name.startswith("manifest"))
    return json.dumps({**body, "checksum": digest}).encode()


class Target(NamedTuple):
    """A fuzz target: how to make it, read all of it, and check it."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    check: Callable[[Path, bool], None] = lambda path, readable: None


def arrays(count: int, seed: int, dim: int = 16) -> list[npt.NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(int(rng.integers(3, 20)), dim)) for _ in range(count)]
    return [(x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) for x in rows]


QUERIES = arrays(2, 99)
WORDS = ["tide w1", '"w2" own1-5 -own0']


def make_index(codec: glie.Codec) -> Callable[[Path], None]:
    """An index with segments (two of one shape), candidate index, pictures, words, columns and
    deletions."""

    def make(path: Path) -> None:
        index = glie.Index.create(path, codec)
        for seed, count in enumerate((40, 12, 12, 4)):
            pages = glie.Pages(arrays(count, seed), ids=[f"{seed}-{i}" for i in range(count)])
            pictures = [b"picture %d %d" % (seed, i) for i in range(count)] if seed < 3 else None
            numbered = [{"n": i} for i in range(count)]
            texts = [f"tide w{i % 3} own{seed}-{i}" for i in range(count)] if seed < 3 else None
            with (
                mock.patch.object(writer, "SEGMENT_BYTES", 1),  # segments are not merged
                mock.patch.object(column_file, "FEWEST_PAGES", 10),
            ):
                index.add(pages, numbered, images=pictures, texts=texts)
        index.delete(["0-3", "1-4", "2-5", "3-0"])

    return make


def read_index(path: Path) -> Any:
    index = glie.Index.open(path)
    records = list(index.records())
    pictures = [index.image(page) for page, _ in records]
    found = [index.search(QUERIES, top=99, exact=exact) for exact in (True, False)]
    found += [index.search(QUERIES, 99, text=WORDS, mode=mode) for mode in ("lexical", "hybrid")]
    found += [index.search(QUERIES, 99, where={"n": {">": 2, "<=": 9}})]
    answers = [(hits.ids, hits.scores) for both in found for hits in both]
    facts = index.info()
    return records, pictures, answers, (facts.pages, facts.deleted, facts.vectors)


def check_index(path: Path, readable: bool) -> None:
    """`examine` must report what a reader would find; `repair` must keep all undamaged pages."""
    try:
        before = glie.Index.examine(path)
    except glie.GlieError:
        return  # no manifest, or another version
    assert readable or not before.whole, "unreadable, but reported as whole"
    try:
        after = glie.Index.repair(path).after
    except glie.GlieError:
        assert any(damage.loss == "codec" for damage in before.damage), "not repaired"
        return
    assert after.whole, "repaired, but not whole"
    assert after.pages >= before.pages, "the repair lost undamaged pages"
    glie.Index.open(path).search(QUERIES, text=WORDS)


def read_codec(path: Path) -> Any:
    codec = glie.Codec.load(path)
    codes = codec.compress(glie.Pages(arrays(3, 5)))
    again = codec.regenerate(codes).vectors if codec.regenerates else codes.vectors
    return codec.k, codec.dtype, codes.vectors.tobytes(), codes.counts.tobytes(), again.tobytes()


class Numbers:
    """An encoder of texts that are numbers."""

    name, revision = "numbers", "1"

    def encode_pages(self, pages: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
        return [arrays(1, int(page))[0] for page in pages]

    def encode_queries(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        return self.encode_pages(texts)


SET = Dataset(
    "set", {f"p{i}": str(i) for i in range(90)}, {"q1": "1", "q2": "2"}, {"q1": {"p1": 1}}
)


def make_cache(path: Path) -> None:
    encode(SET, Numbers(), path)


def read_cache(path: Path) -> Any:
    (only,) = path.iterdir()
    found = caching.read(only)
    pages = found.pages()
    queries = found.queries
    return (
        pages.ids,
        pages.vectors.tobytes(),
        queries.ids,
        queries.vectors.tobytes(),
        found.relevant,
    )


TARGETS = {
    "index": Target(make_index(glie.Codec(k=3, dtype="int4")), read_index, check_index),
    "plain index": Target(make_index(glie.Codec(k=2)), read_index, check_index),
    "fitted index": Target(make_index(random_codec(16, 0, k=3)), read_index, check_index),
    "index with codewords": Target(
        make_index(glie.Codec(bytes_per_page=120)), read_index, check_index
    ),
    "codec": Target(random_codec(16, 1, k=3).save, read_codec),
    "cache": Target(make_cache, read_cache),
}


@contextlib.contextmanager
def guarded(seconds: int) -> Iterator[None]:
    """Raise TimeoutError if an input takes more CPU time."""

    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer after {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Fuzzer:
    """An undamaged specimen of a target, to be copied and damaged."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.sound, self.copy = target, folder / "sound", folder / "copy"
        target.make(self.sound)
        for lock in self.sound.rglob("lock"):
            lock.unlink()
        self.answer = target.read(self.sound)

    def try_out(self, harm: Harm) -> str:
        """Damage a copy and read it; returns "refused", "right", or "forged" if a forged file was
        read. A wrong answer or an error that is not a GlieError raises."""
        shutil.copytree(self.sound, self.copy)
        try:
            forged = harm.do(self.copy)
            readable, outcome = True, "forged" if forged else "right"
            with guarded(MOST_SECONDS):
                try:
                    answer = self.target.read(self.copy)
                    assert forged or answer == self.answer, "a wrong answer"
                except glie.GlieError:
                    readable, outcome = False, "refused"
                self.target.check(self.copy, readable or forged)
            return outcome
        finally:
            shutil.rmtree(self.copy)


def current_name(target: str) -> str:
    """The name of a target that had another one."""
    return {"index with words": "index with codewords"}.get(target, target)


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, hard))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=2000, help="number of inputs, over all targets"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first input")
    parser.add_argument("--only", choices=TARGETS, type=current_name, help="one of the targets")
    arguments = parser.parse_args()
    build.CANDIDATE_PAGES = 30  # so that a small index has candidates
    began, total = time.perf_counter(), 0
    names = [arguments.only] if arguments.only else list(TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        fuzzers = {name: Fuzzer(TARGETS[name], Path(folder) / name) for name in names}
        limit_memory()
        outcomes = {name: collections.Counter[str]() for name in names}
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            name = names[seed % len(names)]
            harm = Harm.random(np.random.default_rng(seed))
            try:
                outcomes[name][fuzzers[name].try_out(harm)] += 1
            except Exception as error:
                print(f"seed {seed}, {name}, {harm}: {type(error).__name__}: {error}")
                raise
            total += 1
    print("| target | inputs | refused | read right | forged and read |")
    print("| --- | --- | --- | --- | --- |")
    for name, found in outcomes.items():
        parts = [found.total(), found["refused"], found["right"], found["forged"]]
        print(f"| {name} | {' | '.join(f'{part:,}' for part in parts)} |")
    print(f"{total:,} inputs fuzzed in {time.perf_counter() - began:.0f} s, no fault found")


if __name__ == "__main__":
    main()
