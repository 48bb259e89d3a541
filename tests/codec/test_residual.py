"""Words around anchors: what is stored is what is scored, and no budget is exceeded."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec import adapt
from glie.codec.budget import OVERHEAD, config_for, least_bytes, vector_bytes
from glie.codec.codes import Blobs, Codes
from glie.codec.readout.codebook import Codebook, fit_codebook, residuals
from glie.codec.readout.pairs import most_residual_bytes
from glie.codec.readout.residual import CODEBOOK, Residual, reconstructed, residual_codes
from glie.identity import EncoderId
from tests.conftest import make_arrays

DIM = 32


def pages_of(count: int, seed: int = 0, high: int = 60) -> glie.Pages:
    return glie.Pages(make_arrays(count, seed=seed, dim=DIM, low=1, high=high))


@pytest.fixture(scope="module")
def book() -> Codebook:
    pages = pages_of(60, seed=1)
    rest, _ = residuals(pages, glie.Codec(4, dtype="int2").compress(pages), 0.5)
    return fit_codebook(rest, 100, encoder=EncoderId("tiny"))


@pytest.fixture(scope="module")
def codec(book: Codebook) -> glie.Codec:
    config = glie.CodecConfig(k=3, dtype="int2", codewords=10)
    return glie.Codec.from_config(config, Residual(book))


def coverage(pages: glie.Pages, sets: glie.Pages) -> float:
    """How near its set is to a page's vectors, in the mean."""
    return float(
        np.mean(
            [(rows @ mine.T).max(axis=1).mean() for rows, mine in zip(pages, sets, strict=True)]
        )
    )


def test_the_scored_set_is_the_stored_vectors_and_the_codewords(codec: glie.Codec) -> None:
    pages = pages_of(20)
    codes = codec.compress(pages)
    for page, rows in enumerate(codec.regenerate(codes)):
        used = int(np.count_nonzero(codes.counts[page]))
        np.testing.assert_array_equal(rows[:used], codes.vectors[page, :used])
        assert used < len(rows) <= used + 10
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_every_codeword_stands_for_its_share_of_anchor_and_codeword(book: Codebook) -> None:
    config = glie.CodecConfig(k=3, dtype="int2", codewords=1000)
    codec = glie.Codec.from_config(config, Residual(book))
    pages = pages_of(8)
    codes = codec.compress(pages)
    rest, slots = residuals(pages, codes, book.anchor_share)
    codewords = book.nearest(rest)
    for page, rows in enumerate(codec.regenerate(codes)):
        mine = slice(pages.offsets[page], pages.offsets[page + 1])
        anchors = codes.vectors[page, : np.count_nonzero(codes.counts[page])]
        pairs = sorted(set(zip(slots[mine], codewords[mine], strict=True)))
        expected = np.stack([0.5 * anchors[s] + 0.6 * book.codewords[w] for s, w in pairs])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        found = rows[len(anchors) :]
        assert len(found) == len(expected)
        for row in expected:  # the layers have an order of their own
            assert np.abs(found - row).max(axis=1).min() < 1e-5


def test_more_codewords_come_nearer(book: Codebook) -> None:
    pages = pages_of(30)
    near = []
    for codewords in (0, 4, 16):
        config = glie.CodecConfig(k=2, dtype="int2", codewords=codewords)
        codec = glie.Codec.from_config(config, Residual(book))
        near.append(coverage(pages, codec.regenerate(codec.compress(pages))))
    assert near == sorted(near)
    assert near[-1] > near[0] + 0.02


def test_a_page_gives_the_same_residual_alone_and_in_a_batch(codec: glie.Codec) -> None:
    pages = pages_of(12)
    together = codec.compress(pages).residual
    assert together is not None
    for i in range(len(pages)):
        alone = codec.compress(pages.slice(i, i + 1)).residual
        assert alone is not None
        assert alone[0].tobytes() == together[i].tobytes()


