"""`glie search`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from PIL import Image

import glie
from glie.candidates import build
from tests.cli.conftest import Done, Run
from tests.documents.test_documents import make_pdf, picture


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


def test_filters(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie", "--k", 4)
    asked = ["search", "x.glie", "vacation days", "--json"]

    def found(*options: object) -> set[str]:
        return {hit["id"] for hit in run(*asked, *options).json["hits"]}

    assert found("--where", "page >= 2") == {"a.pdf#2"}
    assert found("--where", "page=1") == {"a.pdf#1", "b.pdf#1"}
    assert found("--where", "page=1", "--where", "document != a.pdf") == {"b.pdf#1"}
    assert found("--where", "page < 2", "--document", "a.pdf") == {"a.pdf#1"}
    assert found("--where", '{"or": [{"page": 2}, {"document": "b.pdf"}]}') == {
        *("a.pdf#2", "b.pdf#1")
    }
    none = run("search", "x.glie", "vacation days", "--where", "year exists")
    assert (none.code, none.out) == (0, "no page matches\n")
    wrong = run("search", "x.glie", "vacation days", "--where", "page >=")
    assert wrong.code == 2
    assert "--where: character 8: expected a value, found the end, in 'page >=⟨here⟩'" in wrong.err
    assert len(wrong.err.strip().splitlines()) == 1


def test_candidates_or_every_page(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    run("index", "reports", "--to", "x.glie", "--k", 4)
    assert "no candidate index: every page is scanned" in run("info", "x.glie").out
    monkeypatch.setattr(build, "CANDIDATE_PAGES", 2)
    run("compact", "x.glie")
    assert "of these bytes a page, on top of any budget" in run("info", "x.glie").out
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


def test_hits_are_shown_where_their_files_cannot_be_read(
    run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "reports", "--to", "x.glie")
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    found = run("search", "x.glie", "vacation days", "--json").json["hits"]
    assert (found[0]["id"], found[0]["snippet"]) == ("b.pdf#1", "")


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


@pytest.fixture
def worded(run: Run, documents: Path) -> Path:
    """Three parts that an encoder hardly tells apart, and a draft."""
    make_pdf(
        Path("parts/list.pdf"),
        [
            "Pump housing, part 3M-2018-113, spare",
            "Pump housing, part 3M-2018-114, spare",
            "Pump housing, part 3M-2018-115, spare",
            "Net of tax, the income of the pumps; a draft",
            "The net income of the pumps",
        ],
    )
    run("index", "parts", "--to", "x.glie")
    return documents


def ids(done: Done) -> list[str]:
    return [hit["id"] for hit in done.json["hits"]]


def test_words_and_meaning(run: Run, worded: Path) -> None:
    asked = ("search", "x.glie", "3M-2018-114", "--json")
    hit = run(*asked).json["hits"][0]
    assert hit["id"] == "list.pdf#2"
    assert hit["score"] == pytest.approx(hit["meaning"] + hit["words"], abs=1e-5)
    assert hit["words"] > 0
    late = run(*asked, "--mode", "late").json["hits"]
    assert len(late) == 5
    assert not {"meaning", "words"} & set(late[0])
    lexical = run(*asked, "--mode", "lexical").json["hits"]
    assert lexical[0]["id"] == "list.pdf#2"
    assert (lexical[0]["meaning"], lexical[0]["words"]) == (0, lexical[0]["score"])


def test_quotes_and_exclusions(run: Run, worded: Path) -> None:
    assert ids(run("search", "x.glie", '"3M-2018-114"', "--json")) == ["list.pdf#2"]
    assert ids(run("search", "x.glie", '"2018-114" pump', "--json")) == ["list.pdf#2"]
    # a page with both words, but not beside each other, is left out
    assert ids(run("search", "x.glie", '"net income"', "--json")) == ["list.pdf#5"]
    assert "list.pdf#4" not in ids(run("search", "x.glie", "income -draft", "--json"))
    done = run("search", "x.glie", '"no such words"')
    assert (done.code, done.out) == (0, "no page matches\n")


def test_words_need_no_encoder(run: Run, worded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise glie.EncoderError("the encoder is gone")

    monkeypatch.setattr("glie.encoders.recorded.load_encoder", gone)
    done = run("search", "x.glie", "3M-2018-114", "--mode", "lexical")
    assert (done.code, "list.pdf#2" in done.out) == (0, True)
    assert "100% words" in done.out
    assert "load the encoder" not in done.out
    assert run("search", "x.glie", "3M-2018-114").err == "glie: the encoder is gone\n"


def test_pages_like_a_page(run: Run, worded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glie.encoders.recorded.load_encoder", None)  # what is stored is enough
    found = run("search", "x.glie", "--like", "list.pdf#5", "--top", 2, "--json").json
    assert (found["query"], found["like"]) == (None, "list.pdf#5")
    assert found["hits"][0]["id"] == "list.pdf#4"
    assert len(found["hits"]) == 2
    assert found["hits"][0]["snippet"].startswith("Net of tax")
    done = run("search", "x.glie", "--like", "list.pdf#9")
    assert (done.code, done.err) == (1, "glie: page 'list.pdf#9' is not in the index\n")


def test_ask_with_a_picture(run: Run, worded: Path) -> None:
    """The embedded encoder reads text: OCR reads the picture."""
    picture("The net income of the pumps").save("page.png")
    found = run("search", "x.glie", "--image", "page.png", "--json").json
    assert (found["query"], found["image"]) == (None, "page.png")
    assert found["hits"][0]["id"] == "list.pdf#5"
    assert "list.pdf#5" in run("search", "x.glie", "--image", "page.png", "--top", 1).out
    Path("no.png").write_text("no picture")
    for name, wrong in ("no.png", "damaged, or not an image"), ("gone.png", "no such file"):
        done = run("search", "x.glie", "--image", name)
        assert (done.code, done.err) == (1, f"glie: {name}: {wrong}\n")
    Image.new("RGB", (400, 400), "white").save("blank.png")
    done = run("search", "x.glie", "--image", "blank.png")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "encoder 'english' reads text, and OCR finds none in this picture" in done.err


@pytest.mark.parametrize(
    "asked",
    [
        ("why", "--image", "page.png"),
        ("why", "--like", "a.pdf#1"),
        ("--image", "page.png", "--like", "a.pdf#1"),
        (),
    ],
)
def test_one_way_to_ask(run: Run, asked: tuple[str, ...]) -> None:
    done = run("search", "x.glie", *asked)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert ("give one of them" if asked else "Missing argument 'QUESTION'") in done.err
    done = run("search", "--like", "a.pdf#1")
    assert (done.code, "Missing argument 'INDEX QUESTION'" in done.err) == (2, True)


def test_the_index_behind_the_question(run: Run, documents: Path) -> None:
    run("index", "reports", "--to", "x.glie")
    done = run("search", "vacation days", "x.glie", "--json")
    assert done.json["hits"][0]["id"] == "b.pdf#1"
    assert done.json["query"] == "vacation days"
    assert done.err == "x.glie is the index: it goes before the question\n"
    assert "vacation days: does not exist" in run("search", "vacation days", "y.glie").err


def typed(run: Run, monkeypatch: pytest.MonkeyPatch, *lines: str) -> Done:
    """What the prompt says to these lines."""
    left = iter(lines)

    def line(_: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", line)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    return run("search", "x.glie")


def test_a_prompt(run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("index", "reports", "--to", "x.glie")
    monkeypatch.setenv("HOME", str(documents))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    done = typed(
        run,
        monkeypatch,
        *("vacation days", ":open 1", ":why 1", ":where page = 2", "vacation days", ":where"),
        *(":document b.pdf", "capital", ":open 1", ":document", ":top 1", "capital", ":help", ""),
    )
    assert done.code == 0
    assert opened[0] == (documents / "reports" / "b.pdf").as_uri() + "#page=1"
    assert opened[1] == opened[0]  # the only document that was allowed
    told = re.search(r"b\.pdf#1: score ([\d.]+) = meaning ([\d.]+) \+ words ([\d.]+)", done.out)
    assert told is not None
    score, *parts = [round(1000 * float(number)) for number in told.groups()]
    assert sum(parts) == score  # as it is shown
    said = [line for line in done.out.splitlines() if line.startswith("from now on")]
    assert said == [
        *("from now on: pages with page = 2", "from now on: all pages", "from now on: b.pdf"),
        *("from now on: all documents", "from now on: 1 page an answer"),
    ]
    assert "0.0 s to load" not in done.out
    assert "Holiday allowance is 25 days for full-time staff" in done.out
    assert ":why 2        how its score" in done.out
    answers = re.findall(r"^ *(\d+) +[\d.]+ +(\S+#\d)", done.out, re.MULTILINE)
    assert answers[0] == ("1", "b.pdf#1")
    assert ("1", "a.pdf#2") in answers
    assert answers[-1] == ("1", "a.pdf#1")


def test_mistakes_at_the_prompt(run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("index", "reports", "--to", "x.glie")
    monkeypatch.setenv("HOME", str(documents))
    lines = (":open 1", ":why x", ":top 0", ":where page >", ":other", ":quit", "not asked")
    done = typed(run, monkeypatch, *lines)
    assert done.code == 0
    said = done.err.splitlines()
    assert said[0] == "1: there are 0 answers; ask first"
    assert said[1] == "expected a number from 1 on, found 'x'"
    assert said[3].startswith("where: ")
    assert said[4] == ":other: not known here; :help lists what is"
    assert len(said) == 5
    assert (documents / ".glie_history").stat().st_mode & 0o077 == 0
