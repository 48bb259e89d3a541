"""What becomes of bad numbers and odd ids: the table of docs/reliability.md, row by row."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import glie
from tests.cli.conftest import Run, run  # noqa: F401 (a fixture)
from tests.conftest import make_arrays, unit

DOCUMENT = Path(__file__).parent.parent / "docs" / "reliability.md"
DIM = 16
COMMAND = [sys.executable, "-c", "from glie.cli import main; main()"]


def with_row(value: Any) -> Any:
    array = make_arrays(1, low=8)[0].copy()
    array[5] = value
    return array


class Row(NamedTuple):
    """A page's vectors, and how they are refused; `normalize` where that does not help."""

    array: Callable[[], Any]
    says: str
    normalized: str | None = None  # what is said with normalize=True; None: they are taken


ROWS = {
    "NaN": Row(lambda: with_row(np.nan), "row 5: not finite", "row 5: not finite"),
    "infinity": Row(lambda: with_row(-np.inf), "row 5: not finite", "row 5: not finite"),
    "a number too large for float32": Row(
        lambda: with_row(1).astype(np.float64) * 1e300, "not finite", "not finite"
    ),
    "a zero vector": Row(lambda: with_row(0), "row 5: norm 0", "row 5: a zero vector"),
    "a vector off the sphere": Row(lambda: with_row(0.5), "row 5: norm 2, expected 1 within 1%"),
    "no vectors": Row(lambda: np.zeros((0, DIM)), "no vectors", "no vectors"),
    "vectors of no numbers": Row(lambda: np.zeros((3, 0)), "no vectors", "no vectors"),
    "one vector, not a list of them": Row(
        lambda: with_row(1)[0], "expected an (n, D) array", "expected an (n, D) array"
    ),
    "complex numbers": Row(
        lambda: with_row(1).astype(complex), "expected numbers, found complex128", "found complex"
    ),
    "booleans": Row(lambda: with_row(1) > 0, "expected numbers, found bool", "found bool"),
    "text": Row(lambda: [["a", "b"]], "expected numbers, found", "expected numbers, found"),
    "objects": Row(
        lambda: np.array([[None] * DIM]), "expected numbers, found object", "found object"
    ),
    "rows of several lengths": Row(
        lambda: [[1.0], [0.6, 0.8]], "cannot be read as an array", "cannot be read as an array"
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_pages(index: glie.Index, name: str) -> None:
    """Refused before anything is stored; the page and the row are named."""
    row, generation = ROWS[name], index.info().generation
    good = make_arrays(1)[0]
    with pytest.raises(glie.VectorError, match=rf"page 'bad'.*{re.escape(row.says)}"):
        index.add(glie.Pages([good, row.array()], ids=["good", "bad"]))
    if row.normalized is None:
        index.add(glie.Pages([row.array()], ids=["bad"], normalize=True))
        assert "bad" in index
    else:
        with pytest.raises(glie.VectorError, match=re.escape(row.normalized)):
            index.add(glie.Pages([good, row.array()], ids=["good", "bad"], normalize=True))
        assert index.info().generation == generation
    assert "good" not in index


@pytest.mark.parametrize("name", ROWS)
def test_queries(index: glie.Index, name: str) -> None:
    row = ROWS[name]
    with pytest.raises(glie.VectorError, match=rf"query '0'.*{re.escape(row.says)}"):
        index.search([row.array()])
    if row.normalized is None:
        assert len(index.search([row.array()], normalize=True)[0]) == 10
    else:
        with pytest.raises(glie.VectorError, match=re.escape(row.normalized)):
            index.search([row.array()], normalize=True)


def test_types_that_are_taken() -> None:
    """Whole numbers too, if they are on the sphere; and what numpy has no name for."""
    expected = glie.Pages([np.eye(4)]).vectors
    for kind in (np.int8, np.uint64, np.float16, np.longdouble, ">f4"):
        np.testing.assert_array_equal(glie.Pages([np.eye(4).astype(kind)]).vectors, expected)


def test_another_dimension(index: glie.Index) -> None:
    with pytest.raises(glie.VectorError, match="have 8 numbers, those of the index have 16"):
        index.add(glie.Pages(make_arrays(1, dim=8), ids=["x"]))
    with pytest.raises(glie.VectorError, match="queries: their vectors have 8 numbers"):
        index.search(make_arrays(1, dim=8))
    assert len(index) == 30


def test_as_many_vectors_as_a_code_can_count(tmp_path: Path) -> None:
    """65,535 are taken, 100,000 refused before any work is done."""
    array = np.tile(unit(np.eye(4)), (25_000, 1))
    index = glie.Index.create(tmp_path / "a", glie.Codec(k=2))
    with pytest.raises(
        glie.VectorError, match=r"page 'long': 100000 vectors, at most 65535 .*split the page"
    ):
        index.add(glie.Pages([array], ids=["long"]))
    assert len(index) == 0
    index.add(glie.Pages([array[:65_535]], ids=["longest"]))
    assert index.info().vectors == 65_535
    assert index.search([array[:70_000]], top=1)[0].ids == ["longest"]  # a question may be longer


ODD_IDS = [
    *("a\nb", "\x00", " ", "\t", "é", "e\u0301", "日本語.pdf#12", "🦉", "\u202eabc", "\ufeff"),
    *('"quoted"', "back\\slash", "../../up", "[red]", "x" * 10_000, "\U0010ffff", "\uffff"),
]


def test_ids_of_any_unicode(tmp_path: Path) -> None:
    """Kept as they are, told apart letter by letter: no normalisation, no trimming."""
    index = glie.Index.create(tmp_path / "a", glie.Codec(k=2))
    index.add(glie.Pages(make_arrays(len(ODD_IDS)), ids=ODD_IDS))
    index = glie.Index.open(index.path)
    assert index.ids == ODD_IDS
    assert sorted(index.search(make_arrays(1), top=99)[0].ids) == sorted(ODD_IDS)
    for name in ODD_IDS:
        assert index.search(make_arrays(1), ids=[name])[0].ids == [name]
        index.delete([name])
        assert name not in index
    index.verify()


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["a", "a"], "'a' is given twice"),
        (["", "b"], "expected a non-empty string, found ''"),
        (["\ud800", "b"], "not valid Unicode (a lone surrogate)"),
        (["b", "x\udfff"], "not valid Unicode (a lone surrogate)"),
        (["b", b"c"], "expected a non-empty string, found b'c'"),
        (["b", None], "expected a non-empty string, found None"),
        (["b", "x" * 10_001], "10,001 characters"),
        (["b"], "found 1 ids for 2 page arrays"),
    ],
)
def test_ids_that_are_refused(index: glie.Index, ids: Any, says: str) -> None:
    with pytest.raises(glie.IdError, match=re.escape(says)) as caught:
        index.add(glie.Pages(make_arrays(2), ids=ids))
    assert len(str(caught.value)) < 300
    assert len(index) == 30


