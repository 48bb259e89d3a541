"""The API, as a client sees it."""

from __future__ import annotations

import io
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

import glie
from glie.encoders import Encoder
from glie.server.app import create_app
from glie.server.limits import Limits
from tests.conftest import make_arrays, unit
from tests.documents.test_documents import make_pdf
from tests.server.conftest import Client

A1 = quote("reports/a.pdf#1", safe="")


def error_of(response: Any) -> str:
    """The one line of an error."""
    assert set(response.json()) == {"error"}
    line = str(response.json()["error"])
    assert line
    assert "\n" not in line
    return line


def test_search_in_words(client: Client) -> None:
    found = client().post("/search", json={"query": "capital expenditure", "top": 2}).json()
    hit = found["hits"][0]
    assert (hit["rank"], hit["id"], hit["document"]) == (1, "reports/a.pdf#1", "reports/a.pdf")
    assert (hit["page"], hit["picture"], hit["note"]) == (1, True, None)
    marked = [hit["snippet"][start:end] for start, end in hit["marks"]]
    assert marked == ["Capital", "expenditure"]
    assert len(found["hits"]) == 2
    assert hit["score"] > found["hits"][1]["score"]
    cost = found["cost"]
    assert (cost["pages_scanned"], cost["pages_regenerated"]) == (5, 5)
    assert cost["bytes_read"] > 0
    assert cost["milliseconds"] > 0


def test_words_and_meaning(client: Client, index_path: Path) -> None:
    ours = client()

    def found(query: str, **asked: Any) -> list[dict[str, Any]]:
        answer = ours.post("/search", json={"query": query, **asked})
        assert answer.status_code == 200, answer.json()
        return list(answer.json()["hits"])

    best = found("1577")[0]
    assert best["id"] == "reports/a.pdf#1"
    assert best["score"] == pytest.approx(best["meaning"] + best["words"], abs=1e-5)
    assert [best["snippet"][start:end] for start, end in best["marks"]] == ["1,577"]
    late = found("1577", mode="late")[0]
    assert (late["meaning"], late["words"]) == (None, None)
    assert [hit["id"] for hit in found('"twice a year"')] == ["reports/a.pdf#2"]
    assert found('"year a twice"') == []  # the words are there, the phrase is not
    assert "reports/a.pdf#2" not in [hit["id"] for hit in found("inspected -rotor")]
    heat = ours.get(f"/pages/{A1}/heatmap", params={"query": '"capital" -rotor'}).json()
    assert [word["text"] for word in heat["words"]] == ["capital"]
    facts = ours.get("/info").json()
    assert (facts["pages_with_text"], facts["language"]) == (5, "english")
    assert facts["text_bytes"] > 0
    for query in ('"--"', "-rotor"):
        refused = ours.post("/search", json={"query": query})
        assert (refused.status_code, bool(error_of(refused))) == (422, True)
    refused = ours.post("/search", json={"vectors": [[1.0] * 128], "mode": "hybrid"})
    assert error_of(refused) == "mode: hybrid searches words; give the question as query"


def test_words_need_no_encoder(index_path: Path) -> None:
    index = glie.Index.create(index_path.parent / "y.glie", encoder="gone")
    index.add(glie.Pages([np.eye(4)[:2]], ["p"]), texts=["part 3M-2018-114"])
    with TestClient(create_app(index.path), "http://127.0.0.1") as ours:
        found = ours.post("/search", json={"query": "3M-2018-114", "mode": "lexical"}).json()
        assert [hit["id"] for hit in found["hits"]] == ["p"]
        assert ours.post("/search", json={"query": "3M-2018-114"}).status_code == 422
    index = glie.Index.create(index_path.parent / "z.glie", encoder="gone")
    index.add(glie.Pages([np.eye(4)[:2]], ["p"]))
    with TestClient(create_app(index.path), "http://127.0.0.1") as ours:
        refused = ours.post("/search", json={"query": "a", "mode": "lexical"})
        assert error_of(refused) == "mode: lexical searches words, and no page has text"


