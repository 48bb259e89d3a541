"""Smaller codes made of stored ones: what is promised of them, whatever they are made from."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glie
from glie.codec.readout import residual
from glie.codec.readout.codebook import Codebook, fit_codebook, residuals
from glie.codec.readout.pairs import read_pairs
from glie.codec.readout.residual import Residual, reconstructed, residual_codes
from glie.codec.shrink import merged, shrunk, smaller
from glie.kernels.residual import FIRST_LAYER
from glie.progress import Progress
from tests.codec.networks import random_codec
from tests.conftest import Floats, make_arrays, unit

DIM = 32
ROOMY, SMALL, SMALLER, SMALLEST = 600, 250, 150, 80


@functools.cache
def book() -> Codebook:
    """300 codewords for pages like those of make_arrays."""
    pages = glie.Pages(make_arrays(40, seed=99, dim=DIM))
    rest, _ = residuals(pages, glie.Codec(k=2).compress(pages), 0.5)
    return fit_codebook(rest, 300)


def budget(bytes_per_page: int) -> glie.Codec:
    return glie.Codec.with_codebook(book(), bytes_per_page)


def wide_pages(count: int, seed: int = 0) -> glie.Pages:
    """Pages of so many vectors that no budget keeps all."""
    return glie.Pages(make_arrays(count, seed=seed, dim=DIM, low=150, high=250))


def covered(pages: glie.Pages, sets: glie.Pages) -> float:
    """How near a page's vectors have one of its scored set, on average."""
    return float(np.mean([(x @ y.T).max(axis=1).mean() for x, y in zip(pages, sets, strict=True)]))


def holds(scored: Floats, vectors: Floats) -> bool:
    rows = {row.tobytes() for row in scored}
    return all(row.tobytes() in rows for row in vectors)


@settings(max_examples=12)
@given(
    st.sampled_from(
        [
            *((ROOMY, SMALL), (ROOMY, SMALLER), (SMALL, SMALLER), (SMALL, SMALLEST)),
            *((ROOMY, 500), (SMALLER, 145)),  # with the same anchors
        ]
    ),
    st.integers(0, 5),
)
def test_a_page_keeps_its_promises(budgets: tuple[int, int], seed: int) -> None:
    source = budget(budgets[0])
    target = smaller(source, budgets[1], DIM)
    arrays = [*wide_pages(3, seed), *make_arrays(3, seed=seed, dim=DIM, low=1)]
    codes = source.compress(glie.Pages(arrays))
    made = shrunk(codes, source, target)
    assert target.codebook is source.codebook
    assert made.packed is not None
    assert made.packed.dtype == target.dtype
    assert made.k == target.k
    assert (np.count_nonzero(made.counts, axis=1) >= 1).all()
    np.testing.assert_allclose(made.counts.sum(axis=1), codes.counts.sum(axis=1), rtol=0.1)
    scored = target.regenerate(made)
    np.testing.assert_allclose(np.linalg.norm(scored.vectors, axis=1), 1, atol=1e-5)
    for page, rows in enumerate(scored):
        assert holds(rows, made.vectors[page, : np.count_nonzero(made.counts[page])])
    assert made.residual is not None
    _, bounds = read_pairs(made, len(book()), target.config.first_layer)
    assert (np.diff(bounds) <= target.config.codewords).all()
    alone = shrunk(codes.take(np.array([1])), source, target)
    assert alone.packed is not None
    assert alone.packed.rows.tobytes() == made.packed.rows[1].tobytes()


@pytest.mark.parametrize("codewords", [90, 64, 50, 32, 7, 1])
def test_the_same_anchors_keep_a_part_of_what_was_scored(codewords: int) -> None:
    def codec(codewords: int) -> glie.Codec:
        config = glie.CodecConfig(k=3, dtype="int2", codewords=codewords)
        return glie.Codec.from_config(config, Residual(book()))

    source, target = codec(90), codec(codewords)
    codes = source.compress(wide_pages(3))
    made = shrunk(codes, source, target)
    assert made.packed is not None
    assert codes.packed is not None
    assert made.packed.rows.tobytes() == codes.packed.rows.tobytes()
    old, new = source.regenerate(codes), target.regenerate(made)
    assert new.lengths.tolist() == [3 + codewords] * 3
    assert all(holds(x, y) for x, y in zip(old, new, strict=True))


def test_a_layer_is_cut_where_the_page_needs_it_least() -> None:
    pages, source = wide_pages(12), budget(SMALLER)
    target = smaller(source, SMALLER - 5, DIM)
    assert target.k == source.k
    assert target.config.codewords < source.config.codewords
    codes = source.compress(pages)
    made = shrunk(codes, source, target)
    direct = target.regenerate(target.compress(pages))
    assert covered(pages, target.regenerate(made)) > covered(pages, direct) - 0.01


