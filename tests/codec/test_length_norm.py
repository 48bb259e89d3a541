"""What a page gains by having more vectors, and how it is taken back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import glie
from glie.codec.length_norm import length_norm_of
from glie.codec.readout.base import length_normed
from glie.codec.readout.codebook import Codebook
from tests.conftest import make_arrays, unit


def noise(counts: list[int], seed: int = 0, dim: int = 64) -> glie.Pages:
    rng = np.random.default_rng(seed)
    return glie.Pages([unit(rng.normal(size=(count, dim))) for count in counts])


def test_the_norm_is_that_of_the_vectors_not_of_the_pages() -> None:
    several = [length_norm_of(noise([count] * 40, seed=count)) for count in (40, 80, 160)]
    assert max(several) - min(several) < 0.4 * max(several)
    assert min(several) > 30
    shared = [unit(rows + np.ones(64)) for rows in noise([80] * 40)]  # all much alike
    assert length_norm_of(glie.Pages(shared)) < min(several) / 3


@pytest.mark.parametrize("counts", [[1, 2, 3], [15] * 9])
def test_short_pages_do_not_say(counts: list[int]) -> None:
    assert length_norm_of(noise(counts)) == 0


def test_equal_vectors_gain_nothing() -> None:
    assert length_norm_of(glie.Pages([np.tile(unit(np.ones(64)), (40, 1))] * 5)) == 0


def test_a_long_page_no_longer_wins_by_its_length() -> None:
    """Pages of noise, half of them ten times as long, and questions of noise."""
    pages = noise([20, 200] * 30)
    questions = glie.Queries(list(noise([8] * 200, seed=1)))
    won = []
    for norm in (0, length_norm_of(pages), round(length_norm_of(pages) / 0.4)):
        scored = length_normed(pages, 200, norm)
        best = np.stack([(questions.vectors @ rows.T).max(axis=1) for rows in scored], axis=1)
        scores = best.reshape(200, 8, -1).sum(axis=1)
        won.append(float(np.mean(scores.argmax(axis=1) % 2)))
    assert won[0] > 0.99
    assert won[2] < 0.8  # all of it taken back
    assert won[2] < won[1] <= won[0]  # a part of it: between


def test_a_page_of_the_most_vectors_keeps_unit_length() -> None:
    pages = noise([3, 10])
    scored = length_normed(pages, 10, 100)
    np.testing.assert_allclose(np.linalg.norm(scored[0], axis=1), (10 / 3) ** 0.1, rtol=1e-5)
    np.testing.assert_array_equal(scored[1], pages[1])
    assert length_normed(pages, 10, 0) is pages


def test_a_budget_sets_it_and_scores_follow_what_is_regenerated(tmp_path: object) -> None:
    codec = glie.Codec(bytes_per_page=260)
    assert codec.config.length_norm == 40
    pages = glie.Pages(make_arrays(30, dim=128, low=3, high=90))
    index = glie.Index.create(f"{tmp_path}/my.glie", codec.frozen)
    index.add(pages)
    question = unit(
        pages[4][:6] * (np.arange(128) < 127)
    )  # the last number of `english` is a weight
    found = index.search([question], top=30, shortlist=30)[0]
    scored = codec.regenerate(codec.compress(pages))
    lengths = np.linalg.norm(scored.vectors, axis=1)
    assert lengths.min() >= 1 - 1e-5
    assert lengths.max() > 1.02
    expected = {
        name: float((question @ rows.T).max(axis=1).sum())
        for name, rows in zip(scored.ids, scored, strict=True)
    }
    for name, score in zip(found.ids, found.scores, strict=True):
        assert score == pytest.approx(expected[name], abs=1e-4)
    plain = glie.Codec.from_config(
        dataclasses.replace(codec.frozen.config, length_norm=0), codec.readout
    )
    ones = np.linalg.norm(plain.regenerate(plain.compress(pages)).vectors, axis=1)
    np.testing.assert_allclose(ones, 1, atol=1e-4)


def test_a_codebook_keeps_it_and_the_shipped_files_stay_as_they_are() -> None:
    book = dataclasses.replace(Codebook.shipped(), length_norm=7)
    again = Codebook.from_bytes(book.to_bytes(), "here")
    assert (again.length_norm, again.config_length_norm) == (7, 7)
    assert Codebook.shipped().length_norm == 0
    assert Codebook.shipped().config_length_norm == 40
    with pytest.raises(glie.GlieError, match="length_norm"):
        Codebook.from_bytes(dataclasses.replace(book, length_norm=2000).to_bytes(), "here")
