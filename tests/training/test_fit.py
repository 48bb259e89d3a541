"""Fitting: it learns what can be learned, keeps nothing that does not help, and repeats itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glie
from glie.codec.readout.decoder import PaperDecoder, cluster_features
from glie.codec.readout.generative import FitScores
from glie.index.memory import search_codes
from glie.training.augment import varied
from glie.training.fitter import FitProgress
from glie.training.inputs import split
from glie.training.negatives import hard_negatives
from glie.training.pseudo import pseudo_queries
from glie.training.recipe import DEFAULT, PAPER, Recipe
from tests.codec.networks import fitted_of
from tests.conftest import Floats, make_arrays, unit

QUICK = dataclasses.replace(
    DEFAULT,
    epochs=6,
    learning_rate=3e-3,
    batch=4,
    code_batch=16,
    negatives=3,
    pool=8,
    width=16,
    measurements=3,
)
Data = tuple[glie.Pages, list[Floats], list[list[str]]]


def cluttered(count: int = 60, seed: int = 0) -> Data:
    """Pages whose content lies in 8 of 16 dimensions, with more or less clutter in the others;
    each query asks for one page's content. A centroid is drawn towards the clutter, on some pages
    more than on others. To put the clutter aside is a thing to learn."""
    rng = np.random.default_rng(seed)
    pages, queries = [], []
    for _ in range(count):
        content, clutter = unit(rng.normal(size=(2, 8))), int(rng.integers(0, 25))
        rows = np.zeros((6 + clutter, 16))
        rows[:6, :8] = content[rng.integers(0, 2, 6)] + 0.2 * rng.normal(size=(6, 8))
        rows[6:, 8:] = rng.normal(size=8) + 0.5 * rng.normal(size=(clutter, 8))
        pages.append(unit(rows))
        asked = np.zeros((3, 16))
        asked[:, :8] = content[rng.integers(0, 2, 3)] + 0.2 * rng.normal(size=(3, 8))
        queries.append(unit(asked))
    return glie.Pages(pages), queries, [[str(i)] for i in range(count)]


def test_it_learns_what_there_is_to_learn() -> None:
    recipe = dataclasses.replace(
        QUICK, strength=1.0, vary=False, batch=8, learning_rate=1e-3, average=0.9
    )
    codec = glie.fit(*cluttered(150), k=1, recipe=recipe, epochs=8)
    assert codec.measured is not None
    assert codec.measured.single_stage > codec.measured.free + 0.05
    # and it holds on pages that it has never seen
    pages, queries, _ = cluttered(150, seed=1)
    found = []
    for one in (glie.Codec(1), codec.single_stage):
        codes = one.compress(pages).vectors
        scores = np.array([[(q @ c.T).max(axis=1).sum() for c in codes] for q in queries])
        ranks = (scores > scores.diagonal()[:, None]).sum(axis=1)
        found.append((1 / (1 + ranks)).mean())
    assert found[1] > found[0]


def regular(count: int = 150, seed: int = 0) -> Data:
    """Pages whose vectors lie on both sides of their centroid, along a direction that follows from
    it by a fixed rule. A query asks mostly for that direction, in which the centroid has nothing:
    a decoder that has learned the rule knows it."""
    rule = np.linalg.qr(np.random.default_rng(9).normal(size=(8, 8)))[0]
    rng = np.random.default_rng(seed)
    pages, queries = [], []
    for _ in range(count):
        content = unit(rng.normal(size=(1, 8)))
        aside = content @ rule
        sides = np.repeat([[0.7], [-0.7]], 5, axis=0)
        rows = np.concatenate([content.repeat(10, 0), sides * aside], axis=1)
        pages.append(unit(rows + 0.03 * rng.normal(size=rows.shape)))
        asked = np.concatenate([0.3 * content, aside], axis=1).repeat(2, 0)
        queries.append(unit(asked + 0.25 * rng.normal(size=asked.shape)))
    return glie.Pages(pages), queries, [[str(i)] for i in range(count)]


@pytest.mark.parametrize(("recipe", "epochs"), [("default", None), ("paper", 12)])
def test_the_decoder_improves_the_ranking_of_pages_it_has_never_seen(
    recipe: str, epochs: int | None
) -> None:
    codec = glie.fit(*regular(), k=1, recipe=recipe, epochs=epochs)
    assert codec.regenerates
    pages, queries, _ = regular(seed=1)

    def found_first(codec: glie.Codec) -> float:
        regenerate = codec.regenerate if codec.regenerates else None
        found = search_codes(glie.Queries(queries), codec.compress(pages), regenerate, 1)
        return float(np.mean([row[0] == page for page, row in enumerate(found.positions)]))

    stored = found_first(codec.single_stage)
    assert found_first(codec) > stored + 0.2
    assert stored < 0.2


@pytest.mark.parametrize("layout", ["light", "paper"])
def test_a_blind_decoder_takes_the_same_steps_from_every_anchor(layout: str) -> None:
    recipe = dataclasses.replace(QUICK, layout=layout, blind=True)
    codec = glie.fit(*cluttered(30), k=1, recipe=recipe, epochs=1)
    decoder = fitted_of(codec).decoder
    rng = np.random.default_rng(0)
    anchors, ones = unit(rng.normal(size=(2, 16))), np.ones(2, np.float32)
    features = cluster_features(decoder, anchors, ones * 0.7, ones * 9)
    np.testing.assert_array_equal(features[0], features[1])
    assert np.abs(features).sum() > 0
    sighted = fitted_of(
        glie.fit(*cluttered(30), k=1, recipe=dataclasses.replace(recipe, blind=False), epochs=1)
    ).decoder
    features = cluster_features(sighted, anchors, ones * 0.7, ones * 9)
    assert not np.allclose(features[0], features[1])


def test_a_gain_within_its_standard_error_does_not_pay() -> None:
    scores = FitScores(
        4, free=0.5, single_stage=0.51, cascade=0.52, single_stage_error=0.02, cascade_error=0.01
    )
    assert not scores.single_stage_pays
    assert scores.cascade_pays
    codec = glie.fit(*cluttered(60), k=2, recipe=QUICK, epochs=1)
    assert codec.measured is not None
    assert codec.measured.cascade_error > 0


def test_the_same_seed_gives_the_same_codec() -> None:
    data = cluttered(30)
    one, same = (glie.fit(*data, k=2, recipe=QUICK, epochs=2, seed=3) for _ in range(2))
    other = glie.fit(*data, k=2, recipe=QUICK, epochs=2, seed=4)
    for name, array in fitted_of(one).tensors().items():
        assert array.tobytes() == fitted_of(same).tensors()[name].tobytes(), name
    assert one.scores == same.scores
    assert fitted_of(one).decoder.step.tobytes() != fitted_of(other).decoder.step.tobytes()


def test_what_does_not_help_is_not_kept() -> None:
    """Where the free code answers every question, a fit can only do harm."""
    pages = glie.Pages([unit(np.eye(16))[[i % 16]] for i in range(16)])
    queries = [pages[i] for i in range(16)]
    codec = glie.fit(pages, queries, [[str(i)] for i in range(16)], k=1, recipe=QUICK, epochs=1)
    assert codec.measured is not None
    assert codec.measured.free == 1
    assert not codec.measured.cascade_pays
    assert codec.refiner is None
    assert codec.decoder is None
    free, mine = (one.compress(pages).vectors for one in (glie.Codec(1), codec))
    assert free.tobytes() == mine.tobytes()


def test_one_codec_for_many_budgets() -> None:
    codec = glie.fit(*cluttered(30), k=[4, 1, 2], recipe=QUICK, epochs=1)
    assert [budget.k for budget in codec.scores] == [1, 2, 4]
    assert codec.k == 4
    assert fitted_of(codec.at(3)) is fitted_of(codec)
    assert codec.at(16).measured == codec.scores[-1]


def test_without_questions() -> None:
    pages, _, _ = cluttered(40)
    codec = glie.fit(pages, k=2, recipe=QUICK, epochs=1)
    assert codec.notes["pseudo_queries"] is True
    assert codec.compress(pages).k == 2


def test_pseudo_queries_say_what_a_page_says_in_words_of_others() -> None:
    """Pages about a few of sixteen topics: a question is about its page's topics, and no vector of
    it is the page's own."""
    rng = np.random.default_rng(0)
    about = [rng.choice(16, 3, replace=False) for _ in range(80)]
    pages = glie.Pages(
        [
            unit(np.eye(16)[topics].repeat(9, 0) + 0.1 * rng.normal(size=(27, 16)))
            for topics in about
        ]
    )
    queries, owners = pseudo_queries(pages, np.arange(2, 80), 100, rng)
    assert len(queries) == len(owners) == 100
    assert sorted({owner for (owner,) in owners}) == list(range(2, 80))  # each has its turn
    every = {row.tobytes() for row in pages.vectors}
    for query, (owner,) in zip(queries, owners, strict=True):
        own = {row.tobytes() for row in pages[owner]}
        assert all(row.tobytes() in every - own for row in query)
        assert set(query.argmax(axis=1)) <= set(about[owner])


