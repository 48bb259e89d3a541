"""Kill writers and make their disk fail: the index must keep its last committed state.

    python tools/faults.py [--kills 200] [--seed 0]

There are two kinds of faults. A process is killed (SIGKILL) at a random moment: one that adds,
replaces, deletes, compacts and shrinks; one that fits and saves codecs; and one that only saves
codecs. And every write, fsync, rename, removal and new folder of each change fails in turn: no
space, no permission, an input/output error, half of the bytes written; and the system limits the
size of files to one size after another. After each fault, the index opens and verifies. It holds
exactly the pages that were acknowledged (or those of one more change, committed but not yet
acknowledged), with their scores, words, metadata, columns and pictures. No id occurs twice. After
the next change, no file is left of the one that failed.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.codec.networks import random_codec

import glie
from glie.index import column_file
from glie.index import folder as folders
from glie.kernels.quantize import Packed

K, DIM = 2, 8
small_columns = mock.patch.object(column_file, "FEWEST_PAGES", 4)  # also of small segments
FILES_OF_A_CHANGE = 36  # that a killed change may leave; a compaction leaves what it replaced


class Page(NamedTuple):
    """A page of the model; the seed determines its vectors and words."""

    seed: int
    pictured: bool

    @property
    def vectors(self) -> npt.NDArray[np.float32]:
        rng = np.random.default_rng(self.seed)
        rows = rng.normal(size=(int(rng.integers(1, 9)), DIM))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    @property
    def picture(self) -> bytes | None:
        return b"picture %d" % self.seed if self.pictured else None

    @property
    def text(self) -> str | None:
        """A word of most pages, one of some and one of its own; every fourth page has none."""
        return f"tide w{self.seed % 7} own{self.seed}" if self.seed % 4 else None


Model = dict[str, Page]


class Change(NamedTuple):
    """A change that can be made to the model and to the index."""

    verb: str
    pages: Model = {}  # noqa: RUF012 (never changed)
    gone: tuple[str, ...] = ()

    def model(self, before: Model) -> Model:
        kept = {name: page for name, page in before.items() if name not in self.gone}
        return {**kept, **self.pages}

    def make(self, index: glie.Index) -> None:
        if self.verb == "delete":
            index.delete(self.gone)
        elif self.verb == "compact":
            index.compact()
        elif self.verb == "shrink":
            index.shrunk(smaller(index.path), bytes_per_page=30)
        else:
            index.add(
                glie.Pages([page.vectors for page in self.pages.values()], ids=list(self.pages)),
                metadata=[{"seed": page.seed} for page in self.pages.values()],
                images=[page.picture for page in self.pages.values()],
                texts=[page.text for page in self.pages.values()],
                replacing=self.gone,
            )


def smaller(path: Path) -> Path:
    """The path of the shrunk index."""
    return path.with_name(path.name + ".small")


def changes(run: int, model: Model) -> Iterator[Change]:
    """An endless sequence of changes, determined by the number of the run and the model."""
    rng, step = np.random.default_rng(run), 0
    model = dict(model)
    while True:
        step += 1
        verb = str(rng.choice(["add", "add", "add", "delete", "replace", "compact", "shrink"]))
        if verb in ("delete", "replace", "shrink") and len(model) < 4:
            verb = "add"
        gone: tuple[str, ...] = ()
        new: Model = {}
        if verb in ("delete", "replace"):
            gone = tuple(rng.choice(list(model), size=2, replace=False).tolist())
        if verb in ("add", "replace"):
            names = [f"{run}-{step}-{i}" for i in range(int(rng.integers(1, 6)))]
            names = [*gone[:1], *names] if verb == "replace" else names
            pictured = bool(rng.integers(2))
            new = {name: Page(int(rng.integers(2**31)), pictured) for name in names}
        change = Change(verb, new, gone)
        model = change.model(model)
        yield change


def check(path: Path, models: list[Model]) -> Model:
    """Check that the index is undamaged and holds one of these models; returns which."""
    index = glie.Index.open(path)
    index.verify()
    ids = index.ids
    assert len(set(ids)) == len(ids), "an id occurs twice"
    found = [model for model in models if list(model) == ids]
    assert found, f"{ids} is none of {[list(model) for model in models]}"
    model = found[0]
    assert [metadata["seed"] for _, metadata in index.records()] == [p.seed for p in model.values()]
    assert [index.image(name) for name in ids] == [page.picture for page in model.values()]
    if model:
        query = Page(7, False).vectors
        codes = glie.Codec(k=K).compress(glie.Pages([page.vectors for page in model.values()]))
        expected = {}
        for name, vectors, counts in zip(ids, codes.vectors, codes.counts, strict=True):
            stored = Packed.of(vectors[counts > 0], "bf16").vectors()
            expected[name] = float((query @ stored.T).max(axis=1).sum())
        hits = index.search([query], top=len(ids))[0]
        assert sorted(hits.ids) == sorted(ids), "a page is not found"
        np.testing.assert_allclose(hits.scores, [expected[name] for name in hits.ids], 1e-4, 1e-5)
    if any(page.text for page in model.values()):
        asked = [f"own{page.seed}" for page in model.values()]
        found_by_words = index.search(None, text=asked, mode="lexical")
        expected_ids = [[name] if page.text else [] for name, page in model.items()]
        assert [hits.ids for hits in found_by_words] == expected_ids, "words of another commit"
    for name, page in model.items():
        found_by_filter = index.search([query], where={"seed": page.seed})[0]
        assert found_by_filter.ids == [name], "columns of another commit"
    strays = folders.Folder(path).strays(index._state.manifest)
    assert len(strays) <= FILES_OF_A_CHANGE, f"a change has left {len(strays)} files"
    return model


def check_smaller(path: Path, models: list[Model]) -> None:
    """Check that a shrunk index, if there is one, holds all pages; then remove it."""
    if path.exists():
        index = glie.Index.open(path)
        index.verify()
        assert index.ids in [list(model) for model in models], "some of the pages"
    shutil.rmtree(path, ignore_errors=True)


@small_columns
def child(path: Path, run: int, model: Model) -> None:
    """Change the index without end; print each change once it is acknowledged."""
    index = glie.Index.open(path)
    old = path.with_name(path.name + ".old")
    for change in changes(run, model):
        shutil.rmtree(old, ignore_errors=True)
        if smaller(path).exists():
            smaller(path).rename(old)  # a kill during a removal would leave half of it
        change.make(index)
        print(change.verb, flush=True)


def saving_child(path: Path) -> None:
    """Save two codecs in turn to the same path, without end."""
    codecs = [random_codec(16, seed, k=2) for seed in (0, 1)]
    while True:
        for codec in codecs:
            codec.save(path)
            print("saved", flush=True)


def fitting_child(path: Path) -> None:
    """Fit a codec and save it over the one before, without end."""
    from tests.training.test_fit import QUICK

    pages = [Page(seed, False).vectors for seed in range(40)]
    while True:
        glie.fit(glie.Pages(pages), k=1, recipe=QUICK, epochs=1).save(path)
        print("fitted", flush=True)


def killed(arguments: list[str], seconds: float) -> int:
    """Run this file as a child and kill it so long after its first line; returns its lines."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()  # it has started, however long that took
        assert first, "the child printed nothing"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        said = 1 + process.stdout.read().count("\n")
    assert process.returncode == -signal.SIGKILL, "the child ended by itself"
    return said


