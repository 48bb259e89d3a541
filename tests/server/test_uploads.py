"""Documents that come and go while the index is served."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glie
from glie.encoders import Encoder, load_encoder
from glie.server.limits import Limits
from glie.server.names import MOST_BYTES, numbered, safe_name
from tests.documents.test_documents import make_pdf
from tests.encoders.test_encoders import Network
from tests.server.conftest import Client
from tests.server.test_api import error_of

Files = list[tuple[str, tuple[str, bytes]]]


def text_file(name: str, text: str = "The lighthouse keeper sleeps") -> Files:
    return [("files", (name, text.encode()))]


def test_an_upload_is_found_at_once(client: Client, index_path: Path, tmp_path: Path) -> None:
    ours = client()
    pdf = make_pdf(tmp_path / "new.pdf", ["Otters hold hands", "when they sleep"]).read_bytes()
    added = ours.post("/documents", files=[("files", ("new.pdf", pdf))])
    assert added.status_code == 201
    assert added.json() == {
        "documents": ["new.pdf"], "pages": 2, "unchanged": [], "problems": []
    }  # fmt: skip
    best = ours.post("/search", json={"query": "otters"}).json()["hits"][0]
    assert (best["id"], best["snippet"]) == ("new.pdf#1", "Otters hold hands")
    assert (index_path / "documents" / "new.pdf").read_bytes() == pdf
    listed = {one["name"]: one["uploaded"] for one in ours.get("/documents").json()["documents"]}
    assert (listed["new.pdf"], listed["b.pdf"]) == (True, False)
    info = ours.get("/info").json()
    assert info["pages"] == 7
    assert info["document_bytes"] == len(pdf)
    assert info["bytes_per_page"] < 700  # the documents are not counted
    again = ours.post("/documents", files=[("files", ("new.pdf", pdf))]).json()
    assert (again["documents"], again["unchanged"], again["pages"]) == ([], ["new.pdf"], 0)
    assert "glie_pages_added_total 2.0" in ours.get("/metrics").text


def test_progress_is_told_line_by_line(client: Client) -> None:
    ours = client()
    asked = {"accept": "application/x-ndjson"}
    answer = ours.post("/documents", files=text_file("a.txt"), headers=asked)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert {event["event"] for event in events[:-1]} == {"progress"}
    assert events[-2] == {"event": "progress", "document": "a.txt", "done": 1, "pages": 1}
    assert (events[-1]["event"], events[-1]["documents"]) == ("done", ["a.txt"])
    answer = ours.post("/documents", files=text_file("a.txt", " "), headers=asked)
    assert [json.loads(line) for line in answer.text.splitlines()] == [
        {"event": "error", "error": "a.txt: the file holds only white space", "status": 422}
    ]


def test_what_cannot_be_read_is_told_and_leaves_nothing(client: Client, index_path: Path) -> None:
    ours = client()
    for name, data, said in (
        ("broken.pdf", b"%PDF-1.4 nonsense", "broken.pdf: damaged"),
        ("empty.pdf", b"", "empty.pdf: the file is empty"),
        ("x.exe", b"MZ", "x.exe: not a kind of document that can be read"),
        ("", b"text", "files.0: value error, Expected UploadFile"),
        ("bad.png", b"\x89PNG\r\n", "bad.png: damaged, or not an image"),
        ("latin.txt", b"caf\xe9", "latin.txt: not UTF-8 text"),
    ):
        refused = ours.post("/documents", files=[("files", (name, data))])
        assert refused.status_code == 422, name
        assert said in error_of(refused)
    assert list((index_path / "documents").iterdir()) == []
    assert ours.get("/info").json()["pages"] == 5
    # of several, those that can be read are added
    both = [("files", ("broken.pdf", b"%PDF-1.4 nonsense")), *text_file("good.txt")]
    added = ours.post("/documents", files=both).json()
    assert added["documents"] == ["good.txt"]
    assert "broken.pdf: damaged" in added["problems"][0]
    assert [path.name for path in (index_path / "documents").iterdir()] == ["good.txt"]


def test_an_upload_has_so_many_pages(client: Client, index_path: Path, tmp_path: Path) -> None:
    ours = client(limits=Limits(upload_pages=2))
    pdf = make_pdf(tmp_path / "three.pdf", ["one page", "two pages", "three pages"]).read_bytes()
    refused = ours.post("/documents", files=[("files", ("three.pdf", pdf))])
    assert refused.status_code == 422
    assert "3 pages, which makes more than the 2" in error_of(refused)
    assert list((index_path / "documents").iterdir()) == []
    several = [*text_file("a.txt", "one"), *text_file("b.txt", "two"), *text_file("c.txt", "three")]
    added = ours.post("/documents", files=several).json()
    assert added["documents"] == ["a.txt", "b.txt"]
    assert "c.txt: 1 page, which makes more" in added["problems"][0]


def test_documents_are_deleted_with_what_was_uploaded(
    client: Client, index_path: Path, made: Path
) -> None:
    ours = client()
    ours.post("/documents", files=text_file("mine.txt"))
    mine, elsewhere = index_path / "documents" / "mine.txt", made / "docs" / "reports" / "a.pdf"
    assert mine.exists()
    assert ours.delete("/documents/mine.txt").json() == {"deleted": 1, "pages": 5}
    assert not mine.exists()
    assert ours.delete("/documents/reports%2Fa.pdf").json() == {"deleted": 3, "pages": 2}
    assert elsewhere.exists()  # it is not the index's to delete
    for name in ("reports/a.pdf", "b.pdf#1", "reports", str(made), "../my.glie/manifest.json"):
        refused = ours.delete(f"/documents/{name.replace('/', '%2F').replace('#', '%23')}")
        assert refused.status_code == 404, name
    assert ours.get("/info").json()["pages"] == 2


def test_read_only(client: Client) -> None:
    ours = client(read_only=True)
    for refused in (
        ours.post("/documents", files=text_file("a.txt")),
        ours.delete("/documents/b.pdf"),
    ):
        assert refused.status_code == 403
        assert error_of(refused) == "the server is read-only"
    assert ours.post("/search", json={"query": "a"}).status_code == 200


def test_names_do_not_meet(client: Client, index_path: Path) -> None:
    """Another file of the same name is another document, and none that is there is replaced, not
    even one whose file is gone."""
    ours = client()
    names = [
        ours.post("/documents", files=text_file("b.pdf.txt", text)).json()["documents"]
        for text in ("first text", "second text")
    ]
    assert names == [["b.pdf.txt"], ["b.pdf (2).txt"]]
    (index_path / "documents" / "b.pdf.txt").unlink()
    third = ours.post("/documents", files=text_file("b.pdf.txt", "third text")).json()
    assert third["documents"] == ["b.pdf (3).txt"]
    assert {"b.pdf.txt#1", "b.pdf (2).txt#1"} <= set(glie.Index.open(index_path).ids)
    # a document that was indexed from elsewhere keeps its name too
    fourth = ours.post("/documents", files=text_file("notes.md", "other notes")).json()
    assert fourth["documents"] == ["notes (2).md"]


HOSTILE = [
    ("../../../etc/passwd.txt", "passwd.txt"),
    ("/etc/cron.d/x.txt", "x.txt"),
    ("..\\..\\windows\\x.txt", "x.txt"),
    ("C:\\nul.txt", "_nul.txt"),
    ("nul\0.txt", "nul_.txt"),
    ("CON.txt", "_CON.txt"),
    (".hidden.txt", "hidden.txt"),
    ("a" * 5000 + ".txt", "a" * 116 + ".txt"),
    ("é" * 200 + ".txt", "é" * 58 + ".txt"),
    ("e\u0301.txt", "é.txt"),
    ("\u202egpj.txt", "_gpj.txt"),
    ("日本語 報告.txt", "日本語 報告.txt"),
    ("a\nb.txt", "a_b.txt"),
    ("x.txt. . ", "x.txt"),
    ("name#1.txt", "name_1.txt"),
]


@pytest.mark.parametrize(("given_name", "kept"), HOSTILE)
def test_hostile_names(given_name: str, kept: str) -> None:
    assert safe_name(given_name) == kept


@given(st.text(st.characters(codec=None), max_size=300))
def test_any_name_stays_in_its_folder(name: str) -> None:
    with contextlib.suppress(glie.DocumentError):
        found = safe_name(name + ".txt")
        path = Path("/index/documents") / numbered(found, 2)
        assert Path(os.path.normpath(path)).parent == Path("/index/documents")
        assert len(found.encode()) <= MOST_BYTES
        assert not found.startswith(".")
        assert safe_name(found) == found


def test_hostile_names_stay_in_the_folder(client: Client, index_path: Path) -> None:
    ours = client()
    outside = {path for path in index_path.parent.rglob("*") if "documents" not in path.parts}
    for number, (name, kept) in enumerate(HOSTILE[:4]):
        added = ours.post("/documents", files=text_file(name, f"text number {number}"))
        assert added.status_code == 201, name
        expected = kept if number != 2 else "x (2).txt"
        assert added.json()["documents"] == [expected]
    after = {path for path in index_path.parent.rglob("*") if "documents" not in path.parts}
    assert {path.name for path in after - outside} <= {
        "lock",
        *(f"{n:08}.{kind}" for n in range(20) for kind in ("seg", "lex")),
    }


def test_a_moved_index_shows_what_was_uploaded(
    client: Client, index_path: Path, tmp_path: Path, encoder: Encoder
) -> None:
    from fastapi.testclient import TestClient

    from glie.server.app import create_app

    client().post("/documents", files=text_file("mine.txt"))
    moved = index_path.rename(tmp_path / "moved.glie")
    ours = TestClient(create_app(moved, encoder=encoder), "http://127.0.0.1")
    assert "lighthouse" in ours.get("/pages/mine.txt%231").json()["text"]


def test_an_index_behind_a_link(index_path: Path, tmp_path: Path, encoder: Encoder) -> None:
    from fastapi.testclient import TestClient

    from glie.server.app import create_app

    (tmp_path / "link.glie").symlink_to(index_path)
    ours = TestClient(create_app(tmp_path / "link.glie", encoder=encoder), "http://127.0.0.1")
    assert ours.post("/documents", files=text_file("mine.txt")).json()["documents"] == ["mine.txt"]
    assert (index_path / "documents" / "mine.txt").exists()
    listed = {one["name"]: one["uploaded"] for one in ours.get("/documents").json()["documents"]}
    assert listed["mine.txt"] is True
    ours.delete("/documents/mine.txt")
    assert list((index_path / "documents").iterdir()) == []


def test_an_upload_that_fails_leaves_no_file(
    client: Client, index_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("a fault of ours")

    ours = client()
    with monkeypatch.context() as patch:
        patch.setattr("glie.server.uploads.ingest", broken)
        for headers in ({}, {"accept": "application/x-ndjson"}):
            for _ in range(9):  # more than may wait
                refused = ours.post("/documents", files=text_file("a.txt"), headers=headers)
                assert "the server failed; its log says why" in refused.text
    assert list((index_path / "documents").iterdir()) == []
    assert ours.post("/documents", files=text_file("a.txt")).status_code == 201


def test_another_writer_is_waited_for_by_the_client(client: Client, index_path: Path) -> None:
    ours = client()
    done, held = threading.Event(), threading.Event()

    def hold() -> None:
        with glie.Index.open(index_path).writing():
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    try:
        refused = ours.post("/documents", files=text_file("a.txt"))
        assert refused.status_code == 409
        assert "is writing; try again later" in error_of(refused)
        assert str(index_path.parent) not in refused.text
        assert ours.post("/search", json={"query": "a"}).status_code == 200
    finally:
        done.set()
        thread.join()
    assert ours.post("/documents", files=text_file("a.txt")).status_code == 201


def test_searches_never_see_half_an_upload(client: Client, encoder: Encoder) -> None:
    """While documents of three pages come and go, a search finds all three or none."""
    ours = client()
    pages = "\f".join(f"Walrus number {n} sings" for n in range(3))
    seen: list[int] = []
    failed: list[BaseException] = []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                found = ours.post("/search", json={"query": "walrus sings", "top": 20}).json()
                seen.append(sum(hit["document"] == "walrus.txt" for hit in found["hits"]))
        except BaseException as error:
            failed.append(error)

    with ours:
        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(6):
            assert (
                ours.post("/documents", files=text_file("walrus.txt", pages)).json()["pages"] == 3
            )
            assert ours.delete("/documents/walrus.txt").json()["deleted"] == 3
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert set(seen) <= {0, 3}
    assert 0 in seen


def start(index: Path, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its address."""
    code = "from glie.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(index), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    said = "".join(iter(process.stdout.readline, "}\n")) + "}"
    return process, json.loads(said)["url"].rstrip("/")


