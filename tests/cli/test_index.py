"""`glie index` and `glie add`: documents into an index."""

from __future__ import annotations

from pathlib import Path

import pytest

import glie
from glie.cli.index import language_hint, ocr_hint
from glie.ingest import Report
from tests.cli.conftest import Run
from tests.documents.test_documents import bad_files, picture


def test_the_two_commands(run: Run, documents: Path) -> None:
    done = run("index", "reports/", "--to", "reports.glie")
    assert done.code == 0
    assert "2 documents added: 3 pages" in done.out
    assert "the index holds 3 pages" in done.out

    done = run("search", "reports.glie", "capital expenditure in 2018")
    assert done.code == 0
    lines = done.out.split("\n")
    assert lines[0].split()[::2] == ["1", "a.pdf#1"]
    share, said = lines[1].split(" words  ")
    assert said.strip() == "Capital expenditure in 2018 was 1,577 million dollars"
    assert 0 < int(share.strip(" %")) < 100
    shown = "".join(line.strip() for line in lines[2:4])  # a long path goes on in the next line
    assert shown.startswith(str(documents / "reports" / "a.pdf"))
    assert "3 pages scanned" in done.out


def test_a_budget_in_bytes(run: Run, documents: Path) -> None:
    asked = ("index", "reports", "--to", "x.glie", "--text", "none")
    assert run(*asked, "--bytes-per-page", 260).code == 0
    assert run(*asked).code == 0  # the index knows its budget
    assert run(*asked, "--bytes-per-page", 260).code == 0
    codec = glie.Index.open("x.glie").codec
    assert codec.same_as(glie.Codec(bytes_per_page=260))
    shown = run("info", "x.glie").out
    assert "k = 3, D = 128, int2, and at most 78 codewords a page" in shown
    done = run("search", "x.glie", "vacation days", "--json").json
    assert done["hits"][0]["id"] == "b.pdf#1"
    assert done["cost"]["pages_regenerated"] == 3


def test_few_pages_go_above_a_budget_and_it_is_said_why(run: Run, documents: Path) -> None:
    above = "above the 260 asked for: "
    shared = "are page names and fixed files, which more pages would share"
    done = run("index", "reports", "--to", "x.glie", "--bytes-per-page", 260)
    assert above in done.out
    assert shared in done.out
    facts = run("info", "x.glie", "--json").json
    assert facts["budget"] == 260 < facts["bytes_per_page"]
    assert above in run("info", "x.glie").out
    run("delete", "x.glie", "b.pdf")
    assert "deleted pages take space until" in run("info", "x.glie").out
    done = run("shrink", "x.glie", "--bytes-per-page", 150, "--to", "y.glie")
    assert "above the 150 asked for: " in done.out
    assert "asked for" not in run("index", "reports", "--to", "k.glie", "--k", 2).out
    assert run("info", "k.glie", "--json").json["budget"] is None
    roomy = ("--to", "large.glie", "--bytes-per-page", 40_000)
    assert "asked for" not in run("index", "reports", *roomy).out


