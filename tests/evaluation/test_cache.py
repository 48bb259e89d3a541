"""Vectors are encoded once: what is cached is what was encoded, finished, whole and the right one."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.evaluation import Dataset, Encoded, encode, load, read_corpora
from glie.progress import Progress
from glie.storage import json_digest
from tests.conftest import Floats
from tests.evaluation.counting import COUNT, Counting, Seeing, make_set, only_folder, same
from tests.evaluation.test_datasets import png


def test_the_second_run_reads(tmp_path: Path) -> None:
    first = encode(make_set(), Counting(), tmp_path)
    encoder = Counting()
    warned = make_set(warnings=("another",))
    second = encode(warned, encoder, tmp_path)
    assert (encoder.pages, encoder.questions) == ([], [])
    assert same(second.pages(), first.pages())
    assert np.array_equal(second.queries.vectors, first.queries.vectors)
    assert second.warnings == ("another",)
    third = load(only_folder(tmp_path))
    assert isinstance(third, Encoded)
    assert same(third.pages(), first.pages())
    assert (third.name, third.relevant, third.warnings, third.encoder) == (
        *(first.name, first.relevant, first.warnings, first.encoder),
    )


def test_a_cache_changes_nothing(tmp_path: Path) -> None:
    inside, cached = encode(make_set(), Counting()), encode(make_set(), Counting(), tmp_path)
    assert same(inside.pages(), cached.pages())
    assert np.array_equal(inside.queries.vectors, cached.queries.vectors)
    assert inside.queries.ids == cached.queries.ids
    assert (inside.relevant, inside.warnings) == (cached.relevant, cached.warnings)
    assert inside.lengths.tolist() == cached.lengths.tolist()


CHANGES: list[dict[str, Any]] = [
    {"pages": {**make_set().pages, "p5": "other words"}},
    {"pages": {("new" if page == "p5" else page): t for page, t in make_set().pages.items()}},
    {"queries": {"q1": "one?", "q2": "three?"}},
    {"relevant": {**make_set().relevant, "q2": {"p3": 1, "p140": 1}}},
]


@pytest.mark.parametrize("change", CHANGES)
def test_other_content_is_another_folder(tmp_path: Path, change: dict[str, Any]) -> None:
    encode(make_set(), Counting(), tmp_path)
    encoder = Counting()
    encode(make_set(**change), encoder, tmp_path)
    assert len(encoder.pages) == COUNT
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("attribute", ["name", "revision"])
def test_another_encoder_is_another_folder(tmp_path: Path, attribute: str) -> None:
    encode(make_set(), Counting(), tmp_path)
    encoder = Counting()
    setattr(encoder, attribute, "2")
    encode(make_set(), encoder, tmp_path)
    assert len(encoder.pages) == COUNT


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        encode(make_set(), Counting(stop_at=100), tmp_path)
    folder = only_folder(tmp_path)
    assert (folder / "pages-00001.safetensors").exists()  # of the 32 that were encoded
    with pytest.raises(glie.DatasetError, match=r"not finished \(no vectors.json\); encode the"):
        load(folder)
    with pytest.raises(glie.DatasetError, match="not finished"):
        read_corpora(folder)
    encoder = Counting()
    found = encode(make_set(), encoder, tmp_path)
    assert len(encoder.pages) == COUNT - 96
    assert same(found.pages(), encode(make_set(), Counting()).pages())
    assert not (folder / "unfinished.jsonl").exists()


def test_the_first_batch_of_an_interrupted_run(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        encode(make_set(), Counting(stop_at=5), tmp_path)
    encoder = Counting()
    encode(make_set(), encoder, tmp_path)
    assert len(encoder.pages) == COUNT


@pytest.mark.parametrize("harm", ["cut line", "other line", "shard", "gone"])
def test_what_a_crash_has_harmed_is_encoded_again(tmp_path: Path, harm: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        encode(make_set(), Counting(stop_at=130), tmp_path)
    folder = only_folder(tmp_path)
    journal, shard = folder / "unfinished.jsonl", folder / "pages-00001.safetensors"
    if harm == "cut line":
        journal.write_bytes(journal.read_bytes()[:-20])
    elif harm == "other line":
        journal.write_bytes(journal.read_bytes().split(b"\n")[0] + b'\n{"pages": 3}\n')
    elif harm == "shard":
        shard.write_bytes(b"x" * shard.stat().st_size)
    else:
        shard.unlink()
    encoder = Counting()
    found = encode(make_set(), encoder, tmp_path)
    assert len(encoder.pages) == COUNT - 64
    assert same(found.pages(), encode(make_set(), Counting()).pages())


def test_two_runs_at_once(tmp_path: Path) -> None:
    """The second waits for the first, and reads."""
    entered, release = threading.Event(), threading.Event()

    class Slow(Counting):
        def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
            entered.set()
            release.wait(10)
            return super().encode_pages(pages)

    first = threading.Thread(target=encode, args=(make_set(), Slow(), tmp_path))
    first.start()
    entered.wait(10)
    said: list[str] = []

    def saying(what: Progress) -> None:
        said.append(str(what))
        release.set()

    encoder = Counting()
    found = encode(make_set(), encoder, tmp_path, saying)
    first.join()
    assert said == ["my set/a: another process is encoding it"]
    assert encoder.pages == []
    assert len(found.pages()) == COUNT


def changed(data: bytes, **entries: Any) -> bytes:
    body = json.loads(data)
    del body["checksum"]
    body |= entries
    body["checksum"] = json_digest(body)
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("pages-00000.safetensors", lambda d: d[:-1], r"damaged: \d+ bytes, expected \d+"),
        ("pages-00000.safetensors", lambda d: d[:-1] + b"!", "does not match its checksum"),
        ("queries.safetensors", lambda d: d[:-1] + b"!", "does not match its checksum"),
        ("vectors.json", lambda d: d[:-1], "not the JSON of cached vectors"),
        ("vectors.json", lambda d: b"[]", "not the JSON of cached vectors"),
        ("vectors.json", lambda d: d.replace(b"p140", b"p141"), "does not match its checksum"),
        ("vectors.json", lambda d: changed(d, format="x"), "format 'x', expected 'glie-vectors'"),
        ("vectors.json", lambda d: changed(d, version=2), "version 2, this glie reads 1; upgrade"),
        ("vectors.json", lambda d: changed(d, pages=[["p0", 1]]), "not those of its pages"),
        ("vectors.json", lambda d: changed(d, shards=None), "does not describe cached vectors"),
        ("vectors.json", lambda d: changed(d, dim=9), "vectors of 8 numbers, expected 9"),
        ("vectors.json", lambda d: changed(d, encoder=4), "does not describe cached vectors"),
    ],
)
def test_damage_is_told(tmp_path: Path, name: str, harm: Any, message: str) -> None:
    encode(make_set(), Counting(), tmp_path)
    path = only_folder(tmp_path) / name
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(glie.DatasetError, match=message) as error:
        encode(make_set(), Counting(), tmp_path).pages()
    named = path.with_name("queries.safetensors") if "numbers" in message else path
    assert str(error.value).startswith(str(named))
    if "format" not in message:
        assert f"delete the folder {path.parent}" in str(error.value)


def test_missing_files_and_foreign_ones_are_told(tmp_path: Path) -> None:
    encode(make_set(), Counting(), tmp_path)
    folder = only_folder(tmp_path)
    shard = folder / "pages-00002.safetensors"
    data = shard.read_bytes()
    shard.unlink()
    with pytest.raises(glie.DatasetError, match=r"pages-00002\.safetensors: damaged: it is missi"):
        load(folder)
    shard.write_bytes(data)
    description = folder / "vectors.json"
    description.write_bytes(changed(description.read_bytes(), key="0" * 64))
    with pytest.raises(glie.DatasetError, match="it describes another set or encoder"):
        encode(make_set(), Counting(), tmp_path)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(glie.DatasetError, match="cannot be written"):
        encode(make_set(), Counting(), tmp_path / "file")


def test_another_image_is_another_folder(tmp_path: Path, pictures: Dataset) -> None:
    encode(pictures, Seeing(), tmp_path / "cache")
    folder = tmp_path / "set"
    (folder / "p3.png").write_bytes(png("blue"))
    encoder = Seeing()
    encode(load(folder), encoder, tmp_path / "cache")
    assert len(encoder.pages) == 3
