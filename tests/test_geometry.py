"""Norms, intrinsic dimension and its controls, on sets whose geometry is known."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import glie
from glie.geometry import (
    CorpusGeometry,
    gaussian_control,
    measure,
    measure_page,
    norms,
    overall,
    twonn,
    uniform_control,
)
from glie.progress import Progress
from tests.conftest import unit

Points = npt.NDArray[np.float64]


def rotation(dim: int, seed: int = 0) -> Points:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]


def flat(dimension: int, dim: int = 64, count: int = 1000, seed: int = 0) -> Points:
    """Points that fill a patch of a subspace."""
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(count, dimension)) @ rotation(dim)[:dimension]


def wound(count: int = 600, waves: int = 8, seed: int = 0) -> Points:
    """Points on a closed curve that turns in many directions: dimension 1, spread in 2 · waves."""
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, size=(count, 1)) * np.arange(
        1, waves + 1
    )
    return np.hstack([np.cos(angle), np.sin(angle)]) / math.sqrt(waves)


def plain_twonn(points: Points) -> float:
    """The same estimate, spelled out: every difference, a sort a row, numpy's least squares."""
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    apart.sort(axis=1)
    ratio = np.sort(apart[:, 2] / apart[:, 1])
    kept = int(0.9 * len(ratio))
    share = np.arange(1, kept + 1) / len(ratio)
    slope = np.linalg.lstsq(np.log(ratio[:kept, None]), -np.log(1 - share), rcond=None)[0]
    return float(slope[0])


@pytest.mark.parametrize("dimension", [1, 2, 4, 7])
def test_twonn_of_a_subspace_is_its_dimension(dimension: int) -> None:
    assert twonn(flat(dimension)) == pytest.approx(dimension, rel=0.12)


@pytest.mark.parametrize("dimension", [2, 5])
def test_twonn_of_a_sphere_is_that_of_its_surface(dimension: int) -> None:
    points = unit(np.random.default_rng(1).normal(size=(1000, dimension + 1)))
    assert twonn(points @ rotation(32)[: dimension + 1]) == pytest.approx(dimension, rel=0.1)


def test_twonn_is_the_plain_computation() -> None:
    for points in (flat(3, 16, 150), wound(151), np.random.default_rng(0).normal(size=(600, 8))):
        assert twonn(points) == pytest.approx(plain_twonn(points), rel=1e-4)


def test_twonn_keeps_the_digits_of_small_distances() -> None:
    """Pairs that are 1e-5 apart far from the origin, where a product of float32 has no digits."""
    rng = np.random.default_rng(0)
    points = unit(rng.normal(size=(100, 16))).astype(np.float64)
    points = np.vstack([points, points + 1e-5 * rng.normal(size=points.shape)])
    assert twonn(points + 3) == pytest.approx(plain_twonn(points), rel=0.02)


def test_twonn_does_not_depend_on_frame_scale_place_or_order() -> None:
    points = wound()
    expected = twonn(points)
    for same in (
        points @ rotation(16),
        points * 1e-30,
        points * 1e30,
        points + 5,
        points[::-1],
        np.asfortranarray(points),
        np.hstack([points, np.zeros((600, 50))]),
    ):
        assert twonn(same) == pytest.approx(expected, rel=1e-4)


def test_float16_and_lists_are_read() -> None:
    points = flat(4, count=300)
    assert twonn(points.astype(np.float16)) == pytest.approx(twonn(points), rel=0.02)
    assert twonn(points.tolist()) == twonn(points)


def test_repeated_vectors_count_once() -> None:
    points = np.hstack([wound(200), np.zeros((200, 1))])
    again = np.vstack([points, points[:150], points[:20]])
    again[200:, -1] = -0.0  # the same number
    assert twonn(again) == pytest.approx(twonn(points), rel=1e-4)
    page = measure_page("a", again)
    assert (page.vectors, page.duplicates) == (370, 170)
    assert math.isnan(twonn(np.ones((100, 8))))
    assert math.isnan(twonn(np.repeat(points[:19], 10, axis=0)))


