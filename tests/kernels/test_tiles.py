"""Every processor computes the same: with its newest instructions switched off, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

HOST = {name for name, there in binding.get_host_cpu_features().items() if there}
AVX2 = {"sse2", "ssse3", "sse4.1", "avx", "avx2", "fma"}
AVX_VNNI = {*AVX2, "avxvnni"}
AVX512 = {*AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}

# What a case says of the tiles: lanes, and whether small integers saturate.
CASES = {
    "none": (set[str](), (8, False)),
    "AVX2": (AVX2, (8, True)),
    "AVX-VNNI": (AVX_VNNI, (8, False)),
    "AVX-512": (AVX512, (16, False)),
}

CHECK = """
import numpy as np
from glie.kernels import _tiles
from glie.kernels.coarse import coarse_maxsim
from glie.kernels.maxsim import maxsim, maxsim_reference
from glie.kernels.quantize import DTYPES, Packed

rng = np.random.default_rng(0)
for dim, tokens, pages in ((128, 20, [4] * 9), (7, 1, [1]), (130, 49, [1, 2, 3, 5, 0, 8, 13])):
    draw = lambda n: (lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))(
        rng.normal(size=(n, dim)).astype(np.float32)
    )
    p = np.cumsum([0, *pages])
    queries, rows, q = draw(tokens), draw(p[-1]), np.array([0, tokens])
    for dtype in (None, *DTYPES):
        stored = rows if dtype is None else Packed.of(rows, dtype)
        case = (queries, q, stored, p[:-1], p[1:])
        expected = maxsim_reference(*case)
        np.testing.assert_allclose(maxsim(*case), expected, rtol=1e-5, atol=1e-5)
        if dtype is not None:
            scores, bounds = coarse_maxsim(*case)
            there = np.isfinite(expected)
            assert (np.isfinite(scores) == there).all()
            assert (np.abs(scores[there] - expected[there]) <= bounds[0]).all(), dtype
rows = np.full((3, 512), 255, np.uint8)  # all levels and all numbers as large as can be
stored = Packed(rows, "int8", 512)
queries, one = stored.vectors()[:1], np.arange(4)
np.testing.assert_allclose(coarse_maxsim(queries, one[:2], stored, one[:3], one[1:])[0], 1, atol=1e-4)
print(_tiles.LANES, _tiles.SATURATES)
"""


@pytest.mark.parametrize("name", CASES)
def test_fast_equals_reference_with_fewer_instructions(name: str) -> None:
    features, expected = CASES[name]
    if not features <= HOST:
        pytest.skip("this processor has no such instructions")
    environment = os.environ | {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in sorted(features)),
    }
    code = "from glie.kernels import _compiled\n" + CHECK  # so that nothing is small
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [str(value) for value in expected]
