"""The service of a folder of shards on a Ray cluster: replicas are detached actors.

The replicas of a shard are a placement group that spreads over the nodes. If a node dies, Ray moves
its part of the group to another node and restarts the actors there.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import uuid
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from glie.distributed.cluster import NAMESPACE, import_ray, running, said
from glie.distributed.fleet import Fleet, Refused, Replica
from glie.distributed.metrics import RayMeters
from glie.distributed.replica import Actor, version_of
from glie.distributed.shards import Shards
from glie.distributed.view import check_alike
from glie.errors import ClusterError, InputError
from glie.index.index import Index
from glie.progress import OnProgress, Progress, ignore

SECONDS_TO_START = 120.0
SECONDS_TO_ANSWER = 10.0
CONTROL = 64  # further calls that an actor takes at the same time: signs of life, new states


@dataclasses.dataclass(frozen=True)
class Serving:
    """How a shard is served."""

    replicas: int = 2
    cpus: float = 0.1  # that Ray reserves for a replica; a search uses all that are free
    searches: int = 2  # that a replica answers at a time
    waiting: int = 16  # further searches that wait in it; others are refused


class RayReplica:
    """A replica that is an actor."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name, self._actor = name, actor

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        found: Future[Any] = getattr(self._actor, method).remote(*arguments).future()
        return found


@dataclasses.dataclass(frozen=True)
class ReplicaStatus:
    """A replica, for people."""

    shard: str
    name: str
    state: str  # ready, or why it does not answer
    node: str = ""
    pid: int = 0
    pages: int = 0
    answered: int = 0  # since it was started
    busy: int = 0  # refused, for it had no room
    late: int = 0  # dropped, for their deadline had passed
    failed: int = 0
    inside: int = 0  # searches now
    memory: int = 0  # bytes, mapped files included


def serve(
    shards: Shards, ray: Any, serving: Serving | None = None, *, progress: OnProgress = ignore
) -> None:
    """Start the replicas of every shard. Those that run already are replaced shard by shard, when
    the new ones answer: that is how their number, or the version of glie, is changed."""
    serving, launch = serving or Serving(), uuid.uuid4().hex[:8]
    before = _names(shards, ray)
    for number, shard in enumerate(shards.names):
        progress(Progress("shards", number, len(shards.names)))
        _launch(shards, ray, shard, launch, serving)
        _kill(ray, before.pop(shard, []))
        _remove_groups(shards, ray, f"{shard}/", launch)
    for others in before.values():  # of shards that are no more
        _kill(ray, others)
    progress(Progress("shards", len(shards.names), len(shards.names)))


def _launch(shards: Shards, ray: Any, shard: str, launch: str, serving: Serving) -> None:
    """Start the replicas of a shard, and wait until they answer."""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    Index.open(shards.place(shard))  # an error here is one line, that of an actor is not
    name, count, cpus = f"{_prefix(shards)}{shard}/{launch}", serving.replicas, serving.cpus
    sizes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    nodes = sum(size >= cpus for size in sizes)
    group = placement_group(
        [{"CPU": cpus}] * count,
        # with a node to spare, no two replicas are ever on one node, also after one has died
        strategy="STRICT_SPREAD" if nodes > count else "SPREAD",
        name=name,
        lifetime="detached",
    )
    made = []
    try:
        if not group.wait(SECONDS_TO_START):
            free = ray.available_resources().get("CPU", 0)
            raise ClusterError(
                f"shard {shard}: no room for {count} replicas of {cpus:g} CPUs each, {free:g} are "
                "free; add nodes, or give fewer --replicas or --cpus"
            )
        for number in range(count):
            options = ray.remote(Actor).options(
                name=f"{name}/{number}",
                namespace=NAMESPACE,
                lifetime="detached",
                num_cpus=cpus,
                max_restarts=-1,
                max_concurrency=serving.searches + serving.waiting + CONTROL,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=number
                ),
            )
            made.append(
                options.remote(
                    str(shards.path),
                    shard,
                    searches=serving.searches,
                    waiting=serving.waiting,
                    meters=RayMeters.maker(shard, f"{launch}/{number}"),
                )
            )
        ray.get([actor.sign.remote() for actor in made], timeout=SECONDS_TO_START)
    except BaseException as error:
        for actor in made:
            ray.kill(actor)
        ray.util.remove_placement_group(group)
        if isinstance(error, ray.exceptions.RayError):
            cause = getattr(error, "cause", None) or error
            raise ClusterError(
                f"shard {shard}: its replicas do not start ({said(cause)})"
            ) from None
        raise


def stop(shards: Shards, ray: Any) -> int:
    """Stop all replicas; returns how many there were."""
    stopped = _kill(ray, [name for names in _names(shards, ray).values() for name in names])
    _remove_groups(shards, ray)
    return stopped


def status(shards: Shards, ray: Any) -> list[ReplicaStatus]:
    """All replicas, with what they have done."""
    calls = [
        (shard, name, actor.facts.remote().future())
        for shard, names in _names(shards, ray).items()
        for name in names
        if (actor := _actor(ray, name)) is not None
    ]
    concurrent.futures.wait([call for *_, call in calls], timeout=SECONDS_TO_ANSWER)
    rows = []
    for shard, name, call in calls:
        short = name.removeprefix(_prefix(shards))
        if not call.done():
            rows.append(ReplicaStatus(shard, short, "does not answer"))
        elif call.exception() is not None:
            rows.append(ReplicaStatus(shard, short, type(call.exception()).__name__))
        else:
            known = {field.name for field in dataclasses.fields(ReplicaStatus)}
            facts = {key: value for key, value in call.result().items() if key in known}
            rows.append(ReplicaStatus(shard, short, "ready", **facts))
    return rows


