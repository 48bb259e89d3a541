"""`glie plan`, `evaluate` and `geometry`."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import glie
from glie.evaluation.methods import NAMES
from tests.cli.conftest import Run, question_set
from tests.conftest import make_arrays
from tests.evaluation.sets import PAGES, QUESTIONS, write_set
from tests.evaluation.test_tables import ORDER
from tests.evaluation.test_vectors import bad_npz_files
from tests.evaluation.test_vidore import Tables, tables  # noqa: F401 (a fixture)
from tests.evaluation.topics import Topics
from tests.test_geometry import wound


def test_plan(run: Run, documents: Path) -> None:
    done = run("plan", "reports", "--bytes-per-page", "150,520", "--no-words")
    assert done.code == 0
    heading, small, _, whole, notes = done.out.strip().split("\n")
    assert heading.split()[:4] == ["budget", "bytes", "a", "page"]
    assert small.split()[0] == "150"
    assert small.split()[2:6] == ["1", "x", "int2", "57"]
    assert whole.split()[0] == "uncompressed"
    assert notes.startswith("measured on 3 pages")
    heading, *_, whole, notes = run("plan", "reports").out.strip().split("\n")
    assert heading.split()[:4] == ["budget", "bytes", "words", "k"]
    assert "words: bytes of the words of a page" in notes
    row = run("plan", "reports", "--bytes-per-page", "520", "--json").json["budgets"][0]
    assert 0 < row["text_bytes"] < row["bytes_per_page"]
    np.savez("pages.npz", *make_arrays(5, dim=128))
    asked = ("plan", "pages.npz", "--encoder", "minilm", "--bytes-per-page", "260", "--json")
    found = run(*asked).json
    assert (found["pages"], [row["budget"] for row in found["budgets"]]) == (5, [260, None])
    assert "\n260 bytes: best pages kept by " in run(*asked[:-1]).out  # vectors of no known encoder


def test_evaluate(run: Run, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "small")
    rows = run("evaluate", folder, "--k", "2,4", "--json").json
    assert [(row["method"], row["k"]) for row in rows] == [
        ("raw-kmeans", 2), ("glie-free", 2), ("raw-kmeans", 4), ("glie-free", 4), ("uncompressed", None),
    ]  # fmt: skip
    shown = run("evaluate", folder, "--k", "2").out
    assert "small: 3 pages, 2 questions" in shown
    assert "glie-free, kept" in shown


def test_the_help_names_every_method(run: Run) -> None:
    shown = run("evaluate", "--help").out.replace("│", " ").split()
    assert set(NAMES) <= {word.strip(".,:") for word in shown}


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
    assert codec.encoder["name"] == "english"


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
    assert "oracle" in done.out
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


class SeenTopics(Topics):
    """The topics of a page, seen as shades of grey."""

    reads = "image"

    def encode_pages(self, pages: Any) -> Any:
        shades = ([page.getpixel((x, 0))[0] // 16 for x in range(page.width)] for page in pages)
        return super().encode_pages([" ".join(map(str, shown)) for shown in shades])


def shown(topics: Sequence[int]) -> bytes:
    """A picture of a page: a pixel of grey for each topic."""
    stream = io.BytesIO()
    Image.fromarray(np.array([topics], np.uint8) * 16).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def benchmark(tables: Tables) -> None:  # noqa: F811
    """Folders of sets as published: v1 has two of the first version and one of the second, train
    one more of the first. A page is about three topics; a question names two of them."""
    rng = np.random.default_rng(0)
    for name in ("v1/b", "v1/a", "v1/c", "train/d"):
        about = rng.choice(list(permutations(range(16), 3)), 32, replace=False)
        images = [shown(topics) for topics in about]
        texts = [f"{topics[0]} {topics[2]}" for topics in about]
        ids = list(range(32))
        if name == "v1/c":
            corpus = {"corpus-id": ids, "image": images}
            queries = {"query-id": ids, "query": texts}
            qrels = {"query-id": ids, "corpus-id": ids, "score": [1 + i % 2 for i in ids]}
            tables(name, corpus=corpus, queries=queries, qrels=qrels)
        else:
            files = [f"{i}.png" for i in ids]
            tables(name, default={"query": texts, "image": images, "image_filename": files})


def test_the_whole_protocol_in_one_command(
    run: Run, benchmark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All methods on a folder of sets, fitted on another folder: the paper's tables, its rows and
    columns in its order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("glie.encoders.load_encoder", lambda name: SeenTopics())
    monkeypatch.setattr("glie.evaluation.experiment.CAPACITIES", ((16, 1), (16, 3)))
    asked = ("evaluate", "v1/", "--methods", "all", "--fit-on", "train/", "--k", "2,4")
    done = run(*asked, "--epochs", "1", "--more", "all", "--to", "results")
    assert done.code == 0, done.err
    assert "Fitted on d: the codec and the centroids of plaid." in done.err
    found = json.loads(Path("results/results.json").read_text())
    sets = [(one["name"], one["pages"], one["questions"]) for one in found["sets"]]
    assert sets == [("a", 32, 32), ("b", 32, 32), ("c", 32, 32)]
    parts = {name: [row[0] for row in table["rows"]] for name, table in found["tables"].items()}
    headers = {name: table["header"] for name, table in found["tables"].items()}
    assert list(parts) == [
        *("sets", "main", "percent", "ladder", "improved", "projected", "shortlist"),
        *("capacity", "data", "set-a", "set-b", "set-c", "costs", "geometry"),
    ]
    # no codebook is shipped for this encoder
    rows = [name for name in ORDER if name != "glie-bytes"]
    assert parts["main"] == rows
    assert headers["main"] == headers["set-a"]
    assert headers["main"] == ["method", "k = 2, 72 bytes", "k = 4, 144 bytes"]  # for budget rows
    ladder = ["raw-kmeans", "glie-free", "glie-stage1", "glie"]
    assert parts["ladder"] == ladder
    assert headers["ladder"] == ["part", "k = 2", "k = 4"]
    for name in "abc":
        listed = parts[f"set-{name}"][1:]  # below the bytes of a page
        assert [row for row in listed if not row.endswith(", kept")] == rows
    assert [row for row in parts["improved"] if "margin" not in row][:3] == ladder[1:]
    assert headers["capacity"] == ["width x depth", "params", "k = 4", "k = 16"]
    assert parts["capacity"] == ["16x1", "16x3"]
    assert headers["shortlist"] == ["L", "glie", "oracle"]
    assert parts["shortlist"] == ["5", "10", "20", "50", "100"]
    assert parts["data"] == ["100% of pages"]  # a part of them would be too few to fit on


def test_evaluate_in_domain(run: Run, documents: Path) -> None:
    folder = question_set(Path("small"))
    asked = ("evaluate", folder, "--k", "2", "--methods", "glie", "--fit-on", "own")
    done = run(*asked, "--epochs", "1")
    assert done.code == 0, done.err
    assert "each set is split by page" in done.err
    assert (
        "small-test-half: fitted on 12 pages and 12 questions, measured on 12 pages and 12 "
        "questions."
    ) in done.err
    assert "small-test-half: 12 pages, 12 questions" in done.out


def test_folders_of_sets_that_are_none(run: Run, documents: Path) -> None:
    question_set(Path("small"))
    Path("empty").mkdir()
    for given in (("empty",), ("small", "--fit-on", "empty")):
        done = run("evaluate", *given)
        assert (done.code, done.out) == (1, "")
        assert "empty: an empty folder; expected a set, or a folder of sets" in done.err


def test_evaluate_at_equal_bytes(run: Run, documents: Path) -> None:
    folder = question_set(Path("small"))
    methods = ("--methods", "glie-free,quantised,glie-bytes,glie-bytes-adapted")
    done = run("evaluate", folder, "--bytes-per-page", "520,1040", *methods)
    assert "glie-bytes-adapted: its codebook is fitted on the pages of each set" in done.err
    assert "520 bytes" in done.out
    assert "Projected: bytes of glie-bytes-adapted" in done.out
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
    code = 1 if message in ("nowhere/at/all", "a file is in the way") else 2  # files, options
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.count("\n") == 1


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
    assert "32 vectors equal to another of the same page, counted once" in notices
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
