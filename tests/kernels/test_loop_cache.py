"""Compiled loops are kept where that works, found again, and never run from where others write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glie.kernels import loop_cache
from glie.kernels.coarse import coarse_maxsim
from glie.kernels.maxsim import maxsim
from glie.kernels.quantize import DTYPES, Packed
from tests.conftest import unit

# Runs a small loop; says whether it was found, or compiled.
CHECK = """
import numpy as np
from glie.kernels import _decoder, _tiles
rows = np.ones((2, 3), np.float32)
out = np.empty((2, _tiles.TILE_COLUMNS), np.float32)
_decoder.multiply(rows, np.ones((1, 3, _tiles.TILE_COLUMNS), np.float32), out)
assert (out == 3).all()
print(sum(_decoder.multiply.stats.cache_hits.values()))
"""


def hits(cache: Path | str, temporary: Path) -> int:
    """How many loops a new process found, instead of compiling them."""
    settings = {"NUMBA_CACHE_DIR": str(cache), "TMPDIR": str(temporary)}
    run = subprocess.run(
        [sys.executable, "-c", CHECK],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


def test_loops_are_found_again(tmp_path: Path) -> None:
    """Also where nothing can be written, as in a read-only image."""
    cache, image = tmp_path / "cache", tmp_path / "image"
    assert hits(cache, tmp_path) == 0
    assert hits(cache, tmp_path) == 1
    kept = sorted(cache.iterdir())
    assert [path.suffix for path in kept] == [".nbc", ".nbi"]
    shutil.copytree(cache, image)
    assert hits(image, tmp_path / "no such folder") == 1
    for path in kept:
        for damage in (b"damaged", b""):  # a power cut may leave an empty file
            path.write_bytes(damage)
            assert hits(cache, tmp_path) == 0, path
    assert hits(cache, tmp_path) == 1


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="temporary files are the user's own")
def test_a_private_folder_is_used_where_no_other_can_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert hits(file / "cache", tmp_path) == 0
    assert hits(file / "cache", tmp_path) == 1
    (private,) = tmp_path.glob("glie-*")
    assert private.stat().st_mode & 0o777 == 0o700
    private.chmod(0o777)  # somebody else might have written what is in it
    assert hits(file / "cache", tmp_path) == 0


def test_a_digest_covers_what_a_loop_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "kernels"
    shutil.copytree(loop_cache.SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(loop_cache, "SOURCES", copy)

    def digests() -> dict[str, str]:
        loop_cache.digest_of.cache_clear()
        return {name: loop_cache.digest_of(name) for name in ("_needed", "_compiled", "_ward")}

    before = digests()
    with (copy / "top_k.py").open("a") as file:
        file.write("# no loop calls this\n")
    assert digests() == before
    with (copy / "_nearest.py").open("a") as file:
        file.write("# _needed calls loops of this file\n")
    after = digests()
    assert after.pop("_needed") != before.pop("_needed")
    assert after == before
    loop_cache.digest_of.cache_clear()


def test_a_scan_is_compiled_once() -> None:
    """For all types of numbers, and for arrays that may or may not be written to."""
    from glie.kernels import _coarse, _compiled

    rows = unit(np.random.default_rng(0).normal(size=(8, 32)))
    queries, q, pages = rows[:3], np.array([0, 3]), np.arange(9)
    for dtype in (None, *DTYPES):
        for writable in (True, False):
            stored = rows.copy() if dtype is None else Packed.of(rows, dtype)
            array = stored.rows if isinstance(stored, Packed) else stored
            array.setflags(write=writable)
            maxsim(queries, q, stored, pages[:-1], pages[1:])
            if isinstance(stored, Packed):
                coarse_maxsim(queries, q, stored, pages[:-1], pages[1:])
    assert len(_compiled.maxsim_range.overloads) == 1
    assert len(_coarse.coarse_range.overloads) == 1