def replace(shards: Shards, shard: str, folder: str | Path) -> Path:
    """Make a folder the new version of a shard, without a pause: replicas open it beside the old
    one, then searches move to it. Returns the folder of the old version, which is no longer used
    once the searches under way have ended."""
    if shard not in shards.folders:
        known = ", ".join(shards.names)
        raise InputError(f"shard {shard!r}: not in {shards.path}; expected one of {known}")
    place = Path(folder).absolute()
    if place.parent != shards.path:
        raise InputError(f"{folder}: expected a folder in {shards.path}; move it there first")
    with shards.changing():
        latest = Shards.read(shards.path)
        new, old = Index.open(place), Index.open(latest.place(shard))
        check_alike(old, new)
        if place.name in latest.folders.values():
            raise InputError(f"{place}: already the folder of a shard")
        ready = dataclasses.replace(latest, folders={**latest.folders, shard: place.name})
        fleet = fleet_of(latest, None)
        with old.writing():  # nobody adds to the old version while it is replaced
            if fleet is not None:
                _prepare(fleet, shard, version_of(place.name, new))
            ready.commit()
        return old.path


def _prepare(fleet: Fleet, shard: str, version: str) -> None:
    """Let the replicas of a shard open a state. Those that are restarting open it later."""
    calls = [replica.call("prepare", SECONDS_TO_START, version) for replica in fleet.all(shard)]
    concurrent.futures.wait(calls, timeout=SECONDS_TO_START)
    whys = []
    for call in calls:
        error: Any = "no answer" if not call.done() else call.exception()
        if error is None and isinstance(call.result(), Refused):
            error = call.result().error
        if error is not None:
            whys.append(str(error).partition("\n")[0])
    if calls and len(whys) == len(calls):
        raise ClusterError(f"shard {shard}: no replica opens the new version ({whys[0]})")


def fleet_of(shards: Shards, address: str | None) -> Fleet | None:
    """The replicas that serve a folder. None if there are none, and no cluster was named: by
    `address`, or RAY_ADDRESS."""
    ray = running(address)
    if ray is None:
        return None

    handles = dict[str, Replica]()  # getting one asks the head

    def found() -> dict[str, list[Replica]]:
        names = _names(shards, ray)
        running = {name for mine in names.values() for name in mine}
        for name in running - handles.keys():
            actor = _actor(ray, name)
            if actor is not None:
                handles[name] = RayReplica(name, actor)
        for name in handles.keys() - running:
            del handles[name]
        return {
            shard: [handles[name] for name in names.get(shard, []) if name in handles]
            for shard in shards.names
        }

    replicas = found()
    if any(replicas.values()):
        return Fleet(replicas, found)
    if address or os.environ.get("RAY_ADDRESS"):
        raise ClusterError(
            f"{shards.path}: not served on the cluster; `glie cluster serve {shards.path.name}` "
            "serves it, and without RAY_ADDRESS it is searched in this process"
        )
    return None


def named_cluster(address: str | None = None) -> Any:
    """Ray, connected to a cluster that runs; an error says how to start one."""
    import_ray()
    ray = running(address)
    if ray is None:
        raise ClusterError(
            "no Ray cluster: RAY_ADDRESS is not set, and none runs on this machine; `ray start "
            "--head` starts one"
        )
    return ray


def _prefix(shards: Shards) -> str:
    return f"glie/{shards.id}/"


def _names(shards: Shards, ray: Any) -> dict[str, list[str]]:
    """The names of the actors that run, by shard."""
    prefix, found = _prefix(shards), dict[str, list[str]]()
    for entry in ray.util.list_named_actors(all_namespaces=True):
        if entry["namespace"] == NAMESPACE and entry["name"].startswith(prefix):
            shard = entry["name"].removeprefix(prefix).partition("/")[0]
            found.setdefault(shard, []).append(entry["name"])
    return {shard: sorted(found[shard]) for shard in sorted(found)}


def _actor(ray: Any, name: str) -> Any | None:
    """The handle of an actor; None if it has ended meanwhile."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def _kill(ray: Any, names: Iterable[str]) -> int:
    """Stop actors; returns how many there were."""
    actors = [actor for name in names if (actor := _actor(ray, name)) is not None]
    for actor in actors:
        ray.kill(actor)
    return len(actors)


def _remove_groups(shards: Shards, ray: Any, below: str = "", but: str | None = None) -> None:
    """Remove the placement groups of a shard, or of all, but those of one launch."""
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup

    for key, group in ray.util.placement_group_table().items():
        name = group["name"]
        mine = name.startswith(_prefix(shards) + below) and name.rpartition("/")[2] != but
        if mine and group["state"] != "REMOVED":
            found = PlacementGroup(PlacementGroupID.from_binary(bytes.fromhex(key)))
            ray.util.remove_placement_group(found)
