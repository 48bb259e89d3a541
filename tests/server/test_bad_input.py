"""What becomes of bad input to the server: its table in docs/reliability.md, row by row."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

import glie
from glie.documents import opened as pdfs
from glie.server.app import create_app
from tests.conftest import Floats, make_arrays
from tests.documents.test_documents import WORDS, make_pdf, picture, raw_pdf
from tests.server.conftest import Client
from tests.server.test_api import error_of
from tests.test_bad_numbers import DIM, DOCUMENT, ODD_IDS
from tests.test_bad_numbers import ROWS as VECTORS

JSON = {"content-type": "application/json"}
TOLD: list[str] = []  # the rows that a test below holds
Test = TypeVar("Test", bound=Callable[..., None])


def told(row: str) -> Callable[[Test], Test]:
    """The row of the document that a test is of."""
    TOLD.append(row)
    return lambda test: test


@contextlib.contextmanager
def unchanged(index_path: Path) -> Iterator[None]:
    """Nothing is stored meanwhile."""

    def state() -> tuple[Any, ...]:
        index, documents = glie.Index.open(index_path), index_path / "documents"
        files = sorted(documents.iterdir()) if documents.exists() else []
        return index.generation, index.ids, files

    before = state()
    yield
    assert state() == before


def ask(ours: TestClient, body: str | bytes) -> Any:
    return ours.post("/search", content=body, headers=JSON)


def upload(ours: TestClient, *files: tuple[str, bytes]) -> Any:
    return ours.post("/documents", files=[("files", file) for file in files])


@pytest.fixture
def vectors_index(tmp_path: Path) -> glie.Index:
    index = glie.Index.create(tmp_path / "v.glie", glie.Codec(k=4))
    index.add(glie.Pages(make_arrays(len(ODD_IDS)), ids=ODD_IDS))
    return index


@pytest.fixture
def by_vectors(vectors_index: glie.Index) -> Iterator[TestClient]:
    """A server of an index of vectors alone, whose ids are odd."""
    app = create_app(vectors_index.path)
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as ours:
        yield ours


NUMBERS = ["NaN", "Infinity", "-Infinity", "-1", "1e308", "1e999", "9" * 30, "1.5", '"10"', "true"]


@told("`top` or `shortlist`: NaN, infinite, negative, huge, with a fraction, text, a boolean")
def test_numbers(client: Client) -> None:
    ours = client()
    for name in ("top", "shortlist"):
        for value in (*NUMBERS, "[]", "{}"):
            refused = ask(ours, f'{{"query": "holiday", "{name}": {value}}}')
            assert refused.status_code == 422, (name, value)
            assert error_of(refused).startswith(f"{name}: "), value
        assert ask(ours, f'{{"query": "holiday", "{name}": 10}}').status_code == 200
    for name in ("exact", "normalize"):
        refused = ask(ours, f'{{"query": "holiday", "{name}": "yes"}}')
        assert error_of(refused).startswith(f"{name}: ")


@told("a body that is not JSON, is nested without end, or has a number of thousands of digits")
def test_bodies(client: Client) -> None:
    ours = client()
    deep = '{"query": ' + "[" * 100_000 + "]" * 100_000 + "}"
    long = '{"query": "a", "top": ' + "1" * 5000 + "}"
    for body in ("", "{", "[1]", "NaN", deep, long, '{"query": 1}', b'{"query": "\xff"}'):
        refused = ask(ours, body)
        assert refused.status_code in (400, 422), body[:40]
        error_of(refused)


@told("a query that is empty, or white space")
def test_empty_questions(client: Client) -> None:
    ours = client()
    for question in ("", " \t\r\n", "\u00a0\u3000\u2028"):
        for refused in (
            ours.post("/search", json={"query": question}),
            ours.get("/pages/b.pdf%231/heatmap", params={"query": question}),
        ):
            assert refused.status_code == 422
            assert error_of(refused) == "query: the question is empty"


@told("a query of which no token is left: NUL, invisible marks")
def test_questions_without_a_token(client: Client) -> None:
    ours = client()
    for question in ("\x00", "\u200b", "\u202e\u202c", "\x01\x7f"):
        refused = ours.post("/search", json={"query": question})
        assert refused.status_code == 422
        assert "query 0: no token is left of" in error_of(refused)
        heat = ours.get("/pages/b.pdf%231/heatmap", params={"query": question})
        assert (heat.status_code, heat.json()["kind"]) == (200, "none")
        assert "no token is left" in heat.json()["reason"]
    assert ours.post("/search", json={"query": "holi\x00day"}).status_code == 200


@told("a query with a lone surrogate")
def test_surrogates(client: Client, tmp_path: Path) -> None:
    ours = client()
    empty = glie.Index.create(tmp_path / "e.glie", glie.Codec(k=2), encoder={"name": "minilm"})
    hollow = TestClient(create_app(empty.path), "http://127.0.0.1", raise_server_exceptions=False)
    for body in ('{"query": "\\ud800"}', '{"query": "a\\udfffb"}', b'{"query": "\xed\xa0\x80"}'):
        for asked in (ours, hollow):  # of an empty index, nothing is encoded
            refused = ask(asked, body)
            assert refused.status_code == 422
            assert error_of(refused) == "query: not valid Unicode (a lone surrogate)"
    hollow.close()


@told("a query of more than 2,000 characters; a body of more than 4 MiB")
def test_long_questions(client: Client) -> None:
    ours = client()
    refused = ours.post("/search", json={"query": "a" * 1_000_000})
    assert refused.status_code == 422
    assert "1,000,000 characters, expected at most 2,000" in error_of(refused)
    refused = ours.post("/search", json={"query": "a" * 5_000_000})
    assert refused.status_code == 413
    assert ours.post("/search", json={"query": "🦉" * 2000}).status_code == 200


@told("`vectors`: every line of the first table that JSON can hold")
@pytest.mark.parametrize("name", [name for name in VECTORS if name != "complex numbers"])
def test_vectors(by_vectors: TestClient, vectors_index: glie.Index, name: str) -> None:
    row = VECTORS[name]
    array = row.array()
    rows = json.dumps(array if isinstance(array, list) else array.tolist())
    with unchanged(vectors_index.path):
        refused = ask(by_vectors, f'{{"vectors": {rows}}}')
        assert refused.status_code == 422
        assert error_of(refused).startswith("vectors")
        projected = ask(by_vectors, f'{{"normalize": true, "vectors": {rows}}}')
        assert projected.status_code == (200 if row.normalized is None else 422)


@told("`vectors` of another dimension; more than 2,048 of them")
def test_other_vectors(by_vectors: TestClient, vectors_index: glie.Index) -> None:
    refused = by_vectors.post("/search", json={"vectors": np.eye(3).tolist()})
    assert refused.status_code == 422
    assert error_of(refused) == f"vectors: rows of 3 numbers, expected {DIM}"  # and no path
    rows = np.tile(np.eye(DIM), (129, 1)).tolist()
    refused = by_vectors.post("/search", json={"vectors": rows})
    assert refused.status_code == 422
    assert error_of(refused) == "vectors: found 2,064, expected at most 2,048"
    assert by_vectors.post("/search", json={"vectors": rows[:2048]}).status_code == 200


STRANGERS = [
    *("nope", "a/b/c", "../../etc/passwd", "%2e%2e", "100%", "%zz", "a\nb", "a\r\nX: y", "\x00"),
    *("\u202eabc", "e\u0301", "#", "?", " ", "/", "//", "image", "x" * 20_000),
]


@told("an id or a document that does not exist: with slashes, `..`, percent signs, newlines, NUL …")
@pytest.mark.parametrize("name", STRANGERS)
def test_strangers(client: Client, index_path: Path, name: str) -> None:
    ours, at = client(), quote(name, safe="")
    with unchanged(index_path):
        for refused in (
            ours.get(f"/pages/{at}"),
            ours.get(f"/pages/{at}/image"),
            ours.get(f"/pages/{at}/heatmap?query=a"),
            ours.get(f"/pages/{at}/geometry"),
            ours.get(f"/documents/{at}"),
            ours.delete(f"/documents/{at}"),
            ours.post("/search", json={"query": "a", "documents": ["b.pdf", name]}),
        ):
            assert refused.status_code == 404
            assert "is not in the index" in error_of(refused)
    for body in ('["b.pdf", "\\ud800"]', '[""]'):
        refused = ask(ours, f'{{"query": "a", "documents": {body}}}')
        assert refused.status_code == 404
    assert ask(ours, '{"query": "a", "documents": "b.pdf"}').status_code == 422
    halves = ours.get("/pages/%ED%A0%80%FF")  # what is no UTF-8
    assert (halves.status_code, "is not in the index" in error_of(halves)) == (404, True)


@told("an existing id of any Unicode, percent-encoded")
def test_odd_ids_are_found(by_vectors: TestClient) -> None:
    for name in ODD_IDS:
        found = by_vectors.get(f"/pages/{quote(name, safe='')}")
        assert (found.status_code, found.json()["id"]) == (200, name)
    asked = {"vectors": make_arrays(1)[0][:3].tolist(), "top": 50}
    hits = by_vectors.post("/search", json=asked).json()["hits"]
    assert sorted(hit["id"] for hit in hits) == sorted(ODD_IDS)


def refused_files(tmp_path: Path) -> dict[str, tuple[str, bytes, str]]:
    """The files that are not taken: name, content, and what is said."""
    pdf = make_pdf(tmp_path / "a.pdf", ["Otters"]).read_bytes()
    locked = make_pdf(tmp_path / "locked.pdf", ["secret"], encrypt="password").read_bytes()
    picture("x").save(tmp_path / "a.png")
    png = (tmp_path / "a.png").read_bytes()
    kind = "not a kind of document that can be read"
    return {
        "empty text": ("a.txt", b"", "a.txt: the file is empty"),
        "empty PDF": ("../../x.pdf", b"", "x.pdf: the file is empty"),
        "white space": ("a.md", b" \n\x0c\xc2\xa0", "a.md: the file holds only white space"),
        "locked": ("locked.pdf", locked, "locked.pdf: encrypted; save a copy without a password"),
        "PDF as picture": ("a.png", pdf, "a.png: damaged, or not an image"),
        "picture as PDF": ("a.pdf", png, "a.pdf: not a PDF"),
        "PDF as text": ("a.txt", pdf, "a.txt: not UTF-8 text"),
        "cut": ("a.pdf", pdf[:200], "a.pdf: damaged"),
        "program": ("a.exe", b"MZ", f"a.exe: {kind}"),
        "no suffix": ("a", b"text", f"a: {kind}"),
        "no stem": (".pdf", pdf, f"pdf: {kind}"),
        "dots": ("..", b"text", f"a file without a name: {kind}"),
        "no token": ("a.txt", b"\x00\x01\x02", "a.txt, page 1: no token is left of"),
        "not seen": ("a.txt", "\u200b\u200b".encode(), "a.txt, page 1: no token is left of"),
    }


@told("an empty file; an encrypted or damaged one; one that is not what its name says")
@told("a text of which no token is left")
@told("several files, of which some can be read")
def test_refused_files(client: Client, index_path: Path, tmp_path: Path) -> None:
    ours, files = client(), refused_files(tmp_path)
    with unchanged(index_path):
        for what, (name, data, says) in files.items():
            refused = upload(ours, (name, data))
            assert refused.status_code == 422, what
            assert error_of(refused).startswith(says), what
    added = upload(
        ours, ("good.txt", b"Otters hold hands"), *((n, d) for n, d, _ in files.values())
    )
    assert added.status_code == 201
    assert (added.json()["documents"], added.json()["pages"]) == (["good.txt"], 1)
    assert len(added.json()["problems"]) == len(files)
    assert [path.name for path in (index_path / "documents").iterdir()] == ["good.txt"]
    assert glie.Index.open(index_path).verify().whole


@told("a page bomb; a picture with more pixels than any page has")
def test_bombs(
    client: Client, index_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = client()
    monkeypatch.setattr(pdfs, "SECONDS", 1)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    fan = b"/X Do " * 10
    bomb = raw_pdf(tmp_path / "bomb.pdf", WORDS + fan, *[fan] * 8, WORDS).read_bytes()
    picture("x").save(tmp_path / "a.png")
    with unchanged(index_path):
        refused = upload(ours, ("bomb.pdf", bomb))
        assert refused.status_code == 422
        assert "bomb.pdf, page 1: cannot be read: it takes more memory or time" in error_of(refused)
        refused = upload(ours, ("bomb.png", (tmp_path / "a.png").read_bytes()))
        assert refused.status_code == 422
        assert error_of(refused) == "bomb.png: more pixels than any page has; refused"
    assert ours.post("/search", json={"query": "holiday"}).status_code == 200


class Wordy:
    """Gives a vector a character, so that a page may have more than a code can count."""

    name, revision = "wordy", "1"

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        return [np.eye(4, dtype=np.float32)[np.arange(len(page.text)) % 4] for page in pages]

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        return [np.eye(4, dtype=np.float32) for _ in texts]


@told("a page of more than 65,535 vectors")
def test_a_page_of_too_many_vectors(tmp_path: Path) -> None:
    entry = {"name": "wordy", "revision": "1"}
    index = glie.Index.create(tmp_path / "w.glie", glie.Codec(k=2), encoder=entry)
    app = create_app(index.path, encoder=Wordy())
    line = b"(" + b"word " * 200 + b") Tj 0 -1 Td "
    content = b"BT /F 0.1 Tf 50 700 Td " + line * 80 + b" ET"
    long = raw_pdf(tmp_path / "long.pdf", content).read_bytes()
    says = r"long\.pdf, page 1: \d+ vectors, at most 65535 fit a code; split the page"
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as ours:
        with unchanged(index.path):
            refused = upload(ours, ("long.pdf", long))
            assert refused.status_code == 422
            assert re.fullmatch(says, error_of(refused))
        added = upload(ours, ("long.pdf", long), ("short.txt", b"a short text"))
        assert added.json()["documents"] == ["short.txt"]
        assert re.fullmatch(says, added.json()["problems"][0])
    assert glie.Index.open(index.path).ids == ["short.txt#1"]


@told("a file name with `..`, slashes, NUL, or any Unicode")
def test_file_names(client: Client, index_path: Path) -> None:
    ours = client()

    def outside() -> set[Path]:
        return {path for path in index_path.parent.rglob("*") if index_path not in path.parents}

    before = outside()
    for number, (name, kept) in enumerate(
        (("../../x.txt", "x.txt"), ("..\\y.txt", "y.txt"), ("日本語\u202e.txt", "日本語_.txt"))
    ):
        added = upload(ours, (name, b"text number %d" % number))
        assert (added.status_code, added.json()["documents"]) == (201, [kept])
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="'
    for raw in (b"n\x00l.txt", b"\xff\xfe.txt", b"\xed\xa0\x80.txt", b"a\nb.txt"):
        body = head + raw + b'"\r\n\r\nother text\r\n--x--\r\n'
        sent = {"content-type": "multipart/form-data; boundary=x"}
        added = ours.post("/documents", content=body, headers=sent)
        assert added.status_code == 201, raw
        (kept,) = added.json()["documents"]
        assert (index_path / "documents" / kept).is_file()
        assert ours.delete(f"/documents/{quote(kept, safe='')}").json()["deleted"] == 1
    assert outside() == before


@told("a file that was uploaded before")
def test_duplicates(client: Client, index_path: Path) -> None:
    ours = client()
    same = ("a.txt", b"Otters hold hands")
    assert upload(ours, same, same).json() == {
        "documents": ["a.txt"], "pages": 1, "unchanged": [], "problems": []
    }  # fmt: skip
    with unchanged(index_path):
        again = upload(ours, same)
        assert (again.status_code, again.json()["unchanged"]) == (201, ["a.txt"])
    other = upload(ours, ("a.txt", b"Seals do not"))
    assert other.json()["documents"] == ["a (2).txt"]


@told("an upload without files, or that is not a form")
def test_no_files(client: Client, index_path: Path) -> None:
    ours, form = client(), "multipart/form-data; boundary=x"
    field = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\nhello\r\n--x--\r\n'
    with unchanged(index_path):
        for body, kind, status in (
            (b"", form, 422),
            (b"{}", "application/json", 422),
            (field % b"files", form, 422),
            (field % b"other", form, 422),
            (field[:40], form, 422),
            (b"\xff\x00garbage", form, 400),
            (b"", "multipart/form-data", 400),
            (field[:-7].replace(b"%s", b"f") * 1100 + b"--x--\r\n", form, 400),
        ):
            refused = ours.post("/documents", content=body, headers={"content-type": kind})
            assert refused.status_code == status, (body[:40], kind)
            error_of(refused)


def test_the_document_tells_of_every_row() -> None:
    """And every row that it tells has a test."""
    table = DOCUMENT.read_text().partition("### Through the server")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0][2:] for line in table.splitlines() if line.startswith("| ")]
    assert rows[2:] == TOLD
