"""The command itself: help, mistakes in one line, terminals, and the extra `cli`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import glie
from tests.cli.conftest import Run
from tests.conftest import make_arrays
from tests.evaluation.sets import write_set


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "none.glie", "a"], "none.glie: does not exist; make one with"),
        (["index", "nowhere", "--to", "y.glie"], "nowhere: no such file or folder"),
        (["index", "empty", "--to", "y.glie"], "empty: no documents there"),
        (
            ["index", "reports", "--to", "x.glie", "--k", "7"],
            "it stores k=6 vectors a page, not 7",
        ),
        (
            ["index", "reports", "--to", "x.glie", "--bytes-per-page", "260"],
            "x.glie: its pages are not stored in 260 bytes each; make a new index",
        ),
        (
            ["index", "reports", "--to", "x.glie", "--dtype", "int4"],
            "it stores numbers in int2, not int4; make a new index",
        ),
        (
            ["index", "reports", "--to", "x.glie", "--encoder", "minilm-384"],
            "made with encoder 'english'",
        ),
        (["index", "reports", "--to", "reports"], "reports: not empty and not an index"),
        (["add", "reports", "reports"], "reports: is not an index"),
        (
            ["shrink", "x.glie", "--to", "reports", "--bytes-per-page", "260"],
            "reports: already there; choose another name",
        ),
        (["delete", "x.glie", "c.pdf"], "c.pdf: neither a document nor a page in "),
        (["search", "x.glie", "  "], "the question is empty"),
        (["search", "plain.glie", "a", "--mode", "lexical"], "no page has text"),
        (["search", "x.glie", 'report "--"'], "found '--' in quotes, expected a word in it"),
        (["search", "x.glie", " -draft"], "the question only excludes words"),
        (["search", "plain.glie", "a"], "it does not name the encoder"),
        (["search", "strange.glie", "a"], "encoder 'gone' is unknown"),
        (["evaluate", "reports"], "corpus.jsonl: missing"),
        (["evaluate", "none"], "none: no such folder; expected one with corpus.jsonl"),
        (["evaluate", "reports", "--codec", "none"], "none: no such folder"),
        (["index", "reports", "--to", "y.glie", "--codec", "none"], "none: no such folder"),
        (["index", "reports", "--to", "x.glie", "--codec", "free"], "it has another codec"),
        (["plan", "empty"], "empty: no pages in it; expected an .npz file"),
        (
            ["plan", "none"],
            "none: no such file or folder; expected an .npz file of page vectors, doc",
        ),
        (["geometry", "reports"], "reports: a folder; expected an .npz file"),
        (["geometry", "pages.npz", "--plot", "no/x.png"], "no/x.png: there is no folder no"),
        (["geometry", "pages.npz", "--plot", "x.gif"], "x.gif: expected a name that ends in .png"),
        (["geometry", "none.npz", "--pages", "0"], "none.npz: no such file"),
        (["fit", "set", "--to", "reports"], "reports: not empty and not a codec"),
        (["fit", "reports", "--to", "y.codec"], "corpus.jsonl: missing"),
    ],
)
def test_errors_are_one_line(run: Run, documents: Path, arguments: list[str], message: str) -> None:
    check_mistake(run, arguments, message, 1)


def check_mistake(run: Run, arguments: list[str], message: str, code: int) -> None:
    Path("empty").mkdir()
    run("index", "reports", "--to", "x.glie")
    glie.Index.create("plain.glie").add(glie.Pages(make_arrays(1)))
    glie.Index.create("strange.glie", encoder="gone").add(glie.Pages(make_arrays(1)))
    write_set(Path("set"))
    done = run(*arguments)
    assert done.code == code
    assert done.err.startswith("glie: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not Path("y.glie").exists()
    assert not Path("y.codec").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["index", "reports", "--to", "y.glie", "--encoder", "colbert"],
            "--encoder 'colbert' is unknown",
        ),
        (
            ["index", "reports", "--to", "y.glie", "--bytes-per-page", "0"],
            "--bytes-per-page: found 0, at least 65 are needed at D = 128",
        ),
        (
            ["index", "reports", "--to", "y.glie", "--bytes-per-page", "260", "--dtype", "int2"],
            "--bytes-per-page: a budget decides k, dtype and codec; give the budget or these, not both",
        ),
        (
            ["index", "reports", "--to", "y.glie", "--k", "99999"],
            "--k: expected a whole number",
        ),
        (
            ["index", "reports", "--to", "y.glie", "--dtype", "int3"],
            "--dtype: expected one of bf16, int8, int4, int2, int1, found 'int3'",
        ),
        (
            ["shrink", "x.glie", "--to", "y.glie", "--bytes-per-page", "700"],
            "--bytes-per-page: 700 hold as much as is stored already; expected fewer",
        ),
        (["search", "x.glie", "a", "--mode", "fuzzy"], "--mode: expected hybrid, late or lexical"),
        (["evaluate", "reports", "--k", "2,x"], "--k: expected numbers like 2,4,8"),
        (
            ["plan", "reports", "--bytes-per-page", "a"],
            "--bytes-per-page: expected numbers like 256,",
        ),
        (
            ["fit", "reports", "--to", "y.codec", "--recipe", "x"],
            "--recipe: expected one of default, paper",
        ),
        (["fit", "reports", "--to", "y.codec", "--k", "0"], "numbers of at least 1"),
        (["search", "x.glie", "a", "--shortlist=-1"], "--shortlist: expected a whole number"),
        (["search", "x.glie", "a", "--where", "year >"], "--where: "),
        (["search", "x.glie", "a", "--prefetch", "9"], "these need --engine"),
        (["index", "reports", "--to", "y.glie", "--language", "xx"], "--language: found 'xx'"),
        (["index", "reports", "--to", "y.glie", "--text", "all"], "--text: expected auto"),
        (["index", "reports", "--to", "y.glie", "--gpus", "1"], "of `glie cluster index`"),
    ],
)
def test_mistyped_options_end_with_code_2(
    run: Run, documents: Path, arguments: list[str], message: str
) -> None:
    check_mistake(run, arguments, message, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "x.glie", "a", "--top", "0"], "--top: expected a whole number of at least 1"),
        (["search", "x.glie", "a", "--top", "abc"], "--top: expected a valid integer, found 'abc'"),
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
    glie.Index.create("x.glie", encoder="english").add(glie.Pages(make_arrays(1, dim=128)))
    Path("folder.glie/manifest.json").mkdir(parents=True)
    done = run(*arguments)
    assert done.code == (1 if arguments[0] == "info" else 2)
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


def test_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "glie", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Usage: glie [OPTIONS] COMMAND" in done.stdout


def test_completion_for_shells(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = run("--show-completion", "bash")
    assert done.code == 0
    assert "complete -o" in done.out
    assert "glie" in done.out


def without_the_extra(code: str, *hidden: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where these packages are not installed."""
    hide = f"import sys\nfor name in {hidden}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", hide + code], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("hidden", ["typer", "rich"])
