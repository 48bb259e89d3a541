"""Files that are ZIP archives of XML: what is checked before a library opens one."""

from __future__ import annotations

import zipfile

from glie.documents.readers.blocks import RefusedError

MOST_UNPACKED = 1 << 30  # bytes
OLE = bytes.fromhex("d0cf11e0a1b11ae1")  # how old and encrypted Office files begin


def open_packed(path: str, what: str, newer: str = "") -> zipfile.ZipFile:
    """Open the archive, if it is one and would not unpack to more than a gigabyte. `newer` is the
    format that an old Office file can be saved in."""
    with open(path, "rb") as file:
        head = file.read(len(OLE))
    if newer and head == OLE:
        raise RefusedError(
            f"encrypted, or in the format of Office 97; save a copy as {newer}, without a password"
        )
    if head[:2] != b"PK":
        raise RefusedError(f"not {what}, whatever its name says")
    archive = zipfile.ZipFile(path)
    unpacked = sum(member.file_size for member in archive.infolist())  # zipfile reads no more
    if unpacked > MOST_UNPACKED:
        archive.close()
        raise RefusedError(
            f"it would unpack to {unpacked / 1e9:,.1f} GB, and at most "
            f"{MOST_UNPACKED / 1e9:,.1f} GB are read"
        )
    return archive


def check_packed(path: str, what: str, newer: str) -> None:
    open_packed(path, what, newer).close()
