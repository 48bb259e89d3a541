"""One writer and many readers: each sees one commit, whole, and a second writer is told who writes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tools.faults import Change, K, Model, Page, changes
from tools.stress import ASKED, FEWEST, Answer, Commits, ask, stress

import glie


class Snapshots(RuleBasedStateMachine):
    """A writer, and readers that stay at the commit they opened until they refresh."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "index"
        self.writer = glie.Index.create(self.path, glie.Codec(k=K))
        self.model, self.told = Model(), Commits()
        self.readers: list[glie.Index] = []
        self.seeds: set[int] = set()
        self._note()

    def _note(self) -> None:
        self.told.models[self.writer._state.manifest.generation] = self.model

    def _make(self, change: Change) -> None:
        change.make(self.writer)
        self.model = change.model(self.model)
        self._note()

    @rule(seed=st.integers(0, 2**31))
    def write(self, seed: int) -> None:
        assume(seed not in self.seeds)  # of which the ids of new pages are made
        self.seeds.add(seed)
        change = next(changes(seed, self.model))
        if change.verb != "shrink":
            self._make(change)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self._make(Change("delete", gone=(data.draw(st.sampled_from(list(self.model))),)))

    @precondition(lambda self: len(self.readers) < 4)
    @rule()
    def open(self) -> None:
        self.readers.append(glie.Index.open(self.path))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def refresh(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.readers)).refresh()

    @rule()
    def a_second_writer_is_told(self) -> None:
        other = glie.Index.open(self.path)
        with self.writer.writing():
            me = f"process {os.getpid()} on {socket.gethostname()}"
            with pytest.raises(glie.LockedError, match=me):
                other.compact()

    @rule()
    def another_writes(self) -> None:
        """The writer takes in what another has committed before its own change."""
        self.writer = glie.Index.open(self.path)

    @invariant()
    def every_answer_is_that_of_its_commit(self) -> None:
        for index in (self.writer, *self.readers):
            generation = index._state.manifest.generation
            assert index.ids == list(self.told.models[generation])
            for query in range(ASKED):
                self.told.check(ask(index, query, generation))
        assert self.writer.ids == list(self.model)

    def teardown(self) -> None:
        shutil.rmtree(self.path.parent)


TestSnapshots = Snapshots.TestCase
TestSnapshots.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)


def test_readers_in_threads_and_processes(tmp_path: Path) -> None:
    """A minute of it: tools/stress.py."""
    made, compared = stress(tmp_path, seconds=4, seed=0)
    assert made >= FEWEST
    assert compared >= 6 * FEWEST


def test_the_comparison_notices(tmp_path: Path) -> None:
    told, index = Commits(), glie.Index.create(tmp_path / "a", glie.Codec(k=K))
    change = Change("add", {"a": Page(1, False), "b": Page(2, True)})
    change.make(index)
    told.models = {0: {}, 1: change.pages}
    for query in range(ASKED):
        right = ask(index, query, 1)
        assert right.ids
        told.check(right)
        told.check(right._replace(generation=None))
    right = ask(index, 0, 1)
    wrong: list[dict[str, Any]] = [
        {"generation": 0},
        {"ids": right.ids[:-1]},
        {"scores": [score + 0.01 for score in right.scores]},
        {"seeds": [seed + 1 for seed in right.seeds]},
    ]
    for change_of in wrong:
        broken: Answer = right._replace(**change_of)
        with pytest.raises(AssertionError):
            told.check(broken)
        if "generation" not in change_of:
            with pytest.raises(AssertionError):
                told.check(broken._replace(generation=None))


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    """It left its note of who it is, and strays of a change that it never committed."""
    path = tmp_path / "a.glie"
    glie.Index.create(path, glie.Codec(k=K))
    code = f"""
import os, glie
index = glie.Index.open({str(path)!r})
with index.writing():
    open({str(path / "segments" / "00000099.seg")!r}, "w").write("half")
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (path / "writer.json").exists()
    index = glie.Index.open(path)
    Change("add", {"a": Page(1, False)}).make(index)
    assert index.ids == ["a"]
    assert not (path / "writer.json").exists()
    assert not (path / "segments" / "00000099.seg").exists()
    assert index.verify().whole
