"""The command line, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import glie
from glie.candidates import build
from glie.cli import main
from tests.conftest import make_arrays
from tests.documents.test_documents import bad_files, make_pdf, picture
from tests.evaluation.sets import PAGES, QUESTIONS, write_set
from tests.evaluation.test_vectors import bad_npz_files
from tests.test_geometry import wound


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["glie", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Done(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_pdf(
        Path("reports/a.pdf"),
        [
            "Capital expenditure in 2018 was 1,577 million dollars",
            "Rotor blades are inspected twice a year",
        ],
    )
    make_pdf(Path("reports/b.pdf"), ["Holiday allowance is 25 days for full-time staff"])
    return tmp_path


def test_the_two_commands(run: Run, documents: Path) -> None:
    done = run("index", "reports/", "--to", "reports.glie")
    assert done.code == 0
    assert "2 documents added: 3 pages" in done.out
    assert "the index holds 3 pages" in done.out

    done = run("search", "reports.glie", "capital expenditure in 2018")
    assert done.code == 0
    lines = done.out.split("\n")
    assert lines[0].split()[::2] == ["1", "a.pdf#1"]
    assert lines[1].strip() == "Capital expenditure in 2018 was 1,577 million dollars"
    shown = "".join(line.strip() for line in lines[2:4])  # a long path goes on in the next line
    assert shown.startswith(str(documents / "reports" / "a.pdf"))
    assert "3 pages scanned" in done.out


def test_search_as_json(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--k", 16)
    found = run("search", "x.glie", "vacation days", "--top", 2, "--json").json
    assert found["query"] == "vacation days"
    assert len(found["hits"]) == 2
    hit = found["hits"][0]
    assert (hit["rank"], hit["id"], hit["document"], hit["page"]) == (1, "b.pdf#1", "b.pdf", 1)
    assert hit["path"] == str(documents / "reports" / "b.pdf")
    assert hit["snippet"].startswith("Holiday allowance")
    assert hit["metadata"]["origin"] == "text"
    assert found["cost"]["pages_scanned"] == 3
    assert found["cost"]["bytes_read"] == 3 * 16 * (256 + 2)
    only = run("search", "x.glie", "vacation days", "--document", "a.pdf", "--json").json
    assert {hit["document"] for hit in only["hits"]} == {"a.pdf"}


def test_candidates_or_every_page(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    run("index", "reports", "--to", "x.glie", "--k", 4)
    assert "none: every page is scanned" in run("info", "x.glie").out
    monkeypatch.setattr(build, "CANDIDATE_PAGES", 2)
    run("compact", "x.glie")
    assert "of these bytes a page, beyond any budget" in run("info", "x.glie").out
    assert run("info", "x.glie", "--json").json["candidate_bytes"] > 0
    asked = ["search", "x.glie", "vacation days"]
    assert "3 pages of 3 estimated scanned" in run(*asked).out
    assert "3 pages scanned" in run(*asked, "--exact").out
    for how, estimated in ((), 3), (("--exact",), 0), (("--candidates",), 3):
        found = run(*asked, *how, "--json").json
        assert found["hits"][0]["id"] == "b.pdf#1"
        assert found["cost"]["pages_estimated"] == estimated


def test_unquoted_questions_versions_and_names(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie")
    found = run("search", "x.glie", "vacation", "days", "--top", 1, "--json").json
    assert (found["query"], found["hits"][0]["id"]) == ("vacation days", "b.pdf#1")
    done = run("search", "x.glie", "days", "--document", "c.pdf")
    assert (done.code, "c.pdf: neither a document nor a page" in done.err) == (1, True)
    assert run("--version").out == f"glie {glie.__version__}\n"
    assert "glie index reports/ --to reports.glie" in run().out


def test_what_became_of_a_file_is_said(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie")
    Path("reports/b.pdf").unlink()
    done = run("index", "reports", "--to", "x.glie")
    assert done.code == 0
    assert "files gone of 1 indexed document: b.pdf; `glie delete`" in done.err
    assert "(its file is gone: " in run("search", "x.glie", "holiday", "--top", 1).out


def test_hits_are_shown_where_their_files_cannot_be_read(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "reports", "--to", "x.glie")
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    found = run("search", "x.glie", "vacation days", "--json").json["hits"]
    assert (found[0]["id"], found[0]["snippet"]) == ("b.pdf#1", "")


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
    assert (after["pages"], after["deleted"], after["k"], after["dim"]) == (2, 0, 8, 128)
    assert (after["dtype"], after["words"]) == ("int2", 115)
    assert after["code_bytes_per_page"] < 520
    assert after["encoder"] == "minilm"
    shown = run("info", "x.glie", "--documents").out
    assert "2 in 2 documents" in shown
    assert "1 b.pdf" in shown


def test_a_budget_in_bytes(run: Run, documents: Path) -> None:
    asked = ("index", "reports", "--to", "x.glie")
    assert run(*asked, "--bytes-per-page", 260).code == 0
    assert run(*asked).code == 0  # the index knows its budget
    assert run(*asked, "--bytes-per-page", 260).code == 0
    codec = glie.Index.open("x.glie").codec
    assert codec.same_as(glie.Codec(bytes_per_page=260))
    shown = run("info", "x.glie").out
    assert "k = 4, D = 128, int2, and at most 52 codewords a page" in shown
    done = run("search", "x.glie", "vacation days", "--json").json
    assert done["hits"][0]["id"] == "b.pdf#1"
    assert done["cost"]["pages_regenerated"] == 3


def test_few_pages_go_above_a_budget_and_it_is_said_why(run: Run, documents: Path) -> None:
    above = "above the 260 asked for: "
    shared = "are names and the folder itself, which more pages would share"
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


def test_shrink(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--keep-images")
    asked = ("shrink", "x.glie", "--bytes-per-page", 260, "--to")
    done = run(*asked, "y.glie")
    assert (done.code, done.err) == (0, "")
    assert "now: k = 4, D = 128, int2, and at most 52 codewords a page" in done.out
    found = run(*asked, "z.glie", "--json").json
    assert (found["index"], found["pages"]) == ("z.glie", 3)
    assert found["bytes"] < found["bytes_before"]
    assert run("search", "y.glie", "vacation days", "--json").json["hits"][0]["id"] == "b.pdf#1"
    assert glie.Index.open("y.glie").image("b.pdf#1") == glie.Index.open("x.glie").image("b.pdf#1")
    assert run("add", "y.glie", "reports", "--json").json["documents_unchanged"] == 2


def test_plan(run: Run, documents: Path) -> None:
    done = run("plan", "reports", "--bytes-per-page", "150,520")
    assert done.code == 0
    heading, small, _, whole, notes = done.out.strip().split("\n")
    assert heading.split()[:4] == ["budget", "bytes", "a", "page"]
    assert small.split()[0] == "150"
    assert small.split()[2:6] == ["2", "x", "int2", "31"]
    assert whole.split()[0] == "uncompressed"
    assert notes.startswith("measured on 3 pages")
    np.savez("pages.npz", *make_arrays(5, dim=128))
    asked = ("plan", "pages.npz", "--encoder", "minilm", "--bytes-per-page", "260", "--json")
    found = run(*asked).json
    assert (found["pages"], [row["budget"] for row in found["budgets"]]) == (5, [260, None])


def test_vectors_a_page_as_before(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--k", 4)
    found = run("info", "x.glie", "--json").json
    assert (found["k"], found["dtype"], found["code_bytes_per_page"]) == (4, "bf16", 1040)
    assert glie.Index.open("x.glie").codec.fitted is not None


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "none.glie", "a"], "none.glie: does not exist; make one with"),
        (["index", "nowhere", "--to", "y.glie"], "nowhere: no such file or folder"),
        (["index", "empty", "--to", "y.glie"], "empty: no documents there"),
        (
            ["index", "reports", "--to", "y.glie", "--encoder", "colbert"],
            "encoder 'colbert' is unknown",
        ),
        (
            ["index", "reports", "--to", "x.glie", "--k", "7"],
            "it stores k=8 vectors a page, not 7",
        ),
        (
            ["index", "reports", "--to", "x.glie", "--bytes-per-page", "260"],
            "x.glie: its pages are not stored in 260 bytes each; make a new index",
        ),
        (
            ["index", "reports", "--to", "y.glie", "--bytes-per-page", "0"],
            "bytes_per_page: found 0, at least 65 are needed at D = 128",
        ),
        (
            ["index", "reports", "--to", "y.glie", "--bytes-per-page", "260", "--dtype", "int2"],
            "--bytes-per-page chooses what is stored: give it without --k, --dtype and --codec",
        ),
        (
            ["index", "reports", "--to", "y.glie", "--k", "99999"],
            "codec setting k: expected a whole number",
        ),
        (
            ["index", "reports", "--to", "x.glie", "--dtype", "int4"],
            "it stores numbers in int2, not int4; make a new index",
        ),
        (
            ["index", "reports", "--to", "y.glie", "--dtype", "int3"],
            "codec setting dtype: expected one of bf16, int8, int4, int2, int1, found 'int3'",
        ),
        (
            ["index", "reports", "--to", "x.glie", "--encoder", "minilm-384"],
            "made with encoder 'minilm'",
        ),
        (["index", "reports", "--to", "reports"], "reports: not empty and not an index"),
        (["add", "reports", "reports"], "reports: is not an index"),
        (
            ["shrink", "x.glie", "--to", "y.glie", "--bytes-per-page", "520"],
            "bytes_per_page: 520 hold as much as is stored already; expected fewer",
        ),
        (
            ["shrink", "x.glie", "--to", "reports", "--bytes-per-page", "260"],
            "reports: already there; choose another name",
        ),
        (["delete", "x.glie", "c.pdf"], "c.pdf: neither a document nor a page in "),
        (["search", "x.glie", "  "], "the question is empty"),
        (["search", "plain.glie", "a"], "it does not name the encoder"),
        (["search", "strange.glie", "a"], "encoder 'gone' is unknown"),
        (["evaluate", "reports"], "corpus.jsonl: missing"),
        (["evaluate", "none"], "none: no such folder; expected one with corpus.jsonl"),
        (["evaluate", "reports", "--k", "2,x"], "--k: expected numbers like 2,4,8"),
        (["evaluate", "reports", "--codec", "none"], "none: no such folder"),
        (["index", "reports", "--to", "y.glie", "--codec", "none"], "none: no such folder"),
        (["index", "reports", "--to", "x.glie", "--codec", "free"], "it has another codec"),
        (["plan", "empty"], "empty: no pages in it; expected an .npz file"),
        (["plan", "none"], "none: no such folder; expected one with corpus.jsonl"),
        (["plan", "reports", "--bytes-per-page", "a"], "--bytes-per-page: expected numbers like"),
        (["geometry", "reports"], "reports: a folder; expected an .npz file"),
        (["geometry", "pages.npz", "--plot", "no/x.png"], "no/x.png: there is no folder no"),
        (["geometry", "pages.npz", "--plot", "x.gif"], "x.gif: expected a name that ends in .png"),
        (["geometry", "none.npz", "--pages", "0"], "none.npz: no such file"),
        (["fit", "set", "--to", "reports"], "reports: not empty and not a codec"),
        (["fit", "reports", "--to", "y.codec"], "corpus.jsonl: missing"),
        (["fit", "reports", "--to", "y.codec", "--recipe", "x"], "expected one of default, paper"),
        (["fit", "reports", "--to", "y.codec", "--k", "0"], "numbers of at least 1"),
    ],
)
def test_errors_are_one_line(run: Run, documents: Path, arguments: list[str], message: str) -> None:
    Path("empty").mkdir()
    run("index", "reports", "--to", "x.glie")
    glie.Index.create("plain.glie").add(glie.Pages(make_arrays(1)))
    glie.Index.create("strange.glie", encoder="gone").add(glie.Pages(make_arrays(1)))
    write_set(Path("set"))
    done = run(*arguments)
    assert done.code == 1
    assert done.err.startswith("glie: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not Path("y.glie").exists()
    assert not Path("y.codec").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "x.glie", "a", "--top", "0"], "top: expected a whole number of at least 1"),
        (["search", "x.glie", "a", "--top", "abc"], "Invalid value for '--top'"),
        (["search", "x.glie"], "Missing argument"),
        (["index", "reports"], "Missing option '--to'"),
        (["find"], "No such command 'find'"),
        (["info", "n" * 300], "cannot be read: File name too long"),
        (["info", "folder.glie"], "cannot be read: Is a directory"),
    ],
)
def test_what_was_typed_wrong_is_one_line(
    run: Run, documents: Path, arguments: list[str], message: str
) -> None:
    glie.Index.create("x.glie", encoder="minilm").add(glie.Pages(make_arrays(1, dim=128)))
    Path("folder.glie/manifest.json").mkdir(parents=True)
    done = run(*arguments)
    assert done.code in (1, 2)
    assert message in done.err
    assert done.err.count("\n") == 1


def test_text_is_shown_as_it_is(run: Run, documents: Path) -> None:
    """Neither markup nor emoji codes nor terminal codes of a document are obeyed."""
    Path("odd [/x]").mkdir(parents=True)
    Path("odd [/x]/[bold]a.md").write_text(
        "Latex: \\alpha and \\[/bold] :dog: \x1b[31m C:\\temp\\alpha"
    )
    assert run("index", "odd [/x]", "--to", "[y].glie").code == 0
    done = run("search", "[y].glie", "what is alpha [/bold] ?")
    assert done.code == 0
    assert "[bold]a.md#1" in done.out
    assert "\\alpha and \\[/bold] :dog:" in done.out
    assert "\x1b" not in done.out
    assert run("info", "[y].glie", "--documents").code == 0


def test_an_empty_index_answers(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie")
    run("delete", "x.glie", "a.pdf", "b.pdf")
    assert run("search", "x.glie", "anything").out == "no pages: the index is empty\n"
    assert run("search", "x.glie", "anything", "--json").json["hits"] == []
    assert run("info", "x.glie").code == 0


def test_evaluate(run: Run, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "small")
    rows = run("evaluate", folder, "--k", "2,4", "--json").json
    assert [(row["method"], row["k"]) for row in rows] == [
        ("raw-kmeans", 2), ("glie-free", 2), ("raw-kmeans", 4), ("glie-free", 4), ("uncompressed", None),
    ]  # fmt: skip
    shown = run("evaluate", folder, "--k", "2").out
    assert "small: 3 pages, 2 questions" in shown
    assert "normalised k-means, kept" in shown


def test_vectors_are_kept_and_read(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = question_set(Path("small"))

    def scores(*given: Any) -> list[Any]:
        rows = run("evaluate", "--k", "2", "--json", *given).json
        return [{name: row[name] for name in row if name != "ms_per_query"} for row in rows]

    first = scores(folder, "--cache", "cache")
    (kept,) = Path("cache").iterdir()
    assert sorted(path.name for path in kept.iterdir()) == [
        *("lock", "pages-00000.safetensors", "queries.safetensors", "vectors.json")
    ]
    with monkeypatch.context() as environment:
        environment.setenv("GLIE_CACHE", "elsewhere")
        assert scores(folder) == first
    assert len(list(Path("elsewhere").iterdir())) == 1
    assert scores(folder) == first  # and a cache changes nothing

    def none(name: str | None) -> None:
        raise AssertionError("vectors need no encoder")

    monkeypatch.setattr("glie.encoders.load_encoder", none)
    assert scores(kept) == first
    assert run("geometry", kept, "--json").json["corpora"][0]["pages"] == 24
    assert run("fit", kept, "--to", "my.codec", "--epochs", "1").code == 0
    codec = glie.Codec.load("my.codec")
    assert codec.encoder is not None
    assert codec.encoder["name"] == "minilm"


def test_what_a_set_leaves_out_is_said(run: Run, tmp_path: Path) -> None:
    pages = [*PAGES, {"_id": "p4", "text": ""}, {"_id": "p5", "image": "gone.png"}]
    pages.append({"_id": "p6", "image": "blank.png"})
    folder = write_set(tmp_path / "small", pages)
    Image.new("L", (80, 60), 255).save(folder / "blank.png")
    done = run("evaluate", folder, "--k", "2")
    assert done.err.strip().split("\n") == [
        "small: 1 page without text or image left out: p4",
        "small: 1 page whose image cannot be read left out: gone.png: no such file",
        "small: 1 question without a relevant page left out: q3",
        "small: 1 page without text that OCR can read left out: p6",
    ]
    assert "small: 3 pages, 2 questions" in done.out


def test_evaluate_in_one_language(run: Run, tmp_path: Path) -> None:
    languages = ("english", "french", "english")
    spoken = [{**row, "language": word} for row, word in zip(QUESTIONS, languages, strict=True)]
    folder = write_set(tmp_path / "small", questions=spoken)
    asked = ("evaluate", folder, "--k", "2", "--methods", "glie-free")
    assert "small: 3 pages, 2 questions" in run(*asked).out
    assert "small-french: 3 pages, 1 question;" in run(*asked, "--language", "french").out
    done = run(*asked, "--language", "german")
    assert done.code == 1
    assert "no question in 'german'; found english, french" in done.err


def test_evaluate_writes_a_report_and_goes_on(run: Run, documents: Path) -> None:
    folder, other = question_set(Path("small")), question_set(Path("other"))
    asked = ("evaluate", folder, other, "--k", "1,2", "--methods", "all", "--fit-on", "others")
    quick = ("--epochs", "1", "--to", "results", "--trec", "--more", "shortlist,geometry")
    done = run(*asked, *quick)
    assert done.code == 0
    assert (
        "Zero-shot: each set is measured by the codec and the centroids of plaid fitted on the "
        "other sets."
    ) in done.err
    assert "shortlist oracle" in done.out
    assert "0 found finished" in done.out
    names = {path.name for path in Path("results").iterdir()}
    assert names == {
        *("codecs", "runs", "trec", "results.json", "report.md", "report.html"),
        *("quality.png", "margin.png", "headroom.png", "geometry.png"),
    }
    written = json.loads(Path("results/results.json").read_text())
    assert written["command"].startswith("glie evaluate small other --k 1,2 --methods all")
    again = run(*asked, *quick, "--json")
    assert again.code == 0
    assert again.json == written["rows"]
    assert "0 results measured" in run(*asked, *quick).out


def test_evaluate_at_equal_bytes(run: Run, documents: Path) -> None:
    folder = question_set(Path("small"))
    methods = ("--methods", "glie-free,quantised,glie-bytes,glie-bytes-adapted")
    done = run("evaluate", folder, "--bytes-per-page", "520,1040", *methods)
    assert "glie-bytes-adapted: its codebook is made of the pages of each set" in done.err
    assert "520 bytes" in done.out
    assert "Projected: bytes of words, adapted" in done.out
    rows = run("evaluate", folder, "--bytes-per-page", "600", *methods, "--json").json
    assert [(row["k"], row["budget_bytes"]) for row in rows] == [(2, 600), *[(None, 600)] * 3]
    assert all(row["bytes_per_page"] <= 600 for row in rows[:3])
    assert "100 bytes hold no vector" in run("evaluate", folder, "--bytes-per-page", "100").err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--methods", "best"], "'best' is unknown; expected all, or some of: raw-kmeans"),
        (["--methods", "glie"], "glie need a fitted codec; give --codec FOLDER or --fit-on"),
        (["--more", "all,x"], "'all' is unknown; expected all, or some of shortlist, capacity"),
        (["--methods", "plaid"], "plaid need sets to fit centroids on; give --fit-on DATASET"),
        (["--bytes-per-page", "520"], "--k and --bytes-per-page: give one of them"),
        (["--seeds", "a"], "--seeds: expected numbers like"),
        (["--trec"], "name a folder with --to"),
        (["--fit-on", "others"], "there is one set; give others to fit on"),
        (["--fit-on", "nowhere/at/all"], "nowhere/at/all"),
        (["--codec", "free", "--fit-on", "others"], "--codec and --fit-on: give one of them"),
        (["--to", "small/corpus.jsonl"], "a file is in the way"),
    ],
)
def test_what_cannot_be_evaluated(
    run: Run, documents: Path, given: list[str], message: str
) -> None:
    question_set(Path("small"))
    done = run("evaluate", "small", "--k", "2", *given)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert done.err.count("\n") == 1


WORDS = [
    "tide",
    "rotor",
    "cable",
    "harbour",
    "staff",
    "budget",
    "tunnel",
    "fabric",
    "copper",
    "valley",
    "engine",
    "orchard",
]


def question_set(folder: Path) -> Path:
    """24 pages of two words each, and a question for each page."""
    pairs = [(a, b) for a in WORDS[:6] for b in WORDS[6:10]]
    return write_set(
        folder,
        [
            {"_id": f"p{i}", "text": f"the {a} and its {b} in the year"}
            for i, (a, b) in enumerate(pairs)
        ],
        [{"_id": f"q{i}", "text": f"what {b} has the {a}?"} for i, (a, b) in enumerate(pairs)],
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\tp{i}\t1\n" for i in range(24)),
    )


def test_fit_index_search_and_evaluate(run: Run, documents: Path) -> None:
    folder = question_set(Path("small"))
    fitted = run("fit", folder, "--k", "1,2", "--to", "my.codec", "--epochs", "1", "--json")
    assert fitted.code == 0
    assert [budget["k"] for budget in fitted.json["budgets"]] == [1, 2]
    assert fitted.json["steps"] == 1 + 3  # 19 questions: the code, 48 at a time; then 8 at a time
    codec = glie.Codec.load("my.codec")
    assert codec.encoder is not None
    assert codec.encoder["name"] == "minilm"
    assert run("index", "reports", "--to", "x.glie", "--codec", "my.codec").code == 0
    assert glie.Index.open("x.glie").codec.fitted is not None
    assert glie.Index.open("x.glie").codec.k == 1
    hits = run("search", "x.glie", "rotor blades", "--shortlist", "2", "--json").json
    assert hits["cost"]["pages_regenerated"] in (0, 2)  # 0 where fitting did not help
    rows = run("evaluate", folder, "--k", "2", "--codec", "my.codec", "--json").json
    assert [row["method"] for row in rows] == [
        *("raw-kmeans", "glie-free", "glie-stage1", "glie", "uncompressed")
    ]
    shown = run("evaluate", folder, "--k", "2", "--codec", "my.codec").out
    assert "refined, one stage" in shown


def test_fit_without_questions(run: Run, documents: Path) -> None:
    folder = question_set(Path("small"))
    (folder / "queries.jsonl").unlink()
    done = run("fit", folder, "--to", "my.codec", "--epochs", "1", "--no-queries")
    assert done.code == 0
    assert "made of page vectors" in done.out
    assert "on 5 questions held out" in done.out
    assert "4 of 4 steps" in done.err  # progress, where nobody watches
    assert glie.Codec.load("my.codec").k == 4


def test_an_interrupted_fit_keeps_the_best(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import glie.training.fitter

    steps = []

    terms = glie.training.fitter.Fitter._code_terms

    def interrupted(self: Any, queries: Any, k: int) -> Any:
        steps.append(queries)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return terms(self, queries, k)

    monkeypatch.setattr(glie.training.fitter.Fitter, "_code_terms", interrupted)
    done = run("fit", question_set(Path("small")), "--to", "my.codec")
    assert done.code == 130
    assert "interrupted after 1 steps; my.codec is the best so far" in done.err
    assert glie.Codec.load("my.codec").fitted is not None


def test_geometry(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "my.npz"
    pages: dict[str, Any] = {f"slides/deck_{i}": wound(100, seed=i) for i in range(4)}
    pages["[bold]\x1b/1"] = np.vstack([np.eye(32), np.eye(32), np.zeros((16, 32))])
    np.savez(file, **pages)

    done = run("geometry", file, "--plot", tmp_path / "plot.png")
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    heading, slides, notes, together, *notices = done.out.strip().split("\n")
    assert heading.split()[:4] == ["corpus", "pages", "vectors", "D"]
    assert slides.split()[:5] == ["slides", "4", "100", "16", "1.000"]
    assert notes.split()[:7] == ["[bold]\ufffd", "1", "80", "32", "0.000-1.000", "-", "-"]
    assert together.split()[:5] == ["all", "5", "80-100", "16,", "32"]
    assert "16 vectors of length zero left out of the estimates" in notices
    assert "32 vectors the same as another of the page, counted once" in notices
    assert any(line.startswith("1 page without an estimate: ") for line in notices)

    found = run("geometry", file, "--json", "--pages", 2, "--seed", 3).json
    assert (found["path"], found["seed"]) == (str(file), 3)
    assert [(each["name"], each["pages"], each["measured"]) for each in found["corpora"]] == [
        ("slides", 4, 2),
        ("[bold]\x1b", 1, 1),
    ]
    assert slides.split()[5] == "1.0"
    assert found["corpora"][0]["twonn"]["median"] == pytest.approx(1, rel=0.2)
    assert (found["overall"]["name"], found["overall"]["measured"]) == ("all", 3)
    assert found["corpora"][1]["each"][0]["twonn"] is None
    shown = run("geometry", file, "--pages", 2, "--seed", 3).out
    assert "slides: 2 of 4 pages drawn (seed 3); --pages measures more" in shown


def test_geometry_of_bad_files(run: Run, tmp_path: Path) -> None:
    for name, message in bad_npz_files(tmp_path / "bad").items():
        done = run("geometry", tmp_path / "bad" / name)
        assert (done.code, done.out) == (1, "")
        assert message in done.err
        assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "verb",
    [
        *("index", "add", "search", "delete", "compact", "shrink", "info", "fit", "plan"),
        *("evaluate", "geometry", "light-colpali"),
    ],
)
def test_help_teaches(run: Run, verb: str) -> None:
    done = run(verb, "--help")
    assert done.code == 0
    assert "--json" in done.out
    assert len(done.out.split("\n")) > 8


def test_an_interrupted_run_says_so(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glie.ingest.ingest", interrupted)
    done = run("index", "reports", "--to", "x.glie")
    assert done.code == 130
    assert "interrupted; the index keeps the 0 pages committed so far" in done.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_all_letters(tmp_path: Path, encoding: str) -> None:
    index = glie.Index.create(tmp_path / "日本.glie", glie.Codec(k=1))
    index.add(
        glie.Pages(make_arrays(1)), metadata=[{"document": "é.pdf", "path": "x", "digest": "y"}]
    )
    for options in ([], ["--json"], ["--documents"]):
        done = subprocess.run(
            [Path(sys.executable).with_name("glie"), "info", index.path, *options],
            capture_output=True, encoding=encoding, check=False,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_for_the_output(tmp_path: Path) -> None:
    glie.Index.create(tmp_path / "x.glie")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [Path(sys.executable).with_name("glie"), "info", tmp_path / "x.glie"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_installed_as_a_command(tmp_path: Path) -> None:
    """The entry point itself, in a process of its own, with its output cut off by the reader."""
    glie_command = Path(sys.executable).with_name("glie")
    done = subprocess.run([glie_command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "glie index reports/ --to reports.glie" in done.stdout
    done = subprocess.run(
        [glie_command, "info", str(tmp_path / "none")],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "40"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_completion_for_shells(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = run("--show-completion", "bash")
    assert done.code == 0
    assert "complete -o" in done.out
    assert "glie" in done.out


def test_verify(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.glie"
    index = glie.Index.create(path, glie.Codec(k=2))
    for seed, count in ((0, 20), (1, 8)):
        ids = [f"{seed}.pdf#{i}" for i in range(count)]
        index.add(glie.Pages(make_arrays(count, seed=seed), ids=ids))
    done = run("verify", path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{path}: whole: 28 pages, 4 files")
    segment = path / "segments" / "00000002.seg"
    data = segment.read_bytes()
    segment.write_bytes(data[:200] + b"?" + data[201:])
    done = run("verify", path)
    assert done.code == 4
    lines = done.out.split("\n")
    assert lines[1] == (
        "segments/00000002.seg: its vectors do not match their checksum; 8 pages lost: 1.pdf#0, "
        "1.pdf#1, 1.pdf#2, 1.pdf#3, 1.pdf#4, 3 more, which --json names"
    )
    assert lines[2] == "whole: 20 pages, which `glie verify --repair` keeps"
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
    assert "repaired: the index is whole and holds 20 pages" in done.out
    done = run("verify", path, "--repair")
    assert (done.code, done.out.count("\n")) == (0, 1)
    done = run("verify", tmp_path / "nowhere")
    assert done.code == 1
    assert "does not exist" in done.err
