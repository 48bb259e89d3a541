"""PQCodes: the fast versions equal their references, and an estimate is what it says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels.maxsim import maxsim_reference
from glie.kernels.pq import (
    CODEWORDS,
    PARTS,
    Floats,
    PQCodes,
    Tables,
    estimates,
    estimates_reference,
    pages_in_lists,
    posting_lists,
    pq_encode,
    pq_encode_reference,
)

seeds = st.integers(0, 99)


def some(pages: int, k: int, lists: int, seed: int) -> PQCodes:
    rng = np.random.default_rng(seed)
    return PQCodes(
        rng.integers(lists, size=(pages, k)).astype(np.uint16),
        rng.integers(CODEWORDS, size=(pages, k, PARTS)).astype(np.uint8),
    )


def normal(*shape: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 5), st.integers(1, 9), seeds)
def test_estimates_equal_the_reference(
    tokens: int, pages: int, k: int, lists: int, seed: int
) -> None:
    dim, width = 5, 3
    tables = Tables.of(
        normal(tokens, dim, seed=seed),
        normal(lists, dim, seed=seed + 1),
        normal(tokens, PARTS, width, seed=seed + 2),
        normal(PARTS, CODEWORDS, width, seed=seed + 3),
    )
    pq_codes = some(pages, k, lists, seed)
    rows = np.random.default_rng(seed).permutation(pages)[: pages // 2 + 1]
    fast = estimates(tables, pq_codes, rows)
    plain = estimates_reference(tables, pq_codes, rows)
    np.testing.assert_array_equal(fast, plain)


@given(st.integers(1, 50), st.integers(1, 12), st.integers(1, 4), seeds)
def test_an_estimate_is_maxsim_with_what_signatures_stand_for(
    tokens: int, pages: int, k: int, seed: int
) -> None:
    """The centroid of the list, and a codeword for every part of what it leaves."""
    width, lists = 2, 7
    query = normal(tokens, PARTS * width, seed=seed)
    centres = normal(lists, PARTS * width, seed=seed + 1)
    codewords = normal(PARTS, CODEWORDS, width, seed=seed + 2)
    pq_codes = some(pages, k, lists, seed)
    tables = Tables.of(query, centres, query.reshape(tokens, PARTS, width), codewords)
    rest = codewords[np.arange(PARTS), pq_codes.codes].reshape(pages * k, -1)
    vectors = centres[pq_codes.lists.ravel()] + rest
    starts = np.arange(pages) * k
    exact = maxsim_reference(query, np.array([0, tokens]), vectors, starts, starts + k)[0]
    found = estimates(tables, pq_codes, np.arange(pages))
    step = np.abs(tables.by_token).max() / np.abs(tables.lists).max()
    # each of the numbers added up is off by half a step at most
    np.testing.assert_allclose(found * step, exact, rtol=0.01, atol=tokens * (1 + PARTS) * step / 2)


@given(st.integers(1, 40), st.integers(1, 5), seeds)
def test_product_codewords_equal_the_reference(rows: int, width: int, seed: int) -> None:
    """Exactly: the numbers are whole, so no sum is rounded."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, size=(rows, PARTS, width)).astype(np.float32)
    codewords = rng.integers(-9, 10, size=(PARTS, CODEWORDS, width)).astype(np.float32)
    np.testing.assert_array_equal(pq_encode(x, codewords), pq_encode_reference(x, codewords))


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 9), seeds)
def test_pages_are_listed_by_list(pages: int, k: int, lists: int, seed: int) -> None:
    pq_codes = some(pages, k, lists, seed)
    posted = posting_lists(pq_codes, lists)
    for list_ in range(lists):
        mine = posted.pages[posted.starts[list_] : posted.starts[list_ + 1]]
        np.testing.assert_array_equal(mine, np.nonzero(pq_codes.lists == list_)[0])
    picked = np.flatnonzero(np.random.default_rng(seed).random(lists) < 0.4)
    marked = pages_in_lists(posted, picked, pages)
    np.testing.assert_array_equal(marked, np.isin(pq_codes.lists, picked).any(axis=1))
