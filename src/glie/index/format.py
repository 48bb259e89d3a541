"""The layout of the files of an index: magic numbers, headers, versions. docs/format.md describes
every byte.

Reading a file either returns the stored values or raises CorruptIndexError: sizes are checked
before anything is allocated, and each section's checksum before the section is used.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.errors import CorruptIndexError, IndexFolderError
from glie.kernels.quantize import BFLOAT16

VERSION = 1  # of every file, except where the constants below say otherwise
OF_A_SEGMENT = 2  # of images and tombstones that name their segment
ALIGNMENT = 64  # of sections
MAX_RECORD_BYTES = 1 << 20  # of a line with its newline
MAX_RESIDUAL_BYTES = np.iinfo(np.uint16).max  # of a page

SEGMENT_MAGIC = b"GLIESEG\0"
TYPES = {BFLOAT16: 1, "int8": 2, "int4": 3, "int2": 4, "int1": 5}
SEGMENT_HEADER = struct.Struct("<8sIIQIIIBBBBQ9QQ")
CODES = ("vectors", "norms", "counts")
RESIDUAL = ("page lengths", "residual bytes")
RECORDS = ("records", "record table")
BLOCKS = "block checksums"
# The sections of a segment, in order, by version. Version 1 holds bfloat16 codes without residuals.
SECTIONS = {
    1: (*CODES, *RECORDS),
    2: (*CODES, *RESIDUAL, *RECORDS),
    3: (*CODES, *RESIDUAL, *RECORDS, BLOCKS),
}
SEGMENT_VERSION = 3  # that is written
BLOCK = 64  # pages; of records, and with a checksum of their codes
MOST_RECORDS = 256  # a block, in version 2
TOMBSTONE_MAGIC = b"GLIEDEL\0"
TOMBSTONE_HEADER = struct.Struct("<8sIIQQ")
IMAGES_MAGIC = b"GLIEIMG\0"
IMAGES_HEADER = struct.Struct("<8sIIQQ")
PQ_MAGIC = b"GLIESIG\0"
PQ_HEADER = struct.Struct("<8sIIQQQQQQ")


class OtherVersionError(CorruptIndexError):
    """An undamaged file of another version of glie, or one that needs a codebook which is not on
    this machine: there is nothing to repair."""


def damaged(path: Path, what: str) -> CorruptIndexError:
    """The error for a damaged file; `what` says what is wrong with it."""
    return CorruptIndexError(
        f"{path}: damaged: {what}; restore the file from a backup, or keep what is undamaged with "
        "`glie verify --repair`",
        what,
    )


def padded(size: int) -> int:
    """The size of a section with the padding behind it."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """Memory-map a file."""
    try:
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    except ValueError:  # what numpy raises for an empty file
        raise damaged(path, "the file is empty") from None
    except FileNotFoundError:  # the caller knows whether that is damage
        raise
    except OSError as error:
        raise IndexFolderError(f"{path}: cannot be read: {error.strerror}") from None


def read_header(
    path: Path, data: npt.NDArray[np.uint8], layout: struct.Struct, magic: bytes
) -> tuple[Any, ...]:
    """The fields of a file's header, the first of them its magic number."""
    if len(data) < layout.size:
        raise damaged(path, f"it has {len(data)} bytes, its header alone has {layout.size}")
    fields = layout.unpack(data[: layout.size].tobytes())
    if fields[0] != magic:
        raise damaged(path, f"it starts with {fields[0]!r}, expected {magic!r}")
    return fields