def test_more_like_a_page(client: Client) -> None:
    ours = client()
    found = ours.post("/search", json={"like": "reports/a.pdf#1", "top": 3}).json()
    assert (found["query"], len(found["hits"])) == (None, 3)
    assert "reports/a.pdf#1" not in [hit["id"] for hit in found["hits"]]
    only = {"like": "reports/a.pdf#1", "documents": ["b.pdf"]}
    assert [h["id"] for h in ours.post("/search", json=only).json()["hits"]] == ["b.pdf#1"]
    assert ours.post("/search", json={"like": "none"}).status_code == 404
    refused = ours.post("/search", json={"like": "reports/a.pdf#1", "query": "a"})
    assert (refused.status_code, "expected either" in error_of(refused)) == (422, True)


def test_search_by_vectors_gives_the_same(client: Client, encoder: Encoder) -> None:
    ours = client()
    vectors = encoder.encode_queries(["holiday"])[0]
    by_words = ours.post("/search", json={"query": "holiday", "mode": "late"}).json()
    by_vectors = ours.post("/search", json={"vectors": vectors.tolist()}).json()
    assert [h["id"] for h in by_vectors["hits"]] == [h["id"] for h in by_words["hits"]]
    assert by_vectors["hits"][0]["score"] == pytest.approx(by_words["hits"][0]["score"], abs=1e-4)
    longer = {"vectors": (2 * vectors).tolist()}
    refused = ours.post("/search", json=longer)
    assert refused.status_code == 422
    assert "norm 2" in error_of(refused)
    assert ours.post("/search", json={**longer, "normalize": True}).status_code == 200


def test_search_in_some_documents(client: Client) -> None:
    ours = client()
    asked = {"query": "capital expenditure", "documents": ["b.pdf", "notes.md"]}
    found = ours.post("/search", json=asked).json()
    assert {hit["document"] for hit in found["hits"]} == {"b.pdf", "notes.md"}
    refused = ours.post("/search", json={**asked, "documents": ["c.pdf"]})
    assert refused.status_code == 404
    assert error_of(refused) == "document 'c.pdf' is not in the index"


def test_search_with_a_filter(client: Client, made: Path) -> None:
    ours = client()

    def found(**asked: Any) -> set[str]:
        answer = ours.post("/search", json={"query": "capital expenditure", **asked})
        assert answer.status_code == 200
        return {hit["id"] for hit in answer.json()["hits"]}

    where = {"document": {"prefix": "reports/"}, "page": {">": 1}}
    assert found(where=where) == {"reports/a.pdf#2", "reports/a.pdf#3"}
    assert found(where={"page": 1}, documents=["b.pdf", "reports/a.pdf"]) == {
        *("b.pdf#1", "reports/a.pdf#1")
    }
    assert len(found(where={})) == len(found(where=None)) == 5
    assert found(where={"or": []}) == set()
    # where files lie is nobody's business: one could be found out letter by letter
    for hidden in ({"path": {"prefix": "/"}}, {"not": {"or": [{"path": {"!=": "/"}}]}}):
        refused = ours.post("/search", json={"query": "a", "where": hidden})
        assert refused.status_code == 422
        assert error_of(refused) == "where: 'path' is not known here; ask for 'document'"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "either query, a question in words, or vectors"),
        ({"query": "a", "vectors": [[1.0]]}, "either query, a question in words, or vectors"),
        ({"query": " \n"}, "the question is empty"),
        ({"query": "a" * 51}, "51 characters, expected at most 50"),
        ({"query": "a", "top": 11}, "top: found 11, expected at most 10"),
        ({"query": "a", "top": 0}, "top: input should be greater than or equal to 1"),
        ({"query": "a", "where": "page=1"}, "where: input should be a valid dictionary"),
        ({"query": "a", "where": {"page": {">": None}}}, "'page' >: expected a number"),
        ({"query": "a", "tip": 1}, "tip: extra inputs are not permitted"),
        ({"vectors": []}, "at least one row"),
        ({"vectors": [[1.0], [1.0, 0.0]]}, "rows of one length"),
        ({"vectors": [[1.0, 0.0]]}, "vectors: rows of 2 numbers, expected 128"),
        ({"vectors": [[1.0]] * 4}, "vectors: found 4, expected at most 3"),
        ({"vectors": [["x"]]}, "vectors.0.0: input should be a valid number"),
    ],
)
def test_what_cannot_be_asked(client: Client, asked: Any, said: str) -> None:
    limits = Limits(query_characters=50, top=10, query_vectors=3)
    refused = client(limits=limits).post("/search", json=asked)
    assert refused.status_code == 422
    assert said in error_of(refused)