def test_pseudo_queries_of_few_vectors() -> None:
    pages = glie.Pages([np.eye(4)[[i]] for i in range(3)])
    queries, owners = pseudo_queries(pages, np.arange(3), 3, np.random.default_rng(0))
    assert [len(query) for query in queries] == [1, 1, 1]
    assert sorted(owners) == [[0], [1], [2]]


def test_interrupted_it_keeps_the_best_so_far() -> None:
    seen: list[FitProgress] = []

    def stop(step: FitProgress) -> None:
        seen.append(step)
        if step.measurements >= 2:
            raise KeyboardInterrupt

    codec = glie.fit(*cluttered(60), k=2, recipe=QUICK, progress=stop)
    assert codec.notes["interrupted"] is True
    assert seen[-1].total is not None
    assert codec.notes["steps"] < seen[-1].total
    assert codec.measured is not None
    assert codec.measured.single_stage >= max(step.single_stage[2] for step in seen)
    assert codec.measured.cascade == codec.measured.single_stage
    assert codec.decoder is None  # it had not learned anything


def test_interrupted_while_the_code_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    from glie.training.holdout import Holdout

    cascade, calls = Holdout.cascade, []

    def interrupted(self: Holdout, *networks: Any) -> dict[int, float]:
        calls.append(networks)
        if len(calls) == 2:  # the first is of the untrained networks
            raise KeyboardInterrupt
        return cascade(self, *networks)

    monkeypatch.setattr(Holdout, "cascade", interrupted)
    codec = glie.fit(*cluttered(40), k=2, recipe=QUICK, epochs=1)
    assert codec.notes["interrupted"] is True


