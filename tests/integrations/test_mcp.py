"""The MCP server, asked by the official client: in this process, and as `glie mcp` over stdio."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from PIL import Image

import glie
from glie.encoders import Encoder
from glie.ingest import ingest
from glie.integrations import mcp
from glie.integrations.mcp import make_server
from tests.conftest import make_arrays
from tests.documents.test_documents import make_pdf
from tests.integrations.conftest import CAPITAL, HOLIDAY, LONG, Library

GLIE = Path(sys.executable).with_name("glie")


def together(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The results of some calls in one session."""

    async def session() -> list[Any]:
        async with Client(server) as client:
            return [await client.call_tool(tool, arguments) for tool, arguments in calls]

    return asyncio.run(session())


def call(server: Any, tool: str, **arguments: Any) -> list[Any]:
    """What a tool answers: JSON as it was, and images as Pillow sees them."""
    (result,) = together(server, (tool, arguments))
    assert not result.is_error, result.content
    return [unpacked(block) for block in result.content]


def unpacked(block: Any) -> Any:
    if block.type == "text":
        return json.loads(block.text)
    image = Image.open(io.BytesIO(base64.b64decode(block.data)))
    assert image.get_format_mimetype() == block.mime_type
    return image


def failure(server: Any, tool: str, **arguments: Any) -> str:
    (result,) = together(server, (tool, arguments))
    assert result.is_error
    (block,) = result.content
    assert "\n" not in block.text
    return str(block.text)


@pytest.fixture(scope="module")
def server(made: Library, encoder: Encoder) -> Any:
    return make_server(made.path, encoder)


def test_over_stdio(made: Library) -> None:
    """A process of its own, as an assistant starts it, with the encoder of the index."""

    async def talk() -> None:
        command = StdioServerParameters(
            command=str(GLIE), args=["mcp", str(made.path)], env=dict(os.environ)
        )
        async with Client(command) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == ["search", "read_page", "describe_index"]
            for tool in tools.values():
                assert tool.description
                assert "\n" not in tool.description
                assert tool.annotations is not None
                assert tool.annotations.read_only_hint
                for field in tool.input_schema["properties"].values():
                    assert field["description"]
            found = await client.call_tool("search", {"question": "days of vacation", "top": 1})
            (page,) = [json.loads(block.text) for block in found.content]
            assert page["text"].strip() == HOLIDAY
            expected = {"rank": 1, "id": "staff.pdf#1", "document": "staff.pdf", "page": 1}
            assert expected.items() <= page.items()
            wrong = await client.call_tool("search", {"question": ""})
            assert wrong.is_error
            assert client.server_info.name == "glie"

    asyncio.run(talk())


def test_nothing_but_the_protocol_on_stdout(tmp_path: Path) -> None:
    """Also where something below a tool prints."""
    glie.Index.create(tmp_path / "x.glie", encoder={"name": "gone", "revision": "1"})
    chatty = (
        "import sys, glie; info = glie.Index.info\n"
        "def aloud(self): print('ALOUD', flush=True); return info(self)\n"
        "glie.Index.info = aloud\n"
        f"sys.argv = ['glie', 'mcp', {str(tmp_path / 'x.glie')!r}]\n"
        "from glie.cli import main; main()"
    )
    client: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}}
    client["clientInfo"] = {"name": "test", "version": "1"}
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "describe_index", "arguments": {}}},
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", chatty],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for message in asked:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        if "id" in message:
            answers.append(json.loads(process.stdout.readline()))
    out, err = process.communicate()
    assert (out, process.returncode) == ("", 0)  # it ends when the client goes away
    assert "ALOUD" in err
    assert [answer["id"] for answer in answers] == [1, 2]
    assert "report.pdf#3" in answers[0]["result"]["instructions"]
    assert json.loads(answers[1]["result"]["content"][0]["text"])["pages"] == 0


def test_words_and_meaning(server: Any) -> None:
    def found(question: str, **how: Any) -> list[str]:
        blocks = call(server, "search", question=question, **how)
        return [block["id"] for block in blocks if isinstance(block, dict)]

    assert found('"1,577"') == ["annual/report.pdf#1"]
    assert found("1577", mode="lexical") == ["annual/report.pdf#1"]
    assert "staff.pdf#1" not in found("vacation days -holiday", top=5)
    assert len(found("1577", mode="late")) == 5
    nothing = call(server, "search", question='"nowhere to be found"')
    assert nothing == [{"note": "no page matches"}]


