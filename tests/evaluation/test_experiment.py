"""Experiments: what is measured is right, what is finished is kept, what has changed is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.evaluation import Encoded
from glie.evaluation import experiment as module
from glie.evaluation.experiment import run
from glie.evaluation.fits import Codecs
from glie.evaluation.methods import ADAPTED, FREE, NAMES, SHIPPED
from glie.evaluation.results import Results
from glie.evaluation.store import Result, Setting, Store
from glie.evaluation.tables import codeword_shortlists
from glie.identity import EncoderId
from glie.index.memory import CodesInMemory
from glie.measures import ndcg_at_5
from tests.evaluation.topics import (
    PAGES,
    everything,
    in_bytes,
    plan,
)


def test_every_method_is_measured_at_every_budget(results: list[Result]) -> None:
    found = {(r.setting.dataset, r.setting.method, r.setting.k) for r in results}
    for dataset in ("one", "two"):
        for method in set(NAMES) - {SHIPPED}:
            for k in (1, 2) if method != "uncompressed" else (None,):
                assert (dataset, method, k) in found, (dataset, method, k)
    for result in results:
        assert 0 <= result.ndcg <= 1
        assert len(result.each) == PAGES
        assert result.ndcg == pytest.approx(np.mean(result.each), abs=1e-6)
        assert result.ms_per_query > 0
        k, method = result.setting.k, result.setting.method
        whole = k * (2 * 16 + 4) if k else 36 * 32
        if method in ("quantised", "plaid", "ward-1bit"):
            assert 0.8 * whole < result.bytes_per_page <= whole
        elif method != ADAPTED:  # on so few pages even the smallest codebook is too large
            assert result.bytes_per_page == whole
    varied = {(r.setting.variant, k) for r in results if (k := r.setting.k) and r.setting.variant}
    shares = {(f"{share} of pages", 4) for share in ("25%", "50%", "100%")}
    sizes = {(size, k) for size in ("16x1", "16x3") for k in (4, 16)}
    assert varied == {("shortlist", 4), *shares, *sizes}
    listed = [r.setting for r in results if r.setting.variant == "shortlist"]
    assert {(s.method, s.shortlist) for s in listed if s.dataset == "one"} == {
        (method, length) for method in ("glie", "oracle") for length in module.SHORTLISTS
    }


def test_a_method_scores_what_its_definition_says(
    sets: list[Encoded], results: list[Result]
) -> None:
    """Plain loops over codes as they are stored, and over all vectors."""
    one, pages = sets[0], sets[0].pages()

    def ndcg(vectors: list[Any]) -> float:
        total = 0.0
        for query, asked in zip(one.queries.ids, one.queries, strict=True):
            scores = [(asked @ page.T).max(axis=1).sum() for page in vectors]
            order = np.argsort(-np.array(scores), kind="stable")[:5]
            (relevant,) = one.relevant[query]
            ranks = [place for place, row in enumerate(order) if one.page_ids[row] == relevant]
            total += 1 / np.log2(2 + ranks[0]) if ranks else 0
        return total / len(one.queries)

    by_name = {r.setting: r for r in results}
    assert by_name[Setting("one", "uncompressed")].ndcg == pytest.approx(ndcg(list(pages)))
    for method in FREE:
        codes = method.compress(pages, 2 * 36 if method.by_bytes else 2, 0)
        vectors = codes.stored.vectors()
        rows = [v[c > 0] for v, c in zip(vectors, codes.counts, strict=True)]
        assert by_name[Setting("one", method.name, 2)].ndcg == pytest.approx(ndcg(rows))


def test_the_oracle_sees_the_true_vectors(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a shortlist as long as the set, it is the uncompressed ranking."""
    monkeypatch.setattr(module, "SHORTLIST", PAGES)
    wide = plan(["oracle", "uncompressed"])
    found = {r.setting.method: r for r in everything(sets, wide, Store(None)) if r.setting.k != 1}
    assert found["oracle"].each == found["uncompressed"].each


def test_sets_that_cannot_be_compared(sets: list[Encoded]) -> None:
    with pytest.raises(glie.DatasetError, match="two sets have the name 'one'"):
        list(run([sets[0], sets[0]], plan(["glie-free"]), None, Store(None)))
    with pytest.raises(glie.InputError, match="give others to fit on"):
        Codecs(plan(), Store(None), sets=sets[:1])
    other = dataclasses.replace(sets[1], encoder=EncoderId("other", "1"))
    with pytest.raises(glie.EncoderError, match="other"):
        list(run([sets[0], other], plan(["glie-free"]), None, Store(None)))
    silent = dataclasses.replace(sets[0], queries=glie.Queries([]))
    with pytest.raises(glie.DatasetError, match="it has no questions"):
        list(run([silent], plan(["glie-free"]), None, Store(None)))


# Budgets in bytes: vectors as long as those that the shipped codebook is for, and said to be so.


