"""Ask the replicas of every shard: the least busy first, another if it fails or is slow.

A replica that fails is set aside, and asked for a sign of life beside the searches. A search waits
until its deadline, then does without the shards that have not answered.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from glie.errors import BusyError, GlieError
from glie.wording import count

HEDGE_LEAST = 0.02  # seconds until a second replica is asked, at least
HEDGE_GROWTH = 4  # times as long until a third one is asked
HEDGE_FIRST = 0.5  # ... and while few answers are known
HEDGE_SHARE = 0.95  # of the last answers came sooner
LAST_ANSWERS, FEWEST_ANSWERS = 512, 20
MOST_OUTSTANDING = 16  # calls of this process that a replica has not answered
REFUSED = ("first",)  # calls that a busy replica refuses: a search that has begun is finished
SECONDS_BETWEEN_SIGNS = 1.0
SECONDS_BETWEEN_RENEWALS = 1.0
PAUSE = 0.05  # before all replicas of a shard are tried again


class StaleError(GlieError):
    """A replica no longer holds the state that was asked for: a newer one was committed."""


class Busy(NamedTuple):
    """The answer of a replica that has no room for another search."""


class Refused(NamedTuple):
    """The answer of a replica to what no other would answer either."""

    error: GlieError


class Failed(NamedTuple):
    """The answer of a replica that cannot answer: its files are damaged, for example."""

    why: str


class Replica(Protocol):
    """What answers for a shard: an actor of Ray, or an object of this process."""

    @property
    def name(self) -> str: ...

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Start a call. The future has the answer, or a Busy, Refused or Failed. An exception means
        that the replica cannot be reached."""
        ...


Found = Mapping[str, Sequence[Replica]]  # the replicas of each shard


@dataclasses.dataclass(eq=False)
class _Member:
    """A replica as this process knows it."""

    replica: Replica
    outstanding: int = 0
    down: bool = False
    asked_for_sign: float = 0.0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def start(self, method: str, *arguments: Any) -> Future[Any]:
        with self.lock:
            self.outstanding += 1
        try:
            future = self.replica.call(method, *arguments)
        except BaseException:
            self.ended(None)
            raise
        future.add_done_callback(self.ended)
        return future

    def ended(self, _: object) -> None:
        with self.lock:
            self.outstanding -= 1

    def look(self) -> None:
        """Ask for a sign of life, unless that was done just now."""
        now = time.monotonic()
        with self.lock:
            if not self.down or now - self.asked_for_sign < SECONDS_BETWEEN_SIGNS:
                return
            self.asked_for_sign = now
        try:
            self.replica.call("sign").add_done_callback(self._seen)
        except Exception:
            return  # it is asked again

    def _seen(self, sign: Future[Any]) -> None:
        if not sign.cancelled() and sign.exception() is None:
            self.down = False

    def failed(self) -> None:
        self.down, self.asked_for_sign = True, time.monotonic()


class Answers(NamedTuple):
    """What the shards have answered."""

    values: dict[str, Any]  # in the order of the requests
    missing: dict[str, str]  # why, by shard


@dataclasses.dataclass
class _Asking:
    """One shard of one request."""

    arguments: tuple[Any, ...]
    began: float
    tried: list[_Member] = dataclasses.field(default_factory=list)
    waiting: int = 0  # calls under way
    again: float = 0.0  # when to start over
    busy: int = 0
    failed: int = 0
    why: str = "it did not answer"

    def hedged_at(self, hedge: float) -> float:
        """When one more replica is asked, while others are."""
        return float(self.began + hedge * HEDGE_GROWTH ** (self.waiting - 1))


