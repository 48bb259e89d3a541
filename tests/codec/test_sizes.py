"""Norms and counts in one byte each."""

from __future__ import annotations

import numpy as np

from glie.codec.sizes import count_bytes, counts_of, norm_bytes, norms_of


def test_counts_in_a_byte() -> None:
    counts = np.arange(65536, dtype=np.uint16)
    read = counts_of(count_bytes(counts))
    np.testing.assert_array_equal(read[:33], counts[:33])
    assert (np.abs(read[1:].astype(float) / counts[1:] - 1) <= 1 / 32).all()
    assert (np.diff(read.astype(int)) >= 0).all()  # the largest cluster stays the first
    np.testing.assert_array_equal(counts_of(count_bytes(read)), read)
    examples = {0: 0, 31: 31, 0x20: 32, 0x21: 34, 0x2F: 62, 0x30: 64, 0xCF: 63488, 0xD0: 65535}
    for byte, count in examples.items():
        assert counts_of(np.array([byte], np.uint8))[0] == count
    assert counts_of(np.array([255], np.uint8))[0] == 65535


def test_norms_in_a_byte() -> None:
    stored = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(norm_bytes(norms_of(stored)), stored)
    beyond = np.array([-0.1, 1.002], np.float16)
    assert norm_bytes(beyond).tolist() == [0, 255]