def test_a_killed_server_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """Killed in the middle of uploads: what was acknowledged is there, whole, and is shown. With a
    small encoder, which two servers load in a moment."""
    encoder = load_encoder(Network().save(tmp_path / "tiny"))
    index_path = tmp_path / "my.glie"
    named = {"name": encoder.name, "revision": encoder.revision}
    glie.Index.create(index_path, glie.Codec(k=4), encoder=named)
    process, url = start(index_path)
    acknowledged: list[str] = []

    def send() -> None:
        with contextlib.suppress(httpx2.HTTPError), httpx2.Client(timeout=60) as http:
            for number in range(1000):
                name = f"note-{number}.txt"
                text = f"Message number {number}\fand its second page"
                answer = http.post(f"{url}/documents", files=text_file(name, text))
                if answer.status_code == 201:
                    acknowledged.extend(answer.json()["documents"])

    thread = threading.Thread(target=send)
    thread.start()
    while len(acknowledged) < 3 and thread.is_alive():
        time.sleep(0.01)
    time.sleep(0.05)  # into the next
    process.send_signal(signal.SIGKILL)
    process.wait()
    thread.join()
    assert process.stdout is not None
    process.stdout.close()
    assert len(acknowledged) >= 3
    index = glie.Index.open(index_path)
    index.verify()
    ids = set(index.ids)
    for name in acknowledged:
        assert {f"{name}#1", f"{name}#2"} <= ids
        assert (index_path / "documents" / name).read_text().startswith("Message number")
    # and the next server takes up where this one was killed
    process, url = start(index_path)
    try:
        answer = httpx2.post(f"{url}/documents", files=text_file("after.txt"), timeout=60)
        assert answer.json()["documents"] == ["after.txt"]
        left = list((index_path / "documents").glob(".*"))
        assert left == []
    finally:
        process.terminate()
        assert process.wait(30) is not None
        process.stdout.close()  # type: ignore[union-attr]