def test_what_cannot_be_estimated_is_nan() -> None:
    points = flat(2)
    assert math.isnan(twonn(points[:19]))
    assert not math.isnan(twonn(points[:20]))
    assert math.isnan(twonn(points[:1]))
    assert math.isnan(twonn(np.eye(40)))  # all at one distance: no ratio tells anything


def test_norms() -> None:
    assert norms([[3.0, 4.0], [0.0, 0.0]]).tolist() == [5.0, 0.0]
    assert norms(np.full((1, 4), 250, dtype=np.float16)).tolist() == [500.0]


def test_the_gaussian_has_the_mean_and_covariance_of_the_page() -> None:
    points = flat(3, dim=6, count=4000) + 2
    drawn = gaussian_control(points)
    assert drawn.shape == points.shape
    assert np.abs(drawn.mean(axis=0) - points.mean(axis=0)).max() < 0.02
    assert np.abs(np.cov(drawn.T) - np.cov(points.T)).max() < 0.006
    assert np.linalg.matrix_rank(np.cov(drawn.T), tol=1e-9) == 3
    # normal, not a copy: beyond three deviations, where no point of a cube is
    along = (drawn - drawn.mean(axis=0)) @ rotation(6)[0]
    assert np.abs(along / along.std()).max() > 3


def test_controls_tell_a_curve_from_a_cloud() -> None:
    points = wound()
    assert twonn(points) == pytest.approx(1, rel=0.1)
    assert twonn(gaussian_control(points)) > 8
    assert twonn(uniform_control(points)) > 8
    noise = uniform_control(points)
    assert (noise.shape, noise.min() >= 0, noise.max() <= 1) == (points.shape, True, True)
    assert abs(noise.mean() - 0.5) < 0.02


@pytest.mark.parametrize("control", [gaussian_control, uniform_control])
def test_controls_are_seeded(control: Any) -> None:
    points = flat(2, dim=4, count=50)
    assert np.array_equal(control(points, 1), control(points, 1))
    assert not np.array_equal(control(points, 1), control(points, 2))


def three_corpora() -> dict[str, list[tuple[str, Points]]]:
    return {
        "flat": [(f"flat_{i}", flat(3, 16, 200, seed=i)) for i in range(5)],
        "wound": [(f"wound_{i}", wound(150, seed=i)) for i in range(4)],
        "small": [("small_0", flat(2, 16, 12)), ("small_1", flat(2, 16, 100))],
    }


def test_measure() -> None:
    flats, curves, small = measure(three_corpora())
    assert [corpus.name for corpus in (flats, curves, small)] == ["flat", "wound", "small"]
    assert (flats.found, len(flats.pages), flats.dims, flats.vectors.median) == (5, 5, (16,), 200)
    assert flats.twonn.median == np.median([page.twonn for page in flats.pages])
    assert flats.twonn.low == min(twonn(points) for _, points in three_corpora()["flat"])
    assert flats.twonn.median == pytest.approx(3, rel=0.15)
    assert curves.norm == pytest.approx((1, 1, 1))
    assert curves.twonn.high < 1.3 < 6 < min(curves.gaussian.low, curves.uniform.low)
    assert (small.not_estimated, flats.not_estimated) == (1, 0)
    assert math.isnan(small.pages[0].twonn)
    assert small.twonn.median == small.pages[1].twonn
    together = overall([flats, curves, small])
    assert (together.found, len(together.pages), together.not_estimated) == (11, 11, 1)
    assert "wound: 4 of 4 pages measured; norm 1.000 to 1.000; TwoNN 1." in str(curves)


def test_vectors_of_length_zero_are_left_out() -> None:
    points = wound(100)
    padded = np.vstack([points, np.zeros((30, 16))])
    with_padding, without = measure_page("a", padded), measure_page("a", points)
    assert (with_padding.zeros, with_padding.duplicates, with_padding.vectors) == (30, 0, 130)
    assert with_padding.norm.low == 0
    assert with_padding.twonn == without.twonn
    assert with_padding.gaussian == without.gaussian
    nothing = measure_page("a", np.zeros((30, 16)))
    assert (nothing.zeros, math.isnan(nothing.twonn), math.isnan(nothing.uniform)) == (
        30,
        True,
        True,
    )


