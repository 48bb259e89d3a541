"""A cluster's norm and its count in a byte each, for codes in which every byte tells.

A norm of 0 to 1 is a number of 255ths. A count is a small float: its byte is 16 e + m, which is m
for e = 0 and (16 + m) 2^(e - 1) above, but never more than 65,535. So counts to 31 are exact, and
no other is off by more than 1 in 32.
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
_HIGHEST = int(_COUNTS.argmax())  # bytes above it say the same
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