def test_budgets_in_bytes(byte_results: list[Result]) -> None:
    found = {r.setting.label: r for r in byte_results if r.setting.dataset == "one"}
    free = [found[f"glie-free-{budget}bytes-seed0"] for budget in (300, 1000)]
    assert [(r.setting.k, r.bytes_per_page) for r in free] == [(1, 260), (3, 780)]
    for budget in (300, 1000):
        in_full = [(name, budget) for name in ("quantised", "plaid", "ward-1bit")]
        # short pages have fewer codewords than they could store
        with_codewords = (SHIPPED, budget - 26, 0.3)
        for name, most, least in (*((*each, 0.5) for each in in_full), with_codewords):
            listed = "-L200" if name == SHIPPED else ""
            result = found[f"{name}-{budget}bytes{listed}-seed0"]
            assert result.setting.k is None
            assert least * most < result.bytes_per_page <= most
    assert found["quantised-300bytes-seed0"].bytes_per_page == 300 // 33 * 33
    assert found["ward-1bit-300bytes-seed0"].bytes_per_page == 2 + 298 // 16 * 16


def test_an_adapted_codebook_is_counted(
    long_sets: list[Encoded], byte_results: list[Result]
) -> None:
    codec = glie.Codec(bytes_per_page=1000, adapt=True).adapted(long_sets[0].pages())
    (table,) = codec.readout.to_files()[1].values()
    book = len(table)
    codes = CodesInMemory([codec.compress(long_sets[0].pages())]).bytes_per_page
    (result,) = [
        r for r in byte_results if r.setting[:2] == ("one", ADAPTED) and r.setting.bytes == 1000
    ]
    assert result.codec == {"codebook_bytes": book, "pages": PAGES}
    assert result.bytes_per_page == pytest.approx(codes + book / PAGES)


def test_words_are_searched_as_an_index_searches_them(
    long_sets: list[Encoded], byte_results: list[Result], tmp_path: Path
) -> None:
    one = long_sets[0]
    index = glie.Index.create(tmp_path / "x.glie", glie.Codec(bytes_per_page=300, adapt=False))
    index.add(one.pages())
    hits = index.search(one.queries, top=5)
    rows = [np.array([one.page_ids.index(page) for page in found.ids]) for found in hits]
    (result,) = [
        r for r in byte_results if r.setting[:2] == ("one", SHIPPED) and r.setting.bytes == 300
    ]
    assert result.ndcg == pytest.approx(ndcg_at_5(one, rows), abs=1e-6)
    assert result.bytes_per_page == pytest.approx(index.info().code_bytes_per_page, abs=0.5)


def test_budgets_of_vectors_are_bytes_too(long_sets: list[Encoded]) -> None:
    by_k = run(long_sets[:1], plan([SHIPPED, "quantised"], budgets=[2]), None, Store(None))
    by_bytes = run(long_sets[:1], in_bytes(520, methods=[SHIPPED, "quantised"]), None, Store(None))
    for one, other in zip(by_k, by_bytes, strict=True):
        assert (one.each, one.bytes_per_page) == (other.each, other.bytes_per_page)
        assert (one.setting.k, one.setting.budget, other.setting.budget) == (2, 2, 520)


def test_longer_shortlists_of_words(long_sets: list[Encoded]) -> None:
    wide = in_bytes(300, 500, 4000, methods=[SHIPPED], more=["shortlist"])
    found = Results(run(long_sets, wide, None, Store(None)))
    listed = {r.setting for r in found.all if r.setting.variant}
    assert {s.bytes for s in listed} == {500}
    assert {(s.method, s.shortlist) for s in listed if s.dataset == "one"} == {
        (method, length) for method in (SHIPPED, "oracle") for length in module.CODEWORD_SHORTLISTS
    }
    table = codeword_shortlists(found)
    assert table is not None
    assert table.header == ["L", "glie-bytes", "oracle"]
    assert [row[0] for row in table.rows] == ["20", "50", "100", "200", "500"]


def test_a_codebook_is_made_without_all_pages_in_memory(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_pages(encoded: Encoded) -> glie.Pages:
        raise AssertionError("all pages read at once")

    monkeypatch.setattr(Encoded, "pages", all_pages)
    assert len(list(run(sets, plan([ADAPTED]), None, Store(None)))) == 4


def test_budgets_that_hold_nothing(long_sets: list[Encoded]) -> None:
    store = Store(None)
    with pytest.raises(glie.InputError, match="259 bytes hold no vector of 128 numbers in bfloat"):
        list(run(long_sets, in_bytes(520, 259, methods=["glie-free"]), None, store))
    with pytest.raises(glie.InputError, match="bytes_per_page: found 50, at least"):
        list(run(long_sets, in_bytes(520, 50, methods=[SHIPPED]), None, store))
    assert store.made == 0  # found out before anything was measured
    assert len(list(run(long_sets, in_bytes(130, methods=[SHIPPED]), None, store))) == 2
