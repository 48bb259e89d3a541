"""Encoders that count what they are given, and a set for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import glie
from glie.evaluation import Dataset
from tests.conftest import Floats, unit

COUNT = 150  # pages: two full shards, and one of 22


class Counting:
    """Random vectors that depend on the text alone; counts what it is asked for."""

    name = "counting"
    revision = "1"

    def __init__(self, dim: int = 8, stop_at: int | None = None) -> None:
        self.pages: list[Any] = []
        self.questions: list[str] = []
        self.dim, self.stop_at = dim, stop_at

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        if self.stop_at is not None and len(self.pages) + len(pages) > self.stop_at:
            raise KeyboardInterrupt
        self.pages += pages
        return [self._vectors(text) for text in pages]

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        self.questions += texts
        return [self._vectors(text) for text in texts]

    def _vectors(self, text: str) -> Floats:
        rng = np.random.default_rng(list(text.encode()))
        return unit(rng.normal(size=(1 + len(text) % 5, self.dim)))


class Seeing(Counting):
    """Looks at pages: one vector, the colour of a corner."""

    reads = "image"

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        self.pages += pages
        return [unit(np.array([page.getpixel((0, 0))]) + 1.0) for page in pages]

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        return [unit(np.ones((1, 3))) for _ in texts]


def make_set(**changes: Any) -> Dataset:
    dataset = Dataset(
        "my set/a",
        {f"p{i}": f"page {'x' * (i % 7)} {i}" for i in range(COUNT)},
        {"q1": "one?", "q2": "two?"},
        {"q2": {"p3": 2, "p140": 1}, "q1": {"p1": 1, "gone": 1}},
        warnings=("1 page without text or image left out: gone",),
    )
    return dataset._replace(**changes)


def same(one: glie.Pages, other: glie.Pages) -> bool:
    return one.ids == other.ids and np.array_equal(one.vectors, other.vectors)


def only_folder(cache: Path) -> Path:
    (folder,) = cache.iterdir()
    return folder
