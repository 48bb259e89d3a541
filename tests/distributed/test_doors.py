"""A folder of shards behind the command line, the server, MCP and a framework, as an index is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import glie
from glie.codec.readout.residual import Residual
from glie.distributed import ShardedIndex
from glie.encoders import load_encoder
from glie.errors import BusyError
from glie.indexing import fitted_codec
from glie.ingest import Reading, ingest
from glie.integrations.langchain import GlieRetriever
from glie.integrations.mcp import make_server
from glie.server.app import create_app
from tests.cli.conftest import Run, run  # noqa: F401
from tests.integrations.test_mcp import call

TEXTS = {
    "harbour.txt": "The harbour is closed in winter, and the crane barge is booked for October.",
    "rotor.txt": "Rotor blades are inspected twice a year by two people.",
    "leave.txt": "Holiday allowance is 25 days for full-time staff.",
    "capital.txt": "Capital expenditure in 2018 was 1,577 million dollars.",
}
QUESTION = "When is the harbour closed?"


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def shards(documents: Path) -> Path:
    encoder = load_encoder()
    codec = fitted_codec([documents], encoder)
    many = ShardedIndex.create("my.shards", 2, codec, encoder=encoder)
    report = ingest(many, encoder, [documents])  # type: ignore[arg-type]
    assert (report.pages_added, report.problems) == (4, [])
    assert all(len(index) for index in many.shards.values())
    return many.path


def test_the_command_line(shards: Path, documents: Path, run: Run) -> None:  # noqa: F811
    found = run("search", shards, QUESTION, "--json").json
    assert found["hits"][0]["id"] == "harbour.txt#1"
    assert "crane barge" in found["hits"][0]["snippet"]
    assert found["cost"]["missing"] == []
    assert run("search", QUESTION, shards, "--top", 1).err.count("goes before the question") == 1
    assert run("search", shards, "--like", "rotor.txt#1", "--json").json["hits"]
    assert run("info", shards, "--json").json["pages"] == 4
    (documents / "new.txt").write_text("The tide is highest in March.")
    assert run("add", shards, documents, "--json").json["documents_added"] == 1
    assert run("search", shards, '"tide"', "--json").json["hits"][0]["id"] == "new.txt#1"
    assert run("delete", shards, "new.txt").out == "1 page deleted, 4 pages left\n"


def test_the_server(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TestClient(create_app(shards), "http://127.0.0.1") as client:
        answer = client.post("/search", json={"query": QUESTION}).json()
        assert answer["hits"][0]["id"] == "harbour.txt#1"
        assert answer["cost"]["missing"] == []
        assert client.get("/info").json()["pages"] == 4
        sent = {"files": ("tide.txt", b"The tide is highest in March.")}
        assert client.post("/documents", files=sent).json()["documents"] == ["tide.txt"]
        answer = client.post("/search", json={"query": "tide"}).json()
        assert answer["hits"][0]["id"] == "tide.txt#1"
        assert client.get("/documents").json()["documents"][0]["pages"] == 1
        assert client.delete("/documents/tide.txt").json() == {"deleted": 1, "pages": 4}
        assert "glie_index_pages 4.0" in client.get("/metrics").text

        def full(*given: Any, **options: Any) -> Any:
            raise BusyError("shard 0000: 2 replicas busy")

        monkeypatch.setattr(ShardedIndex, "search", full)
        refused = client.post("/search", json={"query": QUESTION})
        assert (refused.status_code, refused.json()) == (
            503,
            {"error": "shard 0000: 2 replicas busy"},
        )


def test_mcp_and_a_framework(shards: Path) -> None:
    facts = call(make_server(shards), "search", question=QUESTION, top=1)[0]
    assert (facts["id"], facts["text"].strip()) == ("harbour.txt#1", TEXTS["harbour.txt"])
    assert call(make_server(shards), "describe_index")[0]["documents"] == 4
    (document,) = GlieRetriever(index=str(shards), top=1).invoke(QUESTION)
    assert document.page_content.strip() == TEXTS["harbour.txt"]


def test_one_codec_for_separate_runs(documents: Path, run: Run) -> None:  # noqa: F811
    """Without it, each run fits its own, and the error says what to do."""
    said = run("codec", "fit-sample", documents, "--to", "my.codec", "--json").json
    assert said["settings"]["adapt"] is False
    for name in ("harbour", "rotor"):
        text = documents / f"{name}.txt"
        for codec, made in (("my.codec", f"both/{name}"), (None, f"apart/{name}")):
            given = [] if codec is None else ["--codec", codec]
            assert run("index", text, "--to", made, *given).code == 0
    assert run("search", "both", QUESTION, "--json").json["hits"][0]["id"] == "harbour.txt#1"
    one, two = (glie.Index.open(f"both/{name}") for name in ("harbour", "rotor"))
    one.merge(two)
    assert len(one) == 2
    assert isinstance(one.codec.readout, Residual)
    one, two = (glie.Index.open(f"apart/{name}") for name in ("harbour", "rotor"))
    with pytest.raises(glie.InputError, match=r"another codec or encoder.*glie codec fit-sample"):
        one.merge(two)
    refused = run("search", "apart", QUESTION)
    assert refused.code == 1
    assert "shards share them: make all with one codec (`glie codec fit-sample`)" in refused.err
    (documents / "blank.txt").write_text(" ")
    blank = run("codec", "fit-sample", documents / "blank.txt", "--to", "other.codec")
    assert blank.code == 1
    assert "nothing to make a codec of" in blank.err
    assert not Path("other.codec").exists()


def test_a_sample_is_drawn_at_random(documents: Path) -> None:
    """Of an encoder that glie has no codebook for, the codec is made of the pages."""
    seen: list[list[str]] = []

    class Counting:
        name, revision = "counting", "1"

        def encode_pages(self, pages: Any) -> Any:
            seen[-1] += [page.document for page in pages]
            return load_encoder().encode_pages([page.text for page in pages])

        def encode_queries(self, texts: Any) -> Any:
            return load_encoder().encode_queries(texts)

    budget, orders = glie.Codec(bytes_per_page=200, adapt=True), []
    for seed in (0, 0, 1):
        seen.append([])
        made = fitted_codec(
            [documents], Counting(), budget, reading=Reading(text="none"), seed=seed
        )
        assert not made.adapts
        orders.append(json.dumps(seen[-1]))
    assert orders[0] == orders[1] != orders[2]