def test_without_the_extra_cli(hidden: str) -> None:
    done = without_the_extra("from glie.cli import main; main()", hidden)
    assert (done.returncode, done.stdout) == (1, "")
    says = 'glie: the command line needs an optional part: pip install "glie[cli]"\n'
    assert done.stderr == says


def test_the_library_needs_neither_typer_nor_rich(documents: Path) -> None:
    code = """
import importlib, pkgutil, glie, glie.server.app
from glie.indexing import open_or_create
from glie.ingest import ingest
index, encoder = open_or_create("x.glie", ["reports"])
print(ingest(index, encoder, ["reports"]).pages_added)
from glie.retriever import Retriever
print(glie.plan(glie.Pages(encoder.encode_pages(["one page"]), ["a"]), [520])[0].budget)
for module in pkgutil.walk_packages(glie.__path__, "glie."):
    if not module.name.startswith("glie.cli."):
        try:
            importlib.import_module(module.name)
        except glie.MissingExtraError:
            pass
"""
    done = without_the_extra(code, "typer", "rich")
    assert (done.returncode, done.stdout.split()) == (0, ["3", "520"]), done.stderr


def test_help_at_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb and its options are listed, in lines that fit."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    shown = run("--help").out
    assert re.findall(r"^│ ([a-z][a-z-]*)  ", shown, re.MULTILINE) == [
        *("index", "add", "watch", "search", "serve", "mcp"),
        *("info", "delete", "compact", "shrink", "verify"),
        *("plan", "fit", "evaluate", "geometry", "light-colpali", "codec"),
        *("export", "cluster"),
    ]
    assert max(map(len, shown.splitlines())) <= 80
    shown = run("index", "--help").out
    assert shown.index("--bytes-per-page") < shown.index("--keep-images") < shown.index("--dtype")
    assert "Rarely needed" in shown
    assert shown.index("--json") < shown.index("Rarely needed") < shown.index("--language")
    assert "the rest is indexed and the   \n exit code is 3." in shown  # paragraphs fill the line
    assert max(map(len, shown.splitlines())) <= 80
