"""Damage is told file by file, and a repair keeps what is whole."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.candidates import build
from glie.codec.readout.codebook import fit_codebook
from glie.index import column_file, folder
from glie.index.segment import Segment
from glie.index.side_files import tombstone_bytes
from tests.codec.networks import random_codec
from tests.conftest import make_arrays

QUERIES = make_arrays(2, seed=99, low=2, high=4)


def pages(count: int, seed: int) -> glie.Pages:
    return glie.Pages(make_arrays(count, seed=seed), ids=[f"{seed}-{i}" for i in range(count)])


def texts(count: int, seed: int) -> list[str | None]:
    """A word that is on every page, one of its segment, one of its own; every fifth has none."""
    return [f"tide sea{seed} own{i}" if i % 5 else None for i in range(count)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40, 12 and 4 pages in three segments, with a candidate index, words and columns in the first
    two, pictures in the second, and deletions in the first and the last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "CANDIDATE_PAGES", 30)
        patch.setattr(column_file, "FEWEST_PAGES", 10)
        path = tmp_path_factory.mktemp("sound") / "a.glie"
        index = glie.Index.create(path, glie.Codec(k=3, dtype="int4"))
        numbered = [{"n": i} for i in range(40)]
        index.add(pages(40, 0), numbered, texts=texts(40, 0))
        pictures = [b"picture %d" % i for i in range(12)]
        index.add(pages(12, 1), numbered[:12], images=pictures, texts=texts(12, 1))
        index.add(pages(4, 2))
        index.delete(["0-1", "0-5", "2-0"])
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(build, "CANDIDATE_PAGES", 30)
    monkeypatch.setattr(column_file, "FEWEST_PAGES", 10)
    return shutil.copytree(sound, tmp_path / "a.glie")


def segment(path: Path, number: int) -> Path:
    """The file of a segment."""
    entry = folder.Manifest.read(path).segments[number]
    return folder.Folder(path).file(entry.number, "seg")


def file_of(path: Path, number: int, what: str, kind: str) -> Path:
    entry = folder.Manifest.read(path).segments[number]
    return folder.Folder(path).file(getattr(entry, what), kind)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def section(path: Path, name: str) -> int:
    """Where a section of a segment begins."""
    return Segment(path)._places[name][0]


def answers(index: glie.Index, ids: list[str]) -> list[tuple[list[str], list[float]]]:
    found = index.search(QUERIES, top=100, ids=ids, exact=True)
    return [(hits.ids, hits.scores) for hits in found]


def by_words(index: glie.Index, text: str = "tide sea1 own3") -> dict[str, float]:
    """The pages with these words, and their scores."""
    (hits,) = index.search(None, 100, text=[text], mode="lexical")
    return dict(zip(hits.ids, hits.scores, strict=True))


def records(path: Path) -> dict[str, tuple[dict[str, Any], bytes | None]]:
    index = glie.Index.open(path)
    return {page: (metadata, index.image(page)) for page, metadata in index.records()}


def check_repaired(path: Path, sound: Path, kept: list[str]) -> glie.Index:
    """It holds these pages, in this order, and answers for them as it did."""
    index = glie.Index.open(path)
    assert index.verify().pages == len(kept)
    assert index.ids == kept
    assert answers(index, kept) == answers(glie.Index.open(sound), kept)
    assert not folder.Folder(path).strays(index._state.manifest)
    index.add(pages(3, 7))
    assert index.ids == [*kept, "7-0", "7-1", "7-2"]
    return index


def test_a_whole_index(path: Path) -> None:
    health = glie.Index.examine(path)
    assert health.whole
    assert (health.pages, health.damage, health.pages_lost) == (53, (), 0)
    own = [p for p in path.rglob("*") if p.is_file() and p.name != "lock"]
    assert (health.files, health.bytes) == (len(own), sum(p.stat().st_size for p in own))
    assert glie.Index.open(path).verify() == health
    before = (path / "manifest.json").read_bytes()
    done = glie.Index.repair(path)
    assert (done.before, done.after, done.set_aside) == (health, health, ())
    assert (path / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("name", ["vectors", "counts"])
def test_damaged_codes_cost_their_pages_alone(path: Path, sound: Path, name: str) -> None:
    file = segment(path, 1)
    flip(file, section(file, name) + 2)
    health = glie.Index.examine(path)
    (damage,) = health.damage
    assert (damage.file, damage.loss) == (f"segments/{file.name}", "pages")
    assert damage.what == f"its {name} do not match their checksum"
    assert damage.pages == tuple(f"1-{i}" for i in range(12))
    assert (damage.unnamed, health.pages_lost, health.pages) == (0, 12, 41)
    with pytest.raises(glie.CorruptIndexError, match=rf"{file.name}: damaged: its {name}"):
        glie.Index.open(path).verify()
    wanted = file.read_bytes()
    done = glie.Index.repair(path)
    assert done.before == health
    beside = [f"damaged/{file.stem}.{kind}" for kind in ("img", "lex")]
    assert done.set_aside == (f"damaged/{file.name}", *beside)
    assert (path / done.set_aside[0]).read_bytes() == wanted
    kept = [page for page in glie.Index.open(sound).ids if not page.startswith("1-")]
    check_repaired(path, sound, kept)


def test_a_damaged_block_of_records_costs_its_pages_alone(tmp_path: Path) -> None:
    """Codes are whole, and so are the other blocks."""
    sound = tmp_path / "sound.glie"
    index = glie.Index.create(sound, glie.Codec(k=2))  # 64 records a block
    index.add(pages(150, 0))
    path = shutil.copytree(sound, tmp_path / "a.glie")
    file = segment(path, 0)
    flip(file, section(file, "records") + 5)
    (damage,) = glie.Index.examine(path).damage
    assert (damage.what, damage.loss) == ("its records do not match their checksum", "pages")
    assert (damage.pages, damage.unnamed) == ((), 64)
    glie.Index.repair(path)
    check_repaired(path, sound, index.ids[64:])


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """266 pages in one segment, with residuals and rounded counts."""
    path = tmp_path_factory.mktemp("wide") / "a.glie"
    rest = np.random.default_rng(0).normal(0, 0.2, (400, 16)).astype(np.float32)
    codec = glie.Codec.with_codebook(fit_codebook(rest, 96), 100)
    arrays = make_arrays(266, seed=0, low=1, high=400)
    metadata = [{"n": i, "text": "x" * (i % 7)} for i in range(266)]
    glie.Index.create(path, codec).add(glie.Pages(arrays), metadata)
    return path


def test_sixteen_damaged_bytes_cost_few_pages(wide: Path, tmp_path: Path) -> None:
    """The rest stays, wherever they are: at most the pages of two blocks at the edge of sections."""
    index = glie.Index.open(wide)
    data, ids = segment(wide, 0).read_bytes(), index.ids
    places = Segment(segment(wide, 0))._places
    assert {name for name, (start, end) in places.items() if start == end} == {"norms"}
    edges = [at for start, end in places.values() for at in (start, (start + end) // 2, end - 16)]
    whole = answers(index, ids)
    costs = dict[int, int]()
    for at in sorted({0, 64, len(data) - 16, len(data) - 100, *edges}):
        path = shutil.copytree(wide, tmp_path / "a.glie")
        file = segment(path, 0)
        file.write_bytes(data[:at] + bytes(b ^ 0xFF for b in data[at : at + 16]) + data[at + 16 :])
        done = glie.Index.repair(path)
        lost = costs[at] = done.before.pages_lost
        (damage,) = done.before.damage
        assert lost <= 128
        kept = glie.Index.open(path)
        assert kept.verify().pages == len(kept) == 266 - lost
        assert set(kept.ids) | set(damage.pages) <= set(ids)
        assert len(damage.pages) + damage.unnamed == lost
        assert answers(kept, kept.ids) == answers(index, kept.ids)
        assert {i: m for i, m in index.records() if i in kept} == dict(kept.records())
        shutil.rmtree(path)
    assert whole == answers(index, ids)
    assert costs[0] == costs[64] == costs[len(data) - 16] == 0  # of the header there are two
    for name in ("record table", "block checksums"):
        assert costs[places[name][0]] == 0
    for name in ("vectors", "page lengths", "residual bytes", "records"):
        assert costs[places[name][0]] == 64


def test_lengths_and_block_checksums_damaged_together(wide: Path, tmp_path: Path) -> None:
    """Blocks that match are sound all the same. Residuals behind damaged lengths are found from
    the end, those between two damaged blocks are not."""
    path = shutil.copytree(wide, tmp_path / "a.glie")
    file, pages = segment(path, 0), glie.Index.open(wide).ids
    for row in (70, 200):  # of 4 bytes: the second block and the fourth
        flip(file, section(file, "page lengths") + 4 * row)
    flip(file, section(file, "block checksums") + 8)  # of the second block of vectors
    done = glie.Index.repair(path)
    assert done.before.damage[0].pages == tuple(pages[64:256])
    assert "page lengths and block checksums do not match" in done.before.damage[0].what
    check_repaired(path, wide, [*pages[:64], *pages[256:]])


def test_a_damaged_table_of_records_costs_nothing(path: Path, sound: Path) -> None:
    file = segment(path, 0)
    flip(file, section(file, "record table") + 8)
    health = glie.Index.examine(path)
    assert [(d.loss, d.pages, d.unnamed) for d in health.damage] == [("pages", (), 0)]
    glie.Index.repair(path)
    check_repaired(path, sound, glie.Index.open(sound).ids)


@pytest.mark.parametrize("harm", ["missing", "empty", "short", "long", "header", "swapped"])
def test_a_segment_that_cannot_be_opened(path: Path, sound: Path, harm: str) -> None:
    file = segment(path, 1)
    data = file.read_bytes()
    if harm == "missing":
        file.unlink()
    elif harm == "swapped":
        shutil.copy(segment(path, 0), file)
    else:
        cut = {"empty": b"", "short": data[:-1], "long": data + b"x"}
        cut["header"] = b"X" + data[1:-1] + b"X"  # and its copy at the end
        file.write_bytes(cut[harm])
    with pytest.raises(glie.CorruptIndexError, match=file.name):
        glie.Index.open(path)
    health = glie.Index.examine(path)
    (damage,) = health.damage
    assert (damage.file, damage.loss) == (f"segments/{file.name}", "pages")
    assert (damage.pages, damage.unnamed, health.pages_lost) == ((), 12, 12)
    done = glie.Index.repair(path)
    beside = [f"damaged/{file.stem}.{kind}" for kind in ("img", "lex")]  # which nobody has harmed
    pictures = beside[0]
    assert done.set_aside == (
        tuple(beside) if harm == "missing" else (f"damaged/{file.name}", *beside)
    )
    assert (path / pictures).read_bytes() == file_of(sound, 1, "images", "img").read_bytes()
    kept = [page for page in glie.Index.open(sound).ids if not page.startswith("1-")]
    check_repaired(path, sound, kept)
    words = by_words(glie.Index.open(path))
    assert words.keys() == {page for page in by_words(glie.Index.open(sound)) if page in kept}


@pytest.mark.parametrize("harm", ["flipped", "missing", "another"])
def test_lost_deletions_bring_pages_back(path: Path, sound: Path, harm: str) -> None:
    """Which pages were deleted is unknown then. One that was replaced stays replaced."""
    writer = glie.Index.open(path)
    writer.add(glie.Pages(make_arrays(1, seed=50), ids=["0-1"]))
    ids = writer.ids
    file = file_of(path, 0, "tombstones", "del")
    if harm == "flipped":
        flip(file, 33)
    elif harm == "missing":
        file.unlink()
    else:
        checksum = folder.Manifest.read(path).segments[0].checksum
        file.write_bytes(tombstone_bytes(np.zeros(40, bool), checksum))
    (damage,) = glie.Index.examine(path).damage
    assert (damage.file, damage.loss) == (f"segments/{file.name}", "deletions")
    assert "it says which 2 pages are deleted" in damage.what
    assert len(damage.pages) == 39
    done = glie.Index.repair(path)
    assert done.after.whole
    index = glie.Index.open(path)
    assert [page for page in index.ids if page not in ids] == ["0-5"]
    assert len(set(index.ids)) == len(index.ids)
    array = index.search([make_arrays(1, seed=50)[0]], top=1, ids=["0-1"], exact=True)[0]
    assert array.scores == writer.search([make_arrays(1, seed=50)[0]], top=1, exact=True)[0].scores


def test_a_damaged_picture_costs_itself_alone(path: Path, sound: Path) -> None:
    file = file_of(path, 1, "images", "img")
    at = file.read_bytes().index(b"picture 4")
    flip(file, at)
    (damage,) = glie.Index.examine(path).damage
    assert (damage.loss, damage.pages) == ("pictures", ("1-4",))
    glie.Index.repair(path)
    expected = records(sound)
    expected["1-4"] = (expected["1-4"][0], None)
    assert records(path) == expected
    assert by_words(glie.Index.open(path)) == by_words(glie.Index.open(sound))
    check_repaired(path, sound, list(expected))


@pytest.mark.parametrize("harm", ["cut", "missing"])
def test_a_lost_file_of_pictures_costs_no_page(path: Path, sound: Path, harm: str) -> None:
    file = file_of(path, 1, "images", "img")
    if harm == "cut":
        file.write_bytes(file.read_bytes()[:40])
    else:
        file.unlink()
    index = glie.Index.open(path)  # which can be searched all the same
    assert answers(index, index.ids) == answers(glie.Index.open(sound), index.ids)
    with pytest.raises(glie.CorruptIndexError, match=rf"{file.name}: damaged"):
        index.image("1-4")
    (damage,) = glie.Index.examine(path).damage
    assert (damage.loss, len(damage.pages)) == ("pictures", 12)
    glie.Index.repair(path)
    assert records(path) == {
        page: (metadata, None) for page, (metadata, _) in records(sound).items()
    }
    check_repaired(path, sound, glie.Index.open(sound).ids)


LEXICAL = ["head", "directory", "postings", "lengths", "cut", "missing", "empty", "another"]


@pytest.mark.parametrize("harm", LEXICAL)
def test_lost_words_cost_no_page(path: Path, sound: Path, harm: str) -> None:
    file, before = file_of(path, 1, "postings", "lex"), glie.Index.open(sound)
    data = file.read_bytes()
    places = {"head": 20, "directory": 130, "postings": 193, "lengths": len(data) - 60}
    if harm in places:
        flip(file, places[harm])
    elif harm == "missing":
        file.unlink()
    elif harm == "another":
        shutil.copy(file_of(path, 0, "postings", "lex"), file)
    else:
        file.write_bytes(b"" if harm == "empty" else data[:-1])
    index = glie.Index.open(path)  # which can be searched by meaning all the same
    assert answers(index, index.ids) == answers(before, index.ids)
    for mode in ("hybrid", "lexical", None):
        with pytest.raises(glie.CorruptIndexError, match=rf"{file.name}: damaged"):
            index.search(QUERIES, text=["tide", "tide"], mode=mode)
    assert index.has_text
    assert index.info().pages_with_text == (40 if harm in ("directory", "postings") else 0)
    (damage,) = glie.Index.examine(path).damage
    assert (damage.file, damage.loss) == (f"segments/{file.name}", "words")
    assert damage.pages == tuple(f"1-{i}" for i in range(12))
    done = glie.Index.repair(path)
    assert (done.before.pages_lost, done.after.whole) == (0, True)
    assert done.set_aside == (() if harm == "missing" else (f"damaged/{file.name}",))
    assert records(path) == records(sound)
    index = check_repaired(path, sound, before.ids)
    kept = {page for page in by_words(before) if page.startswith("0-")}
    assert by_words(index).keys() == kept
    asked = {f"{seed}-{i}": texts(40, seed)[i] for seed in (0, 1) for i in range(40)}
    index.compact(lambda page_id, metadata: asked.get(page_id))  # reads them again
    assert by_words(index) == by_words(before)


def test_words_of_pages_whose_records_are_whole(tmp_path: Path) -> None:
    """A block of records is lost, and the words of the other pages stay theirs."""
    path = tmp_path / "a.glie"
    index = glie.Index.create(path, glie.Codec(k=2))  # 64 records a block
    index.add(pages(150, 0), texts=[f"own{i}" for i in range(150)])
    file = segment(path, 0)
    flip(file, section(file, "records") + 5)
    glie.Index.repair(path)
    index = glie.Index.open(path)
    assert len(index) == 86
    for i in (0, 63, 64, 149):
        assert list(by_words(index, f"own{i}")) == ([f"0-{i}"] if i >= 64 else [])


def test_every_flipped_byte_of_words_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.glie"
    index = glie.Index.create(path, glie.Codec(k=2))
    index.add(pages(3, 0), texts=texts(3, 0))
    file = file_of(path, 0, "postings", "lex")
    for at in range(len(file.read_bytes())):
        flip(file, at)
        (damage,) = glie.Index.examine(path).damage
        assert (damage.loss, damage.pages) == ("words", ("0-0", "0-1", "0-2"))
        with pytest.raises(glie.CorruptIndexError, match=file.name):
            by_words(glie.Index.open(path))
        flip(file, at)
    assert glie.Index.examine(path).whole


def test_changes_beside_lost_words(path: Path) -> None:
    """A change that would have to read them is refused; nothing is lost in silence."""
    file_of(path, 1, "postings", "lex").unlink()
    index = glie.Index.open(path)
    index.delete(["0-2"])
    ids = index.ids
    with pytest.raises(glie.CorruptIndexError, match="the file is missing"):
        index.compact()
    with pytest.raises(glie.CorruptIndexError, match="the file is missing"):
        index.add(pages(30, 6))  # which joins small segments
    assert glie.Index.open(path).ids == ids
    glie.Index.repair(path)
    glie.Index.open(path).compact()


@pytest.mark.parametrize("harm", ["flipped", "missing", "empty", "another"])
def test_a_damaged_manifest_has_its_copy(path: Path, sound: Path, harm: str) -> None:
    manifest = path / "manifest.json"
    if harm == "missing":
        manifest.unlink()
    elif harm == "flipped":
        flip(manifest, 60)
    else:
        manifest.write_bytes(b"" if harm == "empty" else b"{}")
    with pytest.raises(glie.CorruptIndexError, match="glie verify --repair"):
        glie.Index.open(path)
    (damage,) = glie.Index.examine(path).damage
    assert (damage.file, damage.loss) == ("manifest.json", "nothing")
    glie.Index.repair(path)
    check_repaired(path, sound, glie.Index.open(sound).ids)


def test_what_an_older_copy_does_not_name_is_set_aside(path: Path) -> None:
    copy = (path / "manifest.copy").read_bytes()
    index = glie.Index.open(path)
    index.add(pages(9, 5))
    (path / "manifest.copy").write_bytes(copy)  # as if the second had not been written
    assert glie.Index.open(path).verify().whole  # which is nothing to worry about
    (path / "manifest.json").unlink()
    done = glie.Index.repair(path)
    assert done.after.whole
    newest = {path / name for name in done.set_aside if name.endswith(".seg")}
    assert newest
    damage = done.before.damage[0]
    assert (damage.file, damage.loss) == ("manifest.json", "pages")
    assert "later ones may have stored pages in 0000" in damage.what
    assert not set(glie.Index.open(path).ids) & {f"5-{i}" for i in range(9)}


def test_without_manifest_and_copy_nothing_is_done(path: Path) -> None:
    for name in ("manifest.json", "manifest.copy"):
        flip(path / name, 60)
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    for act in (glie.Index.examine, glie.Index.repair):
        with pytest.raises(glie.CorruptIndexError, match=r"manifest\.json: damaged"):
            act(path)
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


def test_a_damaged_copy_is_written_again(path: Path, sound: Path) -> None:
    flip(path / "manifest.copy", 60)
    (damage,) = glie.Index.examine(path).damage
    assert (damage.file, damage.loss) == ("manifest.copy", "nothing")
    assert glie.Index.repair(path).after.whole
    check_repaired(path, sound, glie.Index.open(sound).ids)


def test_a_newer_index_is_not_repaired(path: Path) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 5}))
    before = manifest.read_bytes()
    for act in (glie.Index.examine, glie.Index.repair):
        with pytest.raises(glie.CorruptIndexError, match=r"version 5.*upgrade glie"):
            act(path)
    assert manifest.read_bytes() == before


def test_no_index_at_all(tmp_path: Path) -> None:
    for act in (glie.Index.examine, glie.Index.repair):
        with pytest.raises(glie.IndexFolderError, match="does not exist"):
            act(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_codec_is_told_and_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.glie"
    glie.Index.create(path, random_codec(16, 0)).add(pages(5, 0))
    flip(path / "codec" / "model.safetensors", 300)
    health = glie.Index.examine(path)
    assert [(d.file, d.loss) for d in health.damage] == [("codec", "codec")]
    before = (path / "manifest.json").read_bytes()
    with pytest.raises(glie.CorruptIndexError, match="the codes cannot be read without it"):
        glie.Index.repair(path)
    assert (path / "manifest.json").read_bytes() == before


def test_several_faults_at_once(path: Path, sound: Path) -> None:
    flip(segment(path, 2), 130)
    flip(file_of(path, 1, "images", "img"), -1)
    flip(file_of(path, 0, "pq_codes", "sig"), 80)
    flip(path / "manifest.json", 50)
    health = glie.Index.examine(path)
    assert [d.loss for d in health.damage] == ["nothing", "pictures", "pages", "nothing"]
    shutil.copy(path / "manifest.copy", path / "manifest.json")
    with pytest.raises(glie.CorruptIndexError, match="and there are 2 more faults"):
        glie.Index.open(path).verify()
    glie.Index.repair(path)
    kept = [page for page in glie.Index.open(sound).ids if not page.startswith("2-")]
    check_repaired(path, sound, kept)


@pytest.mark.parametrize("kind", ["fnd", "sig"])
@pytest.mark.parametrize("harm", ["missing", "empty", "short", "head", "body"])
def test_a_damaged_finder_stops_nothing(path: Path, sound: Path, kind: str, harm: str) -> None:
    """It is made of the codes: reading goes on without, and the next change makes it again."""
    file = next((path / "segments").glob(f"*.{kind}"))
    data = file.read_bytes()
    if harm == "missing":
        file.unlink()
    elif harm in ("head", "body"):
        flip(file, 20 if harm == "head" else len(data) - 3)
    else:
        file.write_bytes(b"" if harm == "empty" else data[:-1])
    health = glie.Index.examine(path)
    assert [(d.file, d.loss) for d in health.damage] == [(f"segments/{file.name}", "nothing")]
    assert health.pages == 53
    expected = glie.Index.open(sound)
    for exact in (None, True, False):
        index = glie.Index.open(path)
        one, two = (i.search(QUERIES, top=60, exact=exact) for i in (index, expected))
        assert [(h.ids, h.scores) for h in one] == [(h.ids, h.scores) for h in two]
        assert (one[0].cost.pages_estimated > 0) == (exact is False)
    index.info()
    repaired = shutil.copytree(path, path.parent / "repaired")
    assert glie.Index.repair(repaired).set_aside == ()
    for change in (lambda i: i.add(pages(5, 8)), lambda i: i.compact(), None):
        if change is None:
            index = glie.Index.open(repaired)
        else:
            changed = shutil.copytree(path, path.parent / f"changed-{id(change)}")
            index = glie.Index.open(changed)
            index.search(QUERIES, exact=None)  # which reads all, and so finds the damage
            change(index)
        assert index.verify().whole
        assert index._state.manifest.candidates is not None
        assert index.search(QUERIES)[0].cost.pages_estimated > 0


def test_a_deletion_with_a_damaged_finder(path: Path) -> None:
    next((path / "segments").glob("*.fnd")).unlink()
    index = glie.Index.open(path)
    index.delete(["0-2"])
    assert "0-2" not in glie.Index.open(path)
    index.compact()
    assert index.verify().whole


def test_one_id_twice(path: Path, sound: Path) -> None:
    """No writer leaves that; a manifest put together by hand may."""
    manifest = folder.Manifest.read(path)
    first = manifest.segments[1]
    doubled = (*manifest.segments, first)
    folder.Folder(path).commit(dataclasses.replace(manifest, segments=doubled))
    (damage,) = glie.Index.examine(path).damage
    assert damage.what == "a later page has the same id"
    assert len(damage.pages) == 12
    glie.Index.repair(path)
    assert sorted(glie.Index.open(path).ids) == sorted(glie.Index.open(sound).ids)


def test_a_repair_needs_the_lock(path: Path) -> None:
    index = glie.Index.open(path)
    with index.writing(), pytest.raises(glie.LockedError):
        glie.Index.repair(path)


@pytest.mark.parametrize("broken", ["copyfile", "fsync"])
def test_a_repair_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    flip(segment(path, 0), 130)
    flip(file_of(path, 1, "images", "img"), 33)
    before = {p: p.read_bytes() for p in (path / "segments").iterdir()}

    def fails(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync" if broken == "fsync" else "link", fails)
        if broken == "copyfile":  # which is done where links cannot be made
            patch.setattr(shutil, broken, fails)
        with pytest.raises(glie.IndexFolderError, match="No space left on device"):
            glie.Index.repair(path)
    left = {p: p.read_bytes() for p in (path / "segments").iterdir()}
    assert {p: left.get(p) for p in before} == before
    assert glie.Index.repair(path).after.whole


def test_every_file_and_every_place(path: Path, sound: Path) -> None:
    """A flip anywhere is told, or is in padding and means nothing; a repair then holds what the
    damage left, and answers for it as before."""
    ids = glie.Index.open(sound).ids
    rng = np.random.default_rng(0)
    names = sorted(p.relative_to(path) for p in path.rglob("*") if p.is_file() and p.stat().st_size)
    for name in names:
        data = (sound / name).read_bytes()
        for at in {0, len(data) - 1, *rng.integers(len(data), size=6).tolist()}:
            harmed = shutil.copytree(sound, path.parent / "harmed")
            flip(harmed / name, at)
            health = glie.Index.examine(harmed)
            assert {d.file for d in health.damage} <= {str(name)}
            done = glie.Index.repair(harmed)
            assert done.after.whole
            kept = glie.Index.open(harmed)
            lost = {page for d in health.damage if d.loss == "pages" for page in d.pages}
            unnamed = sum(d.unnamed for d in health.damage if d.loss == "pages")
            back = health.damage[0].loss == "deletions" if health.damage else False
            assert lost <= set(ids) - set(kept.ids)
            assert len(ids) - len(lost) - unnamed == len([i for i in kept.ids if i in ids])
            assert back or set(kept.ids) <= set(ids)
            both = [page for page in ids if page in kept]
            assert answers(kept, both) == answers(glie.Index.open(sound), both)
            if not any(d.loss in ("pages", "deletions", "words") for d in health.damage):
                assert by_words(kept) == by_words(glie.Index.open(sound))
            shutil.rmtree(harmed)


def test_a_copy_that_was_left_behind_is_renewed_before_its_files_go(path: Path) -> None:
    copy = (path / "manifest.copy").read_bytes()
    index = glie.Index.open(path)
    index.compact()
    (path / "manifest.copy").write_bytes(copy)  # as if the writer had been killed before
    with pytest.raises(glie.IdError):
        index.delete(["nowhere"])
    assert (path / "manifest.copy").read_bytes() == (path / "manifest.json").read_bytes()
    ids = index.ids
    (path / "manifest.json").unlink()
    assert glie.Index.repair(path).after.whole
    assert glie.Index.open(path).ids == ids


def test_a_copy_that_cannot_be_renewed_is_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.write_bytes

    def fails(self: Path, data: bytes) -> int:
        if self.name == "manifest.copy.new":
            raise OSError(28, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", fails)
    glie.Index.open(path).delete(["0-2"])
    assert not (path / "manifest.copy").exists()
    assert glie.Index.examine(path).whole


def test_an_index_without_manifests_is_not_made_anew(path: Path) -> None:
    """Its segments are all there is of its pages."""
    (path / "manifest.json").unlink()
    with pytest.raises(glie.IndexFolderError, match=r"manifest\.json: damaged.*--repair"):
        glie.Index.create(path, glie.Codec(k=3, dtype="int4"))
    (path / "manifest.copy").unlink()
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    for act in (
        lambda: glie.Index.create(path, glie.Codec(k=3, dtype="int4")),
        lambda: glie.Index.open(path),
        lambda: glie.Index.repair(path),
    ):
        with pytest.raises(
            glie.IndexFolderError, match=r"has lost its manifest\.json and the copy"
        ):
            act()
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("what", "kind"), [("tombstones", "del"), ("images", "img"), ("postings", "lex")]
)
def test_files_of_two_segments_of_one_shape_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, kind: str
) -> None:
    monkeypatch.setattr("glie.index.writer.SEGMENT_BYTES", 1)  # none is joined with another
    path = tmp_path / "a.glie"
    index = glie.Index.create(path, glie.Codec(k=2))
    for seed in range(2):
        pictures = [b"%d %d" % (seed, i) for i in range(12)]
        index.add(pages(12, seed), images=pictures, texts=texts(12, seed))
        index.delete([f"{seed}-{1 + seed}"])
    assert len(folder.Manifest.read(path).segments) == 2
    first, second = (file_of(path, number, what, kind) for number in range(2))
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    health = glie.Index.examine(path)
    assert len(health.damage) == 2
    assert all("it belongs to another segment" in damage.what for damage in health.damage)
    use = by_words if what == "postings" else lambda index: index.image("0-0")
    with pytest.raises(glie.CorruptIndexError, match="it belongs to another segment"):
        use(glie.Index.open(path))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.ENOMEM])
def test_what_the_system_refuses_is_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A repair would throw sound pages away."""
    before = {p: p.read_bytes() for p in (path / "segments").iterdir()}
    harmed = segment(path, 1)
    real = np.memmap

    def refuses(file: Path, **options: Any) -> Any:
        if Path(file) == harmed:
            raise OSError(number, os.strerror(number))
        return real(file, **options)

    monkeypatch.setattr(np, "memmap", refuses)
    for act in (glie.Index.examine, glie.Index.repair):
        with pytest.raises(glie.IndexFolderError, match=os.strerror(number)) as caught:
            act(path)
        assert not isinstance(caught.value, glie.CorruptIndexError)
    assert {p: p.read_bytes() for p in (path / "segments").iterdir()} == before


