"""A damaged segment, read wherever it is undamaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from glie.errors import CorruptIndexError
from glie.index.blocks import IN_BLOCKS, sound_pages
from glie.index.format import BLOCKS, RECORDS, RESIDUAL, SEGMENT_HEADER, OtherVersionError
from glie.index.segment import Segment

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class Salvage(Segment):
    """A segment whose codes are not refused if they are damaged: `sound` says which are not.

    If its header is damaged, the copy at its end counts. Segments of before version 3 have neither
    that nor checksums of blocks: damage costs all of their pages.
    """

    def __init__(self, path: Path) -> None:
        self.faults: list[str] = []  # of the header and of whole sections
        try:
            super().__init__(path)
        except OtherVersionError:
            raise
        except CorruptIndexError as error:
            try:
                super().__init__(path, at_end=True)
            except OtherVersionError:
                raise
            except CorruptIndexError:
                raise error from None
            self.faults.append(error.fault)
        else:
            ends = self._data[: SEGMENT_HEADER.size], self._data[-SEGMENT_HEADER.size :]
            if BLOCKS in self._places and not np.array_equal(*ends):
                self.faults.append("the copy of its header differs from it")
        wrong = [name for name in self._places if not self._matches(name)]
        if wrong:
            self.faults.append(f"its {' and '.join(wrong)} do not match their checksum")
        self._wrong = {name for name in wrong if name in IN_BLOCKS}
        self.sound: Mask = np.ones(self.pages, bool)  # the pages whose codes are undamaged
        lengths, self._mended = RESIDUAL[0], None
        self.sound &= self._sound_in(lengths)
        if self._has_residual:
            self._mended = self._mend(super()._residual_lengths, ~self.sound)
        for name in IN_BLOCKS:
            if name != lengths:
                self.sound &= self._sound_in(name)

    def _sound_in(self, name: str) -> Mask:
        """The pages whose part of a section is undamaged."""
        if name not in self._wrong:
            return np.ones(self.pages, bool)
        if BLOCKS not in self._places:
            return np.zeros(self.pages, bool)
        stored = [name for name in IN_BLOCKS if self._size(name)]
        sums = self._raw(BLOCKS).view("<u8").reshape(len(stored), -1)[stored.index(name)]
        starts = None if self._mended is None else np.concatenate([[0], np.cumsum(self._mended)])
        return sound_pages(name, self._raw(name), sums, self.pages, starts)

    def _mend(self, lengths: Ints, damaged: Mask) -> Ints:
        """The lengths of residuals, of which some are damaged. Those behind them are found from the
        end: the first damaged one stands for all up to the last."""
        rows = np.flatnonzero(damaged)
        first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
        lengths = lengths.copy()
        lengths[first : last + 1] = 0
        rest = self._size(RESIDUAL[1]) - int(lengths.sum())
        if rest < 0 or (rest and not len(rows)):
            self.faults.append("its residual bytes are not as many as their lengths say")
            first, last, rest = 0, self.pages - 1, self._size(RESIDUAL[1])
            lengths[:] = 0
        if first <= last:
            lengths[first] = rest
            self.sound[first : last + 1] = False
        return lengths

    @property
    def _residual_lengths(self) -> Ints:
        assert self._mended is not None
        return self._mended

    def _section(self, name: str) -> npt.NDArray[np.uint8]:
        return super()._section(name) if name in RECORDS else self._raw(name)