@pytest.mark.parametrize(
    ("before", "after"), [(ROOMY, SMALL), (ROOMY, SMALLER), (SMALL, SMALLER), (SMALLER, SMALLEST)]
)
def test_little_is_lost_against_compressing_the_pages(before: int, after: int) -> None:
    pages, source = wide_pages(12), budget(before)
    target = smaller(source, after, DIM)
    made = shrunk(source.compress(pages), source, target)
    direct = covered(pages, target.regenerate(budget(after).compress(pages)))
    assert covered(pages, target.regenerate(made)) > direct - 0.03


def test_codewords_that_the_page_needed_more_count_more() -> None:
    """Each layer half as much as the one before, and the first as much as an anchor."""
    pages = wide_pages(3)
    config = dataclasses.replace(budget(ROOMY).config, first_layer=FIRST_LAYER)
    source = glie.Codec.from_config(config, Residual(book()))
    codes = source.compress(pages)
    stored = source.regenerate(codes)
    need = residual._need(codes, stored, FIRST_LAYER)
    for page, rows in enumerate(stored):
        used = int(np.count_nonzero(codes.counts[page]))
        codewords = len(rows) - used
        assert codewords > 64
        expected = np.repeat([1, 0.5, 0.25], [used + 32, 32, codewords - 64])
        mine = need[stored.offsets[page] : stored.offsets[page + 1]]
        np.testing.assert_array_equal(mine, expected)


def test_weights_decide_which_codewords_stay() -> None:
    """Of two halves of a page and room for few codewords, the heavier half has them."""
    rows = wide_pages(1).vectors
    rows = rows[np.argsort(rows[:, 0])]
    pages, halves = glie.Pages([rows]), np.arange(len(rows)) < len(rows) // 2
    codes = glie.Codec(k=1, dtype="int2").compress(pages)
    found = []
    for heavy in (halves, ~halves):
        weights = np.where(heavy, 1, 0.01).astype(np.float32)
        blobs = residual_codes(pages, codes, book(), 3, FIRST_LAYER, weights)
        coded = dataclasses.replace(codes, residual=blobs)
        found.append(reconstructed(coded, book(), FIRST_LAYER))
    for place, heavy in enumerate((halves, ~halves)):
        part = glie.Pages([rows[heavy]])
        assert covered(part, found[place]) > covered(part, found[1 - place]) + 0.01


def test_vectors_are_kept_in_2_bits_then_in_as_many_as_fit() -> None:
    for k, dtype, bytes_per_page, expected in (
        *((64, "bf16", 1040, (30, "int2")), (16, "bf16", 1040, (16, "int2"))),
        *((4, "bf16", 520, (4, "int4")), (4, "bf16", 560, (4, "int8"))),
        *((4, "bf16", 159, (4, "int2")), (4, "int8", 158, (4, "int2"))),
        *((16, "int2", 260, (7, "int2")), (16, "int1", 260, (13, "int1"))),
        *((4, "bf16", 45, (1, "int1")), (4, "bf16", 60, (1, "int2"))),
    ):
        target = smaller(glie.Codec(k, dtype=dtype), bytes_per_page, 128)
        assert (target.k, target.dtype) == expected
        each = {"int8": 129, "int4": 65, "int2": 33, "int1": 17}[target.dtype]
        assert target.k * each + 26 <= bytes_per_page


def test_fewer_bits_alone_are_those_of_the_pages() -> None:
    pages = wide_pages(5)
    source, target = glie.Codec(4), glie.Codec(4, dtype="int2")
    made, direct = shrunk(source.compress(pages), source, target), target.compress(pages)
    assert made.packed is not None
    assert direct.packed is not None
    assert made.packed.rows.tobytes() == direct.packed.rows.tobytes()
    np.testing.assert_array_equal(made.counts, direct.counts)


def test_merged_anchors_are_means_of_the_page() -> None:
    """Of anchors that are whole clusters, the merged ones are the means of their vectors."""
    rng = np.random.default_rng(0)
    centres = unit(np.repeat(np.eye(2, DIM), 2, axis=0) + 0.1 * rng.normal(size=(4, DIM)))
    rows = np.repeat(centres, [5, 6, 7, 8], axis=0)
    rows = unit(rows + 0.01 * rng.normal(size=rows.shape))
    made = merged(glie.Codec(4).compress(glie.Pages([rows])), glie.CodecConfig(k=2))
    whole = glie.Codec(2).compress(glie.Pages([rows]))
    assert made.counts.tolist() == whole.counts.tolist() == [[15, 11]]
    np.testing.assert_allclose(made.vectors, whole.vectors, atol=1e-3)
    np.testing.assert_allclose(made.norms, whole.norms, atol=1e-3)


def test_a_page_of_as_many_vectors_as_a_count_holds() -> None:
    page = unit(np.random.default_rng(0).normal(size=(65_000, 4)))
    source = glie.Codec(8, dtype="int2")
    made = shrunk(source.compress(glie.Pages([page])), source, glie.Codec(1, dtype="int1"))
    assert made.counts.tolist() == [[65_535]] or abs(int(made.counts[0, 0]) - 65_000) < 2_100


