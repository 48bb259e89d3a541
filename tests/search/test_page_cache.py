"""The page cache: the same vectors, decoded once, within its bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.search.page_cache import PageCache
from tests.codec.networks import random_codec
from tests.conftest import make_arrays


class Counting:
    """A codec's `regenerate` that remembers what it was asked for."""

    def __init__(self) -> None:
        self.codec = random_codec(16, 3)
        self.asked: list[str] = []

    def __call__(self, codes: glie.Codes) -> glie.Pages:
        self.asked += codes.ids
        return self.codec.regenerate(codes)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def codes(counting: Counting) -> glie.Codes:
    return counting.codec.compress(glie.Pages(make_arrays(12, low=5, high=40)))


def test_the_same_vectors_and_none_decoded_twice(counting: Counting, codes: glie.Codes) -> None:
    cache = PageCache(counting)
    plain = counting.codec.regenerate(codes)
    for rows in ([3, 1, 7], [7, 3], [0, 1, 2, 3], list(range(12)), [5]):
        made, _ = cache.pages(codes.take(np.array(rows)))
        assert made.ids == [codes.ids[i] for i in rows]
        for place, i in enumerate(rows):
            assert made[place].tobytes() == plain[i].tobytes()
    assert sorted(counting.asked) == sorted(codes.ids)


def test_it_keeps_what_was_used_last_within_its_bytes(
    counting: Counting, codes: glie.Codes
) -> None:
    sizes = counting.codec.regenerate(codes).lengths * 16 * 4
    cache = PageCache(counting, int(sizes[0] + sizes[1] + sizes[2]))
    for i in (0, 1, 2, 0):
        cache.pages(codes.take(np.array([i])))
    cache.pages(codes.take(np.array([3])))  # 1 goes, perhaps 2; 0 was used since
    assert cache._bytes <= cache._most_bytes
    before = len(counting.asked)
    cache.pages(codes.take(np.array([3])))
    assert len(counting.asked) == before
    cache.pages(codes.take(np.array([1])))
    assert counting.asked[before:] == [codes.ids[1]]
    assert cache._bytes == sum(vectors.nbytes for vectors in cache._kept.values())


def test_a_page_larger_than_all_is_not_kept(counting: Counting, codes: glie.Codes) -> None:
    cache = PageCache(counting, 10)
    for _ in range(2):
        cache.pages(codes)
    assert len(counting.asked) == 24
    assert not cache._kept


def test_threads(counting: Counting, codes: glie.Codes) -> None:
    cache = PageCache(counting, 4000)
    plain = counting.codec.regenerate(codes)

    def ask(seed: int) -> bool:
        rows = np.random.default_rng(seed).choice(12, 5, replace=False)
        made, _ = cache.pages(codes.take(rows))
        return all(made[i].tobytes() == plain[row].tobytes() for i, row in enumerate(rows))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))
    assert cache._bytes == sum(vectors.nbytes for vectors in cache._kept.values()) <= 4000


def test_an_index_decodes_a_page_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = random_codec(16, 3)
    arrays = make_arrays(30)
    index = glie.Index.create(tmp_path / "x", codec)
    index.add(glie.Pages(arrays))
    decoded = []
    plain = glie.Codec.regenerate

    def regenerate(self: glie.Codec, codes: glie.Codes) -> glie.Pages:
        decoded.append(len(codes))
        return plain(self, codes)

    monkeypatch.setattr(glie.Codec, "regenerate", regenerate)
    first = index.search([arrays[3][:4]], 5)[0]
    again = index.search([arrays[3][:4]], 5)[0]
    assert (again.ids, again.scores) == (first.ids, first.scores)
    assert [count for count in decoded if count] == [20]
    index.delete([first.ids[0]])  # positions may mean other pages now
    after = index.search([arrays[3][:4]], 4)[0]
    assert after.ids == first.ids[1:]
    assert len([count for count in decoded if count]) == 2
