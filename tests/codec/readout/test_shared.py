"""Codebooks that indexes share: by digest, outside the index, found again or asked for."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import glie
from glie import engines
from glie.codec.make import make_codebook
from glie.codec.readout import shared
from glie.codec.readout.codebook import Codebook
from glie.identity import EncoderId
from tests.conftest import Floats, make_arrays, unit

ENCODER = EncoderId("colqwen2", "1.0")
DIM, BYTES = 32, 300
RECURRING: Floats = unit(np.random.default_rng(5).normal(size=(300, DIM)))  # residuals of all pages


def pages_of(count: int, seed: int = 0, prefix: str = "") -> glie.Pages:
    """Pages whose vectors recur from page to page, around the topic of each."""
    rng = np.random.default_rng(seed)
    arrays = []
    for _ in range(count):
        topic = unit(rng.normal(size=DIM))
        arrays.append(unit(0.6 * topic + RECURRING[rng.integers(300, size=30)]))
    return glie.Pages(arrays, [f"{prefix}{page}" for page in range(count)])


@pytest.fixture(scope="module")
def book() -> Codebook:
    return make_codebook(pages_of(100, seed=1), ENCODER, notes={"fitted_on": {}})


@pytest.fixture
def codec(book: Codebook) -> glie.Codec:
    return glie.Codec.with_codebook(book, BYTES, adapt=True)


def registered_index(path: Path, codec: glie.Codec, *, inside: bool = False) -> glie.Index:
    assert codec.codebook is not None
    shared.register(codec.codebook)
    index = glie.Index.create(path, codec, inside=inside)
    index.add(pages_of(40))
    return index


def found(index: glie.Index) -> list[list[str]]:
    return [hits.ids for hits in index.search([pages_of(40)[page][:4] for page in range(10)], 5)]


def test_where_codebooks_are_shared(
    monkeypatch: pytest.MonkeyPatch, shared_codebooks: Path, tmp_path: Path
) -> None:
    assert shared.folder() == shared_codebooks
    monkeypatch.delenv("GLIE_CODEBOOKS")
    monkeypatch.setenv("HOME", str(tmp_path))
    for platform, variable, expected in (
        ("linux", "XDG_DATA_HOME", tmp_path / ".local/share/glie/codebooks"),
        ("darwin", "", tmp_path / "Library/Application Support/glie/codebooks"),
        ("win32", "LOCALAPPDATA", tmp_path / "AppData/Local/glie/codebooks"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        if variable:
            monkeypatch.delenv(variable, raising=False)
        assert shared.folder() == expected
        if variable:
            monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
            assert shared.folder() == tmp_path / "elsewhere/glie/codebooks"


def test_an_index_only_names_a_registered_codebook(codec: glie.Codec, tmp_path: Path) -> None:
    index = registered_index(tmp_path / "i", codec)
    assert not (tmp_path / "i" / "codec").exists()
    assert codec.codebook is not None
    info = index.info()
    assert (info.codebook, info.codebook_in) == (codec.codebook.digest, "shared")
    assert info.codebook_size == len(codec.codebook)
    assert info.codebook_bytes == len(codec.codebook.to_bytes()) > 0 == info.codec_bytes
    assert index.encoder == ENCODER  # that of the codebook, without being told
    again = glie.Index.open(tmp_path / "i")
    assert again.codec.codebook is not None
    assert again.codec.codebook.digest == codec.codebook.digest
    assert found(again) == found(index)
    with pytest.raises(glie.CodecError, match="the codec was fitted for encoder 'colqwen2'"):
        glie.Index.create(tmp_path / "j", codec, encoder="colpali")


def test_a_codebook_that_is_not_registered_is_inside(codec: glie.Codec, tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "i", codec)
    index.add(pages_of(40))
    assert index.info().codebook_in == "index"
    assert found(glie.Index.open(tmp_path / "i")) == found(index)
    assert not shared.registered()


@pytest.mark.parametrize("when", ["at once", "later"])
def test_inside_it_moves_with_the_index(
    when: str, codec: glie.Codec, tmp_path: Path, shared_codebooks: Path
) -> None:
    index = registered_index(tmp_path / "i", codec, inside=when == "at once")
    if when == "later":
        before = index.generation
        index.keep_codebook()
        assert index.generation == before + 1
    index.keep_codebook()  # it is there: nothing changes
    info = index.info()
    assert info.codebook_in == "index"
    assert 0 < info.codebook_bytes < info.codec_bytes < info.bytes
    expected = found(index)
    shutil.rmtree(shared_codebooks)
    (tmp_path / "i").rename(tmp_path / "moved")
    moved = glie.Index.open(tmp_path / "moved")
    assert found(moved) == expected
    assert moved.verify().whole
    moved.add(pages_of(3, seed=3, prefix="new"))
    assert moved.shrunk(tmp_path / "small", bytes_per_page=150).info().codebook_in == "index"


def test_inside_where_the_first_pages_choose_the_codebook(
    book: Codebook, tmp_path: Path, shared_codebooks: Path
) -> None:
    shared.register(book)
    codec = glie.Codec(bytes_per_page=BYTES)
    glie.Index.create(tmp_path / "i", codec, encoder=ENCODER, inside=True)
    index = glie.Index.open(tmp_path / "i")  # from one process to the next
    index.add(pages_of(40))
    assert (index.info().codebook, index.info().codebook_in) == (book.digest, "index")
    shutil.rmtree(shared_codebooks)
    assert len(glie.Index.open(tmp_path / "i")) == 40


def test_a_commit_that_was_interrupted_leaves_the_codec_of_before(
    codec: glie.Codec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings beside a codebook are written before the manifest that names them."""
    index = glie.Index.create(tmp_path / "i", codec, inside=True)
    with monkeypatch.context() as patch:
        patch.setattr("glie.index.folder.Folder.commit", lambda *_: (_ for _ in ()).throw(OSError))
        with pytest.raises(OSError):  # noqa: PT011
            index.add(pages_of(40), texts=["some words of a page"] * 40)
    again = glie.Index.open(tmp_path / "i")
    assert again.codec.same_as(codec)
    again.add(pages_of(40), texts=["some words of a page"] * 40)
    assert not again.codec.same_as(codec)
    assert glie.Index.open(tmp_path / "i").codec.same_as(again.codec)


