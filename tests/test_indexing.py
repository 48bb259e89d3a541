"""Open or create an index or a collection for documents, without the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import glie
from glie import engines
from glie.distributed.ingest import open_or_create_collection
from glie.indexing import CodecChoice, codec_named, open_or_create
from glie.ingest import ingest


@pytest.fixture
def documents(tmp_path: Path) -> list[Path]:
    path = tmp_path / "a.txt"
    path.write_text("Tides turn twice a day.")
    return [path]


def test_a_new_index_and_the_same_again(tmp_path: Path, documents: list[Path]) -> None:
    index, encoder = open_or_create(tmp_path / "x", documents)
    assert index.codec.same_as(glie.Codec(bytes_per_page=520))
    assert index.encoder is not None
    assert (index.encoder["name"], index.encoder["revision"]) == ("english", encoder.revision)
    assert ingest(index, encoder, documents).pages_added == 1
    again, other = open_or_create(tmp_path / "x", documents, "english", CodecChoice(520))
    assert (len(again), other.revision) == (1, encoder.revision)


def test_nothing_is_created_for_no_documents(tmp_path: Path) -> None:
    with pytest.raises(glie.DocumentError, match="no documents there"):
        open_or_create(tmp_path / "x", [tmp_path])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("choice", "k", "dtype", "shipped"),
    [
        (CodecChoice(k=8), 8, "bf16", True),
        (CodecChoice(dtype="int8"), 4, "int8", True),
        (CodecChoice(codec="free"), 4, "bf16", False),
        (CodecChoice(k=2, dtype="int2", codec="free"), 2, "int2", False),
    ],
)
def test_a_codec_by_its_details(
    tmp_path: Path, documents: list[Path], choice: CodecChoice, k: int, dtype: str, shipped: bool
) -> None:
    codec = open_or_create(tmp_path / "x", documents, choice=choice)[0].codec
    assert (codec.k, codec.dtype) == (k, dtype)
    assert codec.same_as(glie.Codec(k, dtype=dtype)) is not shipped
    choice.check_same(codec, "x")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bytes_per_page": 260, "k": 4}, "give the budget or these, not both"),
        ({"codec": "nowhere"}, "nowhere: no such folder"),
        ({"k": 0}, "codec setting k: expected a whole number"),
        ({"dtype": "int3"}, "codec setting dtype: expected one of"),
    ],
)
def test_choices_that_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(glie.InputError, match=message):
        CodecChoice(**given)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (CodecChoice(bytes_per_page=260), "x: its pages are not stored in 260 bytes each"),
        (CodecChoice(k=3), "x: it stores k=4 vectors a page, not 3"),
        (CodecChoice(dtype="int8"), "x: it stores numbers in bf16, not int8"),
    ],
)
def test_another_choice_than_that_of_the_index(choice: CodecChoice, message: str) -> None:
    with pytest.raises(glie.InputError, match=message):
        choice.check_same(glie.Codec(k=4), "x")
    with pytest.raises(glie.InputError, match="x: it has another codec"):
        CodecChoice(codec="free").check_same(glie.Codec(bytes_per_page=520), "x")


def test_another_encoder_is_refused(tmp_path: Path, documents: list[Path]) -> None:
    open_or_create(tmp_path / "x", documents)
    with pytest.raises(glie.EncoderError, match="made with encoder 'english'"):
        open_or_create(tmp_path / "x", documents, "minilm-384")


def test_codecs_by_name(tmp_path: Path) -> None:
    glie.Codec(k=7).save(tmp_path / "mine")
    assert codec_named(tmp_path / "mine").k == 7
    assert codec_named("free").same_as(glie.Codec())


def test_a_collection_in_an_engine(tmp_path: Path, documents: list[Path]) -> None:
    choice, shards = CodecChoice(k=2, codec="free"), tmp_path / "shards"
    for _ in range(2):  # created, then opened
        engine = engines.connect("lancedb", tmp_path / "store", "pages")
        pages, encoder = open_or_create_collection(engine, documents, choice=choice, shards=shards)
        assert (pages.codec.k, encoder.name) == (2, "english")
        assert not shards.exists()
    with pytest.raises(glie.InputError, match="it stores k=2 vectors a page, not 3"):
        open_or_create_collection(engine, documents, choice=CodecChoice(k=3), shards=shards)
    engine.close()