def test_words_count_in_a_budget(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--bytes-per-page", 260)
    assert "k = 2, D = 128, int2, and at most 96 codewords a page" in run("info", "x.glie").out
    many = " ".join(f"word{number}" for number in range(400))
    Path("reports/many.txt").write_text(many)
    done = run("index", "reports", "--to", "y.glie", "--bytes-per-page", 260)
    assert "above the 260 asked for: " in done.out
    assert "are words (`glie index --text none` leaves them out)" in done.out


def test_whose_words_are_indexed(run: Run, documents: Path) -> None:
    picture("Harbour invoice").save("reports/scan.png")
    pages = {"auto": 4, "layer": 3, "ocr": 4, "none": 0}
    for text, number in pages.items():
        assert run("index", "reports", "--to", f"{text}.glie", "--text", text).code == 0
        found = run("info", f"{text}.glie", "--json").json
        assert (found["pages"], found["pages_with_text"]) == (4, number), text
        assert (found["text_bytes"] > 0) == (number > 0)
    shown = run("info", "layer.glie").out
    assert "of these bytes a page; 3 of 4 pages with text, in English" in shown
    assert "no page has text: only meaning is searched" in run("info", "none.glie").out
    run("add", "none.glie", "reports/b.pdf", "--text", "layer")  # unchanged: not read again
    Path("more.txt").write_text("Anchors")
    assert run("add", "none.glie", "more.txt").code == 0
    assert run("info", "none.glie", "--json").json["pages_with_text"] == 1
    done = run("index", "reports", "--to", "new.glie", "--text", "some")
    assert (done.code, done.err) == (
        2,
        "glie: --text: expected auto, layer, ocr, none, found 'some'\n",
    )
    assert not Path("new.glie").exists()


def test_the_language_of_words(run: Run, documents: Path) -> None:
    Path("de").mkdir()
    Path("de/a.txt").write_text("Die Häuser am Hafen")
    asked = ("index", "de", "--to", "de.glie")
    assert run(*asked, "--language", "de").code == 0
    assert run("info", "de.glie", "--json").json["language"] == "german"
    found = run("search", "de.glie", "Haus", "--mode", "lexical", "--json").json
    assert [hit["id"] for hit in found["hits"]] == ["a.txt#1"]
    assert run(*asked).code == 0  # the index knows its language
    done = run(*asked, "--language", "fr")
    assert (done.code, "its words are in german, not in fr" in done.err) == (1, True)
    done = run("index", "de", "--to", "new.glie", "--language", "klingon")
    assert (done.code, "--language: found 'klingon'" in done.err) == (2, True)
    assert len(done.err.splitlines()) == 1
    assert not Path("new.glie").exists()
    assert run("index", "de", "--to", "none.glie", "--language", "none").code == 0
    found = run("search", "none.glie", "Haus", "--mode", "lexical")
    assert (found.code, found.out) == (0, "no page matches\n")


def test_vectors_a_page_as_before(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--k", 4)
    found = run("info", "x.glie", "--json").json
    assert (found["k"], found["dtype"], found["code_bytes_per_page"]) == (4, "bf16", 1040)
    assert glie.Index.open("x.glie").codec.scores


def test_numbers_in_fewer_bits(run: Run, documents: Path) -> None:
    asked = ("index", "reports", "--to", "x.glie", "--codec", "free")
    assert run(*asked, "--dtype", "int2").code == 0
    assert run(*asked).code == 0  # the index knows its type
    found = run("info", "x.glie", "--json").json
    assert (found["dtype"], found["code_bytes_per_page"]) == ("int2", 4 * (32 + 1))
    assert "k = 4, D = 128, int2, normalised k-means" in run("info", "x.glie").out
    hits = run("search", "x.glie", "vacation days", "--json").json["hits"]
    assert hits[0]["id"] == "b.pdf#1"


def test_bad_files_end_with_code_3(run: Run, documents: Path) -> None:
    messages = bad_files(documents / "bad")
    done = run("index", "bad", "reports", "--to", "x.glie")
    assert done.code == 3
    for message in messages.values():
        assert message in done.err
    assert "Traceback" not in done.err
    assert run("info", "x.glie", "--json").json["pages"] == 4


def test_scans_without_ocr_are_counted(run: Run, documents: Path) -> None:
    picture("Harbour invoice").save("reports/scan.png")
    done = run("index", "reports", "--to", "x.glie", "--no-ocr")
    assert done.code == 0
    assert "1 page without text left out: scan.png#1" in done.err
    done = run("index", "reports", "--to", "x.glie")
    assert "1 document added, 2 unchanged: 1 page (1 read by OCR)" in done.out
    done = run("index", "reports", "--to", "x.glie", "--keep-images")
    assert "0 documents added, 3 changed: 4 pages" in done.out
    assert glie.Index.open("x.glie").image("scan.png#1") is not None


def test_what_became_of_a_file_is_said(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie")
    Path("reports/b.pdf").unlink()
    done = run("index", "reports", "--to", "x.glie")
    assert done.code == 0
    assert "the files of 1 indexed document are gone: b.pdf; `glie delete`" in done.err
    assert "(its file is gone: " in run("search", "x.glie", "holiday", "--top", 1).out


def test_an_interrupted_run_says_so(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glie.ingest.ingest", interrupted)
    done = run("index", "reports", "--to", "x.glie")
    assert done.code == 130
    assert "interrupted; the index keeps the 0 pages committed so far" in done.err


def test_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ocr_hint(Report()) is None
    report = Report(pages_without_text=["a.pdf#1"])
    monkeypatch.setattr("glie.documents.ocr_available", lambda: False)
    assert ocr_hint(report) == (
        '1 page without text left out: a.pdf#1; pip install "glie[ocr]" to read them'
    )


def test_pages_in_another_language_are_said_once(run: Run, documents: Path) -> None:
    assert language_hint(Report(pages_added=4, pages_not_english=2)) is None
    text = "Der Urlaub der Mitarbeiter ist in der Regel mit der Leitung zu besprechen und wird dann"
    Path("de.md").write_text(f"{text} von ihr genehmigt, wenn es die Arbeit erlaubt.")
    done = run("index", "de.md", "--to", "x.glie")
    assert done.code == 0
    assert "1 of 1 page seems not to be in English" in done.err
    assert "glie index --encoder multilingual" in done.err
    assert "English" not in run("index", "de.md", "--to", "x.glie").err
    assert "English" not in run("index", "reports", "--to", "y.glie").err


def test_ocr_in_a_language_that_is_not_there(run: Run, documents: Path) -> None:
    done = run("index", "reports", "--to", "x.glie", "--ocr-lang", "xyz")
    assert done.code == 2
    assert done.err.startswith("glie: --ocr-lang: no data for xyz, only for ")
    assert not Path("x.glie").exists()


def test_no_index_is_made_of_nothing(run: Run, documents: Path) -> None:
    Path("bad").mkdir()
    Path("bad/letter.pdf").write_text("Dear Sir or Madam")
    Path("bad/blank.md").write_text(" ")
    done = run("index", "bad", "--to", "x.glie")
    assert done.code == 1
    assert "nothing to index: no index was made" in done.out
    assert "letter.pdf: not a PDF" in done.err
    assert not Path("x.glie").exists()
    run("index", "reports", "--to", "x.glie")
    run("delete", "x.glie", "a.pdf", "b.pdf")
    assert run("index", "bad", "--to", "x.glie").code == 3  # this one was there before
    assert Path("x.glie").exists()
