"""Who is asked when: the least busy, another if one fails or is slow, none after the deadline."""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from glie.distributed import fleet
from glie.distributed.fleet import Busy, Failed, Fleet, Refused
from glie.errors import BusyError, InputError


@dataclasses.dataclass
class Fake:
    """A replica that answers its name at once, unless told otherwise."""

    name: str
    answer: Any = None  # an exception is raised; "never": none
    after: float = 0
    asked: int = 0
    signs: int = 0
    alive: bool = True

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if method == "sign":
            self.signs += 1
            if self.alive:
                future.set_result(None)
            else:
                future.set_exception(ConnectionError("dead"))
            return future
        self.asked += 1
        answer = self.name if self.answer is None else self.answer
        if answer == "never":
            return future

        def settle() -> None:
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        if self.after:
            timer = threading.Timer(self.after, settle)
            timer.daemon = True
            timer.start()
        else:
            settle()
        return future


def ask(replicas: Fleet, *shards: str, seconds: float = 5) -> fleet.Answers:
    return replicas.ask("first", dict.fromkeys(shards, ()), time.monotonic() + seconds)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "HEDGE_FIRST", 0.05)
    monkeypatch.setattr(fleet, "PAUSE", 0.01)
    monkeypatch.setattr(fleet, "SECONDS_BETWEEN_SIGNS", 0.0)


def test_each_shard_is_asked_once() -> None:
    replicas = {shard: [Fake(f"{shard}0"), Fake(f"{shard}1")] for shard in "ab"}
    found = ask(Fleet(replicas), "a", "b")
    assert [value[0] for value in found.values.values()] == ["a", "b"]
    assert [*found.values] == ["a", "b"]
    assert found.missing == {}
    assert all(sum(fake.asked for fake in mine) == 1 for mine in replicas.values())


def test_a_slow_replica_is_hedged() -> None:
    slow, quick = Fake("slow", "never"), Fake("quick")
    replicas = Fleet({"a": [slow, quick]})
    for _ in range(8):
        assert ask(replicas, "a").values == {"a": "quick"}
    assert slow.asked <= 1  # it still owes an answer, so the other is asked first
    assert replicas.hedged == slow.asked


def test_the_first_answer_counts() -> None:
    one, two = Fake("one", after=0.2), Fake("two", "never")
    assert ask(Fleet({"a": [two, one]}), "a").values == {"a": "one"}


def test_a_replica_that_fails_is_set_aside_until_it_gives_a_sign() -> None:
    bad, good = Fake("bad", ConnectionError("gone"), alive=False), Fake("good")
    replicas = Fleet({"a": [bad, good]})
    for _ in range(20):
        assert ask(replicas, "a").values == {"a": "good"}
    assert bad.asked == 1
    assert bad.signs > 1
    assert replicas.failing
    bad.answer, bad.alive = None, True
    found = {ask(replicas, "a").values["a"] for _ in range(40)}
    assert found == {"bad", "good"}
    assert not replicas.failing


def test_all_replicas_fail_for_a_while() -> None:
    """As when a node with the only replica is lost, and Ray starts it elsewhere."""
    only = Fake("only", ConnectionError("restarting"))
    replicas = Fleet({"a": [only], "b": [Fake("b0")]})
    timer = threading.Timer(0.1, lambda: setattr(only, "answer", None))
    timer.start()
    assert ask(replicas, "a", "b").values == {"a": "only", "b": "b0"}
    assert only.asked > 1


def test_the_deadline_names_what_is_missing() -> None:
    shards = {
        "a": [Fake("a0", "never"), Fake("a1", "never")],
        "b": [Fake("b0")],
        "c": [Fake("c0", ConnectionError("no route"))],
        "d": list[Fake](),
    }
    began = time.monotonic()
    found = ask(Fleet(shards), *"abcd", seconds=0.3)
    assert time.monotonic() - began < 3
    assert found.values == {"b": "b0"}
    assert found.missing == {
        "a": "it did not answer",
        "c": "ConnectionError: no route",
        "d": "no replica of it is running",
    }


def test_a_busy_replica_sends_to_another() -> None:
    busy = Fake("busy", Busy())
    replicas = Fleet({"a": [busy, Fake("free")]})
    assert {ask(replicas, "a").values["a"] for _ in range(10)} == {"free"}
    with pytest.raises(BusyError, match=r"shard a: 2 replicas busy.*ask again later"):
        ask(Fleet({"a": [Fake("x", Busy()), Fake("y", Busy())]}), "a")


def test_no_queue_grows_before_a_replica_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "MOST_OUTSTANDING", 3)
    hangs = Fake("hangs", "never")
    replicas = Fleet({"a": [hangs]})
    for _ in range(3):
        assert ask(replicas, "a", seconds=0.02).missing == {"a": "it did not answer"}
    with pytest.raises(BusyError):
        ask(replicas, "a", seconds=0.02)
    assert hangs.asked == 3


def test_a_shard_whose_replicas_all_fail_is_given_up_at_once() -> None:
    """They would fail again; a replica that cannot be reached may come back."""
    broken = [Fake(f"a{n}", Failed("a.glie: damaged")) for n in range(2)]
    replicas = Fleet({"a": broken, "b": [Fake("b0", Failed("x")), Fake("b1")]})
    began = time.monotonic()
    found = ask(replicas, "a", "b", seconds=60)
    assert time.monotonic() - began < 30
    assert (found.values, found.missing) == ({"b": "b1"}, {"a": "a.glie: damaged"})
    assert [fake.asked for fake in broken] == [1, 1]
    assert not replicas.failing
    assert ask(Fleet({"a": broken}), "a", seconds=60).missing == {"a": "a.glie: damaged"}


def test_what_a_replica_refuses_is_raised() -> None:
    refuses, other = Fake("a0", Refused(InputError("wrong"))), Fake("a1")
    with pytest.raises(InputError, match="wrong"):
        ask(Fleet({"a": [refuses]}), "a")
    assert other.asked == 0


def test_replicas_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `glie cluster serve` has replaced them, under other names."""
    monkeypatch.setattr(fleet, "SECONDS_BETWEEN_RENEWALS", 0.0)
    old, new = Fake("old", ConnectionError("killed")), Fake("new")
    replicas = Fleet({"a": [old]}, lambda: {"a": [new]})
    assert ask(replicas, "a").values == {"a": "new"}


def test_a_head_that_does_not_answer_holds_no_search_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "SECONDS_BETWEEN_RENEWALS", 0.0)
    asked, dead = list[int](), threading.Event()

    def listed() -> dict[str, list[Fake]]:
        asked.append(1)
        dead.wait(60)
        raise ConnectionError("the head is gone")

    replicas = Fleet({"a": [Fake("a0")]}, listed)
    try:
        for _ in range(3):
            replicas.renew()
            assert ask(replicas, "a").values == {"a": "a0"}
        assert len(asked) == 1  # one at a time
    finally:
        dead.set()


def test_when_to_hedge_follows_the_answers() -> None:
    replicas = Fleet({"a": [Fake("a0")]})
    assert replicas.hedge_after("first") == 0.05
    for _ in range(30):
        ask(replicas, "a")
    assert replicas.hedge_after("first") == fleet.HEDGE_LEAST
