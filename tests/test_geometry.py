"""Norms, intrinsic dimension and its controls, on sets whose geometry is known."""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import glie
from glie.evaluation import read_corpora
from glie.evaluation.plots import check_plot, plot_geometry
from glie.evaluation.vectors import grouped
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


def test_corpora_by_their_keys() -> None:
    keys = [f"one/ab12_{i}" for i in range(3)]
    keys += [f"two/deck4_{i}" for i in range(2)] + [f"two/slide_{i}_1024" for i in range(2)]
    keys += ["three/talk_p0", "four/1", "four/2", "five/annual.pdf#1", "five/other.pdf", "six/x/p7"]
    assert {name: len(mine) for name, mine in grouped(keys, "file").items()} == {
        "one": 3, "two/deck4": 2, "two/slide": 2, "three": 1, "four": 2, "five": 2, "six/x": 1,
    }  # fmt: skip
    assert [key for mine in grouped(keys, "file").values() for key in mine] == keys
    assert grouped(["arr_0", "arr_1"], "file") == {"file": ["arr_0", "arr_1"]}
    assert grouped(["a_1", "a_2", "b_1", "b_2"], "file") == {
        "a": ["a_1", "a_2"],
        "b": ["b_1", "b_2"],
    }


def test_a_file_is_read_by_corpus(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {f"slides/deck_{i}": wound(30, seed=i) for i in range(3)}
    arrays["notes/1"] = wound(25).astype(np.float16)
    np.savez_compressed(tmp_path / "pages.npz", **arrays)
    corpora = {name: list(pages) for name, pages in read_corpora(tmp_path / "pages.npz").items()}
    assert list(corpora) == ["slides", "notes"]
    assert [page for page, _ in corpora["slides"]] == [
        "slides/deck_0",
        "slides/deck_1",
        "slides/deck_2",
    ]
    assert np.array_equal(corpora["slides"][1][1], arrays["slides/deck_1"])
    assert corpora["notes"][0][1].dtype == np.float16


def saved(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def bad_npz_files(folder: Path) -> dict[str, str]:
    """Files that cannot be measured, and what is said of each."""
    folder.mkdir()
    (folder / "folder").mkdir()
    whole = saved(page=np.arange(4000.0).reshape(1000, 4))
    at = len(whole) // 2
    single = io.BytesIO()
    np.save(single, np.eye(3))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "hello")
    files = {
        "text": b"not an archive",
        "empty": b"",
        "cut": whole[:at],
        "flipped": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
        "single": single.getvalue(),
        "none": saved(),
        "other": other.getvalue(),
        "objects": saved(page=np.array([{"a": 1}], dtype=object)),
        "line": saved(fine=np.eye(3), page=np.arange(3.0)),
        "words": saved(page=np.array([["a", "b"]])),
        "rows": saved(page=np.zeros((0, 4))),
        "nan": saved(page=np.array([[0.0, 1.0], [np.nan, 0.0]])),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {
        "missing": "missing: no such file; expected an .npz file",
        "folder": "folder: a folder; expected an .npz file",
        "text": "text: cannot be read (",
        "empty": "empty: cannot be read (No data left in file)",
        "cut": "cut: cannot be read (File is not a zip file)",
        "flipped": "flipped, key 'page': Bad CRC-32",
        "single": "single: a single array of shape (3, 3); expected an .npz file",
        "none": "none: no arrays in it; expected an .npz file",
        "other": "other, key 'readme.txt': expected an (n, D) array, found shape ()",
        "objects": "objects, key 'page': Object arrays cannot be loaded",
        "line": "line, key 'page': expected an (n, D) array, found shape (3,)",
        "words": "words, key 'page': expected numbers, found <U1",
        "rows": "rows, key 'page': no vectors (shape (0, 4)); expected at least one",
        "nan": "nan, key 'page', row 1: not finite",
    }


def test_bad_files_are_named(tmp_path: Path) -> None:
    for name, message in bad_npz_files(tmp_path / "bad").items():
        with pytest.raises(glie.InputError) as error:
            measure(read_corpora(tmp_path / "bad" / name))
        assert f"{tmp_path / 'bad'}/{message}" in str(error.value)


def test_the_plot(tmp_path: Path) -> None:
    corpora = measure(three_corpora())
    plot_geometry(corpora, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    plot_geometry(corpora, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    for text in ("flat", "4 pages", "uniform noise", "D = 16", f"{corpora[0].twonn.median:.1f}"):
        assert f"<!-- {text} -->" in drawn
    assert drawn.count("<use") > 3 * 10  # a dot a page, and one for each of its controls


def test_the_plot_of_what_is_odd(tmp_path: Path) -> None:
    """Nothing to estimate, a name with a formula and letters that the font lacks."""
    points = np.random.default_rng(0).normal(size=(30, 4))
    corpora = measure({"$x_{": [("p", points[:3])], "資料" * 40: [("p", points[:, :1])]})
    plot_geometry(corpora, tmp_path / "plot.svg")
    assert "1 page" in (tmp_path / "plot.svg").read_text()


def test_where_no_plot_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(glie.InputError, match=r"expected a name that ends in \.png, \.svg, \.pdf"):
        check_plot(tmp_path / "plot.txt")
    with pytest.raises(glie.InputError, match=r"there is no folder .*none; make it first"):
        check_plot(tmp_path / "none" / "plot.png")