def test_search(server: Any, made: Library, encoder: Encoder) -> None:
    question = "How much was spent on equipment?"
    index = glie.Index.open(made.path)
    hits = index.search(encoder.encode_queries([question]), top=5, text=[question])[0]
    found = call(server, "search", question=question)
    pages = [block for block in found if isinstance(block, dict)]
    assert [page["id"] for page in pages] == hits.ids
    assert [page["score"] for page in pages] == pytest.approx(hits.scores, abs=1e-5)
    assert [page["rank"] for page in pages] == [1, 2, 3, 4, 5]
    best = pages[0]
    assert (best["id"], best["document"], best["page"]) == (
        "annual/report.pdf#1",
        "annual/report.pdf",
        1,
    )
    assert best["text"].strip() == CAPITAL
    # a scan comes as its picture, right behind what is said of it
    at = next(
        i
        for i, block in enumerate(found)
        if isinstance(block, dict) and block["id"] == "scan.png#1"
    )
    assert found[at]["text"] == ""
    assert found[at + 1].size == (1000, 300)
    assert sum(not isinstance(block, dict) for block in found) == 1
    inside = call(server, "search", question=question, documents=["annual"])
    assert {page["document"] for page in inside} == {"annual/report.pdf"}
    where = {"document": {"prefix": "annual/"}, "page": {">=": 2}}
    (second,) = call(server, "search", question=question, where=where)
    assert second["id"] == "annual/report.pdf#2"
    nothing = call(server, "search", question=question, where={"year": {"exists": True}})
    assert nothing == [{"note": "no page matches"}]


def test_pictures_and_text_on_demand(server: Any) -> None:
    facts, image = call(server, "read_page", page="staff.pdf#1", show="image")
    assert facts["text"] == ""
    assert max(image.size) == 1000
    assert len(set(image.convert("L").tobytes())) > 10  # something is on it
    (facts,) = call(server, "read_page", page="scan.png#1", show="text")
    assert "Invoice for turbine oil" in facts["text"]
    (facts,) = call(server, "read_page", page="log.txt#1")
    assert facts == {"id": "log.txt#1", "document": "log.txt", "page": 1, "text": LONG + "\n\n"}
    assert failure(server, "read_page", page="log.txt#1", show="image") == (
        "log.txt#1: it has no picture; ask for its text"
    )


def test_describe_index(server: Any, made: Library) -> None:
    (facts,) = call(server, "describe_index")
    assert (facts["index"], facts["pages"], facts["documents"]) == ("reports.glie", 5, 4)
    assert facts["encoder"] == "english"
    assert facts["pages_of"] == {
        "annual/report.pdf": 2,
        "staff.pdf": 1,
        "log.txt": 1,
        "scan.png": 1,
    }
    assert facts["bytes_per_page"] > 4000
    (facts,) = call(server, "describe_index", below="annual/")
    assert facts["pages_of"] == {"annual/report.pdf": 2}


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search", {"question": " "}, "the question is empty"),
        ("search", {}, "question: Field required"),
        ("search", {"question": "x", "top": 0}, "top: Input should be greater than or equal to 1"),
        ("search", {"question": "x", "show": "film"}, "show: Input should be 'auto', 'text' or 'image'"),
        ("search", {"question": "x", "documents": ["c.pdf"]}, "c.pdf: neither a document nor a page in"),
        ("search", {"question": "x", "where": {"page": {"in": 1}}}, "where: 'page' in: expected a list of values, found 1"),
        ("search", {"question": "x", "where": {"path": {"prefix": "/"}}}, "where: 'path' is not known here; ask for 'document'"),
        ("read_page", {"page": "annual/report.pdf#9"}, "no such page; of this document there are annual/report.pdf#1, annual/report.pdf#2"),
        ("read_page", {"page": "/etc/passwd"}, "no such page; an id is a document and a number"),
        ("read_page", {"page": "../b.pdf#1"}, "no such page; an id is a document and a number"),
        ("delete", {}, "Unknown tool: delete"),
    ],
)  # fmt: skip
def test_errors_are_one_line(
    server: Any, tool: str, arguments: dict[str, Any], message: str
) -> None:
    assert message in failure(server, tool, **arguments)


