"""What a ShardedIndex shows: one committed state of every shard, and who answers for them."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

from glie.distributed.fleet import Fleet
from glie.distributed.replica import Local, version_of
from glie.distributed.shards import Shards
from glie.errors import InputError
from glie.index.index import Index
from glie.kernels.parallel import cores


@dataclasses.dataclass(frozen=True)
class View:
    """One committed state of every shard."""

    shards: Shards
    indexes: dict[str, Index]
    versions: dict[str, str]  # the names of these states

    @classmethod
    def of(cls, shards: Shards, before: View | None = None) -> View:
        """The latest state. What did not change is shared with the view before."""
        known = {} if before is None else {i.path: i for i in before.indexes.values()}
        indexes, versions = dict[str, Index](), dict[str, str]()
        for name, folder in shards.folders.items():
            index = known.get(shards.place(name))
            indexes[name] = Index.open(shards.place(name)) if index is None else index.latest()
            if before is not None and indexes[name] is index:
                versions[name] = before.versions[name]
            else:
                versions[name] = version_of(folder, indexes[name])
        return cls(shards, indexes, versions)

    def check_alike(self) -> None:
        """Shards share a codec, an encoder and a language: otherwise scores do not compare."""
        one, *others = self.indexes.values()
        for other in others:
            check_alike(one, other)


def check_alike(one: Index, other: Index) -> None:
    """Refuse an index whose scores do not compare with those of another one."""
    same = {
        "codec": one.codec.same_codes_as(other.codec),
        "encoder": one.encoder == other.encoder,
        "language": one.language == other.language,
        "number of dimensions": None in (one.dim, other.dim) or one.dim == other.dim,
    }
    wrong = [what for what, alike in same.items() if not alike]
    if wrong:
        raise InputError(
            f"{other.path}: another {' and '.join(wrong)} than {one.path}; shards share them: make "
            "all with one codec (`glie codec fit-sample`), encoder and language"
        )


def fleet_for(shards: Shards, address: str | None = None) -> Fleet:
    """The replicas on a cluster or, if there is none, in this process."""
    from glie.distributed.service import fleet_of

    return fleet_of(shards, address) or _local(shards)


def _local(shards: Shards) -> Fleet:
    """A replica of every shard in this process."""
    pool = ThreadPoolExecutor(cores(), thread_name_prefix="shards")
    return Fleet({name: [Local(shards.path, name, pool)] for name in shards.names})
