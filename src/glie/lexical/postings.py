"""Which terms are on which pages.

A term is known by its fingerprint: the upper 32 bits of XXH3 of its UTF-8. That is a third of the
bytes of the terms themselves, and a merge of postings needs no text. The price is that a term which
is on no page is taken for one of the V that are once in 2^32 / V lookups: about 1 in 40,000 at
V = 100,000. Two terms with one fingerprint are one term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.kernels.postings import FINGERPRINT, MOST_FREQUENT, Lists
from glie.storage import checksum

Ints = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.uint16]

LONGEST = np.iinfo(np.uint16).max  # terms of a page; a longer page counts as this long


def fingerprint(term: str) -> int:
    """What is stored of a term."""
    return checksum(term.encode()) >> (64 - FINGERPRINT)


class Postings(NamedTuple):
    """The posting lists of some pages, and the number of terms on each page."""

    lists: Lists
    lengths: Lengths

    @classmethod
    def of(cls, pages: Sequence[Mapping[str, int]]) -> Postings:
        """The postings of pages given as how often each term occurs."""
        known = {term: fingerprint(term) for term in set().union(*pages)}
        sizes = np.fromiter(map(len, pages), np.int64, len(pages))
        total = int(sizes.sum())
        terms = chain.from_iterable(pages)
        fingerprints = np.fromiter(map(known.__getitem__, terms), np.uint32, total)
        often = chain.from_iterable(page.values() for page in pages)
        frequencies = np.fromiter(often, np.int64, total)
        rows = np.repeat(np.arange(len(pages)), sizes)
        lengths = np.bincount(rows, frequencies, len(pages))
        return cls(
            _lists(fingerprints, rows, frequencies), np.minimum(lengths, LONGEST).astype(np.uint16)
        )

    @classmethod
    def merged(cls, parts: Sequence[Selected]) -> Postings:
        """The postings of some rows of each part, end to end."""
        fingerprints, rows, frequencies, lengths, before = [], [], [], [], 0
        for part, kept in _coalesced(parts):
            place = np.full(len(part.lengths), -1)
            place[kept] = before + np.arange(len(kept))
            stays = place[part.lists.rows] >= 0
            fingerprints.append(part.fingerprints[stays])
            rows.append(place[part.lists.rows[stays]])
            frequencies.append(part.lists.frequencies[stays])
            lengths.append(part.lengths[kept])
            before += len(kept)
        lists = _lists(*map(_joined, (fingerprints, rows, frequencies)))
        return cls(lists, _joined(lengths).astype(np.uint16))

    def filled(self, other: Postings) -> Postings:
        """These postings and, for pages that have none, those of `other`, which has no more."""
        both = [
            (part.fingerprints, part.lists.rows, part.lists.frequencies) for part in (self, other)
        ]
        lists = _lists(*map(_joined, zip(*both, strict=True)))
        return Postings(lists, self.lengths + other.lengths)

    @property
    def fingerprints(self) -> npt.NDArray[np.uint32]:
        """The fingerprint of each posting's term."""
        return np.repeat(self.lists.fingerprints, self.lists.counts)


class Selected(NamedTuple):
    """Some rows of postings."""

    postings: Postings
    rows: Ints

    @classmethod
    def all(cls, postings: Postings) -> Selected:
        return cls(postings, np.arange(len(postings.lengths)))

    @property
    def size(self) -> int:
        """About how many postings these are."""
        lengths = self.postings.lengths
        return len(self.postings.lists.rows) * len(self.rows) // max(len(lengths), 1)


def _coalesced(parts: Sequence[Selected]) -> list[Selected]:
    """Parts of the same postings, one after the other, as one."""
    found: list[Selected] = []
    for _, same in groupby(parts, key=lambda part: id(part.postings)):
        some = list(same)
        found.append(Selected(some[0].postings, np.concatenate([part.rows for part in some])))
    return found


def _joined(arrays: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *arrays]).astype(np.int64)


def _lists(fingerprints: npt.NDArray[np.generic], rows: Ints, frequencies: Ints) -> Lists:
    """Postings in any order as lists. Those of one term and page become one."""
    keys = (fingerprints.astype(np.uint64) << np.uint64(32)) | rows.astype(np.uint64)
    order = np.argsort(keys)
    keys = keys[order]
    firsts = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
    often = np.add.reduceat(frequencies[order], firsts) if len(firsts) else frequencies
    terms = (keys[firsts] >> np.uint64(32)).astype(np.uint32)
    begins = np.flatnonzero(np.diff(terms, prepend=~terms[:1]))
    return Lists(
        terms[begins],
        np.diff(begins, append=len(terms)),
        (keys[firsts] & np.uint64(0xFFFFFFFF)).astype(np.int64),
        np.clip(often, 1, MOST_FREQUENT).astype(np.uint8),
    )