def test_no_residual_is_larger_than_announced(book: Codebook) -> None:
    pages = pages_of(40, high=120)
    codes = glie.Codec(3, dtype="int2").compress(pages)
    for codewords in (1, 33, 70, 130):
        blobs = residual_codes(pages, codes, book, codewords)
        assert blobs.lengths.max() <= most_residual_bytes(3, len(book), codewords)


@pytest.mark.parametrize("damage", ["empty", "short", "long", "noise", "count"])
def test_damaged_residual_is_refused(codec: glie.Codec, damage: str) -> None:
    codes = codec.compress(pages_of(3))
    assert codes.residual is not None
    blobs = [codes.residual[i].tobytes() for i in range(3)]
    blobs[1] = {
        "empty": b"",
        "short": blobs[1][:-1],
        "long": blobs[1] + b"\0",
        "noise": bytes([10]) + bytes(len(blobs[1]) - 1),
        "count": b"\xff" + blobs[1][1:],
    }[damage]
    broken = dataclasses.replace(codes, residual=Blobs.of(blobs))
    with pytest.raises(glie.CorruptIndexError, match="residual"):
        codec.regenerate(broken)


def test_an_index_finds_what_memory_finds(codec: glie.Codec, tmp_path: Path) -> None:
    pages = pages_of(50)
    index = glie.Index.create(tmp_path / "i", codec)
    index.add(pages.slice(0, 30))
    index.add(pages.slice(30, 50))
    index.delete(["7"])
    index.compact()
    index.verify()
    index = glie.Index.open(tmp_path / "i")
    assert index.codec.same_as(codec)
    sets = codec.regenerate(codec.compress(pages))
    query = pages[11][:3]
    scores = [(query @ rows.T).max(axis=1).sum() for rows in sets]
    scores[7] = -9
    [hits] = index.search([query], 5)
    best = np.argsort(scores)[::-1][:5]
    assert hits.ids == [str(i) for i in best]
    np.testing.assert_allclose(hits.scores, np.array(scores)[best], rtol=1e-5)


def test_a_codec_with_its_own_codebook_is_saved_whole(codec: glie.Codec, tmp_path: Path) -> None:
    codec.save(tmp_path / "c")
    assert (tmp_path / "c" / CODEBOOK).exists()
    read = glie.Codec.load(tmp_path / "c")
    assert read.same_as(codec)
    pages = pages_of(5)
    one, two = codec.compress(pages).residual, read.compress(pages).residual
    assert one is not None
    assert two is not None
    np.testing.assert_array_equal(one.data, two.data)
    glie.Codec(4).save(tmp_path / "c")  # another in its place
    assert not (tmp_path / "c" / CODEBOOK).exists()


def test_a_damaged_codebook_is_named(codec: glie.Codec, tmp_path: Path) -> None:
    codec.save(tmp_path / "c")
    file = tmp_path / "c" / CODEBOOK
    data = file.read_bytes()
    for broken in (data[:-1], data[:200], b"", b"\0" * 100):
        file.write_bytes(broken)
        with pytest.raises(glie.CodecError, match=CODEBOOK):
            glie.Codec.load(tmp_path / "c")
    assert codec.codebook is not None
    file.write_bytes(dataclasses.replace(codec.codebook, codeword_share=0.7).to_bytes())
    with pytest.raises(glie.CodecError, match="not the file"):
        glie.Codec.load(tmp_path / "c")
    file.unlink()
    with pytest.raises(glie.CodecError, match="it needs the codebook"):
        glie.Codec.load(tmp_path / "c")


def test_a_codec_with_the_shipped_codebook_costs_an_index_nothing(tmp_path: Path) -> None:
    codec = glie.Codec(bytes_per_page=260)
    index = glie.Index.create(tmp_path / "i", codec)
    assert index.info().codec_bytes == 0
    assert glie.Index.open(tmp_path / "i").codec.same_as(codec)


