"""Small work in numpy gives what the compiled loops give."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glie
from glie.codec.readout.codebook import Codebook
from glie.codec.readout.pairs import read_pairs
from glie.codec.readout.residual import Residual
from glie.kernels import maxsim as maxsim_module
from glie.kernels import small
from glie.kernels.kmeans import kmeans
from glie.kernels.maxsim import maxsim, maxsim_in_numpy
from glie.kernels.needed import most_needed
from glie.kernels.quantize import DTYPES, Packed
from glie.kernels.residual import (
    pack_set,
    read_set_in_python,
    reconstruct,
    reconstruct_in_numpy,
    unpack_set,
)
from tests.conftest import make_arrays, unit
from tests.kernels.test_maxsim import dtypes, offsets, ragged, stored, vectors


@pytest.fixture
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process without the compiled loops."""
    monkeypatch.setattr(small, "_LOOPS", "no such module")
    monkeypatch.setattr(small, "_done", 0)


def with_loops(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What it returns where nothing is small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small, "MOST_PRODUCTS", -1)
        patch.setattr(small, "BEFORE_COMPILING", -1)
        return function(*arguments, **options)


@given(ragged, st.lists(st.integers(0, 11), max_size=9), st.integers(1, 40), dtypes)
def test_maxsim(queries: list[int], pages: list[int], dim: int, dtype: str | None) -> None:
    """Also for pages without rows, and for none at all."""
    tokens, q = vectors(queries, dim, 0), offsets(queries)
    case = tokens, q, stored(pages, dim, 1, dtype), offsets(pages)[:-1], offsets(pages)[1:]
    np.testing.assert_allclose(maxsim_in_numpy(*case), maxsim(*case), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_maxsim_ranks_alike(dtype: str | None) -> None:
    """300 pages of 1 to 9 rows, at the size of real vectors."""
    lengths = np.random.default_rng(0).integers(1, 10, 300).tolist()
    q, p = offsets([24, 0, 7]), offsets(lengths)
    case = vectors([31], 128, 0), q, stored(lengths, 128, 1, dtype), p[:-1], p[1:]
    plain, fast = maxsim_in_numpy(*case), maxsim(*case)
    np.testing.assert_allclose(plain, fast, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(
        np.argsort(-plain, kind="stable"), np.argsort(-fast, kind="stable")
    )


@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_maxsim_of_vectors_of_any_length(dtype: str | None) -> None:
    q, p = offsets([5]), offsets([3, 1, 4])
    tokens = vectors([5], 24, 0) * np.array([[1e-3], [0], [1], [7], [1e4]], np.float32)
    rows = vectors([8], 24, 1) * np.float32(300)
    held = rows if dtype is None else Packed.of(rows, dtype)
    case = tokens, q, held, p[:-1], p[1:]
    np.testing.assert_allclose(maxsim_in_numpy(*case), maxsim(*case), rtol=1e-5)


@given(ragged, st.integers(1, 40), st.integers(0, 99), dtypes, st.integers(1, 40))
def test_a_page_scores_the_same_alone_anywhere_and_in_any_block(
    pages: list[int], dim: int, seed: int, dtype: str | None, block: int
) -> None:
    """Bit for bit: so equal pages keep their order."""
    tokens, q = vectors([7, 3], dim, seed), offsets([7, 3])
    rows, p = stored(pages, dim, seed + 1, dtype), offsets(pages)
    together = maxsim_in_numpy(tokens, q, rows, p[:-1], p[1:])
    order = np.random.default_rng(seed).permutation(len(pages))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maxsim_module, "NUMBERS_PER_BLOCK", 10 * block)
        shuffled = maxsim_in_numpy(tokens, q, rows, p[:-1][order], p[1:][order])
    np.testing.assert_array_equal(shuffled, together[:, order])
    for i in range(len(pages)):
        alone = maxsim_in_numpy(tokens[:7], q[:2], rows, p[i : i + 1], p[i + 1 : i + 2])
        assert alone[0, 0] == together[0, i]


@given(st.binary(max_size=60), st.integers(0, 70), st.integers(0, 5000))
def test_any_bytes_are_read_alike(data: bytes, count: int, universe: int) -> None:
    bits, members = np.frombuffer(data, np.uint8), np.empty(count, np.int64)
    taken = read_set_in_python(bits, universe, members)
    found = unpack_set(bits, count, universe)
    assert (taken < 0) == (found is None)
    if found is not None:
        np.testing.assert_array_equal(members, found[0])
        assert taken == found[1]


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 115, 200])
def test_packed_sets_are_read_alike(count: int) -> None:
    pairs = np.random.default_rng(count).choice(500_000, count, replace=False)
    packed, members = pack_set(pairs, 500_000), np.empty(count, np.int64)
    assert read_set_in_python(packed, 500_000, members) == len(packed)
    assert sorted(members) == sorted(pairs)


