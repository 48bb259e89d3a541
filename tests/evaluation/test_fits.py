"""What is fitted for an experiment, and on which sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import glie
from glie.evaluation import Encoded, experiment
from glie.evaluation import fits as fits_module
from glie.evaluation.baselines import pooled
from glie.evaluation.encoded import joined
from glie.evaluation.fits import facts
from glie.evaluation.results import Results
from glie.evaluation.store import Result, Store
from tests.evaluation.topics import (
    PAGES,
    QUICK,
    everything,
    in_bytes,
    make_set,
    plan,
)


def test_each_set_is_measured_by_a_codec_of_the_others(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(pages: glie.Pages, *rest: Any, **settings: Any) -> glie.Codec:
        seen.append({page.split("/")[0] for page in pages.ids})
        return glie.fit(pages, *rest, **settings)

    monkeypatch.setattr(fits_module, "fit", spy)
    everything(sets, plan(["glie"]), Store(None))
    assert seen == [{"0:two"}, {"0:one"}]


def test_three_seeds_are_three_fits_and_their_mean(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = []

    def spy(*given: Any, **settings: Any) -> glie.Codec:
        fits.append(settings["seed"])
        return glie.fit(*given, **settings)

    monkeypatch.setattr(fits_module, "fit", spy)
    seeded = plan(["raw-kmeans", "token-pooling", "glie"], seeds=[0, 1, 2])
    found = Results(everything(sets, seeded, Store(None), fit_on=[sets[0]]))
    assert fits == [0, 1, 2]  # once each, not once a set
    assert [len(found.of("one", m, 2)) for m in ("raw-kmeans", "token-pooling", "glie")] == [
        3,
        1,
        3,
    ]
    scores = [
        np.mean([r.ndcg for d in ("one", "two") for r in found.of(d, "glie", 2)[s : s + 1]])
        for s in range(3)
    ]
    assert found.macro("glie", 2).mean == pytest.approx(np.mean(scores))


def test_what_a_codec_was_fitted_on_is_said(sets: list[Encoded], results: list[Result]) -> None:
    codecs = [r.codec for r in results if r.setting.method == "glie"]
    assert all(codec and codec["parameters"] > 1000 for codec in codecs)
    quarter = next(r for r in results if r.setting.variant == "25% of pages")
    assert quarter.codec is not None
    assert quarter.codec["pages"] == 18
    codec = glie.fit(*joined(sets), k=2, recipe=QUICK)
    assert facts(codec)["pages"] == 2 * PAGES


def test_fits_of_other_sizes_and_on_fewer_pages(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes of the paper, on so many pages of all sources at most."""
    seen = []
    made = glie.fit(*joined(sets), k=[4, 16], recipe=QUICK)

    def spy(pages: glie.Pages, queries: Any, relevant: Any, k: Any, **settings: Any) -> glie.Codec:
        seen.append((settings["recipe"].width, settings["recipe"].depth, tuple(k), len(pages)))
        return made

    monkeypatch.setattr(fits_module, "fit", spy)
    monkeypatch.setattr(experiment, "CAPACITY_PAGES", 45)
    monkeypatch.setattr(experiment, "DATA_PAGES", (30, 100, 141))
    few = plan(["glie"], budgets=[4], more=["capacity", "data"])
    everything(sets, few, Store(None), fit_on=sets)
    sizes = ((128, 1), (128, 3), (256, 1), (512, 1), (512, 3), (1024, 1), (1024, 3))
    assert seen == [
        (16, 1, (4,), 2 * PAGES),
        *((*size, (4, 16), 45) for size in sizes),
        *((16, 1, (4,), pages) for pages in (30, 100)),
    ]


def test_few_pages_are_divided_for_all_sets(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one set has too few others, no set has a row that it lacks."""
    three = [*sets, make_set("three", 2, pages=40)]
    monkeypatch.setattr(experiment, "DATA_PAGES", (30, 120, 140))
    made = glie.fit(*joined(sets), k=4, recipe=QUICK)
    monkeypatch.setattr(fits_module, "fit", lambda *given, **settings: made)
    found = everything(three, plan(["glie"], budgets=[4], more=["data"]), Store(None))
    variants = {(r.setting.dataset, r.setting.variant) for r in found if r.setting.variant}
    assert variants == {
        (name, f"{share} of pages")
        for name in ("one", "two", "three")
        for share in ("25%", "50%", "100%")
    }


def test_centroids_are_those_of_the_other_sets(
    long_sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(pages: glie.Pages, bytes_per_page: int) -> glie.Codes:
        seen.append((pages.ids[0].split("/")[0], len(pages), bytes_per_page))
        return pooled(pages, bytes_per_page)

    monkeypatch.setattr(fits_module, "pooled", spy)
    everything(long_sets, in_bytes(300, 520, methods=["plaid"], seeds=[0, 1]), Store(None))
    assert seen == [(name, PAGES, size) for name in ("0:two", "0:one") for size in (300, 520)]