@small_columns
def kill_writers(folder: Path, count: int, seed: int, longest: float = 0.4) -> int:
    """Kill a writer `count` times; returns the number of kills survived."""
    path, rng, model = folder / "killed.glie", np.random.default_rng(seed), Model()
    glie.Index.create(path, glie.Codec(k=K))
    for run in range(seed, seed + count):
        known = ",".join(f"{name}:{page.seed}:{int(page.pictured)}" for name, page in model.items())
        said = killed(["--child", str(path), str(run), known], float(rng.uniform(0, longest)))
        states, sequence = [model], changes(run, model)
        for _ in range(said + 1):
            states.append(next(sequence).model(states[-1]))
        model = check(path, states[-2:])
        check_smaller(smaller(path), states[-3:])
        if len(model) > 60:  # keep checks fast
            index = glie.Index.open(path)
            index.delete(list(model)[:40])
            model = dict(list(model.items())[40:])
    index = glie.Index.open(path)
    index.add(glie.Pages([Page(1, False).vectors], ids=["last"]))
    assert not folders.Folder(path).strays(index._state.manifest), (
        "files of a killed change outlive the next change"
    )
    return count


def kill_saves(folder: Path, count: int, seed: int) -> int:
    """Kill a process that saves codecs; returns the number of kills survived."""
    path, rng = folder / "codec", np.random.default_rng(seed)
    codecs = [random_codec(16, number, k=2) for number in (0, 1)]
    for _ in range(count):
        killed(["--saving-child", str(path)], float(rng.uniform(0, 0.1)))
        found = glie.Codec.load(path)
        assert any(found.same_as(codec) for codec in codecs), "another codec"
    return count


def kill_fits(folder: Path, count: int, seed: int, longest: float = 2.0) -> int:
    """Kill a process that fits codecs; returns the number of kills survived."""
    path, rng = folder / "fitted", np.random.default_rng(seed)
    random_codec(DIM, 0, k=1).save(path)
    for _ in range(count):
        killed(["--fitting-child", str(path)], float(rng.uniform(0, longest)))
        assert glie.Codec.load(path).k == 1
    return count


