"""Codebooks that the indexes of a user share: a folder with a file for each, named by its digest.

An index that was made with one of them names its digest, and holds no copy. A file is written under
another name and renamed, so that it is never half there; its content is checked against its name.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import uuid
from pathlib import Path

from glie.codec.readout.codebook import Codebook
from glie.errors import CodecError
from glie.identity import EncoderId
from glie.storage import rename_durably, write_durably

VARIABLE = "GLIE_CODEBOOKS"  # names another folder
SUFFIX = ".safetensors"
DIGEST = re.compile(r"[0-9a-f]{16}")
REMEDY = "`glie codec add CODEC` writes it again from the folder of a codec"
IN_MEMORY = 4  # codebooks that were read; indexes opened in one process share them


class CodebookError(CodecError):
    """A shared codebook that is not on this machine, or damaged: what refers to it is whole."""


def folder() -> Path:
    """The folder of shared codebooks: the one that VARIABLE names, or the user's data folder."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    home = Path("~").expanduser()
    if sys.platform == "win32":
        data = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        data = home / "Library" / "Application Support"
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return data / "glie" / "codebooks"


def register(book: Codebook) -> Path:
    """Put a codebook into the folder, unless it is there undamaged; returns its file."""
    path = _path(book.digest)
    if is_registered(book):
        return path
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")  # others may write it as well
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(new, book.to_bytes())
        rename_durably(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise CodecError(
            f"{path}: cannot be written: {error.strerror}; set {VARIABLE} to another folder"
        ) from None
    return path


def find(digest: str) -> Codebook | None:
    """The codebook of this digest; None if it is not there."""
    if not DIGEST.fullmatch(digest):
        return None
    path = _path(digest)
    try:
        state = path.stat()
        book = _read(path, state.st_mtime_ns, state.st_size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CodebookError(f"{path}: cannot be read: {error.strerror}") from None
    except CodecError as error:
        raise CodebookError(f"{error}; {REMEDY}") from None
    if book.digest != digest:
        raise CodebookError(f"{path}: damaged: its content is {book.digest}; {REMEDY}")
    return book


def is_registered(book: Codebook) -> bool:
    """Whether a codebook is in the folder, undamaged."""
    with contextlib.suppress(CodebookError):
        return find(book.digest) is not None
    return False


@functools.lru_cache(IN_MEMORY)
def _read(path: Path, changed: int, size: int) -> Codebook:
    """The codebook in a file that was last `changed` at that time."""
    return Codebook.from_bytes(path.read_bytes(), str(path))


def _path(digest: str) -> Path:
    return folder() / f"{digest}{SUFFIX}"


def registered() -> list[str]:
    """The digests of all shared codebooks, damaged ones included."""
    with contextlib.suppress(OSError):
        names = sorted(path.name for path in folder().iterdir() if path.suffix == SUFFIX)
        return [name[: -len(SUFFIX)] for name in names if DIGEST.fullmatch(name[: -len(SUFFIX)])]
    return []


def made_for(encoder: EncoderId, dim: int) -> list[Codebook]:
    """The shared codebooks for vectors of an encoder, without damaged ones."""
    found = []
    for digest in registered():
        with contextlib.suppress(CodebookError):
            book = find(digest)
            if book and book.dim == dim and book.encoder and book.encoder.matches(encoder):
                found.append(book)
    return found
