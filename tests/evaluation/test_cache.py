"""Vectors are encoded once: what is cached is what was encoded, finished, whole and the right one."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import glie
from glie.evaluation import Dataset, Encoded, encode, encoding, joined, load, read_corpora
from glie.evaluation.encoded import Half
from glie.identity import EncoderId
from glie.progress import Progress
from glie.storage import json_digest
from tests.conftest import Floats, unit
from tests.documents.test_documents import picture
from tests.evaluation.test_datasets import png
from tests.evaluation.test_evaluation import write_set

COUNT = 150  # pages: two full shards, and one of 22


class Counting:
    """Random vectors that depend on the text alone; counts what it is asked for."""

    name = "counting"
    revision = "1"

    def __init__(self, dim: int = 8, stop_at: int | None = None) -> None:
        self.pages: list[Any] = []
        self.questions: list[str] = []
        self.dim, self.stop_at = dim, stop_at

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        if self.stop_at is not None and len(self.pages) + len(pages) > self.stop_at:
            raise KeyboardInterrupt
        self.pages += pages
        return [self._vectors(text) for text in pages]

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        self.questions += texts
        return [self._vectors(text) for text in texts]

    def _vectors(self, text: str) -> Floats:
        rng = np.random.default_rng(list(text.encode()))
        return unit(rng.normal(size=(1 + len(text) % 5, self.dim)))


class Seeing(Counting):
    """Looks at pages: one vector, the colour of a corner."""

    reads = "image"

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        self.pages += pages
        return [unit(np.array([page.getpixel((0, 0))]) + 1.0) for page in pages]

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        return [unit(np.ones((1, 3))) for _ in texts]


def make_set(**changes: Any) -> Dataset:
    dataset = Dataset(
        "my set/a",
        {f"p{i}": f"page {'x' * (i % 7)} {i}" for i in range(COUNT)},
        {"q1": "one?", "q2": "two?"},
        {"q2": {"p3": 2, "p140": 1}, "q1": {"p1": 1, "gone": 1}},
        warnings=("1 page without text or image left out: gone",),
    )
    return dataset._replace(**changes)


def same(one: glie.Pages, other: glie.Pages) -> bool:
    return one.ids == other.ids and np.array_equal(one.vectors, other.vectors)


def only_folder(cache: Path) -> Path:
    (folder,) = cache.iterdir()
    return folder


def test_what_is_encoded(tmp_path: Path) -> None:
    encoder = Counting()
    found = encode(make_set(), encoder, tmp_path / "cache")
    assert (found.name, found.dim) == ("my set/a", 8)
    assert found.encoder == EncoderId("counting", "1")
    assert found.page_ids == [f"p{i}" for i in range(COUNT)]
    assert found.relevant == make_set().relevant
    assert list(found.relevant) == ["q2", "q1"]  # sums go over it in this order
    assert found.warnings == make_set().warnings
    assert found.queries.ids == ["q1", "q2"]
    given = glie.Pages(encoder.encode_pages(list(make_set().pages.values())), found.page_ids)
    pages = found.pages()
    assert found.lengths.tolist() == given.lengths.tolist() == pages.lengths.tolist()
    assert np.linalg.norm(pages.vectors - given.vectors, axis=1).max() < 2**-11
    assert np.abs(np.linalg.norm(pages.vectors, axis=1) - 1).max() < 1e-6
    assert only_folder(tmp_path / "cache").name.startswith("my_set_a-")
    assert sorted(path.name for path in only_folder(tmp_path / "cache").iterdir()) == [
        "lock",
        "pages-00000.safetensors",
        "pages-00001.safetensors",
        "pages-00002.safetensors",
        "queries.safetensors",
        "vectors.json",
    ]


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


@pytest.mark.parametrize("on_disk", [True, False])
def test_blocks_and_takes_are_the_pages(tmp_path: Path, on_disk: bool) -> None:
    found = encode(make_set(), Counting(), tmp_path if on_disk else None)
    pages, blocks = found.pages(), list(found.blocks())
    assert [len(block) for block in blocks] == [64, 64, 22]
    assert [page for block in blocks for page in block.ids] == pages.ids
    assert np.array_equal(np.concatenate([block.vectors for block in blocks]), pages.vectors)
    rows = np.array([149, 0, 64, 63, 5])
    taken = found.take(rows)
    assert taken.ids == ["p149", "p0", "p64", "p63", "p5"]
    for row, vectors in zip(rows, taken, strict=True):
        assert np.array_equal(vectors, pages[int(row)])
    assert len(found.take([])) == 0
    with pytest.raises(IndexError):
        found.take([150])


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    found = encode(make_set(), Counting(), tmp_path)
    (only_folder(tmp_path) / "pages-00001.safetensors").write_bytes(b"")
    assert found.take([0, 149]).ids == ["p0", "p149"]
    blocks = found.blocks()
    assert len(next(blocks)) == 64
    with pytest.raises(glie.DatasetError, match=r"pages-00001\.safetensors: damaged: 0 bytes"):
        next(blocks)


def test_blocks_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "SHARD_BYTES", 1)
    found = encode(make_set(), Counting())
    assert found.shard_pages == (32, 32, 32, 32, 22)


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


def test_files_that_are_no_vectors() -> None:
    from safetensors.numpy import save

    half = np.zeros((3, 2), dtype=np.float16)
    ends: npt.NDArray[np.int64] = np.array([0, 3])
    Half.from_bytes(save({"vectors": half, "offsets": ends}))
    for tensors in (
        {"vectors": half},
        {"vectors": half, "offsets": ends, "more": ends},
        {"vectors": half.astype(np.float32), "offsets": ends},
        {"vectors": half[0], "offsets": ends},
        {"vectors": half, "offsets": ends[:0]},
        {"vectors": half, "offsets": np.array([0, 2])},
        {"vectors": half, "offsets": np.array([0, 3, 3])},
    ):
        with pytest.raises(ValueError, match="offsets"):
            Half.from_bytes(save(tensors))
    with pytest.raises(ValueError, match="not a file of vectors and offsets"):
        Half.from_bytes(b"pickle")


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(glie.DatasetError, match="cannot be written"):
        encode(make_set(), Counting(), tmp_path / "file")


def test_what_is_encoded_already_stays(tmp_path: Path) -> None:
    found = encode(make_set(), Counting(), tmp_path)
    assert encode(found, None) is found
    assert encode(found, Counting()) is found
    other = Counting()
    other.revision = "2"
    message = r"vectors of encoder 'counting' \(revision 1\), not encoder 'counting' \(revision 2\)"
    with pytest.raises(glie.EncoderError, match=message):
        encode(found, other)
    with pytest.raises(glie.EncoderError, match=message):
        joined([encode(make_set(), other), found])
    with pytest.raises(glie.InputError, match="an encoder is needed"):
        encode(make_set(), None)
    with pytest.raises(glie.DatasetError, match="vectors do not tell languages"):
        load(only_folder(tmp_path), language="english")


def test_sets_as_one_from_the_cache(tmp_path: Path) -> None:
    sets = [encode(make_set(name=name), Counting(), tmp_path) for name in ("a", "b")]
    pages, queries, relevant = joined(sets)
    assert len(pages) == 2 * COUNT
    assert (pages.ids[3], pages.ids[COUNT + 3]) == ("0:a/p3", "1:b/p3")
    assert np.array_equal(pages[COUNT + 3], sets[1].take([3])[0])
    assert np.array_equal(queries[3], queries[1])
    assert relevant == [["0:a/p1"], ["0:a/p3", "0:a/p140"], ["1:b/p1"], ["1:b/p3", "1:b/p140"]]


def test_a_cache_is_a_corpus(tmp_path: Path) -> None:
    found = encode(make_set(), Counting(), tmp_path)
    ((name, pages),) = read_corpora(only_folder(tmp_path)).items()
    assert name == "my set/a"
    for (page, vectors), row in zip(pages, range(COUNT), strict=True):
        assert page == f"p{row}"
        assert np.array_equal(vectors, found.take([row])[0])


def test_vectors_of_two_sizes_are_refused() -> None:
    class Uneven(Counting):
        def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
            return Counting(dim=4).encode_queries(texts)

    with pytest.raises(glie.EncoderError, match="have 8 and 4 numbers; all must agree"):
        encode(make_set(), Uneven())


# pages with images


@pytest.fixture
def pictures(tmp_path: Path) -> Dataset:
    """Text, a written image, a blank one, one that is damaged behind its header, and none of both."""
    folder = write_set(
        tmp_path / "set",
        [
            {"_id": "p1", "text": "tidal power"},
            {"_id": "p2", "image": "p2.png"},
            {"_id": "p3", "image": "p3.png"},
            {"_id": "p4", "image": "p4.jpg"},
            {"_id": "p5", "text": "both", "image": "p3.png"},
        ],
    )
    picture("Harbour invoice").save(folder / "p2.png")
    (folder / "p3.png").write_bytes(png("red"))
    picture("cut in half").save(folder / "p4.jpg")
    data = (folder / "p4.jpg").read_bytes()
    (folder / "p4.jpg").write_bytes(data[: len(data) // 2])
    dataset = load(folder)
    assert isinstance(dataset, Dataset)
    assert len(dataset.pages) == 5
    return dataset


def test_a_text_encoder_gets_text(tmp_path: Path, pictures: Dataset) -> None:
    encoder = Counting()
    found = encode(pictures, encoder, tmp_path / "cache")
    assert [text.strip() for text in encoder.pages] == ["tidal power", "Harbour invoice", "both"]
    assert found.page_ids == ["p1", "p2", "p5"]
    assert found.relevant == {"q1": {"p2": 1}, "q2": {"p3": 2}}  # q2 is asked, and not answered
    blank, damaged = found.warnings[len(pictures.warnings) :]
    assert blank == "1 page without text that OCR can read left out: p3"
    assert damaged.startswith("1 page whose image cannot be read left out: p4.jpg: damaged, or not")
    again = encode(pictures, encoder, tmp_path / "cache")
    assert (len(encoder.pages), again.warnings) == (3, found.warnings)
    assert joined([found])[2] == [[f"0:{found.name}/p2"]]  # what has no answer teaches nothing


def test_without_ocr(tmp_path: Path, pictures: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as hidden:
        hidden.setattr(encoding, "ocr_available", lambda: False)
        found = encode(pictures, Counting(), tmp_path / "cache")
        assert found.page_ids == ["p1", "p5"]
        assert found.warnings[len(pictures.warnings) :] == (
            '3 pages with no text but an image (pip install "glie[ocr]" to read it) left out: '
            "p2, p3, p4",
        )
        alone = pictures._replace(pages={"p3": ""})
        with pytest.raises(glie.DatasetError, match=r"no page is left to encode; .* left out: p3"):
            encode(alone, Counting())
    # with it, the same set is another one
    assert encode(pictures, Counting(), tmp_path / "cache").page_ids == ["p1", "p2", "p5"]


def test_an_encoder_that_sees_gets_images(pictures: Dataset) -> None:
    found = encode(pictures, Seeing())
    assert found.page_ids == ["p2", "p3", "p5"]
    red = unit(np.array([[256.0, 1.0, 1.0]]))
    assert np.allclose(found.take([1])[0], red, atol=1e-3)
    texts, damaged = found.warnings[len(pictures.warnings) :]
    assert texts == "1 page without an image left out: p1"
    assert "p4.jpg: damaged" in damaged
    blind = Seeing()
    blind.reads = "sound"
    with pytest.raises(glie.EncoderError, match="reads 'sound'; expected 'text' or 'image'"):
        encode(pictures, blind)


def test_another_image_is_another_folder(tmp_path: Path, pictures: Dataset) -> None:
    encode(pictures, Seeing(), tmp_path / "cache")
    folder = tmp_path / "set"
    (folder / "p3.png").write_bytes(png("blue"))
    encoder = Seeing()
    encode(load(folder), encoder, tmp_path / "cache")
    assert len(encoder.pages) == 3
