"""The file behind a page: sent only as it was indexed, and never run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

import glie
from glie.documents.find import KINDS
from glie.documents.original import file_digest, page_address
from glie.server.guard import HEADERS
from glie.server.routes.original import SHOWN, TYPES
from tests.conftest import unit
from tests.documents.test_documents import picture
from tests.server.conftest import Client

A2 = "/pages/reports%2Fa.pdf%232/original"


def add(index_path: Path, *paths: Path, digest: str | None = None) -> list[str]:
    """A page of each file, whatever it is; their addresses."""
    index = glie.Index.open(index_path)
    ids = [f"added-{len(index)}-{number}" for number in range(len(paths))]
    index.add(
        glie.Pages([unit(np.ones((2, index.dim or 0)))] * len(ids), ids=ids),
        metadata=[
            {"document": path.name, "path": str(path), "page": 1}
            | {"digest": digest or file_digest(path)}
            for path in paths
        ],
    )
    return [f"/pages/{page_id}/original" for page_id in ids]


def test_a_pdf_is_shown(client: Client, made: Path) -> None:
    sent = client().get(A2)
    assert (sent.status_code, sent.headers["content-type"]) == (200, "application/pdf")
    assert sent.content == (made / "docs" / "reports" / "a.pdf").read_bytes()
    assert sent.headers["content-disposition"] == "inline; filename*=UTF-8''a.pdf"
    assert sent.headers["content-length"] == str(len(sent.content))
    for name in ("x-content-type-options", "cross-origin-resource-policy", "x-frame-options"):
        assert sent.headers[name] == HEADERS[name]
    policy = sent.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_nothing_that_is_active_is_shown(client: Client, index_path: Path, tmp_path: Path) -> None:
    """Every kind of document, each with a script in it."""
    paths = [tmp_path / f"naïve; name{suffix.upper()}" for suffix in sorted(KINDS)]
    for path in paths:
        path.write_bytes(b"<script>alert(document.cookie)</script>")
    addresses = add(index_path, *paths)
    ours = client()
    for path, address in zip(paths, addresses, strict=True):
        suffix, sent = path.suffix.lower(), ours.get(address)
        assert sent.status_code == 200
        assert sent.headers["content-type"] == TYPES[suffix]
        how, name = sent.headers["content-disposition"].split("; ")
        assert how == ("inline" if suffix in SHOWN else "attachment")
        assert name == f"filename*=UTF-8''na%C3%AFve%3B%20name{path.suffix}"
        safe = TYPES[suffix].startswith(("image/", "text/plain", "application/pdf"))
        assert safe or how == "attachment"
        assert ("sandbox" in sent.headers["content-security-policy"]) == (suffix != ".pdf")
        assert sent.headers["x-content-type-options"] == "nosniff"


def test_only_the_file_that_was_indexed(client: Client, index_path: Path, tmp_path: Path) -> None:
    secret, key, pipe = (tmp_path / name for name in ("secret.txt", "id_rsa", "pipe.txt"))
    secret.write_text("the secret")
    key.write_text("the key")  # no kind of document, though an index names it
    if hasattr(os, "mkfifo"):
        os.mkfifo(pipe)
    wrong, waits = add(index_path, secret, pipe, digest="0" * 16)
    right, other = add(index_path, secret, key)
    ours = client()
    assert ours.get(wrong).json() == {
        "error": "secret.txt has changed since it was indexed; index it again"
    }
    assert ours.get(waits).status_code == 404
    assert ours.get(other).status_code == 404
    assert ours.get(right).text == "the secret"
    at = secret.stat().st_mtime_ns
    secret.write_text("the secreT")
    os.utime(secret, ns=(at, at))  # neither its size nor its time tells
    assert ours.get(right).status_code == 404
    secret.unlink()
    assert ours.get(right).json() == {"error": "its file is gone: secret.txt"}
    assert ours.get("/pages/none/original").status_code == 404
    assert ours.get("/pages/..%2F..%2Fetc%2Fpasswd/original").status_code == 404


def test_a_token_is_needed(client: Client) -> None:
    ours = client(token="correct-horse")
    assert ours.get(A2).status_code == 401
    assert ours.get(A2, headers={"authorization": "Bearer correct-horse"}).status_code == 200


def test_an_uploaded_file_is_found_where_the_index_is_now(
    client: Client, index_path: Path, tmp_path: Path
) -> None:
    client().post("/documents", files=[("files", ("otters.txt", b"Otters hold hands"))])
    moved = index_path.rename(tmp_path / "moved.glie")
    from glie.server.app import create_app

    ours = TestClient(create_app(moved), "http://127.0.0.1")
    sent = ours.get("/pages/otters.txt%231/original")
    assert (sent.status_code, sent.content) == (200, b"Otters hold hands")
    assert sent.headers["content-type"] == "text/plain; charset=utf-8"


def test_the_address_of_a_page() -> None:
    assert page_address("/a b/c.PDF", 3) == "file:///a%20b/c.PDF#page=3"
    assert page_address("/a/c.docx", 3) == "file:///a/c.docx"
    assert page_address("/a/c.pdf", None) == "file:///a/c.pdf"


def test_words_have_places(client: Client) -> None:
    found = client().get("/pages/reports%2Fa.pdf%231/words").json()
    assert [word["text"] for word in found["words"][:2]] == ["Capital", "expenditure"]
    for word in found["words"]:
        left, top, right, bottom = word["box"]
        assert 0 <= left < right <= 1
        assert 0 <= top < bottom <= 1
    assert client().get("/pages/notes.md%231/words").json()["words"] == []
    assert client().get("/pages/none/words").status_code == 404


def test_a_passage_by_words_or_by_meaning(client: Client) -> None:
    ours = client()
    at = "/pages/notes.md%231/snippet"
    found = ours.get(at, params={"query": "October"}).json()
    assert (found["by"], len(found["marks"])) == ("words", 1)
    found = ours.get(at, params={"query": "lifting vessel"}).json()
    assert (found["by"], found["marks"]) == ("meaning", [])
    assert "crane barge" in found["snippet"]
    assert ours.get(at, params={"query": " "}).status_code == 422


def test_a_scan_shows_its_text(client: Client, tmp_path: Path) -> None:
    picture("Walrus tusks grow for life").save(tmp_path / "scan.png")
    ours = client()
    data = (tmp_path / "scan.png").read_bytes()
    sent = ours.post("/documents", files=[("files", ("scan.png", data))])
    assert sent.json()["documents"] == ["scan.png"]
    hit = ours.post("/search", json={"query": "walrus", "top": 1}).json()["hits"][0]
    assert (hit["id"], hit["snippet"], hit["note"]) == (
        *("scan.png#1", ""),
        "a scanned page, read by OCR",
    )
    found = ours.get("/pages/scan.png%231/snippet", params={"query": "walrus"}).json()
    assert "Walrus tusks" in found["snippet"]
    assert found["marks"] == [[0, 6]]
    words = ours.get("/pages/scan.png%231/words").json()["words"]
    assert [word["text"] for word in words][:2] == ["Walrus", "tusks"]
    # it is cached from now on
    hit = ours.post("/search", json={"query": "walrus", "top": 1}).json()["hits"][0]
    assert "Walrus tusks" in hit["snippet"]


def test_what_a_score_is_made_of(client: Client) -> None:
    ours = client()
    question = "turbines expenditure in 2018"
    answer = ours.post("/search", json={"query": question, "top": 1}).json()
    hit = answer["hits"][0]
    assert (answer["mode"], answer["reranked"], answer["weak"]) == ("hybrid", True, False)
    at = f"/pages/{hit['id'].replace('/', '%2F').replace('#', '%23')}/heatmap"
    words = ours.get(at, params={"query": question, "vectors": "index"}).json()["words"]
    # words: their share of what a page full of them would score counts two thirds
    assert sum(word["by_words"] for word in words) * 2 / 3 == pytest.approx(hit["words"], rel=1e-4)
    late = ours.post("/search", json={"query": question, "top": 1, "mode": "late"}).json()
    assert (late["mode"], late["hits"][0]["id"]) == ("late", hit["id"])
    assert sum(word["score"] for word in words) == pytest.approx(late["hits"][0]["score"], rel=1e-3)
    found = ours.post("/search", json={"query": question, "mode": "lexical"}).json()
    assert (found["mode"], found["reranked"]) == ("lexical", False)


def test_what_is_stored_explains_a_page_whose_file_is_gone(
    client: Client, index_path: Path, tmp_path: Path
) -> None:
    index = glie.Index.open(index_path)
    index.add(glie.Pages([unit(np.eye(2, index.dim or 0))], ids=["bare"]))
    ours = client()
    found = ours.get("/pages/bare/heatmap", params={"query": "budget", "vectors": "index"}).json()
    assert (found["kind"], found["reason"]) == (
        "none",
        "the index names no document for this page",
    )
    assert [word["text"] for word in found["words"]] == ["budget"]
    assert found["words"][0]["warm"] == []
