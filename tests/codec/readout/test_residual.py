"""Codewords around anchors: the stored pairs are the scored vectors, and damage is found."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec.codes import Blobs, Codes
from glie.codec.readout.codebook import Codebook, fit_codebook, residuals
from glie.codec.readout.pairs import most_residual_bytes
from glie.codec.readout.residual import CODEBOOK, Residual, reconstructed, residual_codes
from glie.identity import EncoderId
from glie.kernels.maxsim import maxsim
from glie.kernels.residual import FIRST_LAYER, ONE_LAYER
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
    for codewords, first_layer in itertools.product((1, 33, 70, 130), (FIRST_LAYER, ONE_LAYER)):
        blobs = residual_codes(pages, codes, book, codewords, first_layer)
        assert blobs.lengths.max() <= most_residual_bytes(3, len(book), codewords, first_layer)


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
    with pytest.raises(glie.CorruptIndexError, match="residual"):
        codec.maxsim(glie.Queries([np.eye(codes.dim, dtype=np.float32)[:2]]), broken)


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


def test_rebuilding_nothing_gives_nothing(codec: glie.Codec, book: Codebook) -> None:
    codes = codec.compress(pages_of(3))
    none: Codes = codes.take(np.empty(0, np.int64))
    assert len(reconstructed(none, book, FIRST_LAYER)) == 0


def test_scores_are_those_of_the_regenerated_pages(codec: glie.Codec) -> None:
    pages = pages_of(9)
    codes = codec.compress(pages)
    queries = glie.Queries([pages[0][:3], pages[4][2:8]])
    made = codec.regenerate(codes)
    bounds = made.offsets[:-1], made.offsets[1:]
    expected = maxsim(queries.vectors, queries.offsets, made.vectors, *bounds)
    np.testing.assert_allclose(codec.maxsim(queries, codes), expected, atol=1e-5)