@pytest.mark.parametrize("pages", [0, 1, 40])
def test_reconstruct(pages: int) -> None:
    """Also pages without pairs, and with all anchors or one."""
    rng = np.random.default_rng(pages)
    anchors = vectors([pages * 4], 24, 0).reshape(pages, 4, 24)
    used, counts = rng.integers(1, 5, pages), rng.integers(0, 150, pages)
    codewords, bounds = rng.normal(size=(50, 24)).astype(np.float32), offsets(counts.tolist())
    pairs = rng.integers(0, np.repeat(used, counts) * 50) if pages else bounds[:0]
    fast, at = reconstruct(anchors, used, codewords, (0.5, 0.6), pairs, bounds)
    plain = np.full_like(fast, np.nan)
    shares = np.float32(0.5), np.float32(0.6)
    reconstruct_in_numpy(anchors, used, codewords, *shares, pairs, bounds, at, plain)
    np.testing.assert_allclose(plain, fast, atol=1e-6)
    for page in range(pages):  # alone, bit for bit the same
        mine, members = slice(page, page + 1), slice(bounds[page], bounds[page + 1])
        alone = np.empty((at[page + 1] - at[page], 24), np.float32)
        places = offsets([len(alone)])
        own = offsets([int(counts[page])])
        reconstruct_in_numpy(
            anchors[mine], used[mine], codewords, *shares, pairs[members], own, places, alone
        )
        np.testing.assert_array_equal(alone, plain[at[page] : at[page + 1]])