class Fleet:
    """The replicas of every shard. Threads may share it."""

    def __init__(self, replicas: Found, renewed: Callable[[], Found] | None = None) -> None:
        """`renewed` finds the replicas that run now."""
        self._renewed, self._renewed_at = renewed, time.monotonic()
        self._renewing = threading.Lock()
        self._members: dict[str, list[_Member]] = {}  # replaced as a whole, never changed
        self._answered: dict[str, collections.deque[float]] = {}  # seconds, by method
        self.hedged = 0  # calls to a second replica, for a slow first
        self.replace(replicas)

    def renew(self) -> None:
        """Find the replicas that run now, unless that was done just now. Searches do not wait for
        it: the head of a cluster may not answer."""
        since = time.monotonic() - self._renewed_at
        if self._renewed is None or since < SECONDS_BETWEEN_RENEWALS:
            return
        if self._renewing.acquire(blocking=False):
            threading.Thread(target=self._renew, args=[self._renewed], daemon=True).start()

    def _renew(self, renewed: Callable[[], Found]) -> None:
        try:
            self.replace(renewed())
        except Exception:  # of any class: those that are known stay, and it is tried again
            logging.getLogger(__name__).warning("replicas cannot be listed", exc_info=True)
        finally:
            self._renewed_at = time.monotonic()
            self._renewing.release()

    def replace(self, replicas: Found) -> None:
        """Use these replicas from now on. Those with a known name keep what is known of them; one
        that appears beside others may still be starting, so it gives a sign first."""
        known = {m.replica.name: m for members in self._members.values() for m in members}
        self._members = {
            shard: [
                known.get(replica.name) or _Member(replica, down=shard in self._members)
                for replica in mine
            ]
            for shard, mine in replicas.items()
        }

    def all(self, shard: str) -> list[Replica]:
        return [member.replica for member in self._members.get(shard, [])]

    @property
    def failing(self) -> bool:
        """Whether a replica is set aside."""
        return any(member.down for members in self._members.values() for member in members)

    def hedge_after(self, method: str) -> float:
        """Seconds after which a second replica is asked."""
        known = sorted(self._seconds(method))
        if len(known) < FEWEST_ANSWERS:
            return HEDGE_FIRST
        return max(HEDGE_LEAST, known[int(HEDGE_SHARE * len(known))])

    def _seconds(self, method: str) -> collections.deque[float]:
        """How long the last answers took."""
        return self._answered.setdefault(method, collections.deque(maxlen=LAST_ANSWERS))

    def ask(self, method: str, requests: Mapping[str, tuple[Any, ...]], deadline: float) -> Answers:
        """The answer of one replica of each shard, until `deadline`, a time of time.monotonic().
        Raises BusyError if all replicas of a shard are busy, StaleError if one is ahead, and what a
        replica refuses. A shard is given up sooner if all of its replicas have failed."""
        began, hedge = time.monotonic(), self.hedge_after(method)
        open_: dict[str, _Asking] = {s: _Asking(given, began) for s, given in requests.items()}
        calls: dict[Future[Any], tuple[str, _Member]] = {}
        values, missing = dict[str, Any](), dict[str, str]()

        def next_replica(shard: str, asking: _Asking) -> None:
            if self._start(method, shard, asking, calls):
                return
            if asking.failed and asking.failed == len(asking.tried):
                missing[shard] = open_.pop(shard).why
            else:
                self._begin_again(shard, asking)

        for shard, asking in open_.items():
            self._start(method, shard, asking, calls)
        while open_:
            now = time.monotonic()
            if now >= deadline:
                break
            for shard, asking in list(open_.items()):
                if not asking.waiting:
                    if now >= asking.again:
                        next_replica(shard, asking)
                elif now >= asking.hedged_at(hedge):
                    self.hedged += self._start(method, shard, asking, calls)
            until = min([deadline, *(_due(asking, hedge) for asking in open_.values())])
            done = _first_done(calls, max(until - time.monotonic(), 0.001))
            for call in done:
                shard, member = calls.pop(call)
                if shard not in open_:
                    continue  # the other replica was faster
                asking = open_[shard]
                asking.waiting -= 1
                found = self._answer(call, member, asking)
                if found is not None:
                    values[shard] = found[0]
                    self._seconds(method).append(time.monotonic() - asking.began)
                    del open_[shard]
                elif not asking.waiting:
                    next_replica(shard, asking)
        missing |= {shard: asking.why for shard, asking in open_.items()}
        return Answers({s: values[s] for s in requests if s in values}, missing)

    def _start(
        self, method: str, shard: str, asking: _Asking, calls: dict[Future[Any], Any]
    ) -> bool:
        """Ask the replica that is the least busy, of those that were not asked; False if there is
        none."""
        members = self._members.get(shard, [])
        for member in members:
            if member.down:
                member.look()
        left = [member for member in members if member not in asking.tried]
        for member in sorted(left, key=lambda m: (m.down, m.outstanding, random.random())):
            if member.down and asking.waiting:
                return False  # no use for a hedge
            asking.tried.append(member)
            if method in REFUSED and member.outstanding >= MOST_OUTSTANDING:
                asking.busy += 1
                continue
            try:
                call = member.start(method, *asking.arguments)
            except Exception as error:  # of any class: the connection to an actor
                asking.why = _said(error)
                member.failed()
                continue
            calls[call] = shard, member
            asking.waiting += 1
            return True
        if not members:
            asking.why = "no replica of it is running"
        return False

    def _begin_again(self, shard: str, asking: _Asking) -> None:
        """After all replicas were tried."""
        if asking.busy:
            raise BusyError(
                f"shard {shard}: {count(asking.busy, 'replica')} busy, no other left; ask again "
                "later, or serve more replicas"
            )
        self.renew()
        asking.tried, asking.busy, asking.failed = [], 0, 0
        asking.again = time.monotonic() + PAUSE

    def _answer(self, call: Future[Any], member: _Member, asking: _Asking) -> tuple[Any] | None:
        """The answer of a replica; None if another is to be asked."""
        try:
            found = call.result()
        except Exception as error:  # of any class: the node has died, the actor restarts
            asking.why = _said(error)
            member.failed()
            return None
        if isinstance(found, Busy):
            asking.busy += 1
            asking.why = "it is busy"
            return None
        if isinstance(found, Failed):
            asking.failed += 1
            asking.why = found.why
            return None
        if isinstance(found, Refused):
            raise found.error
        return (found,)


def _due(asking: _Asking, hedge: float) -> float:
    """When something may have to be done for a shard."""
    if not asking.waiting:
        return asking.again
    now, hedging = time.monotonic(), asking.hedged_at(hedge)
    return hedging if hedging > now else now + 0.25  # there was no other to ask


def _first_done(calls: Iterable[Future[Any]], seconds: float) -> set[Future[Any]]:
    waiting = list(calls)
    if not waiting:
        time.sleep(min(seconds, PAUSE))
        return set()
    first = concurrent.futures.FIRST_COMPLETED
    return concurrent.futures.wait(waiting, timeout=seconds, return_when=first).done


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
