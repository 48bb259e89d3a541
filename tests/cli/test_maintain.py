"""`glie info`, `delete`, `compact`, `shrink` and `verify`."""

from __future__ import annotations

from pathlib import Path

import glie
from tests.cli.conftest import Run
from tests.conftest import make_arrays
from tests.documents.test_documents import make_pdf


def test_add_delete_compact_info(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie")
    make_pdf(Path("more/old.pdf"), ["The harbour master's log of 1974"])
    assert run("add", "x.glie", "more/", "--json").json["pages_added"] == 1
    assert run("add", "x.glie", "more/", "--json").json["pages_added"] == 0
    assert run("search", "x.glie", "harbour log", "--json").json["hits"][0]["id"] == "old.pdf#1"
    done = run("delete", "x.glie", "more/old.pdf")
    assert (done.code, done.out) == (0, "1 page deleted, 3 pages left\n")
    hits = run("search", "x.glie", "harbour log", "--json").json["hits"]
    assert "old.pdf#1" not in [hit["id"] for hit in hits]
    assert run("delete", "x.glie", "a.pdf#2", "--json").json == {"deleted": 1, "pages": 2}

    before = run("info", "x.glie", "--json").json
    assert (before["pages"], before["deleted"], before["documents"]) == (2, 2, 2)
    assert before["bytes"] == sum(
        p.stat().st_size for p in Path("x.glie").rglob("*") if p.is_file()
    )
    assert run("compact", "x.glie").code == 0
    after = run("info", "x.glie", "--json").json
    assert (after["pages"], after["deleted"], after["k"], after["dim"]) == (2, 0, 6, 128)
    assert (after["dtype"], after["words"]) == ("int2", 168)
    assert after["code_bytes_per_page"] < 520
    assert after["encoder"] == "english"
    shown = run("info", "x.glie", "--documents").out
    assert "2 in 2 documents" in shown
    assert "1 b.pdf" in shown


def test_shrink(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--keep-images")
    asked = ("shrink", "x.glie", "--bytes-per-page", 260, "--to")
    done = run(*asked, "y.glie")
    assert (done.code, done.err) == (0, "")
    assert "now: k = 2, D = 128, int2, and at most 81 codewords a page" in done.out
    found = run(*asked, "z.glie", "--json").json
    assert (found["index"], found["pages"]) == ("z.glie", 3)
    assert found["bytes"] < found["bytes_before"]
    assert run("search", "y.glie", "vacation days", "--json").json["hits"][0]["id"] == "b.pdf#1"
    assert glie.Index.open("y.glie").image("b.pdf#1") == glie.Index.open("x.glie").image("b.pdf#1")
    assert run("add", "y.glie", "reports", "--json").json["documents_unchanged"] == 2


def test_verify(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.glie"
    index = glie.Index.create(path, glie.Codec(k=2))
    for seed, count in ((0, 20), (1, 8)):
        ids = [f"{seed}.pdf#{i}" for i in range(count)]
        index.add(glie.Pages(make_arrays(count, seed=seed), ids=ids))
    done = run("verify", path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{path}: no damage found: 28 pages, 4 files")
    segment = path / "segments" / "00000002.seg"
    data = segment.read_bytes()
    segment.write_bytes(data[:200] + b"?" + data[201:])
    done = run("verify", path)
    assert done.code == 4
    lines = done.out.split("\n")
    assert lines[1] == (
        "segments/00000002.seg: its vectors do not match their checksum; 8 pages lost: 1.pdf#0, "
        "1.pdf#1, 1.pdf#2, 1.pdf#3, 1.pdf#4, 3 more (--json lists them)"
    )
    assert lines[2] == "undamaged: 20 pages, which `glie verify --repair` keeps"
    done = run("verify", path, "--json")
    assert done.code == 4
    assert (done.json["whole"], done.json["pages"], done.json["pages_lost"]) == (False, 20, 8)
    assert done.json["damage"] == [
        {
            "file": "segments/00000002.seg",
            "what": "its vectors do not match their checksum",
            "loss": "pages",
            "pages": [f"1.pdf#{i}" for i in range(8)],
            "unnamed": 0,
        }
    ]
    done = run("verify", path, "--repair", "--json")
    assert done.code == 0
    assert (done.json["whole"], done.json["repaired"], done.json["pages"]) == (True, True, 20)
    assert done.json["set_aside"] == ["damaged/00000002.seg"]
    assert len(glie.Index.open(path)) == 20
    (path / "manifest.json").unlink()
    done = run("verify", path, "--repair")
    assert done.code == 0
    assert "repaired: the index is undamaged and holds 20 pages" in done.out
    done = run("verify", path, "--repair")
    assert (done.code, done.out.count("\n")) == (0, 1)
    done = run("verify", tmp_path / "nowhere")
    assert done.code == 1
    assert "does not exist" in done.err


def test_verify_tells_of_lost_words(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.glie"
    index = glie.Index.create(path, glie.Codec(k=2))
    index.add(glie.Pages(make_arrays(2), ids=["a#1", "a#2"]), texts=["one", "two"])
    (path / "segments" / "00000001.lex").unlink()
    done = run("verify", path)
    assert done.code == 4
    assert done.out.split("\n")[1] == (
        "segments/00000001.lex: the file is missing; the words of 2 pages lost: a#1, a#2"
    )
    again = f"`glie compact {path} --text`"
    assert f"then {again} reads the lost words from their documents again" in done.out
    done = run("verify", path, "--repair")
    assert done.code == 0
    assert f"to read the lost words again from the documents: {again}" in done.out
    assert run("verify", path).code == 0


def test_compact_reads_words(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--text", "none")
    assert not glie.Index.open("x.glie").has_text
    Path("reports/b.pdf").write_bytes(b"changed since")
    done = run("compact", "x.glie", "--text")
    assert (done.code, done.err) == (0, "")
    lines = done.out.split("\n")
    assert lines[:2] == [
        "2 pages got words",
        "no text was read of 1 page: b.pdf#1 (the files have none, are gone or have changed)",
    ]
    assert "before," in lines[2]
    index = glie.Index.open("x.glie")
    assert (index.language, index.info().pages_with_text) == ("english", 2)
    hits = index.search(None, text=["inspecting the blade"], mode="lexical")[0]
    assert hits.ids == ["a.pdf#2"]
    found = run("compact", "x.glie", "--text", "--json").json
    assert (found["pages"], found["pages_read"], found["pages_unread"]) == (3, 0, ["b.pdf#1"])
    assert "pages_read" not in run("compact", "x.glie", "--json").json
    done = run("compact", "x.glie", "--text", "--language", "de")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "its words are in english, not in de" in done.err
    done = run("compact", "x.glie", "--language", "de")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--text" in done.err


def test_compact_reads_words_in_a_language(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--text", "none")
    assert run("compact", "x.glie", "--text", "--language", "none").code == 0
    index = glie.Index.open("x.glie")
    assert (index.language, index.info().pages_with_text) == (None, 3)
    assert index.search(None, text=["day"], mode="lexical")[0].ids == []