@pytest.mark.parametrize(
    "codec",
    [
        *(glie.Codec(k=3, dtype=dtype) for dtype in DTYPES),
        glie.Codec.for_budget(520, adapt=False),
        glie.Codec.for_budget(100, adapt=False),
    ],
    ids=str,
)
def test_a_search_finds_the_same(
    codec: glie.Codec, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Pages that are stored twice keep their order; so do filters, and filters that match none."""
    arrays = make_arrays(120, dim=128)
    index = glie.Index.create(tmp_path / "index", codec)
    pages = glie.Pages([*arrays, *arrays[::2]])
    index.add(pages, metadata=[{"third": i % 3} for i in range(len(pages))])
    queries = [unit(arrays[i][:5] + 0.1) for i in range(3)]
    asked: list[dict[str, object]] = [
        {"top": 180},
        {"top": 7, "shortlist": 20},
        {"shortlist": 0},
        {"where": {"third": 1}},
        {"where": {"third": 9}},
    ]
    compiled = [index.search(queries, **options) for options in asked]  # type: ignore[arg-type]
    request.getfixturevalue("in_numpy")
    for options, expected in zip(asked, compiled, strict=True):
        for hits, same in zip(index.search(queries, **options), expected, strict=True):  # type: ignore[arg-type]
            assert hits.ids == same.ids
            np.testing.assert_allclose(hits.scores, same.scores, rtol=1e-6, atol=1e-6)
    assert small._done > 0


def test_some_codewords_are_rows_of_all() -> None:
    book = Codebook.shipped()
    which = np.array([7, 0, 65_535, 300])
    np.testing.assert_array_equal(book.some(which), book.codewords[which])


@pytest.mark.usefixtures("in_numpy")
def test_much_small_work_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "_are_kept", lambda: True)
    assert small.in_numpy(small.MOST_PRODUCTS // 2)
    assert small.is_small(small.MOST_PRODUCTS // 2)
    assert small.in_numpy(small.MOST_PRODUCTS // 2)
    assert not small.in_numpy(1)
    assert small.in_numpy(0)


@pytest.mark.usefixtures("in_numpy")
def test_more_work_is_small_where_loops_were_never_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small, "_are_kept", lambda: False)
    assert small.in_numpy(small.BEFORE_COMPILING)
    assert not small.in_numpy(1)


def test_nothing_is_small_once_the_loops_are_loaded() -> None:
    import glie.kernels._compiled  # noqa: F401

    assert not small.is_small(0)


def test_a_search_of_a_small_index_loads_neither_numba_nor_torch(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "index", glie.Codec.for_budget(520, adapt=False))
    index.add(glie.Pages(make_arrays(50, dim=128)))
    code = f"""
import sys, numpy
from glie.retriever import Retriever
retriever = Retriever({str(tmp_path / "index")!r}, lambda texts: [numpy.eye(128)[:3]])
hits = retriever.search("what?", documents=None)
heavy = ("numba", "llvmlite", "torch", "scipy", "numpy.ma", "numpy.random", "asyncio", "email")
print(len(hits), hits.cost.pages_regenerated, *[name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["10", "50"]


@pytest.mark.usefixtures("in_numpy")
@pytest.mark.parametrize("k", [1, 3, 40])
def test_kmeans(k: int) -> None:
    """Bit for bit, where no two distances are nearly equal; also of pages with equal vectors."""
    arrays = [*make_arrays(6, dim=32, low=1, high=60), np.repeat(unit(np.eye(32)[:2]), 3, axis=0)]
    rows, places = np.concatenate(arrays), offsets([len(page) for page in arrays])
    how = {"restarts": 2, "iterations": 10, "seed": 0}
    plain, fast = kmeans(rows, places, k, **how), with_loops(kmeans, rows, places, k, **how)
    np.testing.assert_array_equal(plain.centroids, fast.centroids)
    np.testing.assert_array_equal(plain.counts, fast.counts)
    np.testing.assert_allclose(plain.objective, fast.objective, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("in_numpy")
@given(st.integers(1, 20), st.integers(1, 40), st.integers(0, 3), st.integers(0, 20), st.booleans())
def test_most_needed(rows: int, members: int, permanent: int, left: int, whole: bool) -> None:
    """Also where similarities are equal."""
    rng = np.random.default_rng(members)
    drawn = rng.integers(0, 4, (rows, members)) if whole else rng.normal(size=(rows, members))
    permanent = min(permanent, members)
    case = drawn.astype(np.float32), permanent, min(left, members - permanent)
    np.testing.assert_array_equal(most_needed(*case), with_loops(most_needed, *case))


@pytest.mark.usefixtures("in_numpy")
@pytest.mark.parametrize("first_layer", [32, 1 << 15])
def test_sets_are_packed(first_layer: int) -> None:
    for count in (0, 1, 31, 200):
        pairs = np.random.default_rng(count).permutation(500_000)[:count]
        case = pairs, 500_000, first_layer
        assert pack_set(*case).tobytes() == with_loops(pack_set, *case).tobytes()


@pytest.mark.usefixtures("in_numpy")
@pytest.mark.parametrize("first_layer", [32, 1 << 15])
def test_pages_of_codewords_have_the_same_codes(first_layer: int) -> None:
    """With the shipped codebook, in one set or in layers."""
    book = Codebook.shipped()
    arrays = make_arrays(3, dim=book.dim, low=1, high=150)
    config = dataclasses.replace(Residual(book).config_for(260), first_layer=first_layer)
    codec = glie.Codec.from_config(config, Residual(book))
    plain = codec.compress(glie.Pages(arrays))
    fast = with_loops(codec.compress, glie.Pages(arrays))
    np.testing.assert_array_equal(plain.vectors, fast.vectors)
    assert plain.residual is not None
    assert fast.residual is not None
    mine, theirs = (
        set(read_pairs(codes, len(book), first_layer)[0].tolist()) for codes in (plain, fast)
    )
    assert len(mine & theirs) > 0.97 * len(mine)  # nearly equal ones may go either way


def test_switched_off_loops_are_an_error_of_ours() -> None:
    code = "import glie.kernels._compiled"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "glie.errors.GlieError: NUMBA_DISABLE_JIT: found 1" in run.stderr