def test_what_the_disk_cannot_read_is_damage(
    path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad sector: by a plain read it is an error, in a mapped file the end of the process."""
    harmed, real = segment(path, 1), open

    def bad(file: Any, *arguments: Any, **named: Any) -> Any:
        if Path(file) == harmed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(file, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", bad)
        (damage,) = glie.Index.examine(path).damage
        assert damage.what == "it cannot be read: Input/output error"
        done = glie.Index.repair(path)
    assert done.after.whole
    assert f"damaged/{harmed.name}" in done.set_aside
    kept = [name for name in glie.Index.open(sound).ids if not name.startswith("1-")]
    check_repaired(path, sound, kept)


def test_a_folder_of_segments_that_is_gone(path: Path) -> None:
    shutil.rmtree(path / "segments")
    assert glie.Index.repair(path).after.whole
    index = glie.Index.open(path)
    assert len(index) == 0
    index.add(pages(3, 8))


def test_a_file_that_a_writer_removes_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes are taken last, when files may be gone."""
    real = Path.stat

    def gone(self: Path, **options: Any) -> os.stat_result:
        if self.suffix == ".seg" and not options:
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", gone)
    assert glie.Index.examine(path).whole


@pytest.mark.parametrize("how", ["flip", "cut", "gone", "other"])
def test_damaged_columns_cost_nothing(path: Path, sound: Path, how: str) -> None:
    """The records say the same: filters and ids are answered from them."""
    file = file_of(path, 0, "columns", "col")
    if how == "flip":
        for at in range(128, file.stat().st_size, 7):
            flip(file, at)
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif how == "gone":
        file.unlink()
    else:
        shutil.copy(file_of(path, 1, "columns", "col"), file)
    index, whole = glie.Index.open(path), glie.Index.open(sound)
    for where in ({"n": {">=": 30}}, {"n": [3, 5]}, {"m": 1}):
        one, other = (i.search(QUERIES, 100, where=where)[0].ids for i in (index, whole))
        assert one == other
    assert index.metadata("0-7") == {"n": 7}
    assert ("0-1" in index, "0-2" in index) == (False, True)
    (damage,) = glie.Index.examine(path).damage
    assert (damage.file, damage.loss, damage.pages) == (f"segments/{file.name}", "nothing", ())
    done = glie.Index.repair(path)
    assert (done.after.whole, done.set_aside) == (True, ())
    assert folder.Manifest.read(path).segments[0].columns is not None  # made again
    check_repaired(path, sound, whole.ids)