@pytest.mark.parametrize("budget", [80, 130, 260, 520, 1040, 2080, 4160])
def test_pages_fit_their_budget_on_disk(budget: int, tmp_path: Path) -> None:
    pages = glie.Pages(make_arrays(300, dim=128, low=1, high=300 if budget == 520 else 60))
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=budget))
    index.add(pages, [{"page": i, "document": f"reports/{i // 9}.pdf"} for i in range(300)])
    assert index.info().bytes <= budget * len(pages)


def test_a_budget_that_is_too_small_says_what_is_needed() -> None:
    least = least_bytes(128, 65_536)
    assert config_for(least, 128, 65_536).codewords == 1
    with pytest.raises(glie.InputError, match=f"at least {least}"):
        config_for(least - 1, 128, 65_536)
    assert least > OVERHEAD
    for wrong in (2.5, "520", True):
        with pytest.raises(glie.InputError, match="whole number"):
            glie.Codec(bytes_per_page=wrong)  # type: ignore[arg-type]
    for few in (0, -5):
        for adapts in (None, True):
            with pytest.raises(glie.InputError, match=f"found {few}"):
                glie.Codec(bytes_per_page=few, adapt=adapts)
    with pytest.raises(TypeError, match="give it without them"):
        glie.Codec(4, bytes_per_page=520)


def test_a_larger_budget_never_keeps_less() -> None:
    found = [config_for(budget, 128, 65_536) for budget in range(70, 5000, 37)]
    for smaller, larger in pairwise(found):
        assert larger.k >= smaller.k


def test_every_budget_from_the_least_on_is_met() -> None:
    for dim in (1, 2, 16, 128):
        for codewords in (1, 64, 65_536):
            least = least_bytes(dim, codewords)
            for budget in range(least, least + 120):
                config = config_for(budget, dim, codewords)
                residual = most_residual_bytes(config.k, codewords, config.codewords)
                vectors = config.k * vector_bytes(dim, config.dtype)
                assert OVERHEAD + vectors + 2 + residual <= budget


def test_an_index_adapts_to_its_first_pages(tmp_path: Path) -> None:
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    pages = pages_of(200)
    with pytest.raises(glie.CodecError, match="adapted"):
        codec.compress(pages)
    glie.Index.create(tmp_path / "i", codec)
    index = glie.Index.open(tmp_path / "i")  # the promise is kept from one process to the next
    index.add(pages)
    index = glie.Index.open(tmp_path / "i")
    assert not index.codec.adapts
    assert index.codec.same_as(codec.adapted(pages))
    with pytest.raises(glie.InputError, match="bytes_per_page"):
        index.codec.adapted(pages)
    info = index.info()
    assert 0 < info.codec_bytes < info.bytes <= 400 * len(pages)
    [hits] = index.search([pages[3][:4]], 3)
    assert "3" in hits.ids
    before = index.codec
    index.add(glie.Pages(make_arrays(5, seed=9, dim=DIM), ids=[f"new{i}" for i in range(5)]))
    assert index.codec.same_as(before)


def test_an_index_adapts_where_the_shipped_codebook_does_not_fit(tmp_path: Path) -> None:
    pages = glie.Pages(make_arrays(60, dim=128))  # nobody's vectors
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=400))
    index.add(pages)
    assert index.codec.codebook is not None
    assert index.codec.codebook.notes == {"adapted_to": 60}
    refused = glie.Index.create(tmp_path / "j", glie.Codec(bytes_per_page=400, adapt=False))
    refused.add(pages)
    assert len(refused.codec.codebook or ()) == 65_536


def test_the_shipped_codebook_fits_its_encoder(tmp_path: Path) -> None:
    codewords = Codebook.shipped().codewords
    rng = np.random.default_rng(0)
    anchors = make_arrays(1, dim=128, low=40, high=40)[0]
    arrays = []
    for anchor in anchors:  # what the codewords were made for: anchors, and codewords around them
        rows = 0.5 * anchor + codewords[rng.integers(len(codewords), size=30)]
        arrays.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=260))
    index.add(glie.Pages(arrays))
    assert index.codec.same_as(glie.Codec(bytes_per_page=260))
    assert index.info().codec_bytes == 0


