"""Search in two stages: a scan of the codes, and exact scores for a shortlist."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec.readout.generative import FitScores
from glie.identity import EncoderId
from glie.kernels.quantize import Packed
from glie.search import rerank
from tests.codec.networks import fitted_codec, fitted_of, random_codec
from tests.conftest import Floats, make_arrays


def regenerated(codec: glie.Codec, pages: glie.Pages) -> glie.Pages:
    """The pages as an index regenerates them: from codes rounded to 16 bits."""
    codes = codec.compress(pages)
    kept = Packed.of(codes.vectors, "bf16").vectors()
    return codec.regenerate(glie.Codes(kept, codes.norms, codes.counts, codes.ids))


def plain(query: Floats, vectors: Floats) -> float:
    return float((query @ vectors.T).max(axis=1).sum())


@pytest.fixture
def codec() -> glie.Codec:
    return random_codec(16, 5)


@pytest.fixture
def fitted_index(tmp_path: Path, pages: glie.Pages, codec: glie.Codec) -> glie.Index:
    index = glie.Index.create(tmp_path / "fitted.glie", codec)
    index.add(pages, metadata=[{"page": i} for i in range(len(pages))])
    return index


def test_the_shortlist_is_rescored_and_the_rest_keeps_its_order(
    fitted_index: glie.Index, pages: glie.Pages, codec: glie.Codec
) -> None:
    queries = make_arrays(4, seed=9, low=3, high=6)
    first = fitted_index.search(queries, top=30, shortlist=0)
    second = fitted_index.search(queries, top=30, shortlist=7)
    made = regenerated(codec, pages)
    for query, one, two in zip(queries, first, second, strict=True):
        assert set(two.ids[:7]) == set(one.ids[:7])
        assert two.ids[7:] == one.ids[7:]
        assert two.scores[7:] == one.scores[7:]
        exact = {page_id: plain(query, made[i]) for i, page_id in enumerate(pages.ids)}
        assert two.scores[:7] == pytest.approx(
            [exact[page_id] for page_id in two.ids[:7]], abs=1e-4
        )
        assert two.scores == sorted(two.scores, reverse=True)
        before = dict(zip(one.ids, one.scores, strict=True))
        # exactly: regeneration can only add
        assert all(score >= before[i] for i, score in zip(two.ids, two.scores, strict=True))
    assert first[0].cost.pages_regenerated == 0
    assert 7 <= second[0].cost.pages_regenerated <= 28


def test_a_batch_finds_what_its_queries_find_alone(fitted_index: glie.Index) -> None:
    queries = make_arrays(6, seed=3, low=2, high=5)
    together = fitted_index.search(queries, top=12, shortlist=5)
    for query, hits in zip(queries, together, strict=True):
        alone = fitted_index.search([query], top=12, shortlist=5)[0]
        assert (alone.ids, alone.scores) == (hits.ids, hits.scores)


def test_a_shortlist_longer_than_the_answer_or_the_index(fitted_index: glie.Index) -> None:
    query = make_arrays(1, seed=4)
    everything = fitted_index.search(query, top=30, shortlist=30)[0]
    few = fitted_index.search(query, top=3, shortlist=30)[0]
    assert few.ids == everything.ids[:3]
    assert fitted_index.search(query, top=3, shortlist=999)[0].ids == few.ids
    wanted = fitted_index.ids[4:9]
    within = fitted_index.search(query, top=3, ids=wanted)[0]
    assert set(within.ids) <= set(wanted)
    assert within.cost.pages_regenerated == 0  # they were cached
    anew = glie.Index.open(fitted_index.path).search(query, top=3, ids=wanted)[0]
    assert anew.ids == within.ids
    assert anew.cost.pages_regenerated == 5


def test_many_regenerated_pages_in_parts(
    monkeypatch: pytest.MonkeyPatch, fitted_index: glie.Index
) -> None:
    queries = make_arrays(5, seed=6)
    whole = fitted_index.search(queries, top=20)
    monkeypatch.setattr(rerank, "VECTORS_PER_STEP", 70)
    monkeypatch.setattr(rerank, "PAGES_PER_STEP", 8)
    parts = fitted_index.search(queries, top=20)
    assert [(hits.ids, hits.scores) for hits in whole] == [(h.ids, h.scores) for h in parts]


def test_an_empty_index_and_no_queries(tmp_path: Path, fitted_index: glie.Index) -> None:
    empty = glie.Index.create(tmp_path / "empty.glie", fitted_index.codec)
    assert empty.search(make_arrays(2))[0].ids == []
    assert fitted_index.search([]) == []


def test_without_a_decoder_the_shortlist_changes_nothing(index: glie.Index) -> None:
    query = make_arrays(1, seed=4)
    one, two = (index.search(query, shortlist=shortlist)[0] for shortlist in (0, 20))
    assert (one.ids, one.scores) == (two.ids, two.scores)
    assert two.cost.pages_regenerated == 0


def test_an_index_carries_its_codec(
    tmp_path: Path, fitted_index: glie.Index, pages: glie.Pages, codec: glie.Codec
) -> None:
    queries = make_arrays(3, seed=8)
    moved = fitted_index.path.rename(tmp_path / "elsewhere.glie")
    opened = glie.Index.open(moved)
    assert repr(opened.codec) == repr(codec)
    fresh = glie.Index.create(tmp_path / "again.glie", codec)
    fresh.add(pages)
    for one, two in zip(opened.search(queries), fresh.search(queries), strict=True):
        assert (one.ids, one.scores) == (two.ids, two.scores)
    opened.add(glie.Pages(make_arrays(3, seed=50), ids=["x", "y", "z"]))
    opened.delete(["x"])
    opened.compact()
    opened.verify()
    assert glie.Index.open(moved).codec.decoder is not None


def test_a_single_stage_codec(tmp_path: Path, pages: glie.Pages, codec: glie.Codec) -> None:
    index = glie.Index.create(tmp_path / "one.glie", codec.single_stage)
    index.add(pages)
    assert index.search(make_arrays(1))[0].cost.pages_regenerated == 0
    assert glie.Index.open(index.path).codec.decoder is None
    codes = codec.single_stage.compress(pages)
    query = make_arrays(1, seed=2)
    kept = Packed.of(codes.vectors, "bf16").vectors()
    best = max(plain(query[0], kept[i][codes.counts[i] > 0]) for i in range(len(pages)))
    assert index.search(query)[0].scores[0] == pytest.approx(best, abs=1e-4)


def test_another_encoder_or_dimension_is_refused(tmp_path: Path, codec: glie.Codec) -> None:
    import dataclasses

    entry = EncoderId("colpali", "1")
    named = fitted_codec(dataclasses.replace(fitted_of(codec), encoder=entry), 4)
    with pytest.raises(
        glie.CodecError, match=r"fitted for encoder 'colpali'.*not encoder 'colqwen'"
    ):
        glie.Index.create(tmp_path / "a", named, encoder="colqwen")
    with pytest.raises(glie.CodecError, match=r"revision 1.*revision 2"):
        glie.Index.create(tmp_path / "a", named, encoder={"name": "colpali", "revision": "2"})
    assert not (tmp_path / "a").exists()
    by_name = glie.Index.create(tmp_path / "b", named, encoder="colpali")
    assert by_name.encoder == EncoderId("colpali")
    assert glie.Index.create(tmp_path / "c", named).encoder == entry  # it is known from the codec
    with pytest.raises(glie.VectorError, match="fitted for 16"):
        glie.Index.open(tmp_path / "c").add(glie.Pages(make_arrays(2, dim=8)))
    assert len(glie.Index.open(tmp_path / "c")) == 0


def test_a_damaged_codec_is_named(fitted_index: glie.Index) -> None:
    path = fitted_index.path / "codec" / "model.safetensors"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(glie.CorruptIndexError, match="not the codec that the manifest names"):
        glie.Index.open(fitted_index.path)
    path.unlink()
    with pytest.raises(glie.CorruptIndexError, match="not the codec that the manifest names"):
        glie.Index.open(fitted_index.path)
    path.write_bytes(good)
    assert len(glie.Index.open(fitted_index.path)) == 30


def test_an_older_glie_would_say_so(fitted_index: glie.Index) -> None:
    """The manifest names the fitted codec in its settings, which a reader must know."""
    settings = json.loads((fitted_index.path / "manifest.json").read_bytes())["codec"]
    assert set(settings) == {"k", "restarts", "iterations", "seed", "fitted"}


def test_where_fitting_did_not_help_nothing_is_refined(
    codec: glie.Codec, pages: glie.Pages
) -> None:
    import dataclasses

    budgets = (FitScores(2, 0.5, 0.6, 0.7), FitScores(16, 0.5, 0.6, 0.4))
    mixed = fitted_codec(dataclasses.replace(fitted_of(codec), budgets=budgets), 2)
    assert mixed.refiner is not None
    assert mixed.at(16).refiner is None
    assert mixed.at(16).single_stage.refiner is not None
    short = dataclasses.replace(budgets[0], step=0.0)  # refined, but not regenerated
    still = fitted_codec(dataclasses.replace(fitted_of(codec), budgets=(short,)), 2)
    assert still.refiner is not None
    assert still.decoder is None
    free = glie.Codec(16).compress(pages).vectors
    np.testing.assert_array_equal(mixed.at(16).compress(pages).vectors, free)