def test_a_codebook_that_is_not_here_is_asked_for(
    codec: glie.Codec, tmp_path: Path, shared_codebooks: Path
) -> None:
    codec.save(tmp_path / "my.codec")
    index = registered_index(tmp_path / "i", codec)
    expected, digest = found(index), str(index.info().codebook)
    shutil.rmtree(shared_codebooks)  # deleted, or the index has moved to another machine
    for use in (glie.Index.open, glie.Index.examine, glie.Index.repair):
        with pytest.raises(glie.IndexFolderError) as error:
            use(tmp_path / "i")
        for part in (digest, "encoder 'colqwen2'", str(shared_codebooks), "`glie codec add CODEC`"):
            assert part in str(error.value)
        assert "damaged" not in str(error.value)
    loaded = glie.Codec.load(tmp_path / "my.codec").codebook
    assert loaded is not None
    shared.register(loaded)
    assert found(glie.Index.open(tmp_path / "i")) == expected


def test_a_damaged_shared_codebook_is_named_and_written_again(
    codec: glie.Codec, book: Codebook, tmp_path: Path
) -> None:
    index = registered_index(tmp_path / "i", codec)
    expected, file = found(index), shared.register(book)
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    for broken in (bytes(flipped), whole[:-7], b""):
        file.write_bytes(broken)
        with pytest.raises(glie.IndexFolderError, match=f"{re.escape(str(file))}: damaged.*add"):
            glie.Index.open(tmp_path / "i")
        assert not shared.is_registered(book)
        assert not shared.made_for(ENCODER, DIM)
        assert glie.Index.create(tmp_path / f"own{len(broken)}{broken[-5:].hex()}", codec).info()
    assert shared.register(book) == file
    assert file.read_bytes() == whole
    assert found(glie.Index.open(tmp_path / "i")) == expected


def test_a_name_that_is_no_digest_reads_no_file(tmp_path: Path, book: Codebook) -> None:
    (tmp_path / "secret.safetensors").write_bytes(book.to_bytes())
    for name in (f"../{tmp_path.name}/secret", "", "x" * 16, f"{book.digest}\n"):
        assert shared.find(name) is None