def test_a_page_is_measured_alike_wherever_it_stands() -> None:
    pages = three_corpora()["wound"]
    alone = measure_page(*pages[2], seed=3)
    assert measure({"a": pages}, seed=3)[0].pages[2] == alone
    assert measure({"a": reversed(pages)}, seed=3)[0].pages[1] == alone
    assert measure({"a": pages}, seed=4)[0].pages[2].gaussian != alone.gaussian
    # pages of one shape have noise of their own
    assert measure({"a": pages}, seed=3)[0].pages[1].uniform != alone.uniform


def test_large_corpora_are_sampled() -> None:
    pages = [(f"{i}", wound(20, seed=i)) for i in range(60)]

    def drawn(seed: int) -> list[int]:
        corpus = measure({"a": iter(pages)}, seed=seed, most_pages=10)[0]
        assert (corpus.found, len(corpus.pages)) == (60, 10)
        return [int(page.id) for page in corpus.pages]

    assert drawn(0) == sorted(drawn(0))
    assert len(set(drawn(0))) == 10
    assert drawn(0) != drawn(1)
    often = np.bincount(np.concatenate([drawn(seed) for seed in range(20)]), minlength=60)
    assert often[:10].sum() < 80  # not the first ten every time
    assert len(measure({"a": pages[:10]}, most_pages=10)[0].pages) == 10


def test_progress_is_said() -> None:
    said: list[Progress] = []
    measure({"a": three_corpora()["small"]}, progress=said.append)
    assert [str(progress) for progress in said] == [
        "reading a",
        "1 of 2 pages of a measured",
        "2 of 2 pages of a measured",
    ]


@pytest.mark.parametrize(
    ("corpora", "named", "message"),
    [
        ({"a": [("p", [[1.0, math.nan]])]}, {}, "page 'p', row 0: not finite"),
        ({"a": [("p", [[1.0, 1e300]])]}, {}, "page 'p', row 0: not finite"),
        ({"a": [("p", [1.0, 2.0])]}, {}, "page 'p': expected an (n, D) array, found shape (2,)"),
        ({"a": [("p", [["x"]])]}, {}, "page 'p': expected numbers"),
        ({"a": []}, {}, "corpus 'a': no pages"),
        ({}, {"seed": -1}, "seed: expected a whole number of at least 0, found -1"),
        ({}, {"most_pages": 0}, "pages a corpus: expected a whole number of at least 1, found 0"),
    ],
)
def test_what_cannot_be_measured_is_named(
    corpora: dict[str, Any], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(glie.InputError) as error:
        measure(corpora, **named)
    assert message in str(error.value)


def test_as_json() -> None:
    small = measure(three_corpora())[2].to_dict()
    assert json.loads(json.dumps(small, allow_nan=False)) == small
    assert (small["name"], small["pages"], small["measured"]) == ("small", 2, 2)
    assert (small["not_estimated"], small["dims"]) == (1, [16])
    assert set(small["twonn"]) == {"median", "low", "high"}
    assert small["vectors"] == {"median": 56, "low": 12, "high": 100}
    assert [page["id"] for page in small["each"]] == ["small_0", "small_1"]
    assert small["each"][0]["twonn"] is None
    assert small["each"][1]["twonn"] == small["twonn"]["median"]
    nothing = measure({"a": [("p", [[1.0, 0.0]])]})[0].to_dict()
    assert nothing["twonn"] == {"median": None, "low": None, "high": None}


def test_as_json_and_back() -> None:
    for corpus in measure(three_corpora()):
        written = json.loads(json.dumps(corpus.to_dict()))
        again = CorpusGeometry.from_dict(written)
        assert again.to_dict() == corpus.to_dict()
        np.testing.assert_equal(again.twonn, corpus.twonn)  # NaN where it was
    assert again.not_estimated == 1
