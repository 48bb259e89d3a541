"""Coordinates: their table, their bytes, and what they keep of pages that vary in few directions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec.adapt import drawn
from glie.codec.choose import FAMILIES, chosen_for
from glie.codec.codes import Blobs
from glie.codec.readout import scalar
from glie.codec.readout.coordinates import RATES, Coordinates
from glie.codec.readout.transform import Transform
from glie.codec.shrink import smaller
from glie.kernels.trellis import plan_for
from tests.conftest import make_arrays

DIM = 48


def varied(count: int, seed: int = 0, low: int = 10, high: int = 60) -> glie.Pages:
    """Pages whose vectors share a large mean and differ much in few directions, little in others:
    as those of gte-small do. They never recur."""
    rng = np.random.default_rng(seed)
    scale = np.concatenate([np.full(8, 1.0), np.full(DIM - 8, 0.15)]) / 3
    mean = np.ones(DIM) / DIM**0.5
    arrays = []
    for _ in range(count):
        centre = rng.normal(size=DIM) * scale
        arrays.append(mean + centre + rng.normal(size=(rng.integers(low, high), DIM)) * scale)
    return glie.Pages([rows.astype(np.float32) for rows in arrays], normalize=True)


def transform(pages: glie.Pages, budget: int) -> glie.Codec:
    return glie.Codec.from_config(*FAMILIES["coordinates"](drawn(pages), budget, True))


def kept(codec: glie.Codec, pages: glie.Pages) -> float:
    """The mean cosine of the vectors of pages with the nearest that is scored."""
    stored = codec.regenerate(codec.compress(pages))
    return float(
        np.mean([(a @ b.T).max(axis=1).mean() for a, b in zip(pages, stored, strict=True)])
    )


def test_levels_are_the_best_for_a_gaussian() -> None:
    drawn_numbers = np.random.default_rng(0).normal(size=400_000)
    for bits, above in scalar.LEVELS.items():
        levels = np.concatenate([-np.array(above)[::-1], above])
        assert len(levels) == 2**bits
        nearest = np.abs(drawn_numbers[:, None] - levels).argmin(axis=1)
        error = (drawn_numbers - levels[nearest]) ** 2
        assert error.mean() == pytest.approx(scalar.ERRORS[bits], rel=0.03)
        means = [drawn_numbers[nearest == level].mean() for level in range(len(levels))]
        np.testing.assert_allclose(means, levels, atol=0.03)


def test_bits_go_where_vectors_differ() -> None:
    codec = transform(varied(80), 200)
    table = codec.readout.table  # type: ignore[attr-defined]
    plan = plan_for(table.spreads.astype(float) ** 2, 96)
    assert table.width(96) == plan.bits == 96
    spent = np.zeros(len(table))
    spent[plan.columns] = np.repeat(plan.shifts / plan.widths, plan.widths)
    varied_most = np.argsort(-table.spreads.astype(float), kind="stable")
    assert (np.diff(spent[varied_most]) <= 0).all()
    old = dataclasses.replace(table, by_trellis=False)
    bits = scalar.bits_for(table.spreads.astype(float) ** 2, 96)
    assert old.width(96) == bits.sum() == 96
    assert (np.diff(bits[varied_most].astype(int)) <= 0).all()
    np.testing.assert_allclose(table.basis @ table.basis.T, np.eye(len(table)), atol=1e-5)


def test_coordinates_keep_more_than_signs_and_than_raw_coordinates() -> None:
    pages = varied(80)
    budget = 300
    with_table = kept(transform(pages, budget), pages)
    signs = kept(
        glie.Codec.from_config(*FAMILIES["anchors of 1 bit"](drawn(pages), budget, False)), pages
    )
    assert with_table > signs + 0.02
    # the control: the same bytes, along directions that know nothing of the pages
    codec = transform(pages, budget)
    table = codec.readout.table  # type: ignore[attr-defined]
    rng = np.random.default_rng(1)
    blind = Coordinates._of(
        np.linalg.qr(rng.normal(size=(DIM, DIM)))[0][: len(table)],
        pages.vectors,
        np.tile(pages.vectors.mean(axis=0), (len(pages.vectors), 1)),
        table.share,
        {},
    )
    control = glie.Codec.from_config(codec.config, Transform(blind))
    assert with_table > kept(control, pages) + 0.01


def test_a_trellis_keeps_more_than_rounding_and_tables_of_both_formats_are_read() -> None:
    pages = varied(80)
    codec = transform(pages, 300)
    table = codec.readout.table  # type: ignore[attr-defined]
    old = dataclasses.replace(table, by_trellis=False)
    assert b"glie-coordinates-1" in old.to_bytes()
    assert b"glie-coordinates-2" in table.to_bytes()
    rounded = glie.Codec.from_config(codec.config, Transform(old))
    anchors = np.tile(pages.vectors.mean(axis=0), (len(pages.vectors), 1))
    errors = []
    for each in (table, old):
        made = each.from_bits(each.to_bits(pages.vectors, anchors, 64), anchors, 64)
        errors.append(float(((made - pages.vectors) ** 2).sum()))
    assert errors[0] < 0.85 * errors[1]
    for stored in (codec, rounded):
        mine = stored.readout.table  # type: ignore[attr-defined]
        again = Coordinates.from_bytes(mine.to_bytes(), "here")
        assert again.by_trellis == mine.by_trellis
        read = glie.Codec.from_config(codec.config, Transform(again))
        codes = stored.compress(pages)
        np.testing.assert_array_equal(
            read.regenerate(codes).vectors, stored.regenerate(codes).vectors
        )


def test_anchors_stay_among_the_scored_vectors() -> None:
    pages = varied(30)
    codec = transform(pages, 200)
    codes = codec.compress(pages)
    for page, rows in enumerate(codec.regenerate(codes)):
        used = np.count_nonzero(codes.counts[page])
        np.testing.assert_array_equal(rows[:used], codes.vectors[page, :used])
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_a_page_has_the_same_code_in_any_batch_and_stays_within_its_bytes() -> None:
    pages = varied(40, low=1, high=90)
    for budget in (110, 200, 520, 3000):
        codec = transform(pages, budget)
        codes = codec.compress(pages)
        assert codes.residual is not None
        assert codes.residual.lengths.max() <= codec.config.residual_bytes
        assert codec.page_bytes(DIM) + 26 <= budget
        for page in (0, 7, 39):
            alone = codec.compress(pages.slice(page, page + 1))
            assert alone.residual is not None
            assert alone.residual[0].tobytes() == codes.residual[page].tobytes()


def test_a_page_whose_vectors_all_fit_gets_more_bits() -> None:
    pages = varied(40, low=2, high=90)
    codec = transform(pages, 520)
    codes = codec.compress(pages)
    assert codes.residual is not None
    places = np.array([blob[1] for blob in codes.residual])
    lengths = pages.lengths
    assert set(places) > {0}
    assert lengths[places == 0].min() > lengths[places > 0].max() - 1


def test_tables_of_the_first_format_keep_their_rates() -> None:
    pages = varied(40, low=80, high=90)
    codec = transform(pages, 520)
    old = dataclasses.replace(codec.readout.table, by_trellis=False)  # type: ignore[attr-defined]
    assert (RATES[False][0], RATES[True][0]) == (96, 64) == (old.rates[0], 64)
    groups = []
    for each in (codec, glie.Codec.from_config(codec.config, Transform(old))):
        codes = each.compress(pages)
        assert codes.residual is not None
        assert {blob[1] for blob in codes.residual} == {0}
        groups.append(codes.residual[0][0])
    assert groups[0] > 1.3 * groups[1]  # fewer bits a group, more groups


def test_an_index_of_coordinates_is_written_read_and_shrunk(tmp_path: Path) -> None:
    pages = varied(120)
    codec = transform(pages, 400)
    index = glie.Index.create(tmp_path / "i", codec)
    index.add(pages)
    opened = glie.Index(tmp_path / "i")
    assert opened.codec.same_as(codec)
    assert opened.codec.notes["adapted_to"] == 120
    asked = [pages[row][:5] for row in range(0, 120, 10)]
    found = [hits.ids[0] for hits in opened.search(asked, 1)]
    assert found == [str(row) for row in range(0, 120, 10)]
    small = opened.shrunk(tmp_path / "small", bytes_per_page=200)
    assert small.info().bytes < opened.info().bytes
    assert sum(a.ids[0] == b for a, b in zip(small.search(asked, 1), found, strict=True)) >= 10
    assert not opened.verify().damage
    most = smaller(codec, 200, DIM)
    fewer = smaller(most, 190, DIM)  # fewer coordinates of as many anchors
    assert fewer.k == most.k == small.codec.k
    assert fewer.config.residual_bytes == most.config.residual_bytes - 10
    assert small.codec.config.residual_bytes < most.config.residual_bytes  # names take their share


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    pages = varied(20)
    codec = transform(pages, 300)
    codes = codec.compress(pages)
    assert codes.residual is not None
    blobs = [blob.tobytes() for blob in codes.residual]
    for wrong in (b"", blobs[0][:-1], blobs[0] + b"x", bytes([blobs[0][0], 9]) + blobs[0][2:]):
        damaged = dataclasses.replace(codes, residual=Blobs.of([wrong, *blobs[1:]]))
        with pytest.raises(glie.CorruptIndexError, match="verify"):
            codec.regenerate(damaged)
    codec.save(tmp_path / "codec")
    file = tmp_path / "codec" / "coordinates.safetensors"
    for data in (b"", file.read_bytes()[:-5], b"\x00" * 40):
        file.write_bytes(data)
        with pytest.raises(glie.CodecError, match=r"coordinates\.safetensors"):
            glie.Codec.load(tmp_path / "codec")
    file.unlink()
    with pytest.raises(glie.CodecError, match=r"coordinates\.safetensors"):
        glie.Codec.load(tmp_path / "codec")


def test_the_best_family_is_taken_and_says_why() -> None:
    pages = varied(150)
    config, readout = chosen_for(drawn(pages), 300, more=False)
    assert isinstance(readout, Transform)
    assert config.bytes_per_page == 300
    families = readout.notes["families"]
    assert set(families) == set(FAMILIES)
    assert families["coordinates"] == max(families.values())
    # vectors that recur are better named by a codeword
    rng = np.random.default_rng(0)
    words = make_arrays(1, dim=DIM, low=60, high=60)[0]
    recurring = glie.Pages([words[rng.integers(60, size=30)] for _ in range(300)])
    _, readout = chosen_for(drawn(recurring), 260, more=False)
    assert readout.notes["families"]["codewords"] == max(readout.notes["families"].values())


def test_a_few_pages_are_not_all_among_the_best() -> None:
    """Of twenty pages, any code keeps most of the ten best: a tenth of the pages says more."""
    pages = varied(20, low=40, high=60)
    _, readout = chosen_for(drawn(pages), 110, more=True)
    assert min(readout.notes["families"].values()) < 1


def test_more_pages_to_come_are_served_by_tables() -> None:
    _, readout = chosen_for(drawn(varied(60)), 300, more=True)
    assert "anchors of 1 bit" not in readout.notes["families"]