def test_limits_are_whole_numbers() -> None:
    with pytest.raises(glie.InputError, match="searches: expected a whole number of at least 1"):
        Limits(searches=0)


@pytest.mark.parametrize("body", [b"{", b"[1]", b'{"vectors": [[NaN]]}', b"\xff"])
def test_what_is_not_a_question_at_all(client: Client, body: bytes) -> None:
    sent = {"content-type": "application/json"}
    refused = client().post("/search", content=body, headers=sent)
    assert refused.status_code in (400, 422)
    error_of(refused)


def test_too_many_searches_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is answered, one waits, the third is told to come again."""
    import concurrent.futures
    import threading

    began, go = threading.Event(), threading.Event()
    real = glie.Index.search

    def slow(self: glie.Index, *arguments: Any, **named: Any) -> Any:
        began.set()
        go.wait(30)
        return real(self, *arguments, **named)

    with client(limits=Limits(searches=1, waiting=1)) as ours:
        ours.post("/search", json={"query": "a"})  # all is loaded
        monkeypatch.setattr(glie.Index, "search", slow)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            first = pool.submit(ours.post, "/search", json={"query": "a"})
            began.wait(30)
            others = [pool.submit(ours.post, "/search", json={"query": "a"}) for _ in range(2)]
            refused = next(concurrent.futures.as_completed(others)).result()
            go.set()
            answers = [future.result() for future in (first, *others)]
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert error_of(refused) == "too many searches are waiting"
    assert sorted(answer.status_code for answer in answers) == [200, 200, 503]


def test_a_page_and_its_neighbours(client: Client, made: Path) -> None:
    ours = client()
    page = ours.get(f"/pages/{quote('reports/a.pdf#2', safe='')}").json()
    assert (page["document"], page["page"], page["pages"]) == ("reports/a.pdf", 2, 3)
    assert (page["previous"], page["next"]) == ("reports/a.pdf#1", "reports/a.pdf#3")
    assert page["text"].strip() == "Rotor blades are inspected twice a year"
    assert str(made) not in str(page)  # where files lie is nobody's business
    unescaped = ours.get("/pages/reports/a.pdf%232").json()
    assert unescaped == page
    first, last = (ours.get(f"/pages/reports/a.pdf%23{n}").json() for n in (1, 3))
    assert (first["previous"], last["next"]) == (None, None)


def test_pages_that_are_not_there(client: Client) -> None:
    ours = client()
    for path in ("", "/image", "/heatmap?query=x", "/geometry"):
        for name in ("reports/a.pdf#9", "../../etc/passwd", "/etc/passwd", "\0", "a" * 3000):
            refused = ours.get(f"/pages/{quote(name, safe='')}{path}")
            assert refused.status_code == 404, (name, path)
            assert "is not in the index" in error_of(refused)


def test_a_page_as_a_picture(client: Client) -> None:
    ours = client()
    sizes = {}
    for size in ("thumbnail", "large"):
        answer = ours.get(f"/pages/{A1}/image?size={size}")
        assert answer.headers["content-type"] == "image/webp"
        picture = Image.open(io.BytesIO(answer.content))
        sizes[size] = max(picture.size)
        again = ours.get(
            f"/pages/{A1}/image?size={size}", headers={"if-none-match": answer.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")
    assert sizes == {"thumbnail": 480, "large": 1600}
    refused = ours.get(f"/pages/{quote('notes.md#1', safe='')}/image")
    assert refused.status_code == 404
    assert "has no picture" in error_of(refused)
    assert ours.get(f"/pages/{A1}/image?size=huge").status_code == 422


def test_the_heat_map_is_where_the_words_are(client: Client) -> None:
    asked = {"query": "turbines expenditure?"}
    found = client().get(f"/pages/{A1}/heatmap", params=asked).json()
    assert (found["kind"], found["reason"], found["vectors"]) == ("boxes", None, "document")
    words = found["words"]
    assert [word["text"] for word in words] == ["turbines", "expenditure"]
    for word, wanted in zip(words, ("turbines", "expenditure"), strict=True):
        best = word["warm"][0]
        assert found["labels"][best["place"]].lower() == wanted
        assert (best["heat"], word["score"] >= best["similarity"] > 0.5) == (1.0, True)
    # turbines stand on the second line, 20 points below the first
    second, first = (found["places"][word["warm"][0]["place"]][1] for word in words)
    assert second - first == pytest.approx(20 / 842, abs=0.003)


def test_the_heat_map_of_what_the_index_keeps(client: Client) -> None:
    """Its words add up to the score that the search gave: they are made of the same vectors."""
    ours = client()
    asked = {"query": "turbines expenditure"}
    hit = ours.post("/search", json={**asked, "top": 1, "mode": "late"}).json()["hits"][0]
    totals, similar = {}, {}
    for vectors in ("document", "index"):
        at = f"/pages/{A1}/heatmap"
        found = ours.get(at, params={**asked, "vectors": vectors}).json()
        totals[vectors] = sum(word["score"] for word in found["words"])
        similar[vectors] = [word["warm"][0]["similarity"] for word in found["words"]]
    assert hit["id"] == "reports/a.pdf#1"
    assert totals["index"] == pytest.approx(hit["score"], abs=1e-3)
    assert totals["document"] != pytest.approx(hit["score"], abs=1e-3)
    assert similar["index"] != pytest.approx(similar["document"], abs=1e-3)


def test_the_heat_map_of_a_text(client: Client) -> None:
    ours = client()
    page = quote("notes.md#1", safe="")
    text = ours.get(f"/pages/{page}").json()["text"]
    found = ours.get(f"/pages/{page}/heatmap", params={"query": "crane"}).json()
    assert found["kind"] == "spans"
    start, end = found["places"][found["words"][0]["warm"][0]["place"]]
    assert text[int(start) : int(end)] == "crane"


def test_the_heat_map_of_a_scanned_page(
    tmp_path: Path, encoder: Encoder, index_path: Path, client: Client
) -> None:
    from glie.ingest import ingest
    from tests.documents.test_documents import picture

    picture("DELIVERY NOTE 4471").save(tmp_path / "scan.png")
    ingest(glie.Index.open(index_path), encoder, [tmp_path / "scan.png"])
    ours = client()
    page = quote("scan.png#1", safe="")
    hit = next(
        hit
        for hit in ours.post("/search", json={"query": "delivery"}).json()["hits"]
        if hit["id"] == "scan.png#1"
    )
    assert (hit["snippet"], hit["note"]) == ("", "a scanned page, read by OCR")
    found = ours.get(f"/pages/{page}/heatmap", params={"query": "delivery"}).json()
    best = found["words"][0]["warm"][0]["place"]
    assert found["labels"][best] == "DELIVERY"
    left, top, right, bottom = found["places"][best]
    assert 0 < left < right < 0.6  # it is the first of three words
    assert 0.2 < top < bottom < 0.8
    assert "DELIVERY" in ours.get(f"/pages/{page}").json()["text"]


def test_files_are_shown_only_while_they_are_what_was_indexed(
    client: Client, index_path: Path, encoder: Encoder, tmp_path: Path
) -> None:
    """Neither a file that has changed, nor one that an index merely names, is read."""
    from glie.ingest import ingest

    path = make_pdf(tmp_path / "c.pdf", ["Confidential budget"])
    index = glie.Index.open(index_path)
    ingest(index, encoder, [path])
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret word is walrus")
    named = {"document": "x", "page": 1, "path": str(secret)}
    rows = [unit(np.ones((2, index.dim or 0)))] * 2
    lied = {**named, "digest": "0" * 16}
    index.add(glie.Pages(rows, ids=["x#1", "y#1"]), metadata=[named, lied])
    ours = client()
    assert "Confidential" in ours.get("/pages/c.pdf%231").json()["text"]
    make_pdf(path, ["Something else"])
    for page, why in (
        ("c.pdf#1", "c.pdf has changed since it was indexed; index it again"),
        ("x#1", "the index names no document for this page"),
        ("y#1", "secret.txt has changed since it was indexed; index it again"),
    ):
        at = f"/pages/{quote(page, safe='')}"
        found = ours.get(at).json()
        assert (found["text"], found["note"]) == ("", why)
        heat = ours.get(f"{at}/heatmap?query=budget").json()
        assert (heat["kind"], heat["reason"], heat["words"]) == ("none", why, [])
        assert ours.get(f"{at}/image").status_code == 404
        shape = ours.get(f"{at}/geometry").json()
        assert (shape["reason"], shape["vectors"]) == (why, [])
    hits = ours.post("/search", json={"query": "walrus"}).text
    assert "secret word" not in hits
    path.unlink()
    assert ours.get("/pages/c.pdf%231").json()["note"] == "its file is gone: c.pdf"


def test_pages_that_an_index_tells_wrong_of(
    client: Client, index_path: Path, encoder: Encoder, tmp_path: Path
) -> None:
    """Numbers of pages that the file does not have, and what is no number."""
    from glie.documents.original import file_digest

    path = make_pdf(tmp_path / "c.pdf", ["Confidential budget"])
    index = glie.Index.open(index_path)
    named = {"document": "c.pdf", "path": str(path), "digest": file_digest(path)}
    wrong = [9, 0, -1, "x", None, 1.5, True]
    pages = glie.Pages([unit(np.ones((2, index.dim or 0)))] * len(wrong))
    index.add(pages, metadata=[{**named, "page": number} for number in wrong])
    ours = client()
    assert ours.post("/search", json={"query": "budget", "top": 20}).status_code == 200
    for page in pages.ids[:-1]:  # the last, True, counts as 1
        assert ours.get(f"/pages/{page}").json()["text"] == ""
        assert ours.get(f"/pages/{page}/image").status_code in (404, 422)
        assert ours.get(f"/pages/{page}/heatmap?query=budget").json()["kind"] == "none"
        assert ours.get(f"/pages/{page}/geometry").json()["reason"]


def test_pictures_that_were_kept_outlive_their_files(
    client: Client, index_path: Path, encoder: Encoder, tmp_path: Path
) -> None:
    from glie.ingest import ingest

    path = make_pdf(tmp_path / "c.pdf", ["Confidential budget"])
    ingest(glie.Index.open(index_path), encoder, [path], keep_images=True)
    path.unlink()
    answer = client().get("/pages/c.pdf%231/image?size=thumbnail")
    assert max(Image.open(io.BytesIO(answer.content)).size) == 480


def test_the_geometry_of_a_page(client: Client) -> None:
    found = client().get(f"/pages/{A1}/geometry").json()
    assert found["reason"] is None
    assert {seen["label"] for seen in found["vectors"]} >= {"Capital", "turbines"}
    anchors = len(found["anchors"])
    assert 1 <= anchors <= len(found["children"])
    assert {seen["anchor"] for seen in found["vectors"]} <= set(range(anchors))
    assert found["norm_low"] == pytest.approx(1, abs=1e-3)
    assert 0 < found["explained"] <= 1
    assert all(0 < anchor["length"] <= 1.001 for anchor in found["anchors"] if anchor["length"])


def test_what_the_index_weighs(client: Client, index_path: Path) -> None:
    ours = client(read_only=True)
    found, facts = ours.get("/info").json(), glie.Index.open(index_path).info()
    assert (found["pages"], found["documents"]) == (5, 3)
    assert found["name"] == "my.glie"
    assert found["bytes_per_page"] == facts.lean_bytes / 5
    assert found["compression"] == pytest.approx(facts.uncompressed_bytes / facts.lean_bytes)
    assert (found["encoder"], found["encoder_state"]) == ("english", "ready")
    assert found["read_only"] is True
    assert str(index_path.parent) not in str(found)
    listed = ours.get("/documents").json()["documents"]
    assert [(one["name"], one["pages"]) for one in listed] == [
        ("b.pdf", 1),
        ("notes.md", 1),
        ("reports/a.pdf", 3),
    ]
    assert ours.get("/documents/reports%2Fa.pdf").json()["pages"] == [
        f"reports/a.pdf#{number}" for number in (1, 2, 3)
    ]
    assert ours.get("/documents/none.pdf").status_code == 404
    assert ours.get("/health").json() == {"status": "ok", "encoder": "ready"}


def test_metrics_count(client: Client) -> None:
    ours = client()
    for _ in range(2):
        ours.post("/search", json={"query": "winter"})
    ours.get("/pages/none")
    text = ours.get("/metrics").text
    assert "glie_search_seconds_count 2.0" in text
    assert "glie_pages_scanned_total 10.0" in text
    assert "glie_index_pages 5.0" in text
    assert 'glie_requests_total{route="/search",status="200"} 2.0' in text
    assert 'glie_requests_total{route="/pages/{id}",status="404"} 1.0' in text


def test_a_survey_measures_budgets_and_shape(client: Client) -> None:
    ours = client()
    assert ours.get("/survey").json()["state"] == "idle"
    assert ours.post("/survey").status_code == 202
    found = ours.get("/survey").json()
    while found["state"] == "running":
        time.sleep(0.05)
        found = ours.get("/survey").json()
    assert (found["state"], found["sampled"], found["stale"]) == ("done", 5, False)
    budgets = found["budgets"]
    assert [row["budget"] for row in budgets] == [130, 260, 520, 1040, 2080, 4160, None]
    assert budgets[-1]["overlap"] == 1
    # the index's own codec is that of its budget
    same = next(row for row in budgets if row["budget"] == 520)
    assert {**found["current"], "budget": 520} == same
    assert found["geometry"]["pages"] == 5
    assert found["geometry"]["norm"]["high"] == pytest.approx(1, abs=1e-3)
    assert len(found["geometry"]["each"]) == 5
    ours.delete("/documents/b.pdf")
    assert ours.get("/survey").json()["stale"] is True


def test_an_index_of_vectors_alone(tmp_path: Path) -> None:
    """It names no encoder and no documents: it is asked by vectors, and says why no more."""
    from fastapi.testclient import TestClient

    from glie.server.app import create_app

    index = glie.Index.create(tmp_path / "v.glie", glie.Codec(k=4))
    index.add(glie.Pages(make_arrays(6), ids=[f"p/{i}" for i in range(6)]))
    ours = TestClient(create_app(tmp_path / "v.glie"), "http://127.0.0.1")
    asked = make_arrays(1, seed=3)[0][:4].tolist()
    found = ours.post("/search", json={"vectors": asked, "top": 2}).json()
    assert len(found["hits"]) == 2
    assert found["hits"][0]["document"] is None
    assert found["hits"][0]["picture"] is False
    refused = ours.post("/search", json={"query": "words"})
    assert refused.status_code == 422
    assert "does not name the encoder" in error_of(refused)
    assert ours.get("/health").json()["encoder"] == "none"
    assert ours.get("/pages/p%2F3").json()["note"] == "the index names no document for this page"
    assert ours.get("/pages/p%2F3/geometry").json()["children"]
    assert ours.get("/pages/p%2F3/heatmap?query=a").json()["kind"] == "none"
    ours.post("/survey")
    while ours.get("/survey").json()["state"] == "running":
        time.sleep(0.05)
    assert "no page can be encoded again" in ours.get("/survey").json()["doing"]


def test_an_empty_index(tmp_path: Path, encoder: Encoder) -> None:
    from fastapi.testclient import TestClient

    from glie.server.app import create_app

    entry = {"name": encoder.name, "revision": encoder.revision}
    glie.Index.create(tmp_path / "e.glie", glie.Codec(bytes_per_page=520), encoder=entry)
    ours = TestClient(create_app(tmp_path / "e.glie", encoder=encoder), "http://127.0.0.1")
    assert ours.post("/search", json={"query": "anything"}).json()["hits"] == []
    assert ours.get("/info").json()["bytes_per_page"] is None
    assert ours.get("/documents").json() == {"documents": []}
    # the codec adapts to the first upload, which is found
    sent = [("files", ("first.txt", b"The lighthouse keeper sleeps", "text/plain"))]
    assert ours.post("/documents", files=sent).status_code == 201
    found = ours.post("/search", json={"query": "lighthouse"}).json()
    assert [hit["id"] for hit in found["hits"]] == ["first.txt#1"]


def test_what_others_write_is_seen(
    client: Client, index_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glie.server.library.SECONDS_BETWEEN_REFRESHES", 0)
    ours = client()
    assert ours.get("/info").json()["pages"] == 5
    glie.Index.open(index_path).delete(["b.pdf#1"])
    assert ours.get("/info").json()["pages"] == 4
    assert "b.pdf" not in ours.get("/documents").text
    shutil.rmtree(index_path)
    refused = ours.get("/info")
    assert refused.status_code == 503
    assert "does not exist" in error_of(refused)


def test_an_encoder_that_cannot_be_loaded_is_told(index_path: Path, tmp_path: Path) -> None:
    from fastapi.testclient import TestClient

    from glie.server.app import create_app

    entry = {"name": str(tmp_path / "gone"), "revision": "1"}
    index = glie.Index.create(tmp_path / "x.glie", glie.Codec(k=2), encoder=entry)
    index.add(glie.Pages(make_arrays(2)))
    ours = TestClient(create_app(tmp_path / "x.glie"), "http://127.0.0.1")
    for _ in range(2):
        refused = ours.post("/search", json={"query": "words"})
        assert refused.status_code == 422
        assert "is unknown" in error_of(refused)
    assert ours.get("/health").json() == {"status": "ok", "encoder": "failed"}


def test_the_encoder_is_loaded_at_the_recorded_revision(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the Hub the main branch of a model may have moved on; the index names its commit."""
    from glie.server.library import Library

    loaded: list[tuple[str, str | None]] = []

    def load(name: str, *, revision: str | None = None) -> Encoder:
        loaded.append((name, revision))
        return encoder

    monkeypatch.setattr("glie.encoders.recorded.load_encoder", load)
    glie.Index.create(tmp_path / "x.glie", encoder=encoder)
    library = Library(tmp_path / "x.glie")
    assert library.encoder_state == "loading"
    assert library.encoder is library.encoder is encoder
    assert loaded == [(encoder.name, encoder.revision)]
    assert library.encoder_state == "ready"
