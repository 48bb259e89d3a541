"""A short soak; tools/soak.py runs for an hour."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.soak import MOST_GROWTH, Soaked, Use, soak


def test_memory_and_open_files_stay_flat(tmp_path: Path) -> None:
    done = soak(tmp_path, seconds=0, seed=0)
    assert done.changes > 100
    assert done.compared == 8 * done.rounds
    done.check()


def test_growth_is_noticed() -> None:
    flat = Soaked(1, 1, 1, 1, Use(100, 10), Use(100, 10), 1.0)
    flat.check()
    for last in (Use(100 + MOST_GROWTH + 1, 10), Use(100, 11)):
        with pytest.raises(AssertionError, match=r"memory|open files"):
            flat._replace(last=last).check()