class Disk:
    """Count the disk operations of a change, and make one of them fail."""

    FAULTS = (errno.ENOSPC, errno.EACCES, errno.EIO, "short write")

    def __init__(self, fail_at: int | None = None, fault: int | str = errno.ENOSPC) -> None:
        self.calls, self.fail_at, self.fault = 0, fail_at, fault
        self.happened = False
        self.committed = False  # whether the manifest was renamed into place

    def _fails(self) -> bool:
        fails = self.calls == self.fail_at
        self.calls += 1
        self.happened |= fails
        return fails

    def _error(self) -> OSError:
        number = self.fault if isinstance(self.fault, int) else errno.ENOSPC
        return OSError(number, os.strerror(number))

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._fails():
                raise self._error()
            result = real(*arguments, **named)
            if real is _replace and Path(arguments[1]).name == folders.MANIFEST:
                self.committed = True
            return result

        return call

    def _write(self, path: Path, data: bytes) -> None:
        """Write as the real function does, step by step."""
        with open(path, "wb") as file:
            if self._fails():
                if self.fault == "short write":
                    file.write(data[: len(data) // 2])
                raise self._error()
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for owner, name in ((os, "fsync"), (Path, "unlink"), (Path, "mkdir")):
                fails = self._failing(getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, fails))
            stack.enter_context(mock.patch.object(Path, "replace", self._failing(_replace)))
            stack.enter_context(mock.patch.object(folders, "write_durably", self._write))
            yield


_replace = Path.replace


class SmallFiles(Disk):
    """Limit the size of files: the system writes so many bytes and refuses the rest."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        def told(number: int, frame: object) -> None:
            self.happened = True

        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, told)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, before[1]))
        try:
            with mock.patch.object(Path, "replace", self._failing(_replace)):  # to notice a commit
                yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)


@small_columns
def fail_disks(folder: Path, *, every_fault: bool = True) -> int:
    """Make each disk operation of each change fail; returns the number of faults survived."""
    path, faults = folder / "sound.glie", 0
    index = glie.Index.create(path, glie.Codec(k=K))
    sequence, model = changes(3, {}), Model()
    for _ in range(8):
        change = next(sequence)
        model = change.model(model)
        change.make(index)
        shutil.rmtree(smaller(path), ignore_errors=True)
    old, new = list(model), {"new": Page(1, True), "newer": Page(2, False)}
    cases = [
        Change("add", new),
        Change("replace", {old[0]: Page(3, True)}, (old[0],)),
        Change("delete", gone=tuple(old[1:3])),
        Change("compact"),
        Change("shrink"),
    ]
    for change in cases:
        for number in range(1000):
            fault = Disk.FAULTS[number % len(Disk.FAULTS)]
            for kind in Disk.FAULTS if every_fault else [fault]:
                failed = _one_fault(path, folder / "copy.glie", model, change, Disk(number, kind))
                faults += failed
            if not failed:
                break  # it has no more operations
        else:
            raise AssertionError(f"{change.verb} has too many operations")
        for size in itertools.count(0, 16 if every_fault else 150):
            failed = _one_fault(path, folder / "copy.glie", model, change, SmallFiles(size))
            faults += failed
            if not failed:
                break  # no file is larger
    return faults


def _one_fault(sound: Path, path: Path, model: Model, change: Change, disk: Disk) -> bool:
    """Whether there was such an operation; if so, checks that its failure loses nothing."""
    shutil.copytree(sound, path)
    try:
        index, refused = glie.Index.open(path), False
        with disk.in_use():
            try:
                change.make(index)
            except glie.GlieError:
                refused = True
        states = [model, change.model(model)]
        expected = [states[1]] if disk.committed and change.verb != "shrink" else states[:1]
        assert disk.happened or not refused, "refused without a fault"
        assert refused or disk.committed or not disk.happened, "a fault was not reported"
        found = check(path, expected)
        assert index.ids == list(found), "the open index shows another state than the disk"
        check_smaller(smaller(path), [found])
        after = Change("add", {"after": Page(9, False)})
        after.make(index)
        check(path, [after.model(found)])
        assert not folders.Folder(path).strays(index._state.manifest), "files are left"
        return disk.happened
    finally:
        shutil.rmtree(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=200,
        help="of writers; of saves a fifth as many, of fits a tenth",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--saving-child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fitting-child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        path, run, known = arguments.child
        parts = [part.rsplit(":", 2) for part in known.split(",") if part]
        child(Path(path), int(run), {n: Page(int(s), p == "1") for n, s, p in parts})
    elif arguments.saving_child:
        saving_child(arguments.saving_child)
    elif arguments.fitting_child:
        fitting_child(arguments.fitting_child)
    else:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            failed = fail_disks(Path(folder))
            print(f"{failed:,} failures of the disk survived", flush=True)
            killed_writers = kill_writers(Path(folder), arguments.kills, arguments.seed)
            print(f"{killed_writers:,} kills of a writer survived", flush=True)
            saves = kill_saves(Path(folder), max(1, arguments.kills // 5), arguments.seed)
            print(f"{saves:,} kills of a process that saves codecs survived", flush=True)
            fits = kill_fits(Path(folder), max(1, arguments.kills // 10), arguments.seed)
            print(f"{fits:,} kills of a process that fits codecs survived")
        total = failed + killed_writers + saves + fits
        seconds = time.perf_counter() - began
        print(f"{total:,} faults survived in {seconds:.0f} s")


if __name__ == "__main__":
    main()
