"""Where compiled loops are kept, so that only one process pays for compiling them.

A folder is for reading if it is there, and for writing if that works: the first of these. An image
may so bring loops that were compiled when it was built, and be read-only.

- `NUMBA_CACHE_DIR`, if it is set;
- the user's cache folder;
- the package itself;
- a private folder of the user among the temporary files.

What is kept is named by a digest of its source and of the sources of all loops that it calls. So an
edit of any of them compiles again, and an upgrade that changes none does not. Each signature,
processor and version of numba has files of its own: processes that share a folder never write
different loops under one name.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent
DAYS = 90  # after which older versions of a loop are removed, when a newer one is written

_IMPORTED = re.compile(r"^from glie\.kernels(?:\.(\w+))? import (.+)$", re.MULTILINE)


@functools.cache
def digest_of(module: str) -> str:
    """The digest of a module of this package and of all others that it imports at its top."""
    seen: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = SOURCES / f"{name}.py"
        if name in seen or not path.exists():
            continue
        seen[name] = path.read_bytes()
        for source, names in _IMPORTED.findall(seen[name].decode()):
            waiting += [source] if source else re.findall(r"\w+", names)
    texts = b"".join(name.encode() + seen[name] for name in sorted(seen))
    return hashlib.sha256(texts).hexdigest()[:16]


def folders() -> list[Path]:
    """Where loops are looked for, and kept in the first that can be written to."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(given), _private_folder()]
    return [_users_cache() / "glie", SOURCES / "__pycache__", _private_folder()]


def _users_cache() -> Path:
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 (Path.home fails without one)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


@functools.cache
def _private_folder() -> Path:
    import tempfile  # rarely needed, and slow to import

    name = f"glie-{os.getuid()}" if hasattr(os, "getuid") else "glie"
    return Path(tempfile.gettempdir()) / name


def is_safe(folder: Path) -> bool:
    """Whether what is kept in a folder may be run. Others can make folders among the temporary
    files, but on Windows, where these are the user's own."""
    if folder != _private_folder() or not hasattr(os, "getuid"):
        return True
    try:
        found = folder.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return private and found.st_uid == os.getuid()


def some_are_kept(module: str) -> bool:
    """Whether loops of a module were compiled before, for this or another processor."""
    digest = digest_of(module)
    found = (any(folder.glob(f"{module}.*-{digest}.*")) for folder in folders() if is_safe(folder))
    return any(found)


def cache_of(function: Any) -> Any:
    """A cache for numba's dispatcher of a function."""
    import numba
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

    class Reducing(CompileResultCacheImpl):  # type: ignore[misc, unused-ignore]
        """What numba stores of a compiled function; it is to look for no folder."""

        def __init__(self) -> None:
            self._filename_base = name

    class LoopCache(FunctionCache):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            self._py_func, self._name = function, repr(function)
            self._impl = Reducing()
            self.enable()

        @property
        def cache_path(self) -> str:
            return str(folders()[0])

        def _load_overload(self, signature: Any, target_context: Any) -> Any:
            if not self._enabled:
                return None
            key = self._index_key(signature, target_context.codegen())
            for folder in folders():
                try:
                    data = _files(folder, key).load(key) if is_safe(folder) else None
                    if data is not None:
                        return self._impl.rebuild(target_context, data)
                except Exception:  # whatever is wrong with the file, we compile again
                    continue
            return None

        def _save_overload(self, signature: Any, result: Any) -> None:
            if not self._enabled or not self._impl.check_cachable(result):
                return
            key = self._index_key(signature, result.codegen)
            data = self._impl.reduce(result)
            for folder in folders():
                try:
                    private = folder == _private_folder()
                    folder.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
                    if not is_safe(folder):
                        continue
                    files = _files(folder, key)
                    files.flush()  # an index that a power cut has damaged is not read
                    files.save(key, data)
                except OSError:
                    continue
                with contextlib.suppress(OSError):
                    _remove_old(folder, own)
                return

    def _files(folder: Path, key: Any) -> Any:
        whose = hashlib.sha256(f"{key} {numba.__version__}".encode()).hexdigest()[:16]
        return IndexDataCacheFile(str(folder), f"{name}.{whose}", digest)

    module = function.__module__.rpartition(".")[2]
    digest = digest_of(module)
    version = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
    own = f"{module}.{function.__qualname__}"
    name = f"{own}-{digest}.{version}"
    return LoopCache()


def _remove_old(folder: Path, function: str) -> None:
    """Remove what other versions of a function left long ago."""
    for path in folder.glob(f"{function}-*"):
        if path.stat().st_mtime < time.time() - DAYS * 86_400:
            path.unlink(missing_ok=True)
