"""Digests of the files of an encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from glie.errors import EncoderError


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read: {error.strerror}") from None


def digest_of(paths: Iterable[Path]) -> str:
    """One SHA-256 over the names and contents of files."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + sha256(path).encode())
    return digest.hexdigest()
