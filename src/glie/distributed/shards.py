"""A folder of shards: which indexes it holds, and to which of them a page belongs.

`shards.json` names them. A folder of indexes without that file is one of shards as well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import xxhash

from glie.codec.codec import Codec
from glie.errors import CorruptIndexError, IndexFolderError, InputError, LockedError
from glie.identity import EncoderId
from glie.index.folder import MANIFEST as INDEX_MANIFEST
from glie.index.index import Index
from glie.storage import digest, make_durably, replace_file, sync

MANIFEST = "shards.json"
FORMAT, VERSION = "glie-shards", 1
LOCK = "shards.lock"
ARRIVING = ".arriving-"  # prefix of folders with pages on their way to their shards
MOST_SHARDS = 9999


@dataclasses.dataclass(frozen=True)
class Shards:
    """The shards of a folder. A shard keeps its name; a new version has a new folder."""

    path: Path
    folders: Mapping[str, str]  # of each shard, in order

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        shards: int,
        codec: Codec,
        *,
        encoder: EncoderId | None = None,
        language: str | None = None,
    ) -> Shards:
        """Make so many empty shards, which share a codec."""
        place = Path(path).absolute()
        if not isinstance(shards, int) or not 1 <= shards <= MOST_SHARDS:
            raise InputError(f"shards: expected 1 to {MOST_SHARDS}, found {shards!r}")
        if is_sharded(place):
            raise IndexFolderError(f"{place}: already a folder of shards; choose another name")
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise IndexFolderError(f"{place}: not empty; choose another name for the shards")
        names = [f"{number:04d}" for number in range(shards)]
        for name in names:
            Index.create(place / name, codec.frozen, encoder=encoder, language=language)
        made = cls(place, {name: name for name in names})
        made.commit()  # now the folder is one of shards
        return made

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Shards:
        """The shards of a folder as they are now."""
        place = Path(path).absolute()
        try:
            found = json.loads((place / MANIFEST).read_bytes())
            if (found["format"], found["version"]) != (FORMAT, VERSION):
                raise IndexFolderError(
                    f"{place / MANIFEST}: {found['format']!r} in version {found['version']!r}, "
                    f"this glie reads {FORMAT!r} in version {VERSION}; upgrade glie"
                )
            folders = {str(name): str(folder) for name, folder in found["shards"].items()}
            if not folders or not all(map(is_name, (*folders, *folders.values()))):
                raise ValueError("a name is not that of a folder")
            if len({*folders.values()}) < len(folders):
                raise ValueError("two shards have one folder")
            return cls(place, folders)
        except FileNotFoundError:
            names = _indexes_in(place)
            if not names:
                raise IndexFolderError(
                    f"{place}: no shards there; make them with `glie cluster index DOCUMENTS --to "
                    "NAME --keep-shards 4`"
                ) from None
            return cls(place, {name: name for name in names})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptIndexError(
                f"{place / MANIFEST}: damaged ({error}); restore it from a backup, or remove it: "
                "then every index beside it is a shard, also an old version"
            ) from None
        except OSError as error:
            raise IndexFolderError(f"{place}: cannot be read: {error.strerror}") from None

    def commit(self) -> None:
        """Write `shards.json`."""
        body = {"format": FORMAT, "version": VERSION, "shards": dict(self.folders)}
        replace_file(self.path / MANIFEST, json.dumps(body, indent=1).encode())
        sync(self.path)

    @property
    def id(self) -> str:
        """The name of their service on a cluster. A copy of the folder is served apart."""
        return digest(os.fsencode(os.path.realpath(self.path)))

    @property
    def names(self) -> list[str]:
        return list(self.folders)

    def place(self, shard: str) -> Path:
        """The folder of a shard."""
        return self.path / self.folders[shard]

    def shard_of(self, page_id: str) -> str:
        """The shard that a new page belongs to. Pages of a document share one."""
        return shard_for(document_of(page_id), self.names)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock of `shards.json`."""
        import filelock

        try:
            with filelock.FileLock(self.path / LOCK, timeout=0):
                yield
        except filelock.Timeout:
            raise LockedError(f"{self.path}: another process is replacing a shard") from None

    @contextlib.contextmanager
    def arriving(self) -> Iterator[Path]:
        """A folder for pages on their way to their shards, on the same disk."""
        place = self.path / f"{ARRIVING}{uuid.uuid4().hex}"
        make_durably(place)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def is_sharded(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds shards, and is not an index itself."""
    place = Path(path)
    try:
        if (place / MANIFEST).exists():
            return True
        return not (place / INDEX_MANIFEST).exists() and bool(_indexes_in(place))
    except OSError:  # such as a name that is too long: opening it says so
        return False


def _indexes_in(place: Path) -> list[str]:
    """The names of the indexes in a folder, in order."""
    with contextlib.suppress(OSError):
        return sorted(
            path.name
            for path in place.iterdir()
            if not path.name.startswith(".") and (path / INDEX_MANIFEST).exists()
        )
    return []


def is_name(name: str) -> bool:
    """Whether it names something in a folder, and nothing outside."""
    return name not in ("", ".", "..") and Path(name).name == name


def document_of(page_id: str) -> str:
    """The document of a page, by the page's id: `report.pdf` of `report.pdf#3`."""
    return page_id.rpartition("#")[0] or page_id


def shard_for(document: str, shards: Sequence[str]) -> str:
    """The shard of a document: the same on every machine and in every version."""
    return shards[xxhash.xxh3_64_intdigest(document.encode()) % len(shards)]
