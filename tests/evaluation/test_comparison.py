"""Comparisons: their notes, and the geometry of their pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import glie
from glie.evaluation import Encoded, comparison, fits
from glie.evaluation.comparison import NETWORKS, Comparison
from glie.evaluation.encoded import joined
from glie.evaluation.experiment import run
from glie.evaluation.methods import ADAPTED, SHIPPED
from glie.evaluation.split import split_by_page
from glie.evaluation.store import Store
from tests.evaluation.topics import (
    PAGES,
    QUICK,
    plan,
)


def test_the_geometry_is_kept(
    sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name = {one.name: one for one in sets}
    monkeypatch.setattr(comparison, "load", lambda name, **_: by_name[name])
    asked = plan(["glie-free"], more=["geometry"])
    first = Comparison(["one", "two"], asked, to=tmp_path)
    measured = first.measure(sets)
    assert [corpus.name for corpus in measured.corpora] == ["one", "two"]
    assert (first.store.made, first.store.kept) == (6, 0)

    def again(*given: Any, **settings: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(comparison, "measure_geometry", again)
    second = Comparison(["one", "two"], asked, to=tmp_path)
    assert second.measure(sets).corpora == measured.corpora
    assert (second.store.made, second.store.kept) == (0, 6)


def test_a_codebook_of_another_encoder(
    sets: list[Encoded], long_sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = plan([SHIPPED, "glie-free"])
    assert {r.setting.method for r in run(sets, both, None, Store(None))} == {"glie-free"}
    by_name = {one.name: one for one in sets}
    monkeypatch.setattr(comparison, "load", lambda name, **_: by_name[name])
    (line,) = Comparison(["one", "two"], both).notes(sets)
    assert line == (
        "glie-bytes: left out on 2 sets: glie ships codebooks for encoder "
        "'english' and 'minilm' at D = 128; glie-bytes-adapted fits one for any encoder"
    )
    by_name |= {one.name: one for one in long_sets}
    (line,) = Comparison(["one"], plan([SHIPPED, ADAPTED])).notes(long_sets[:1])
    assert "fitted on the pages of each set, never on a question" in line
    with pytest.raises(glie.InputError, match="left out on 2 sets"):
        list(run(sets, plan([SHIPPED]), None, Store(None)))


def test_fitted_on_one_half_and_measured_on_the_other(
    sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page is in both, and the results of the whole set stay beside those of its half."""
    by_name = {one.name: one for one in sets}
    monkeypatch.setattr(comparison, "load", lambda name, **_: by_name[name])
    fitted = []

    def spy(pages: glie.Pages, *rest: Any, **settings: Any) -> glie.Codec:
        fitted.append({page.partition("/")[2] for page in pages.ids})
        return glie.fit(pages, *rest, **settings)

    monkeypatch.setattr(fits, "fit", spy)
    asked = plan(["glie-free", "glie"])
    whole = Comparison(["one"], plan(["glie-free"]), to=tmp_path).measure(sets[:1]).results.all
    own = Comparison(["one", "two"], asked, fit_on=["own"], to=tmp_path)
    measured = own.measure(sets)
    assert [one.name for one in measured.sets] == ["one-test-half", "two-test-half"]
    assert (own.store.made, own.store.kept) == (8, 0)
    for one, pages, half in zip(sets, fitted, measured.sets, strict=True):
        assert pages.isdisjoint(half.page_ids)
        assert pages | set(half.page_ids) == set(one.page_ids)
        found = next(r for r in measured.results.all if r.setting[:2] == (half.name, "glie"))
        assert len(found.each) == len(half.queries) == PAGES // 2
        assert found.codec is not None
        assert found.codec["pages"] == PAGES // 2
    again = Comparison(["one"], plan(["glie-free"]), to=tmp_path)
    assert again.measure(sets[:1]).results.all == whole
    assert (again.store.made, again.store.kept) == (0, len(whole))
    assert own.notes(sets) == [
        "In-domain: each set is split by page, fitted on one half, measured on the other.",
        *(split_by_page(one).note for one in sets),
        NETWORKS,
    ]


def test_what_was_fitted_is_said_only_if_it_was(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name = {one.name: one for one in sets}
    monkeypatch.setattr(comparison, "load", lambda name, **_: by_name[name])

    def notes(methods: list[str], **how: Any) -> list[str]:
        return Comparison(["one"], plan(methods, **how), fit_on=["one", "two"]).notes(sets)

    seen = "Not zero-shot on one: it is one of these."
    assert notes(["glie"]) == ["Fitted on one, two: the codec.", seen, NETWORKS]
    assert notes(["plaid"]) == ["Fitted on one, two: the centroids of plaid.", seen]
    both = "Fitted on one, two: the codec and the centroids of plaid."
    assert notes(["glie", "plaid"]) == [both, seen, NETWORKS]
    assert notes(["glie-free"], more=["geometry"]) == []
    codec = glie.fit(*joined(sets), k=2, recipe=QUICK)
    given = Comparison(["one"], plan(["glie"]), codec=codec).notes(sets[:1])
    assert given == [f"The codec was given; it was fitted on {2 * PAGES} pages.", NETWORKS]
    unused = plan(["glie-free"], more=["geometry"])
    assert Comparison(["one"], unused, codec=codec).notes(sets[:1]) == []
