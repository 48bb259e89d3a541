"""The candidate index: PQ codes that tell vectors apart, and candidates that hold the answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.candidates.ivf import IvfPq, lists_for, sample_for
from glie.candidates.pq import Floats
from glie.pages import Queries
from glie.search.scan import scan, scan_candidates
from tests.conftest import make_arrays, unit


def stood_for(ivf_pq: IvfPq, vectors: Floats) -> Floats:
    """The vectors as their PQ codes tell them."""
    pq_codes = ivf_pq.encode(vectors)
    codewords = ivf_pq.codewords[np.arange(len(ivf_pq.codewords)), pq_codes.codes].astype(
        np.float32
    )
    rest = codewords.reshape(len(vectors), -1) @ ivf_pq.rotation.astype(np.float32).T
    return np.asarray(ivf_pq.coarse.codewords[pq_codes.lists] + rest)


@pytest.mark.parametrize("dim", [1, 7, 16, 40])
def test_a_signature_tells_more_than_its_cell(dim: int) -> None:
    vectors = unit(np.random.default_rng(dim).normal(size=(3000, dim)))
    ivf_pq = IvfPq.fit(vectors[:2000], len(vectors))
    unseen = vectors[2000:]
    centres = ivf_pq.coarse.codewords[ivf_pq.encode(unseen).lists]
    by_cell = ((unseen - centres) ** 2).sum()
    by_signature = ((unseen - stood_for(ivf_pq, unseen)) ** 2).sum()
    # 8 bytes for 7 numbers tell nearly all, for 40 a good part
    assert by_signature < (0.5 if dim > 16 else 0.2) * by_cell + 1e-3


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_few_vectors_or_equal_ones(count: int) -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(count, 6)))
    for some in (vectors, np.repeat(vectors[:1], 4, axis=0)):
        np.testing.assert_allclose(
            stood_for(IvfPq.fit(some, len(some)), some), some, rtol=0, atol=0.15
        )


def test_a_finder_is_stored_and_read_back() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(500, 12)))
    ivf_pq = IvfPq.fit(vectors, 500)
    data = ivf_pq.to_bytes()
    again = IvfPq.from_bytes(data, "here")
    for one, two in zip(ivf_pq.encode(vectors), again.encode(vectors), strict=True):
        np.testing.assert_array_equal(one, two)
    assert again.to_bytes() == data
    for broken in (b"", data[:100], data[:-1]):
        with pytest.raises(glie.CodecError, match="here: damaged"):
            IvfPq.from_bytes(broken, "here")


def test_tensors_that_do_not_fit_together_are_refused() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(300, 12)))
    ivf_pq = IvfPq.fit(vectors, 300)
    for wrong in (
        {"rotation": ivf_pq.rotation[:, :-1]},
        {"rotation": ivf_pq.rotation.astype(np.float32)},
        {"codewords": ivf_pq.codewords[:-1]},
        {"codewords": np.full_like(ivf_pq.codewords, np.nan)},
    ):
        data = dataclasses.replace(ivf_pq, **wrong).to_bytes()
        with pytest.raises(glie.CodecError, match="damaged: the (rotation|codewords) are"):
            IvfPq.from_bytes(data, "here")


def test_cells_grow_with_the_square_root() -> None:
    assert lists_for(1) >= 1
    assert lists_for(25_000_000) == 10 * lists_for(250_000)
    assert lists_for(8 * 512) == 512
    assert lists_for(10**12) == 65_536
    assert sample_for(100) == 100
    assert sample_for(10**12) == 2**19


def questions(arrays: list[Floats], count: int, seed: int) -> list[Floats]:
    """Vectors of some of the pages, with noise."""
    rng = np.random.default_rng(seed)
    asked = []
    for page in rng.integers(len(arrays), size=count):
        rows = arrays[page][rng.integers(len(arrays[page]), size=6)]
        asked.append(unit(rows + 0.3 * rng.normal(size=rows.shape)))
    return asked


def test_candidates_hold_the_answers_of_the_exact_scan(tmp_path: Path) -> None:
    """On pages that share topics, with fewer than a tenth of the codes read."""
    rng = np.random.default_rng(0)
    topics = unit(rng.normal(size=(60, 32)))
    arrays = [
        unit(topics[rng.integers(60, size=4)] + 0.12 * rng.normal(size=(4, 32)))
        for _ in range(2500)
    ]
    index = glie.Index.create(tmp_path / "topics.glie", glie.Codec(k=4, dtype="int4"))
    index.add(glie.Pages(arrays, ids=[str(i) for i in range(len(arrays))]))
    asked = questions(arrays, 60, seed=1)
    exact, found = (index.search(asked, top=10, exact=how) for how in (True, False))
    same = [len(set(a.ids) & set(b.ids)) / 10 for a, b in zip(exact, found, strict=True)]
    assert np.mean(same) >= 0.99
    assert found[0].cost.pages_scanned < len(index) * len(asked) / 10
    assert found[0].cost.pages_estimated < len(index) * len(asked)
    assert exact[0].cost.pages_estimated == 0
    # what was found is scored, ordered and told apart as the scan does it
    for a, b in zip(exact, found, strict=True):
        scores = dict(zip(a.ids, a.scores, strict=True))
        common = [page for page in b.ids if page in scores]
        assert common == [page for page in a.ids if page in common]
        assert all(scores[i] == s for i, s in zip(b.ids, b.scores, strict=True) if i in scores)


def test_all_cells_and_all_pages_give_the_exact_scan(index: glie.Index) -> None:
    index.delete(index.ids[3:6])
    index.add(glie.Pages(make_arrays(3, seed=8), ids=list("xyz")))  # a second segment
    state = index._state
    asked = Queries.of(make_arrays(5, seed=9, low=1, high=30))
    allowed = state.allowed(None, None)
    exact = scan(asked, state.blocks(allowed), 12)
    found = scan_candidates(
        asked,
        state.candidate_blocks(allowed),
        state.candidates.ivf_pq,
        12,
        probes=state.candidates.ivf_pq.lists,
        candidates=len(index),
    )
    for one, two in zip(exact.positions, found.positions, strict=True):
        np.testing.assert_array_equal(one, two)
    for a, b in zip(exact.scores, found.scores, strict=True):
        np.testing.assert_array_equal(a, b)
    assert found.cost.pages_scanned == len(index) * len(asked)


def test_equal_pages_stand_in_the_order_of_insertion(tmp_path: Path) -> None:
    arrays = make_arrays(6)
    index = glie.Index.create(tmp_path / "equal.glie", glie.Codec(k=4))
    index.add(glie.Pages(arrays * 20, ids=[str(i) for i in range(120)]))
    for how in (True, False):
        hits = index.search([arrays[2]], top=15, exact=how)[0]
        assert hits.ids == [str(2 + 6 * i) for i in range(15)]


def test_as_many_pages_as_are_asked_for(index: glie.Index) -> None:
    """However few the lists hold that are looked into first."""
    query = Queries.of(make_arrays(1, seed=4, low=1, high=1))
    state = index._state
    blocks = state.candidate_blocks(state.allowed(None, None))
    few = scan_candidates(query, blocks, state.candidates.ivf_pq, 1, probes=1, candidates=1)
    assert few.cost.pages_estimated < 15
    assert (
        len(scan_candidates(query, blocks, state.candidates.ivf_pq, 25, probes=1).positions[0])
        == 25
    )
    assert len(index.search(query, top=99, exact=False)[0]) == 30
    assert index.search([], exact=False) == []