def test_the_file_of_a_killed_upload_goes(client: Client, index_path: Path) -> None:
    """Killed between the rename and the commit. Files that no killed upload names stay."""
    code = f"""
import io, os
import glie.server.uploads as uploads
from glie.server.library import Library
uploads.ingest = lambda *given, **named: os._exit(9)
files = [uploads.Sent("killed.txt", io.BytesIO(b"text")), uploads.Sent("also.txt", io.BytesIO(b"more"))]
library = Library({str(index_path)!r})
Library.encoder = None
uploads.Uploads(library, 10).add(files)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    folder = index_path / "documents"
    (folder / "own.txt").write_text("put here by someone")
    assert {"killed.txt", "also.txt"} < {path.name for path in folder.iterdir()}
    with client(read_only=True):
        assert (folder / "killed.txt").exists()
    with client() as ours:
        assert [path.name for path in folder.iterdir()] == ["own.txt"]
        assert ours.post("/documents", files=text_file("killed.txt")).status_code == 201
        assert sorted(path.name for path in folder.iterdir()) == ["killed.txt", "own.txt"]
        # a note that was not removed takes nothing that is indexed, nor anything elsewhere
        (folder / ".unfinished.json").write_text('["killed.txt", "../manifest.json"]')
        assert (
            ours.post("/documents", files=text_file("b.txt", "Gulls nest on the pier")).status_code
            == 201
        )
        names = ["b.txt", "killed.txt", "own.txt"]
        assert sorted(path.name for path in folder.iterdir()) == names
        assert (index_path / "manifest.json").exists()


def test_a_full_disk_is_told(
    client: Client, index_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = client()

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("glie.server.uploads.shutil.copyfileobj", full)
        refused = ours.post("/documents", files=text_file("a.txt"))
    assert refused.status_code == 503
    assert error_of(refused) == "a.txt: cannot be kept: No space left on device"
    assert list((index_path / "documents").iterdir()) == []
    assert ours.post("/documents", files=text_file("a.txt")).status_code == 201


def test_the_same_bytes_change_nothing_wherever_they_are_from(
    client: Client, index_path: Path, made: Path
) -> None:
    """Of a document that was indexed from another folder, under any name, and twice in an upload."""
    ours, data = client(), (made / "docs" / "b.pdf").read_bytes()
    before = ours.get("/info").json()["generation"]
    sent = ours.post("/documents", files=[("files", ("copy of b.pdf", data))])
    assert sent.json() == {"documents": [], "pages": 0, "unchanged": ["b.pdf"], "problems": []}
    assert ours.get("/info").json()["generation"] == before
    assert [*(index_path / "documents").iterdir()] == []
    twice = [*text_file("one.txt"), *text_file("two.txt")]
    sent = ours.post("/documents", files=twice).json()
    assert (sent["documents"], sent["unchanged"]) == (["one.txt"], [])
    assert [path.name for path in (index_path / "documents").iterdir()] == ["one.txt"]
    again = [*text_file("three.txt"), *text_file("new.txt", "Gulls nest on the pier")]
    sent = ours.post("/documents", files=again).json()
    assert (sent["documents"], sent["unchanged"]) == (["new.txt"], ["one.txt"])