def test_only_what_was_indexed_is_read(made: Library, tmp_path: Path, encoder: Encoder) -> None:
    """A path in the metadata is no leave to read the file, nor is a page of another size."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the password is swordfish")
    drawn = make_pdf(tmp_path / "secret.pdf", ["the password is swordfish"])
    index = glie.Index.create(tmp_path / "other.glie", glie.Codec(k=2))
    known = glie.Index.open(made.path).metadata("staff.pdf#1")
    lies = [
        {"document": "secret.txt", "page": 1, "path": str(secret)},
        {"document": "secret.txt", "page": 1, "path": str(secret), "digest": known["digest"]},
        {"document": "secret.txt", "page": 1, "path": str(secret), "digest": None},
        {"document": "secret.txt", "page": 1, "path": [str(secret)], "digest": ""},
        {"document": "secret.pdf", "page": 1, "path": str(drawn)},
        {**known, "page": 7},
        {**known, "page": "1"},
        {},
    ]
    names = [f"lie-{i}" for i in range(len(lies))]
    index.add(glie.Pages(make_arrays(len(lies), dim=128), names), lies)
    server = make_server(index, encoder)
    for show in ("auto", "text", "image"):
        for name in names:
            assert "swordfish" not in failure(server, "read_page", page=name, show=show)
        found = call(server, "search", question="password", top=len(lies), show=show)
        assert sorted(page["id"] for page in found) == names
        assert {page["text"] for page in found} == {""}
        assert all(page["note"] for page in found)


def test_a_file_that_has_changed(made: Library, tmp_path: Path, encoder: Encoder) -> None:
    documents, folder = tmp_path / "docs", tmp_path / "x.glie"
    shutil.copytree(made.documents, documents)
    entry = {"name": encoder.name, "revision": encoder.revision}
    index = glie.Index.create(folder, glie.Codec(k=4), encoder=entry)
    ingest(index, encoder, [documents / "staff.pdf", documents / "log.txt"], keep_images=True)
    server = make_server(folder, encoder)
    (facts,) = call(server, "read_page", page="log.txt#1")
    assert facts["text"].startswith("The harbour")
    (documents / "log.txt").write_text("other words")
    (documents / "staff.pdf").unlink()
    message = "its file is gone or has changed since it was indexed; `glie index` takes it in again"
    assert failure(server, "read_page", page="log.txt#1") == f"log.txt#1: {message}"
    assert (
        failure(server, "read_page", page="staff.pdf#1", show="text") == f"staff.pdf#1: {message}"
    )
    facts, image = call(server, "read_page", page="staff.pdf#1")  # a kept picture is still there
    assert (facts["text"], image.format) == ("", "WEBP")
    assert max(image.size) == 1000
    # what is indexed while it serves is there at once
    (documents / "log.txt").write_text("Seal colonies of the north")
    ingest(glie.Index.open(folder), encoder, [documents / "log.txt"])
    (facts,) = call(server, "read_page", page="log.txt#1")
    assert facts["text"].strip() == "Seal colonies of the north"
    found = call(server, "search", question="seals", show="text")
    texts = {page["id"]: page["text"] for page in found}
    assert texts["log.txt#1"].strip() == "Seal colonies of the north"


def test_long_pages_and_many_documents(
    made: Library, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "MOST_CHARACTERS", 100)
    monkeypatch.setattr(mcp, "MOST_DOCUMENTS", 3)
    server = make_server(made.path, encoder)
    (found,) = call(server, "search", question="harbour log", top=1)
    assert found["text"] == LONG[:100]
    assert found["note"] == f"cut from {len(LONG) + 2:,} characters; read_page shows them all"
    (whole,) = call(server, "read_page", page="log.txt#1")
    assert whole["text"].startswith(LONG)
    (facts,) = call(server, "describe_index")
    assert list(facts["pages_of"]) == ["annual/report.pdf", "log.txt", "scan.png"]
    assert facts["documents"] == 4
    assert facts["note"] == "1 document not listed; `below` narrows it"


def test_an_empty_index_and_a_missing_encoder(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "x.glie", encoder={"name": "gone", "revision": "1"})
    server = make_server(tmp_path / "x.glie")
    assert call(server, "search", question="anything") == [{"note": "the index is empty"}]
    assert call(server, "describe_index")[0]["bytes_per_page"] is None
    index.add(glie.Pages(make_arrays(2), ["a#1", "a#2"]))
    assert "encoder 'gone' is unknown" in failure(server, "search", question="anything")


def test_what_cannot_be_served(tmp_path: Path) -> None:
    done = subprocess.run(
        [GLIE, "mcp", tmp_path / "none"], capture_output=True, text=True, check=False, input=""
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "none" in done.stderr
    done = subprocess.run([GLIE, "mcp", "--help"], capture_output=True, text=True, check=False)
    assert '{"mcpServers"' in done.stdout
    assert 'pip install "glie[mcp]"' in done.stdout
