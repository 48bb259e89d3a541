"""Progress reads like a sentence."""

from __future__ import annotations

import pytest

from glie.progress import Progress


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("pages", 120, 500), "120 of 500 pages"),
        (Progress("pages", 0, 1500), "0 of 1,500 pages"),
        (Progress("pages", 1200), "1,200 pages"),
        (Progress("loading the encoder"), "loading the encoder"),
    ],
)
def test_progress_as_text(progress: Progress, text: str) -> None:
    assert str(progress) == text