def test_a_stream_is_adapted_to_by_its_first_pages(tmp_path: Path) -> None:
    pages = pages_of(600, high=20)
    parts = [pages.slice(at, at + 100) for at in range(0, 600, 100)]
    index = glie.Index.create(tmp_path / "i", glie.Codec(bytes_per_page=400, adapt=True))
    index.add(glie.Batch(part) for part in parts)
    assert index.ids == pages.ids
    assert index.codec.codebook is not None
    assert index.codec.codebook.notes == {"adapted_to": 500}


@pytest.mark.parametrize("size", [1, 64, 499, 500, 501, 600])
def test_a_stream_is_adapted_to_alike_in_any_batches(size: int, tmp_path: Path) -> None:
    pages = pages_of(600, high=20)
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    index = glie.Index.create(tmp_path / "i", codec)
    index.add(glie.Batch(pages.slice(at, min(at + size, 600))) for at in range(0, 600, size))
    assert index.codec.same_as(codec.adapted(pages.slice(0, 500), more=True))


def test_a_stream_that_ends_with_the_first_pages_is_all_there_is(tmp_path: Path) -> None:
    pages = pages_of(500, high=20)
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    index = glie.Index.create(tmp_path / "i", codec)
    index.add(glie.Batch(pages.slice(at, at + 100)) for at in range(0, 500, 100))
    assert index.codec.same_as(codec.adapted(pages))


def test_a_sample_is_drawn_over_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in any blocks, of a bounded size, of pages at even distances."""
    monkeypatch.setattr(adapt, "MOST_VECTORS", 400)
    pages = pages_of(200, high=30)
    whole = adapt.drawn(pages)
    assert (whole.of_pages, whole.of_vectors) == (200, len(pages.vectors))
    assert 200 <= len(whole.pages.vectors) <= 400 < len(pages.vectors)
    step = 200 // len(whole.pages)
    for page, rows in enumerate(whole.pages):
        np.testing.assert_array_equal(rows, pages[step * page])
    for size in (1, 7, 199):
        blocks = [pages.slice(at, min(at + size, 200)) for at in range(0, 200, size)]
        sample = adapt.drawn(iter(blocks))
        assert sample[1:] == whole[1:]
        np.testing.assert_array_equal(sample.pages.vectors, whole.pages.vectors)
        np.testing.assert_array_equal(sample.pages.offsets, whole.pages.offsets)
        assert not any(np.shares_memory(sample.pages.vectors, block.vectors) for block in blocks)
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    assert codec.adapted(iter(blocks)).same_as(codec.adapted(pages))


def test_what_cannot_be_adapted_to() -> None:
    codec = glie.Codec(bytes_per_page=400, adapt=True)
    for nothing in ([], glie.Pages([]), [glie.Pages([])]):
        with pytest.raises(glie.InputError, match="at least one"):
            codec.adapted(nothing)
    for wrong in (3, [make_arrays(1)[0]]):
        with pytest.raises(glie.InputError, match=r"expected glie\.Pages, found"):
            codec.adapted(wrong)  # type: ignore[arg-type]
    with pytest.raises(glie.VectorError, match="have 8 numbers, and later 16"):
        codec.adapted([glie.Pages(make_arrays(2, dim=8)), glie.Pages(make_arrays(2))])


def test_adapting_takes_other_dimensions_and_single_pages(tmp_path: Path) -> None:
    for dim, count in ((384, 3), (7, 20), (1, 2)):
        pages = glie.Pages(make_arrays(count, dim=dim))
        index = glie.Index.create(tmp_path / str(dim), glie.Codec(bytes_per_page=900, adapt=True))
        index.add(pages)
        [hits] = index.search([pages[1][:2]], 1)
        assert len(hits) == 1


def test_rebuilding_nothing_gives_nothing(codec: glie.Codec, book: Codebook) -> None:
    codes = codec.compress(pages_of(3))
    none: Codes = codes.take(np.empty(0, np.int64))
    assert len(reconstructed(none, book)) == 0