def test_a_decoder_stays(tmp_path: Path) -> None:
    codec = random_codec(DIM, 0)
    index = glie.Index.create(tmp_path / "x", codec)
    index.add(wide_pages(20))
    made = index.shrunk(tmp_path / "y", bytes_per_page=150)
    assert made.codec.decoder is not None
    assert (made.codec.k, made.codec.dtype) == (4, "int4")
    hits = made.search([wide_pages(20)[3][:6]])[0]
    assert hits.cost.pages_regenerated == 20


SOURCES = [
    *((budget(ROOMY), SMALL), (budget(ROOMY), SMALLEST), (budget(SMALL), SMALLER)),
    *((budget(ROOMY), 500), (glie.Codec(16), 200), (glie.Codec(8, dtype="int4"), 90)),
]


@pytest.mark.parametrize(("codec", "bytes_per_page"), SOURCES)
def test_an_index_of_the_same_pages(tmp_path: Path, codec: glie.Codec, bytes_per_page: int) -> None:
    count = 300
    pages = glie.Pages(
        make_arrays(count, dim=DIM, low=100, high=140), ids=[f"a.pdf#{i}" for i in range(count)]
    )
    index = glie.Index.create(tmp_path / "x", codec, encoder="mine")
    metadata = [{"page": i} for i in range(count)]
    index.add(pages, metadata, images=[b"x" * 9 if i % 7 == 0 else None for i in range(count)])
    index.delete(["a.pdf#5"])
    before = {path: path.read_bytes() for path in index.path.rglob("*") if path.is_file()}
    said: list[Progress] = []
    made = index.shrunk(tmp_path / "y", bytes_per_page=bytes_per_page, progress=said.append)
    assert {path: path.read_bytes() for path in index.path.rglob("*") if path.is_file()} == before
    assert said[-1] == Progress("pages", 299, 299)
    facts = made.info()
    assert facts.lean_bytes / facts.pages <= bytes_per_page
    assert facts.lean_bytes < index.info().lean_bytes
    assert facts.vectors == pytest.approx(index.info().vectors, rel=0.02)
    assert made.encoder == index.encoder
    assert made.ids == index.ids
    assert list(made.records()) == list(index.records())
    assert [made.image(i) for i in made.ids] == [index.image(i) for i in index.ids]
    made.verify()

    asked = [unit(pages[i][:8] + 0.05 * np.ones(DIM)) for i in range(20, 40)]
    best = [hits.ids[0] for hits in made.search(asked, top=1)]
    assert np.mean([page == f"a.pdf#{i}" for i, page in enumerate(best, 20)]) > 0.7

    made.delete([f"a.pdf#{i}" for i in range(20, 120)])
    made.compact()
    made.add(glie.Pages([pages[20]], ids=["new"]))
    again = glie.Index.open(made.path)
    again.verify()
    assert len(again) == 200
    assert "new" in [page for hits in again.search(asked[:1], top=5) for page in hits.ids]
    less = again.info().lean_bytes // len(again) * 4 // 5
    smallest = again.shrunk(tmp_path / "z", bytes_per_page=less)
    assert smallest.ids == again.ids


def test_what_cannot_be_shrunk(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "x", budget(SMALL))
    with pytest.raises(glie.InputError, match="it holds no page"):
        index.shrunk(tmp_path / "y", bytes_per_page=SMALLER)
    index.add(wide_pages(100))
    taken = math.ceil(index.info().bytes_per_page or 0)  # with the codebook
    for number, message in (
        (taken, rf"found {taken}, but a page of .*x takes \d+; expected fewer"),
        (4 * SMALL, rf"found {4 * SMALL}, but a page of .*x takes \d+; expected fewer"),
        (10, "found 10, at least "),
        (2.5, "expected a whole number, found 2.5"),
    ):
        with pytest.raises(glie.InputError, match=f"bytes_per_page: {message}"):
            index.shrunk(tmp_path / "y", bytes_per_page=number)  # type: ignore[arg-type]
    with pytest.raises(glie.InputError, match=f"{SMALL} hold as much as is stored already; expect"):
        smaller(index.codec, SMALL, DIM)
    small = glie.Index.create(tmp_path / "short", budget(SMALL))
    small.add(glie.Pages([np.eye(1, DIM)] * 300))
    with pytest.raises(glie.InputError, match=r"found 240, but a page of .*short takes \d+;"):
        small.shrunk(tmp_path / "y", bytes_per_page=SMALL - 10)
    (tmp_path / "there").mkdir()
    with pytest.raises(glie.IndexFolderError, match="there: already there; choose another name"):
        index.shrunk(tmp_path / "there", bytes_per_page=SMALLER)
    assert not (tmp_path / "y").exists()


def test_nothing_is_left_of_what_was_not_finished(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "x", budget(SMALL))
    index.add(wide_pages(100))

    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.shrunk(tmp_path / "y", bytes_per_page=SMALLER, progress=interrupt)
    assert not (tmp_path / "y").exists()
