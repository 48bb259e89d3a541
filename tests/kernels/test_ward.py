"""Ward's clustering against scipy's, and the numpy loop against the compiled one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from glie.kernels import ward
from glie.kernels._ward import merge_nearest
from tests.conftest import make_arrays


def packed(arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(arrays), np.cumsum([0, *map(len, arrays)])


@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_groups_are_those_of_scipy(k: int) -> None:
    arrays = make_arrays(12, dim=24, low=20, high=60)
    vectors, offsets = packed(arrays)
    groups, counts = ward.ward_groups(vectors, offsets, np.full(12, k))
    assert counts.tolist() == [k] * 12
    for page, rows in enumerate(arrays):
        mine = groups[offsets[page] : offsets[page + 1]]
        theirs = fcluster(linkage(rows.astype(np.float64), "ward"), k, "maxclust")
        assert len(set(zip(mine, theirs, strict=True))) == k  # the same groups, otherwise numbered
        firsts = [int(np.flatnonzero(mine == group)[0]) for group in range(k)]
        assert firsts == sorted(firsts)


@pytest.mark.parametrize("rows", [1, 2, 3, 17, 150])
def test_the_numpy_loop_merges_as_the_compiled_one(rows: int) -> None:
    [vectors] = make_arrays(1, dim=16, low=rows, high=rows)
    found = []
    for merge in (merge_nearest, ward.merge_nearest_in_numpy):
        merges, heights = np.empty((rows - 1, 2), np.int64), np.empty(rows - 1, np.float32)
        merge(ward._distances(vectors), merges, heights)
        found.append((merges, heights))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)


def test_equal_vectors_share_a_group_and_a_page_may_be_short() -> None:
    distinct = make_arrays(1, dim=16, low=5, high=5)[0]
    arrays = [np.repeat(distinct, 3, axis=0), distinct[:1], distinct]
    groups, counts = ward.ward_groups(*packed(arrays), np.array([9, 4, 2]))
    assert counts.tolist() == [5, 1, 2]
    assert groups[:15].tolist() == np.repeat(np.arange(5), 3).tolist()


def test_a_page_is_grouped_alike_in_any_batch() -> None:
    arrays = make_arrays(20, dim=32, low=5, high=40)
    whole, _ = ward.ward_groups(*packed(arrays), np.full(20, 6))
    alone = [ward.ward_groups(*packed([rows]), np.array([6]))[0] for rows in arrays]
    np.testing.assert_array_equal(whole, np.concatenate(alone))