def test_the_decoder_leaves_the_code_as_it_was_settled() -> None:
    codec = glie.fit(*cluttered(40), k=2, recipe=QUICK, epochs=2)
    fitted = fitted_of(codec)
    for one, other in zip(fitted.refiner, fitted.single_stage, strict=True):
        assert one.tobytes() == other.tobytes()


def test_progress_tells_losses_and_the_holdout() -> None:
    seen: list[FitProgress] = []
    glie.fit(*cluttered(30), k=2, recipe=QUICK, epochs=2, progress=seen.append)
    assert seen[-1].done == seen[-1].total
    assert set(seen[-1].free) == set(seen[-1].single_stage) == set(seen[-1].cascade) == {2}
    assert {"token", "listwise", "chamfer", "support", "overshoot"} <= set(seen[-1].losses)


def test_the_paper_s_recipe() -> None:
    assert dataclasses.asdict(PAPER) | {
        **{"epochs": 100, "learning_rate": 2e-4, "weight_decay": 1e-4, "final_rate": 0.05},
        **{"clip": 1.0, "batch": 8, "negatives": 7, "pool": 50, "temperature": 0.07},
        **{"patches": 48, "directions": 128, "width": 256, "depth": 1, "of_regenerated": 1.0},
        **{"of_code": 0.5, "chamfer": 0.5, "overshoot": 0.5, "support": 0.1, "vectors": None},
        **{
            "layout": "paper",
            "blind": False,
            "code_batch": None,
            "strength": 1.0,
            "vary": False,
            "average": 0.0,
            "jitter": 0.0,
        },
    } == dataclasses.asdict(PAPER)
    codec = glie.fit(*cluttered(30), k=2, recipe="paper", epochs=1)
    assert isinstance(fitted_of(codec).decoder, PaperDecoder)
    assert fitted_of(codec).decoder.step.shape == (256, 16)


