"""The norm and the count of a cluster in one byte each.

A norm from 0 to 1 is stored as a number of 255ths. A count is a small float: the byte 16 e + m
stands for m if e = 0, else for (16 + m) 2^(e - 1), at most 65,535. Counts up to 31 are exact; the
error of any other is at most 1 in 32.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Norms = npt.NDArray[np.float16]
Counts = npt.NDArray[np.uint16]

_EXPONENTS, _MANTISSAS = np.divmod(np.arange(256), 16)
_COUNTS = np.where(_EXPONENTS == 0, _MANTISSAS, (16 + _MANTISSAS) << np.maximum(_EXPONENTS - 1, 0))
_COUNTS = _COUNTS.clip(max=np.iinfo(np.uint16).max).astype(np.uint16)
_HIGHEST = int(_COUNTS.argmax())  # bytes above it stand for the same count
_BETWEEN = (_COUNTS[1 : _HIGHEST + 1] + _COUNTS[:_HIGHEST].astype(np.float64)) / 2


def norm_bytes(norms: Norms) -> Bytes:
    parts: Bytes = np.rint(norms.astype(np.float32).clip(0, 1) * 255).astype(np.uint8)
    return parts


def norms_of(stored: Bytes) -> Norms:
    return (stored / np.float32(255)).astype(np.float16)


def count_bytes(counts: Counts) -> Bytes:
    return np.searchsorted(_BETWEEN, counts, side="right").astype(np.uint8)


def counts_of(stored: Bytes) -> Counts:
    return _COUNTS[stored]
