"""The first stage: a bounded coarse scan and a search over candidates, against the exact scan."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.kernels.maxsim import maxsim
from glie.kernels.quantize import BITS, Packed
from glie.pages import Queries
from glie.search import scan
from glie.search.scan import CodeBlock
from tests.conftest import Floats, make_arrays, unit


@pytest.mark.parametrize("dtype", [*BITS, "bf16"])
def test_the_best_of_many_pages_are_the_best_by_exact_scores(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coarse score leaves out most pages. With equal pages, and several blocks."""
    monkeypatch.setattr(scan, "FEW_PAGES", 0)
    rng = np.random.default_rng(0)
    arrays = unit(rng.normal(size=(3000, 3, 16)))
    arrays[1000:1020] = arrays[5]  # equal scores
    stored = Packed.of(arrays, dtype)
    counts = np.ones((3000, 3), np.uint16)
    counts[::7, 2] = 0
    queries = glie.Queries([unit(rng.normal(size=(n, 16))) for n in (1, 4, 30)] + [arrays[5]])
    bounds = [0, 1700, 1701, 3000]
    blocks = [
        CodeBlock(stored.take(np.arange(a, b)), counts[a:b], a, np.arange(b - a)[:: 1 + (a > 0)])
        for a, b in pairwise(bounds)
    ]
    found = scan.scan(queries, blocks, 25)
    asked = np.concatenate([block.first + block.rows for block in blocks])
    ends = 3 * np.arange(3000) + np.count_nonzero(counts, axis=1)
    flat = stored.take(np.arange(3000))._replace(rows=stored.rows.reshape(9000, -1))
    exact = maxsim(queries.vectors, queries.offsets, flat, 3 * np.arange(3000), ends)
    for q in range(len(queries)):
        order = asked[np.argsort(-exact[q][asked], kind="stable")[:25]]
        assert found.positions[q].tolist() == order.tolist()
        assert found.scores[q].tolist() == exact[q][order].tolist()


@pytest.mark.parametrize("dtype", ["bf16", "int2"])
def test_no_questions_of_many_pages(tmp_path: Path, dtype: str) -> None:
    index = glie.Index.create(tmp_path / "x", glie.Codec(k=1, dtype=dtype))
    index.add(glie.Pages(unit(np.random.default_rng(0).normal(size=(1200, 1, 4)))))
    assert index.search([], exact=True) == []


def questions(arrays: list[Floats], count: int, seed: int) -> list[Floats]:
    """Vectors of some of the pages, with noise."""
    rng = np.random.default_rng(seed)
    asked = []
    for page in rng.integers(len(arrays), size=count):
        rows = arrays[page][rng.integers(len(arrays[page]), size=6)]
        asked.append(unit(rows + 0.3 * rng.normal(size=rows.shape)))
    return asked


def test_candidates_contain_the_results_of_the_exact_scan(tmp_path: Path) -> None:
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
    # the same scores and order as in the scan
    for a, b in zip(exact, found, strict=True):
        scores = dict(zip(a.ids, a.scores, strict=True))
        common = [page for page in b.ids if page in scores]
        assert common == [page for page in a.ids if page in common]
        assert all(scores[i] == s for i, s in zip(b.ids, b.scores, strict=True) if i in scores)


def test_all_lists_and_all_pages_give_the_exact_scan(index: glie.Index) -> None:
    index.delete(index.ids[3:6])
    index.add(glie.Pages(make_arrays(3, seed=8), ids=list("xyz")))  # a second segment
    state = index._state
    asked = Queries.of(make_arrays(5, seed=9, low=1, high=30))
    allowed = state.allowed(None, None)
    exact = scan.scan(asked, state.blocks(allowed), 12)
    found = scan.scan_candidates(
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
    """However few pages the first probes find."""
    query = Queries.of(make_arrays(1, seed=4, low=1, high=1))
    state = index._state
    blocks = state.candidate_blocks(state.allowed(None, None))
    few = scan.scan_candidates(query, blocks, state.candidates.ivf_pq, 1, probes=1, candidates=1)
    assert few.cost.pages_estimated < 15
    assert (
        len(scan.scan_candidates(query, blocks, state.candidates.ivf_pq, 25, probes=1).positions[0])
        == 25
    )
    assert len(index.search(query, top=99, exact=False)[0]) == 30
    assert index.search([], exact=False) == []