@given(st.integers(2, 30), st.integers(2, 60), st.integers(1, 3), st.integers(0, 999))
def test_the_holdout_is_split_by_page(pages: int, count: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = [
        sorted({int(row) for row in rng.integers(0, pages, rng.integers(1, most + 1))})
        for _ in range(count)
    ]
    trained, held, held_pages = split(answers, pages, 0.2, rng)
    assert len(held) >= 1
    assert len(trained) >= 1
    assert not set(trained) & set(held)
    if len(held_pages):
        taken = set(held_pages.tolist())
        assert {row for query in held for row in answers[query]} == taken
        # every question that asks for another page is fitted on, if a page is left to tell apart
        left = [set(rows) - taken for rows in answers]
        assert set(trained) == {q for q in range(count) if 0 < len(left[q]) < pages - len(taken)}


def test_few_pages_with_many_questions_are_split_by_page() -> None:
    answers = [[i // 5] for i in range(500)]  # five questions a page
    trained, held, held_pages = split(answers, 100, 0.2, np.random.default_rng(0))
    assert (len(trained), len(held), len(held_pages)) == (400, 100, 20)
    # one page: it cannot be divided
    trained, held, held_pages = split([[0]] * 10, 3, 0.2, np.random.default_rng(0))
    assert (len(trained), len(held), len(held_pages)) == (8, 2, 0)


def test_a_fit_reads_no_held_out_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from glie.training.batches import Corpus

    read: list[glie.Pages] = []
    init = Corpus.__init__

    def seen(self: Corpus, pages: glie.Pages, *rest: Any) -> None:
        read.append(pages)
        init(self, pages, *rest)

    monkeypatch.setattr(Corpus, "__init__", seen)
    data = cluttered(30)
    notes = glie.fit(*data, k=2, recipe=QUICK, epochs=1).notes
    assert (notes["pages"], notes["trained_pages"], notes["held_out_pages"]) == (30, 24, 6)
    assert (notes["queries"], notes["held_out"]) == (24, 6)
    assert read
    assert all(len(pages) == 24 for pages in read)


def test_negatives_are_the_best_that_are_not_relevant() -> None:
    pages = glie.Pages(make_arrays(10))
    queries = glie.Queries(make_arrays(4, seed=5))
    codes = glie.Codec(2).compress(pages)
    found = hard_negatives(queries, [[0, 3], [1], [2], [9]], codes, 5)
    for q, relevant in enumerate([[0, 3], [1], [2], [9]]):
        scores = np.array([(queries[q] @ c.T).max(axis=1).sum() for c in codes.vectors])
        order = [p for p in np.argsort(-scores, kind="stable") if p not in relevant]
        assert found[q].tolist() == order[:5]
    few = hard_negatives(queries, [list(range(8))] * 4, codes, 5)
    assert all(set(row) == {8, 9} for row in few.tolist())


def test_varied_pages_are_stretches_of_real_ones() -> None:
    pages = glie.Pages(make_arrays(20))
    known = {row.tobytes() for page in pages for row in page}
    seen = varied(pages, np.random.default_rng(0))
    assert seen.ids == pages.ids
    for page, mine in zip(pages, seen, strict=True):
        assert all(row.tobytes() in known for row in mine)
        assert {row.tobytes() for row in mine} & {row.tobytes() for row in page}
    assert not np.array_equal(seen.lengths, pages.lengths)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pages": [np.eye(4)]}, "expected glie.Pages, found list"),
        ({"pages": glie.Pages([np.eye(4)] * 3)}, "3 pages; at least 4"),
        ({"relevant": None}, "relevant: expected, for each query, a list of page ids"),
        ({"relevant": [3] * 30}, "expected a list of ids, found 3"),
        ({"seed": -1}, "seed: expected a whole number"),
        ({"k": 2.5}, "k: expected a number or a list"),
        ({"relevant": [["0"]]}, "1 lists of page ids for 30 queries"),
        ({"relevant": [["0"]] * 29 + [["nope"]]}, "page 'nope' is not in the pages"),
        ({"relevant": ["0"] * 30}, "expected a list of ids, found '0'"),
        ({"relevant": [[]] * 29 + [["1"]]}, "1 of 30 have a relevant page, and one that is not"),
        ({"queries": None}, "given without queries"),
        ({"queries": [np.eye(3)] * 30}, "have 3 numbers, those of the pages 16"),
        ({"k": []}, "empty list"),
        ({"k": 0}, "from 1 to"),
        ({"recipe": "best"}, "expected one of default, paper"),
        ({"epochs": 0}, "epochs: expected a whole number"),
        ({"encoder": 3}, "encoder: expected a name"),
    ],
)
def test_what_cannot_be_fitted(change: dict[str, Any], said: str) -> None:
    pages, queries, relevant = cluttered(30)
    given = {"pages": pages, "queries": queries, "relevant": relevant, "recipe": QUICK, **change}
    with pytest.raises(glie.InputError, match=said):
        glie.fit(**given)


def test_a_recipe_is_checked() -> None:
    with pytest.raises(glie.InputError, match="holdout"):
        Recipe(holdout=1.5)