def test_an_id_that_is_there_already(index: glie.Index) -> None:
    with pytest.raises(glie.IdError, match=r"'a\.pdf#1' is already in the index; delete it first"):
        index.add(glie.Pages(make_arrays(2), ids=["new", "a.pdf#1"]))
    assert "new" not in index
    for act in (index.delete, lambda ids: index.search(make_arrays(1), ids=ids)):
        with pytest.raises(glie.IdError, match="'nowhere' is not in the index"):
            act(["nowhere"])


MEASURED = ("a zero vector", "a vector off the sphere")  # by `glie geometry`: norms are its matter


@pytest.mark.parametrize("name", ROWS)
def test_on_the_command_line(run: Run, tmp_path: Path, name: str) -> None:  # noqa: F811
    """One line that names the file and the page, and exit code 1."""
    path, ragged = tmp_path / "pages.npz", name == "rows of several lengths"
    bad = np.array(ROWS[name].array(), dtype=object if ragged else None)
    np.savez(path, fine=make_arrays(1, low=30)[0], bad=bad)
    for verb in ("plan", "geometry"):
        done = run(verb, path, "--json")
        if verb == "geometry" and name in MEASURED:
            assert done.code == 0
            continue
        assert (done.code, done.out) == (1, "")
        (line,) = done.err.strip().split("\n")
        assert str(path) in line
        assert "bad" in line
    codec = tmp_path / "codec"
    for asked in (("fit", path, "--to", codec), ("evaluate", path)):  # which take sets
        done = run(*asked)
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert f"{path}: no such folder; expected one with corpus.jsonl" in done.err
    assert not codec.exists()


def test_long_and_unequal_pages_on_the_command_line(
    run: Run,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = tmp_path / "pages.npz"
    np.savez(path, fine=np.eye(4), bad=np.tile(np.eye(4), (25_000, 1)))
    for verb in ("plan", "geometry"):
        done = run(verb, path)
        says = f"glie: {path}, key 'bad': 100000 vectors, at most 65535 fit a code; split the page"
        assert (done.code, done.err) == (1, says + "\n")
    np.savez(path, fine=np.eye(4), bad=np.eye(3))
    done = run("plan", path)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "page 'bad': its vectors have 3 numbers, those of page 'fine' have 4" in done.err


def test_names_and_questions_on_the_command_line(
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty name is no folder: not all is deleted that lies below this one."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("Otters hold hands")
    Path("b.txt").write_bytes(b"\x00\x01")
    done = run("index", ".", "--to", "a.glie", "--json")
    assert done.json["problems"] == ["b.txt, page 1: no token is left of '\\x00\\x01\\n\\n'"]
    for asked in (
        *(("delete", "a.glie", name) for name in ("", "nope", "a\nb", "\udcff")),
        *(("search", "a.glie", question) for question in ("", " ", "\x00", "a\udcffb")),
    ):
        done = run(*asked)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), asked
    for name in ("--top", "--shortlist"):
        done = run("search", "a.glie", "otters", name, "-1")
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert name in done.err
    for value in ("nan", "inf", "1e308", "x"):
        done = run("search", "a.glie", "otters", "--top", value)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "--top: expected" in done.err
    assert glie.Index.open("a.glie").ids == ["a.txt#1"]


def test_odd_ids_on_the_command_line(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "a.glie", glie.Codec(k=2))
    names = [name for name in ODD_IDS if "\x00" not in name]  # no argument can hold that
    index.add(glie.Pages(make_arrays(len(names)), ids=names))
    done = subprocess.run(
        [*COMMAND, "delete", str(index.path), "--json", "--", *names[:-1]],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"deleted": len(names) - 1, "pages": 1}


def test_the_document_tells_of_every_row() -> None:
    text = DOCUMENT.read_text()
    for name in ROWS:
        assert f"| {name} |" in text, name
