"""Signatures: the fast versions equal their references, and an estimate is what it says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glie.kernels.maxsim import maxsim_reference
from glie.kernels.signatures import (
    PARTS,
    WORDS,
    Floats,
    Signatures,
    Tables,
    estimates,
    estimates_reference,
    lists_of,
    marked_pages,
    product_words,
    product_words_reference,
)

seeds = st.integers(0, 99)


def some(pages: int, k: int, cells: int, seed: int) -> Signatures:
    rng = np.random.default_rng(seed)
    return Signatures(
        rng.integers(cells, size=(pages, k)).astype(np.uint16),
        rng.integers(WORDS, size=(pages, k, PARTS)).astype(np.uint8),
    )


def normal(*shape: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 5), st.integers(1, 9), seeds)
def test_estimates_equal_the_reference(
    tokens: int, pages: int, k: int, cells: int, seed: int
) -> None:
    dim, width = 5, 3
    tables = Tables.of(
        normal(tokens, dim, seed=seed),
        normal(cells, dim, seed=seed + 1),
        normal(tokens, PARTS, width, seed=seed + 2),
        normal(PARTS, WORDS, width, seed=seed + 3),
    )
    signatures = some(pages, k, cells, seed)
    rows = np.random.default_rng(seed).permutation(pages)[: pages // 2 + 1]
    fast = estimates(tables, signatures, rows)
    plain = estimates_reference(tables, signatures, rows)
    np.testing.assert_array_equal(fast, plain)


@given(st.integers(1, 50), st.integers(1, 12), st.integers(1, 4), seeds)
def test_an_estimate_is_maxsim_with_what_signatures_stand_for(
    tokens: int, pages: int, k: int, seed: int
) -> None:
    """The centre of the cell, and a word for every part of what it leaves."""
    width, cells = 2, 7
    query = normal(tokens, PARTS * width, seed=seed)
    centres = normal(cells, PARTS * width, seed=seed + 1)
    words = normal(PARTS, WORDS, width, seed=seed + 2)
    signatures = some(pages, k, cells, seed)
    tables = Tables.of(query, centres, query.reshape(tokens, PARTS, width), words)
    rest = words[np.arange(PARTS), signatures.codes].reshape(pages * k, -1)
    vectors = centres[signatures.cells.ravel()] + rest
    starts = np.arange(pages) * k
    exact = maxsim_reference(query, np.array([0, tokens]), vectors, starts, starts + k)[0]
    found = estimates(tables, signatures, np.arange(pages))
    step = np.abs(tables.by_token).max() / np.abs(tables.cells).max()
    # each of the numbers added up is off by half a step at most
    np.testing.assert_allclose(found * step, exact, rtol=0.01, atol=tokens * (1 + PARTS) * step / 2)


@given(st.integers(1, 40), st.integers(1, 5), seeds)
def test_product_words_equal_the_reference(rows: int, width: int, seed: int) -> None:
    """Exactly: the numbers are whole, so no sum is rounded."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, size=(rows, PARTS, width)).astype(np.float32)
    words = rng.integers(-9, 10, size=(PARTS, WORDS, width)).astype(np.float32)
    np.testing.assert_array_equal(product_words(x, words), product_words_reference(x, words))


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 9), seeds)
def test_pages_are_listed_by_cell(pages: int, k: int, cells: int, seed: int) -> None:
    signatures = some(pages, k, cells, seed)
    lists = lists_of(signatures, cells)
    for cell in range(cells):
        mine = lists.pages[lists.starts[cell] : lists.starts[cell + 1]]
        np.testing.assert_array_equal(mine, np.nonzero(signatures.cells == cell)[0])
    picked = np.flatnonzero(np.random.default_rng(seed).random(cells) < 0.4)
    marked = marked_pages(lists, picked, pages)
    np.testing.assert_array_equal(marked, np.isin(signatures.cells, picked).any(axis=1))