def test_no_folder_can_be_made(
    book: Codebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLIE_CODEBOOKS", str(tmp_path / "file"))
    with pytest.raises(glie.CodecError, match="set GLIE_CODEBOOKS to another folder"):
        shared.register(book)
    assert shared.registered() == []
    assert shared.find(book.digest) is None


def _register(data: bytes) -> int:
    book = Codebook.from_bytes(data, "here")
    for _ in range(5):
        file = shared.register(book)
        file.unlink(missing_ok=True)
        assert shared.register(book) == file
    return os.getpid()


def test_processes_register_at_once(book: Codebook, shared_codebooks: Path) -> None:
    """Each renames a file of its own: none sees half of one, and nothing is left behind."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert len(pool.map(_register, [book.to_bytes()] * 6, chunksize=1)) == 6
    assert [path.name for path in shared_codebooks.iterdir()] == [f"{book.digest}.safetensors"]
    assert shared.is_registered(book)


def test_indexes_take_a_registered_codebook_by_themselves(book: Codebook, tmp_path: Path) -> None:
    shared.register(book)
    budget = glie.Codec.for_budget(BYTES)

    def stored(name: str, pages: glie.Pages, encoder: EncoderId | None) -> glie.Index:
        index = glie.Index.create(tmp_path / name, budget, encoder=encoder)
        index.add(pages)
        return index

    mine = stored("mine", pages_of(40), ENCODER)
    assert mine.info().codebook == book.digest
    assert mine.codec.config.bytes_per_page == BYTES
    assert mine.encoder == ENCODER
    other = EncoderId("colqwen2", "2.0")
    for name, pages, encoder in (
        ("other", pages_of(40), other),
        ("unnamed", pages_of(40), None),
        ("unlike", glie.Pages(make_arrays(40, dim=DIM)), ENCODER),  # it does not fit them
    ):
        index = stored(name, pages, encoder)
        assert index.info().codebook != book.digest
        assert index.info().codebook_in in ("index", None)  # codewords of its own, or none


def test_indexes_of_a_shared_codebook_merge_and_shrink(codec: glie.Codec, tmp_path: Path) -> None:
    one = registered_index(tmp_path / "one", codec)
    two = glie.Index.create(tmp_path / "two", codec, inside=True)
    two.add(pages_of(20, seed=4, prefix="b"))
    one.merge(two)
    assert len(one) == 60
    assert glie.Index.open(tmp_path / "one").verify().whole
    small = one.shrunk(tmp_path / "small", bytes_per_page=120)
    assert small.info().codebook_in == "shared"
    assert not (tmp_path / "small" / "codec").exists()


def test_a_collection_has_a_copy(codec: glie.Codec, tmp_path: Path, shared_codebooks: Path) -> None:
    """An engine may be read from any machine."""
    index = registered_index(tmp_path / "i", codec)
    engine = engines.connect("qdrant", ":memory:", "pages")
    pages, _ = engines.export(index, engine)
    expected = [hits.ids for hits in pages.search([pages_of(40)[3][:4]], 3)]
    shutil.rmtree(shared_codebooks)
    again = engines.Collection.open(engine)
    assert [hits.ids for hits in again.search([pages_of(40)[3][:4]], 3)] == expected
    engine.close()


def test_shards_of_machines_without_the_codebook_are_merged(
    codec: glie.Codec, tmp_path: Path, shared_codebooks: Path
) -> None:
    """As in a distributed build: a worker gets the folder of the codec, and makes a shard."""
    index = registered_index(tmp_path / "i", codec)
    index.codec.frozen.save(tmp_path / "codec")
    shared_codebooks.rename(tmp_path / "aside")
    shard = glie.Index.create(tmp_path / "shard", glie.Codec.load(tmp_path / "codec"))
    shard.add(pages_of(20, seed=4, prefix="b"))
    assert shard.info().codebook_in == "index"
    (tmp_path / "aside").rename(shared_codebooks)
    index.merge(glie.Index.open(tmp_path / "shard"))
    assert (len(index), index.info().codebook_in) == (60, "shared")
