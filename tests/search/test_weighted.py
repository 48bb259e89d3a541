"""Questions of the weighted head: their last dimension meets no rounding error of stored pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import glie
from glie.pages import Queries
from tests.conftest import Floats, make_arrays


def weighted(seed: int, count: int) -> list[Floats]:
    """Questions (w u, sqrt(1 - w^2))."""
    rng = np.random.default_rng(seed)
    found = []
    for rows in make_arrays(count, seed=seed, dim=63, low=4, high=9):
        weight = rng.uniform(0.05, 0.95, (len(rows), 1))
        found.append(np.concatenate([weight * rows, np.sqrt(1 - weight**2)], 1).astype(np.float32))
    return found


def test_the_last_dimension_is_left_out(tmp_path: Path) -> None:
    pages = glie.Pages([np.pad(rows, ((0, 0), (0, 1))) for rows in make_arrays(40, dim=63)])
    queries = weighted(1, 10)
    found = {}
    for name in ("english", "multilingual", "other"):
        index = glie.Index.create(tmp_path / name, glie.Codec(4, dtype="int2"), encoder=name)
        index.add(pages)
        found[name] = [hits.scores for hits in index.search(queries, top=40)]
        if name != "other":
            without = [np.pad(rows[:, :-1], ((0, 0), (0, 1))) for rows in queries]
            codes = glie.Codec(4, dtype="int2").compress(pages)
            for hits, rows in zip(index.search(queries, top=40), without, strict=True):
                best = [(rows @ codes.vectors[int(i)].T).max(axis=1).sum() for i in hits.ids]
                np.testing.assert_allclose(hits.scores, best, atol=2e-3)
    assert not np.allclose(found["english"], found["other"], atol=1e-2)


def test_queries_keep_their_length_in_the_class() -> None:
    queries = Queries(weighted(2, 3))
    short = queries.without_last()
    assert (short.vectors[:, -1] == 0).all()
    np.testing.assert_array_equal(short.vectors[:, :-1], queries.vectors[:, :-1])
    np.testing.assert_allclose(np.linalg.norm(queries.vectors, axis=1), 1, atol=1e-6)
