"""The transform read-out: groups of a page's vectors, each as coordinates beside its anchor.

A page's vectors are grouped by Ward's clustering, as many groups as fit, and the mean of each is
stored by its coordinates (`coordinates.py`). A page whose vectors all fit gets more bits a vector
instead. The bytes of a page are the number of groups (one byte below 128, else two), the place of
its rate in those of the table, and the bits of each group: its anchor, then its coordinates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from glie.codec.budget import transform_config
from glie.codec.codes import Blobs, Codes, stored_as
from glie.codec.config import CodecConfig
from glie.codec.readout.base import AnchorsOnly, Readout, repeated
from glie.codec.readout.coordinates import Coordinates, Floats, Ints
from glie.codec.readout.pairs import count_bytes, counts_of_blobs
from glie.codec.readout.residual import RESIDUAL_SHORTLIST
from glie.errors import CorruptIndexError, InputError
from glie.identity import EncoderId
from glie.kernels.ward import ward_groups
from glie.pages import Pages

COORDINATES = "coordinates.safetensors"


@dataclasses.dataclass(frozen=True, eq=False)
class Transform:
    """Coordinates of groups around the anchors, at most `residual_bytes` a page."""

    table: Coordinates
    residual_bytes: int = 0

    regenerates = True
    shortlist = RESIDUAL_SHORTLIST
    worth_caching = False
    exact = False
    ready = True
    keeps_residual = True

    @property
    def label(self) -> str:
        return f"{len(self.table)} coordinates"

    @property
    def dim(self) -> int:
        return self.table.dim

    @property
    def encoder(self) -> EncoderId | None:
        return self.table.encoder

    @property
    def notes(self) -> Mapping[str, Any]:
        return self.table.notes

    @property
    def single_stage(self) -> Readout:
        return AnchorsOnly()

    def at(self, config: CodecConfig) -> Readout:
        return dataclasses.replace(self, residual_bytes=config.residual_bytes)

    def fits(self, pages: Pages) -> bool:
        if pages.dim != self.dim:
            return False
        from glie.codec.anchors import anchor, cluster  # anchors.py knows no read-out

        free = anchor(pages, cluster(pages, CodecConfig()))
        vectors, anchors, _, _ = grouped(pages, free, np.full(len(pages), 32))
        return self.table.fits(vectors, anchors)

    def extra_bytes(self, config: CodecConfig) -> int:
        return 2 + config.residual_bytes

    def code(self, pages: Pages, free: Codes, dtype: str) -> Codes:
        codes = stored_as(free, dtype, exact=self.exact)
        return dataclasses.replace(codes, residual=self._residual(pages, codes))

    def _residual(self, pages: Pages, codes: Codes) -> Blobs:
        slot_bits = _slot_bits(codes)
        rates, wanted = self._rates(pages.lengths, slot_bits)
        vectors, anchors, slots, bounds = grouped(pages, codes, wanted)
        blobs = [b""] * len(pages)
        of_rate = np.repeat(rates, np.diff(bounds))
        for place, rate in enumerate(self.table.rates):
            mine = np.flatnonzero(of_rate == place)
            if not len(mine):
                continue
            stored = self.table.to_bits(vectors[mine], anchors[mine], rate)
            for page in np.flatnonzero(rates == place):
                first, last = np.searchsorted(mine, bounds[page : page + 2])
                slot = slots[bounds[page] : bounds[page + 1], None]
                slot = (slot >> np.arange(slot_bits[page]) & 1).astype(np.uint8)
                rows = np.concatenate([slot, stored[first:last]], axis=1)
                head = count_bytes(len(rows)) + bytes([place])
                blobs[page] = head + np.packbits(rows, bitorder="little").tobytes()
        return Blobs.of(blobs)

    def _rates(self, lengths: Ints, slot_bits: Ints) -> tuple[Ints, Ints]:
        """For each page the place of its rate, and how many groups fit."""
        room = 8 * (self.residual_bytes - 3)  # beside the count and the rate
        fitting = [room // (slot_bits + self.table.width(rate)) for rate in self.table.rates]
        rates = np.zeros(len(lengths), np.int64)
        for place in range(1, len(fitting)):
            rates[fitting[place] >= lengths] = place
        return rates, np.choose(rates, fitting)

    def regenerate(self, codes: Codes) -> Pages:
        """The anchors of every page, then the vectors of its groups."""
        if codes.residual is None:
            return repeated(codes)
        used = np.count_nonzero(codes.counts, axis=1)
        vectors, bounds = self._vectors(codes)
        offsets = np.concatenate([[0], np.cumsum(used + np.diff(bounds))])
        out = np.empty((offsets[-1], codes.dim), np.float32)
        page, slot = np.nonzero(np.arange(codes.k) < used[:, None])
        out[offsets[page] + slot] = codes.vectors[page, slot]
        page = np.repeat(np.arange(len(codes)), np.diff(bounds))
        out[np.arange(len(vectors)) + (offsets[:-1] + used - bounds[:-1])[page]] = vectors
        return Pages.packed(out, offsets, codes.ids)

    def _vectors(self, codes: Codes) -> tuple[Floats, Ints]:
        """The vectors of all groups end to end, and the bounds of each page."""
        blobs = codes.residual
        assert blobs is not None
        counts, heads = counts_of_blobs(blobs)
        rates = blobs.data[np.minimum(blobs.offsets[:-1] + heads, len(blobs.data) - 1)]
        if (rates >= len(self.table.rates)).any():
            raise _damaged()
        slot_bits = _slot_bits(codes)
        of_rates = np.array([self.table.width(rate) for rate in self.table.rates])
        widths = slot_bits + of_rates[rates]
        if (heads + 1 + -(-counts * widths // 8) != blobs.lengths).any():
            raise _damaged()
        bounds = np.concatenate([[0], np.cumsum(counts)])
        vectors = np.empty((bounds[-1], codes.dim), np.float32)
        for place in np.unique(rates):
            pages = np.flatnonzero(rates == place)
            stored, slots = [], []
            for page in pages.tolist():
                data = blobs[page][heads[page] + 1 :]
                size = counts[page] * widths[page]
                flat = np.unpackbits(data, count=size, bitorder="little")
                rows = flat.reshape(counts[page], widths[page])
                stored.append(rows[:, slot_bits[page] :])
                slots.append(rows[:, : slot_bits[page]] @ (1 << np.arange(slot_bits[page])))
            of_page, slot = np.repeat(pages, counts[pages]), np.concatenate(slots)
            if (slot >= np.count_nonzero(codes.counts, axis=1)[of_page]).any():
                raise _damaged()
            at = np.concatenate([np.arange(bounds[page], bounds[page + 1]) for page in pages])
            anchors = codes.vectors[of_page, slot]
            rate = self.table.rates[place]
            vectors[at] = self.table.from_bits(np.concatenate(stored), anchors, rate)
        return vectors, bounds

    def config_for(self, bytes_per_page: int) -> CodecConfig:
        """The settings for a budget."""
        return transform_config(bytes_per_page, self.dim)

    def smaller(self, config: CodecConfig, bytes_per_page: int, dim: int) -> CodecConfig:
        return self.config_for(bytes_per_page)

    def shrunk(self, codes: Codes, anchors: Codes) -> Codes:
        """The stored groups, grouped again around the anchors."""
        residual = self._residual(self.regenerate(codes), anchors)
        return dataclasses.replace(anchors, residual=residual)

    def settings(self) -> dict[str, Any]:
        return {"coordinates": self.table.digest}

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        return {}, {COORDINATES: self.table.to_bytes()}

    @classmethod
    def from_files(cls, settings: dict[str, Any], files: Mapping[str, bytes], place: str) -> Self:
        named = settings.pop("coordinates")
        table = Coordinates.from_bytes(files[COORDINATES], f"{place}, {COORDINATES}")
        if table.digest != named:
            raise InputError(f"{COORDINATES} is not the file that config.json names")
        return cls(table)


def grouped(pages: Pages, codes: Codes, wanted: Ints) -> tuple[Floats, Floats, Ints, Ints]:
    """The unit means of the Ward groups of every page, at most `wanted` (P,) a page, with the
    anchor of each, its slot, and the bounds of each page."""
    groups, counts = ward_groups(pages.vectors, pages.offsets, wanted)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    groups = groups + np.repeat(bounds[:-1], pages.lengths)
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(bounds[-1]))
    sums = np.add.reduceat(pages.vectors[order], starts, axis=0) if len(order) else pages.vectors
    lengths: Floats = np.linalg.norm(sums, axis=1, keepdims=True)
    # opposite vectors can cancel out: take the first of the group
    means = np.where(lengths > 1e-4, sums / np.maximum(lengths, 1e-4), pages.vectors[order[starts]])
    slots = np.empty(len(means), np.int64)
    for page in range(len(pages)):
        mine = slice(bounds[page], bounds[page + 1])
        anchors = codes.vectors[page, : np.count_nonzero(codes.counts[page])]
        slots[mine] = (means[mine] @ anchors.T).argmax(axis=1)
    anchors = codes.vectors[np.repeat(np.arange(len(pages)), counts), slots]
    return means, anchors, slots, bounds


def _slot_bits(codes: Codes) -> Ints:
    """The bits that name an anchor of each page."""
    used = np.count_nonzero(codes.counts, axis=1)
    return np.asarray(np.ceil(np.log2(np.maximum(used, 1))), np.int64)


def _damaged() -> CorruptIndexError:
    return CorruptIndexError(
        "the residual of a page is not a list of coordinates; verify the index"
    )
