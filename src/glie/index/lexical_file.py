"""The file of a segment's postings: which terms are on which pages."""

from __future__ import annotations

import functools
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from glie.errors import CorruptIndexError
from glie.index.format import VERSION, damaged, map_file, padded, read_header
from glie.kernels.postings import (
    FINGERPRINT,
    TERMS_PER_BLOCK,
    Packed,
    Place,
    locate,
    pack,
    read,
    unpack,
)
from glie.lexical.postings import Postings, fingerprint
from glie.storage import checksum

LEXICAL_MAGIC = b"GLIELEX\0"
LEXICAL_HEADER = struct.Struct("<8sIIQQQQQ3Q40xQ")


def postings_bytes(postings: Postings, segment: int) -> bytes:
    """A file of postings, for the segment with this checksum."""
    pages, terms = len(postings.lengths), len(postings.lists.fingerprints)
    packed = pack(postings.lists, pages)
    directory = np.zeros((len(packed.starts), 2), "<u8")
    directory[:-1, 0], directory[:, 1] = packed.firsts, packed.starts
    sections = [
        data + bytes(padded(len(data)) - len(data))
        for data in (
            directory.tobytes(),
            packed.words.tobytes(),
            postings.lengths.astype("<u2").tobytes(),
        )
    ]
    head = LEXICAL_HEADER.pack(
        LEXICAL_MAGIC,
        VERSION,
        0,
        pages,
        terms,
        len(postings.lists.rows),
        int(packed.starts[-1]),
        segment,
        *map(checksum, sections),
        0,
    )[:-8]
    return head + struct.pack("<Q", checksum(head)) + b"".join(sections)


class LexicalFile:
    """A memory-mapped file of postings. Opening it reads only the header; checksums of the rest are
    compared when it is first used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = map_file(path)
        fields = read_header(path, data, LEXICAL_HEADER, LEXICAL_MAGIC)
        _, version, _, self.pages, self.terms, self._postings, stream, self.segment, *sums = fields
        size = LEXICAL_HEADER.size
        *self._checksums, self.checksum = sums
        if self.checksum != checksum(data[: size - 8]):
            raise damaged(path, "its header does not match its checksum")
        blocks = -(-self.terms // TERMS_PER_BLOCK)
        sizes = [padded(16 * (blocks + 1)), padded(stream), padded(2 * self.pages)]
        self.bytes: int = size + sum(sizes)
        if version != VERSION or self.bytes != len(data):
            raise damaged(
                path, f"it has version {version} and {len(data)} bytes for {self.pages} pages"
            )
        # a posting has two bits or more, so no larger arrays are made than the file is worth
        if 2 * self._postings > 8 * stream:
            raise damaged(path, f"it has {stream} bytes for {self._postings} postings")
        self._stream = stream
        self._sections = np.split(data[size:], np.cumsum(sizes)[:-1])

    @property
    def content_bytes(self) -> int:
        """Of `bytes`, those that grow with the pages: without header and padding."""
        return int(self._stream + 2 * self.pages)

    def postings(self, term: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """The rows of the pages with a term, ascending, and how often it is on each (at most 255
        times)."""
        return self.read(self.locate(term))

    def locate(self, term: str) -> Place:
        """Where the postings of a term are."""
        found = locate(self._packed, fingerprint(term))
        if found is None:
            raise self._undecodable()
        return found

    def read(self, place: Place) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """The postings there, as `postings` returns them."""
        found = read(self._packed, place)
        if found is None:
            raise self._undecodable()
        return found

    def _undecodable(self) -> CorruptIndexError:
        return damaged(self.path, "its postings cannot be decoded")

    def all_postings(self) -> Postings:
        """Everything that is stored."""
        lists = unpack(self._packed, self._postings)
        if lists is None:
            raise self._undecodable()
        return Postings(lists, self.lengths)

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.uint16]:
        """The number of terms on each page, at most 65,535."""
        return self._section(2)[: 2 * self.pages].view("<u2")

    @functools.cached_property
    def total_length(self) -> int:
        """The number of terms on all pages."""
        return int(self.lengths.sum(dtype=np.int64))

    @functools.cached_property
    def _packed(self) -> Packed:
        blocks = -(-self.terms // TERMS_PER_BLOCK)
        directory = self._section(0)[: 16 * (blocks + 1)].view("<u8").reshape(-1, 2)
        firsts = np.ascontiguousarray(directory[:-1, 0])
        starts = np.ascontiguousarray(directory[:, 1])
        edges = np.append(firsts, np.uint64(1 << FINGERPRINT))
        is_sorted = (edges[1:] > edges[:-1]).all() and (starts[1:] >= starts[:-1]).all()
        if not is_sorted or starts[0] != 0 or starts[-1] != self._stream:
            raise damaged(self.path, "its directory does not fit its postings")
        return Packed(firsts, starts, self._section(1).view("<u8"), self.terms, self.pages)

    def _section(self, number: int) -> npt.NDArray[np.uint8]:
        section = self._sections[number]
        if checksum(section) != self._checksums[number]:
            what = ("directory", "posting lists", "page lengths")[number]
            raise damaged(self.path, f"its {what} do not match their checksum")
        return section


class LostPostings:
    """Stands for a damaged file of postings: a search for words raises, opening does not."""

    def __init__(self, fault: CorruptIndexError) -> None:
        self._fault = fault
        self.bytes = self.content_bytes = 0

    @property
    def lengths(self) -> npt.NDArray[np.uint16]:
        raise self._fault

    def postings(self, term: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        raise self._fault

    def locate(self, term: str) -> Place:
        raise self._fault

    def read(self, place: Place) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        raise self._fault

    def all_postings(self) -> Postings:
        raise self._fault


def open_lexical(path: Path, pages: int, segment: int) -> LexicalFile:
    """Open the postings of a segment; refuse those of another."""
    file = LexicalFile(path)
    if (file.pages, file.segment) != (pages, segment):
        raise damaged(path, "it belongs to another segment")
    return file
