"""Posting lists as bits, and BM25 over them, compiled and plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels import postings
from glie.kernels.postings import (
    FINGERPRINT,
    LONG,
    MOST_FREQUENT,
    Lists,
    Packed,
    add_bm25,
    find,
    pack,
    unpack,
    unpack_reference,
)


def random_lists(rng: np.random.Generator, terms: int, pages: int) -> Lists:
    """Lists of all sizes, from one posting to every page."""
    terms = terms if pages else 0
    fingerprints = rng.choice(1 << FINGERPRINT, 2 * terms, replace=False)[:terms]
    fingerprints[:2] = (0, (1 << FINGERPRINT) - 1)[:terms]
    counts = np.ceil(pages ** rng.random(terms)).astype(np.int64)
    counts[:1] = pages
    rows = [np.sort(rng.choice(pages, count, replace=False)) for count in counts]
    often = np.minimum(rng.geometric(rng.choice([0.01, 0.6], counts.sum())), MOST_FREQUENT)
    return Lists(
        np.unique(fingerprints).astype(np.uint32),
        counts,
        np.concatenate([np.zeros(0, np.int64), *rows]),
        often.astype(np.uint8),
    )


def assert_same(found: Lists | None, expected: Lists) -> None:
    assert found is not None
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def both_find(packed: Packed, fingerprint: int) -> tuple[np.ndarray, np.ndarray] | None:
    """`find`, after the compiled and the plain form have agreed."""
    answers = []
    for plain in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postings, "in_numpy", lambda _, plain=plain: plain)
            answers.append(find(packed, fingerprint))
    one, other = answers
    if one is None or other is None:
        assert one is other
        return None
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
    assert one[0].dtype == other[0].dtype
    assert one[1].dtype == other[1].dtype
    return one


@pytest.mark.parametrize(
    ("terms", "pages"),
    [
        (0, 0),
        (0, 3),
        (1, 1),
        (2, 1),
        (5, 2),
        (300, 7),
        (256, LONG),
        (257, 100),
        (513, 1000),
        (3, 70_000),
    ],
)
def test_packed_lists_come_back(terms: int, pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "POSTINGS_PER_STEP", 1000)
    lists = random_lists(np.random.default_rng(terms), terms, pages)
    packed = pack(lists, pages)
    for plain in (True, False):
        monkeypatch.setattr(postings, "in_numpy", lambda _, plain=plain: plain)
        assert_same(unpack(packed, len(lists.rows)), lists)
    ends = np.cumsum(lists.counts)
    for term in range(0, len(lists.counts), 1 + terms // 20):
        found = both_find(packed, int(lists.fingerprints[term]))
        assert found is not None
        mine = slice(int(ends[term] - lists.counts[term]), int(ends[term]))
        np.testing.assert_array_equal(found[0], lists.rows[mine])
        np.testing.assert_array_equal(found[1], lists.frequencies[mine])


def test_terms_that_are_not_there() -> None:
    lists = random_lists(np.random.default_rng(0), 600, 90)
    packed = pack(lists._replace(fingerprints=lists.fingerprints // 2 + 5), 90)
    for fingerprint in (0, 4, 6, 1 << 30, (1 << 31) + 9, (1 << 32) - 1):
        found = both_find(packed, fingerprint)
        assert found is not None
        assert not len(found[0])
        assert not len(found[1])


def test_packing_in_steps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = random_lists(np.random.default_rng(1), 2000, 50)
    whole = pack(lists, 50)
    monkeypatch.setattr(postings, "POSTINGS_PER_STEP", 1)
    for one, other in zip(whole, pack(lists, 50), strict=True):
        np.testing.assert_array_equal(one, other)


@given(st.data())
def test_no_bits_do_harm(data: st.DataObject) -> None:
    """Changed bits give other lists, possible ones, or are refused, by both forms alike."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    pages = data.draw(st.sampled_from([1, 90, 5000]))
    lists = random_lists(rng, data.draw(st.integers(1, 40)), pages)
    packed = pack(lists, pages)
    if data.draw(st.booleans()):
        words = packed.words.copy()
        for bit in rng.integers(0, 64 * len(words), data.draw(st.integers(1, 5))):
            words[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    else:
        words = rng.integers(0, 1 << 63, len(packed.words), np.uint64)
        words &= rng.integers(0, 1 << 63, len(words), np.uint64)
        words[::3] = data.draw(st.sampled_from([0, 2**64 - 1]))
    harmed = packed._replace(words=words, terms=data.draw(st.sampled_from([packed.terms, 256])))
    for fingerprint in lists.fingerprints[:5]:
        found = both_find(harmed, int(fingerprint))
        if found is not None and len(found[0]):
            assert (np.diff(found[0], prepend=-1) > 0).all()
            assert found[0][-1] < pages
            assert found[1].min() > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "in_numpy", lambda _: False)
        whole = unpack(harmed, len(lists.rows))
    if whole is not None:
        assert_same(whole, unpack_reference(harmed))


@pytest.mark.parametrize("plain", [True, False])
def test_every_byte_cut_off_is_noticed(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "in_numpy", lambda _: plain)
    lists = random_lists(np.random.default_rng(2), 30, 80)
    packed = pack(lists, 80)
    for words in range(len(packed.words)):
        starts = np.array([0, 8 * words], "<u8")
        harmed = packed._replace(words=packed.words[:words], starts=starts)
        assert unpack(harmed, len(lists.rows)) is None
        found = find(harmed, int(lists.fingerprints[-1]))
        assert found is None or not len(found[0])
    assert unpack(packed, len(lists.rows) - 1) is None
    assert unpack(packed, len(lists.rows) + 1) is None


def test_bm25_is_that_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows = np.flatnonzero(rng.random(500) < 0.3)
    frequencies = rng.integers(1, 256, len(rows)).astype(np.uint8)
    penalties = rng.random(500).astype(np.float32)
    scores = rng.random((2, 500)).astype(np.float32)
    scores[1] = scores[0]
    for plain in (True, False):
        monkeypatch.setattr(postings, "in_numpy", lambda _, plain=plain: plain)
        add_bm25(rows, frequencies, 0.7, penalties, scores[int(plain)])
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6)
