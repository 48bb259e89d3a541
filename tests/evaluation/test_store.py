"""What is finished is kept; what has changed is measured again."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

import glie
from glie.evaluation import Encoded
from glie.evaluation import fits as fits_module
from glie.evaluation.experiment import run
from glie.evaluation.methods import ADAPTED, SHIPPED
from glie.evaluation.store import Setting, Store, fingerprint
from tests.codec.networks import fitted_codec, fitted_of
from tests.evaluation.topics import (
    PAGES,
    everything,
    in_bytes,
    make_set,
    plan,
)


def test_what_is_finished_is_kept(
    sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = plan(["raw-kmeans", "glie-stage1", "glie", "uncompressed"])
    first = Store(tmp_path)
    measured = everything(sets, few, first)
    assert (first.made, first.kept) == (len(measured), 0)

    def no_fit(*given: Any, **settings: Any) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(fits_module, "fit", no_fit)
    again = Store(tmp_path)
    assert everything(sets, few, again) == measured
    assert (again.made, again.kept) == (0, len(measured))

    # what was cut off is measured again, and so is what was measured on other vectors
    file = tmp_path / "runs" / "one" / "raw-kmeans-k1-seed0.json"
    file.write_text(file.read_text()[:50])
    third = Store(tmp_path)
    everything(sets, few, third)
    assert (third.made, third.kept) == (1, len(measured) - 1)
    other = [make_set("one", 5), sets[1]]
    fourth = Store(tmp_path)
    free = plan(["raw-kmeans"])
    list(run(other, free, None, fourth))
    assert (fourth.made, fourth.kept) == (2, 2)


def test_a_method_with_a_new_definition_is_measured_again(
    sets: list[Encoded], tmp_path: Path
) -> None:
    """A result of token pooling from before it was normalised is not taken for one of today."""
    one = sets[0]
    (raw,) = run([one], plan(["token-pooling-raw"], budgets=[2]), None, Store(None))
    old = Setting("one", "token-pooling", 2)
    stored = dataclasses.replace(raw, setting=old)
    Store(tmp_path).result(old, fingerprint(one), lambda: stored)
    both = plan(["raw-kmeans", "token-pooling"], budgets=[2])
    store = Store(tmp_path)
    _, fresh = run([one], both, None, store)
    assert (store.made, store.kept) == (2, 0)
    assert fresh.each != stored.each
    store = Store(tmp_path)
    assert list(run([one], both, None, store))[1] == fresh
    assert (store.made, store.kept) == (0, 2)


def test_an_interrupted_run_goes_on(sets: list[Encoded], tmp_path: Path) -> None:
    few = plan(["raw-kmeans", "glie-free"])
    done = list(itertools.islice(run(sets, few, None, Store(tmp_path)), 3))
    store = Store(tmp_path)
    whole = list(run(sets, few, None, store))
    assert (store.kept, store.made) == (3, 5)
    assert whole[:3] == done


def test_half_a_fit_is_not_kept(
    sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **settings: Any) -> glie.Codec:
        codec = glie.fit(*given, **settings)
        fitted = dataclasses.replace(fitted_of(codec), notes={**codec.notes, "interrupted": True})
        return fitted_codec(fitted, codec.k)

    monkeypatch.setattr(fits_module, "fit", interrupted)
    for folder in (tmp_path, None):
        with pytest.raises(KeyboardInterrupt):
            everything(sets, plan(["glie"]), Store(folder))
    assert not list(tmp_path.rglob("config.json"))


def test_run_files(sets: list[Encoded], tmp_path: Path) -> None:
    list(run(sets[:1], plan(["glie-free"]), None, Store(tmp_path, trec=True)))
    lines = (tmp_path / "trec" / "one" / "glie-free-k2-seed0.run").read_text().splitlines()
    assert len(lines) == PAGES * PAGES
    query, q0, page, rank, score, name = lines[0].split()
    assert (query, q0, rank, name) == ("q0", "Q0", "1", "glie-free-k2-seed0")
    assert page in sets[0].page_ids
    assert float(score) > float(lines[1].split()[4])
    # asked for later, they are made then
    list(run(sets[1:], plan(["glie-free"]), None, Store(tmp_path)))
    assert not (tmp_path / "trec" / "two").exists()
    list(run(sets[1:], plan(["glie-free"]), None, Store(tmp_path, trec=True)))
    assert len(list((tmp_path / "trec" / "two").iterdir())) == 2


def test_names_may_be_long(tmp_path: Path) -> None:
    """Ten sets fit on each other: the name of a codec's folder must not grow with theirs."""
    long = [make_set("a" * 120), make_set("b" * 120, 1), make_set("c" * 120, 2)]
    store = Store(tmp_path)
    everything(long, plan(["glie"]), store)
    assert store.made == 6


def test_what_was_measured_in_bytes_is_kept(
    long_sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Store(tmp_path, trec=True)
    few = in_bytes(520, methods=["quantised", "plaid", SHIPPED, ADAPTED])
    measured = everything(long_sets, few, first)
    lines = (tmp_path / "trec" / "two" / "glie-bytes-520bytes-L200-seed0.run").read_text()
    assert lines.startswith("q0 Q0 ")

    def again(*given: Any, **settings: Any) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr("glie.evaluation.baselines.ResidualCode.fit", again)
    monkeypatch.setattr("glie.Codec.adapted", again)
    second = Store(tmp_path, trec=True)
    assert everything(long_sets, few, second) == measured
    assert (second.made, second.kept) == (0, len(measured))
