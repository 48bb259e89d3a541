"""Codes in a few bits a number: compress gives the vectors that are stored, for every type."""

from __future__ import annotations

import numpy as np
import pytest

import glie
from glie.codec.codes import Blobs, Codes, quantised
from glie.kernels.quantize import BITS
from tests.codec.networks import random_codec
from tests.conftest import make_arrays

FEW_BITS = tuple(BITS)


@pytest.mark.parametrize("dtype", FEW_BITS)
def test_compress_gives_what_is_read_back(dtype: str, pages: glie.Pages) -> None:
    codes = glie.Codec(k=4, dtype=dtype).compress(pages)
    assert codes.packed is not None
    assert codes.packed.dtype == dtype
    read = Codes.read(codes.packed, codes.norms, codes.counts, codes.ids)
    assert read.vectors.tobytes() == codes.vectors.tobytes()
    free = glie.Codec(k=4).compress(pages)
    assert free.packed is None
    cosines = (codes.vectors * free.vectors).sum(axis=2)[free.counts > 0]
    assert cosines.mean() > {"int8": 0.9999, "int4": 0.99, "int2": 0.9, "int1": 0.75}[dtype]
    np.testing.assert_allclose(
        np.linalg.norm(codes.vectors[codes.counts > 0], axis=1), 1, atol=1e-6
    )


@pytest.mark.parametrize("dtype", FEW_BITS)
def test_a_page_gives_the_same_code_alone_and_in_any_batch(dtype: str, pages: glie.Pages) -> None:
    for codec in (glie.Codec(3, dtype=dtype), random_codec(16, 0, 3).stored_as(dtype)):
        together = codec.compress(pages)
        assert together.packed is not None
        for page in (0, 7, 29):
            alone = codec.compress(pages.slice(page, page + 1))
            assert alone.packed is not None
            assert alone.packed.rows.tobytes() == together.packed.rows[page].tobytes()
            assert alone.vectors.tobytes() == together.vectors[page].tobytes()


@pytest.mark.parametrize("dtype", FEW_BITS)
def test_slots_that_are_not_used_stay_so(dtype: str) -> None:
    codes = glie.Codec(k=4, dtype=dtype).compress(glie.Pages([np.eye(6)[:2], np.eye(6)]))
    unused = codes.counts == 0
    assert unused.sum() == 2
    assert not codes.vectors[unused].any()
    assert not codes.norms[unused].any()
    assert codes.packed is not None
    assert not codes.packed.rows[unused].any()


@pytest.mark.parametrize("dtype", FEW_BITS)
def test_no_pages(dtype: str) -> None:
    codec = glie.Codec(k=2, dtype=dtype)
    assert len(codec.regenerate(codec.compress(glie.Pages([])))) == 0


@pytest.mark.parametrize("dtype", FEW_BITS)
def test_a_fitted_codec_regenerates_from_what_is_stored(dtype: str) -> None:
    pages = glie.Pages(make_arrays(5, high=90))
    codec = random_codec(16, 3).stored_as(dtype)
    codes, plain = codec.compress(pages), random_codec(16, 3).compress(pages)
    # the decoder reads norms and counts
    np.testing.assert_array_equal(codes.counts, plain.counts)
    np.testing.assert_allclose(codes.norms, plain.norms, atol=0.5 / 255 + 1e-3)
    made = codec.regenerate(codes)
    np.testing.assert_array_equal(made.lengths, pages.lengths)
    np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-6)
    assert made[0][0].tobytes() == codes.vectors[0, 0].tobytes()


def test_without_a_decoder_norms_go_and_counts_are_rounded() -> None:
    pages = glie.Pages(make_arrays(3, low=300, high=400))
    for codec in (glie.Codec(2), random_codec(16, 0, 2).single_stage):
        codes, plain = codec.stored_as("int4").compress(pages), codec.compress(pages)
        assert (codes.norms == 1).all()
        assert not (codes.counts == plain.counts).all()
        np.testing.assert_allclose(codes.counts, plain.counts, rtol=1 / 32)


def test_settings() -> None:
    codec = glie.Codec(k=2, dtype="int4")
    assert (codec.dtype, codec.at(8).dtype, codec.at(8).k) == ("int4", "int4", 8)
    assert codec.stored_as("bf16").same_as(glie.Codec(2))
    assert not codec.same_as(glie.Codec(2))
    assert random_codec(16, 0).stored_as("int1").single_stage.dtype == "int1"
    assert repr(codec) == "Codec(k=2, int4)"
    assert glie.Codec().config.to_dict().keys() == {"k", "restarts", "iterations", "seed"}
    assert codec.config.to_dict()["dtype"] == "int4"
    with pytest.raises(
        glie.InputError, match=r"dtype: expected one of bf16, int8, .*, found 'int3'"
    ):
        glie.Codec(dtype="int3")


def test_residual_travels_with_the_codes(pages: glie.Pages) -> None:
    blobs = [bytes([i]) * (i % 4) for i in range(30)]
    codes = glie.Codec(2).compress(pages)
    codes = Codes(codes.vectors, codes.norms, codes.counts, codes.ids, residual=Blobs.of(blobs))
    codes = quantised(codes, "int2", exact=False)
    some = codes.take(np.array([29, 3, 3, 4]))
    assert some.residual is not None
    assert some.packed is not None
    assert [some.residual[i].tobytes() for i in range(4)] == [blobs[i] for i in (29, 3, 3, 4)]
    np.testing.assert_array_equal(some.packed.vectors(), some.vectors)
    again = Blobs.joined([some.residual, Blobs.of([]), Blobs.of([b"last"])])
    assert [blob.tobytes() for blob in again] == [*(blobs[i] for i in (29, 3, 3, 4)), b"last"]
    nobody = codes.take(np.empty(0, np.int64))
    assert nobody.residual is not None
    assert len(nobody.residual) == len(nobody) == 0


@pytest.mark.parametrize("dtype", FEW_BITS)
def test_a_saved_codec_keeps_its_type(dtype: str, tmp_path: object) -> None:
    for number, codec in enumerate((glie.Codec(3), random_codec(16, 0, 3))):
        folder = f"{tmp_path}/{number}"
        codec.stored_as(dtype).save(folder)
        assert glie.Codec.load(folder).same_as(codec.stored_as(dtype))
