"""Encoders behind an endpoint, against a real server on loopback: the three protocols, faults,
and what an index keeps."""

from __future__ import annotations

import base64
import io
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from PIL import Image

import glie
from glie.encoders import http as over_http
from glie.encoders import load_encoder
from glie.encoders.endpoint import QUERY_TEMPLATES, read_address
from glie.encoders.protocols import vectors_of
from glie.encoders.reduction import write_reduction
from glie.errors import EncoderError
from glie.identity import EncoderId
from tests.cli.conftest import Run, run  # noqa: F401
from tests.documents.test_documents import make_pdf
from tests.encoders.checkpoints import saved
from tests.encoders.servers import DIM, KEY, MODEL, Handler, image_vectors, serving, text_vectors

Server = tuple[str, type[Handler]]
PREFIX = {"vllm": "", "infinity": "", "openai": "/v1"}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait between tries, and no key or proxy of this machine is used."""
    monkeypatch.setattr(over_http, "FACTOR", 0.0)
    monkeypatch.setattr(over_http, "JITTER", 0.0)
    for name in (over_http.KEY, "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def address(server: Server, protocol: str = "vllm", options: str = "") -> str:
    return f"{protocol}:{server[0]}{PREFIX[protocol]}#{MODEL}{options}"


def pictures(count: int = 3) -> list[Image.Image]:
    return [Image.new("RGB", (20, 30), (i * 40, 0, 90)) for i in range(count)]


def seen(picture: Image.Image) -> Any:
    packed = io.BytesIO()
    picture.save(packed, "PNG")
    return image_vectors("data:image/png;base64," + base64.b64encode(packed.getvalue()).decode())


@pytest.mark.parametrize("protocol", PREFIX)
def test_texts(server: Server, protocol: str) -> None:
    """Each protocol gives the vectors that its server made, page and question."""
    encoder = load_encoder(address(server, protocol, "?reads=text&batch=2"))
    texts = ["rotor blades", "tide", "the cable of the harbour"]
    made = encoder.encode_pages(texts)
    for text, vectors in zip(texts, made, strict=True):
        np.testing.assert_allclose(vectors, text_vectors(text), atol=1e-6)
    (asked,) = encoder.encode_queries(["rotor"])
    template = QUERY_TEMPLATES["colpali"] if protocol == "vllm" else "{}"
    np.testing.assert_allclose(asked, text_vectors(template.replace("{}", "rotor")), atol=1e-6)


@pytest.mark.parametrize("protocol", PREFIX)
def test_pictures(server: Server, protocol: str) -> None:
    """vLLM's vectors end with those of the prompt; infinity's padding is left out."""
    encoder = load_encoder(address(server, protocol, "?reads=image&batch=2"))
    for picture, vectors in zip(pictures(), encoder.encode_pages(pictures()), strict=True):
        expected = seen(picture)
        if protocol == "vllm":
            expected = np.concatenate([expected, text_vectors("Describe the image.")])
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    bodies = [body for _, body in server[1].asked][1:]
    assert len(bodies) == (3 if protocol == "vllm" else 2)
    packed = {body["encoding_format"] for body in bodies}
    assert packed == {"float" if protocol == "openai" else "base64"}


def test_long_pages_are_sent_in_pieces(server: Server) -> None:
    encoder = load_encoder(address(server, options="?reads=text&piece=20&batch=3&page=doc:{}"))
    text = "one two three four five six seven eight nine ten"
    (vectors,) = encoder.encode_pages([text])
    sent = [piece for _, body in server[1].asked[1:] for piece in body["input"]]
    assert sent == ["doc:one two three four", "doc:five six seven eight", "doc:nine ten"]
    np.testing.assert_allclose(
        vectors, np.concatenate([text_vectors(one) for one in sent]), atol=1e-6
    )


@pytest.mark.parametrize(("family", "kind"), [("colpali", "ColPali"), ("colqwen2", "ColQwen2")])
def test_prompts_are_those_of_the_models(family: str, kind: str, tmp_path: Path) -> None:
    """What transformers' own processor makes of a question."""
    processor = getattr(transformers, f"{kind}Processor").from_pretrained(
        saved(family, tmp_path / family), backend="pil"
    )
    given: list[str] = []
    tokenizer = processor.tokenizer
    original = type(tokenizer).__call__

    def noting(self: Any, text: Any, *arguments: Any, **keywords: Any) -> Any:
        given.extend(text if isinstance(text, list) else [text])
        return original(self, text, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(tokenizer), "__call__", noting)
        processor.process_queries(text=["who?"])
    ours = QUERY_TEMPLATES[family].replace("{}", "who?")
    token = {"colpali": "<pad>", "colqwen2": "<|endoftext|>"}[family]
    ours = ours.replace(token, processor.query_augmentation_token)
    assert given[0].removeprefix(tokenizer.bos_token or "") == ours


def test_a_key_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server[1].key = KEY
    with pytest.raises(EncoderError, match=r"/pooling: it answered 401: Unauthorized; give its"):
        load_encoder(address(server))
    monkeypatch.setenv("GLIE_ENCODER_API_KEY", KEY)
    assert KEY not in repr(EncoderId.of(load_encoder(address(server))))


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(server: Server, status: int) -> None:
    encoder = load_encoder(address(server, options="?reads=text"))
    server[1].failures += [(status, {"Retry-After": "0"})] * over_http.RETRIES
    assert len(encoder.encode_pages(["rotor"])) == 1
    assert len(server[1].asked) == 2 + over_http.RETRIES
    server[1].failures += [(status, {})] * (over_http.RETRIES + 1)
    with pytest.raises(EncoderError, match=rf"answered {status}: busy, also after 5 more tries"):
        encoder.encode_pages(["rotor"])


def test_what_would_come_back_the_same_is_not_asked_again(server: Server) -> None:
    encoder = load_encoder(address(server, options="?reads=text"))
    before = len(server[1].asked)
    for status in (400, 413, 422, 500):
        server[1].failures += [(status, {})]
        with pytest.raises(EncoderError, match=rf"answered {status}: busy$"):
            encoder.encode_pages(["rotor"])
    server[1].failures += [(302, {"Location": "http://127.0.0.1:1/elsewhere"})]
    with pytest.raises(EncoderError, match=r"302: it points to http://127.0.0.1:1/elsewhere; give"):
        encoder.encode_pages(["rotor"])
    assert len(server[1].asked) == before + 5
    assert over_http.LONGEST_WAIT < 60


def test_a_batch_that_does_not_fit_is_halved(server: Server) -> None:
    encoder = load_encoder(address(server, "infinity", "?reads=text"))
    original = server[1].do_POST

    def full(self: Handler) -> None:
        if len(self.headers.get("Content-Length", "")) > 3:  # a body of 1,000 bytes or more
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(500, {"error": {"message": "InternalServerError: CUDA out of memory."}})
        else:
            original(self)

    server[1].do_POST = full  # type: ignore[method-assign]
    texts = [f"word{i} " * 50 for i in range(4)]
    assert [len(rows) for rows in encoder.encode_pages(texts)] == [50] * 4


def test_slow_servers_and_broken_connections(server: Server) -> None:
    encoder = load_encoder(address(server, options="?reads=text&timeout=0.2"))
    original = server[1].do_POST
    server[1].do_POST = lambda self: time.sleep(1)  # type: ignore[method-assign]
    with pytest.raises(EncoderError, match=r"no answer in 0.2 seconds; .* timeout=, or less"):
        encoder.encode_pages(["rotor"])
    server[1].do_POST = original  # type: ignore[method-assign]
    server[1].dies_after = 0
    with pytest.raises(EncoderError, match=r"the connection broke \(.*closed.*\); see"):
        encoder.encode_pages(["rotor"])


def test_nobody_is_there() -> None:
    with pytest.raises(
        EncoderError, match=r"http://127.0.0.1:9/pooling: it cannot be reached .*ref"
    ):
        load_encoder(f"vllm:http://127.0.0.1:9#{MODEL}")
    with pytest.raises(EncoderError, match=r"pooling: it cannot be reached .*running there"):
        load_encoder(f"vllm:http://no.such.host.invalid#{MODEL}")


def test_a_proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's; it gets the whole URL."""
    monkeypatch.setenv("http_proxy", server[0])
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(EncoderError, match=r"http://gpu.invalid/pooling: it answered 404"):
        load_encoder(f"vllm:http://gpu.invalid#{MODEL}")
    assert server[1].asked[0][0] == "http://gpu.invalid/pooling"


def test_the_wrong_model(server: Server) -> None:
    with pytest.raises(EncoderError, match=r"404: The model `other` does not exist\."):
        load_encoder(f"vllm:{server[0]}#other")
    with pytest.raises(EncoderError, match=r"/v1/pooling: it answered 404: Not Found"):
        load_encoder(f"vllm:{server[0]}/v1#{MODEL}")


ROW = [1.0] * DIM


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>", r"its answer is not JSON: b'<html>'; is this the right address\?"),
        ([1], r'expected a list of items in "data", found \[1\]'),
        ({"data": []}, "expected vectors for 2 inputs, found those of 0"),
        ({"data": [{"data": [ROW]}]}, "for 2 inputs, found those of 1"),
        ({"data": [{"index": 1, "data": [ROW]}] * 2}, r'expected "index" from 0 to 1, found'),
        ({"data": [{"data": ROW}] * 2}, "one vector an input, of 16 numbers; expected one for"),
        ({"data": [{"data": [ROW[1:]]}] * 2}, "vectors of 15 dimensions; the first ones had 16"),
        ({"data": [{"data": [[*ROW[1:], float("nan")]]}] * 2}, "numbers that are not finite"),
        ({"data": [{"data": [[0.0] * DIM]}] * 2}, "nothing but zeros"),
        ({"data": [{"data": []}] * 2}, r"of shape \(0,\); expected"),
        ({"data": [{"data": [ROW, ROW[1:]]}] * 2}, "is no list of vectors"),
        ({"data": [{}] * 2}, "'data' is no list of vectors|'data' is of shape"),
        ({"data": [{"data": "AAAA"}] * 2}, "is no base64 of float32 vectors of 16 dimensions"),
    ],
)
def test_answers_are_checked(server: Server, answer: Any, said: str) -> None:
    encoder = load_encoder(address(server, options="?reads=text"))
    server[1].answer = answer
    with pytest.raises(EncoderError, match=rf"{server[0]}/pooling: .*{said}"):
        encoder.encode_pages(["rotor", "tide"])


def test_vectors_of_any_norm_become_unit_vectors(server: Server) -> None:
    encoder = load_encoder(address(server, options="?reads=text"))
    server[1].answer = {"data": [{"index": 0, "data": [[3.0] * DIM, [0.0] * DIM]}]}
    (rows,) = encoder.encode_pages(["rotor"])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1.0], rtol=1e-6)


def test_order_is_that_of_the_index() -> None:
    items = [{"index": i, "data": [[float(i + 1)]]} for i in (2, 0, 1)]
    assert [rows[0, 0] for rows in vectors_of({"data": items}, "data", 3, None)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vllm:host:8000#m", "'host:8000' is no URL of a server; expected http"),
        ("vllm:http://h:99999#m", "is no URL: Port out of range"),
        ("vllm:http://h:8000", "it names no model; expected one after #"),
        ("vllm:http://h:8000#?reads=text", "it names no model"),
        ("vllm:http://h:8000?reads=text#m", "options stand after the model"),
        ("vllm:http://me:secret@h#m", "which an index would record; give the key in"),
        ("vllm:http://h#m?reads=sound", "reads=sound; expected text or image"),
        ("vllm:http://h#m?batch=0", "batch=0; expected a positive number"),
        ("vllm:http://h#m?batch=x", "batch=x; expected a positive number"),
        ("vllm:http://h#m?timeout=inf", "timeout=inf; expected a positive number"),
        ("vllm:http://h#m?query=Query", r"query=Query; expected \{\} once, for the text"),
        ("vllm:http://h#m?colour=red", "option 'colour' is unknown; expected reads"),
        ("vllm:http://h#m?red", "'red' are no options; expected NAME=VALUE"),
        ("vlm:http://h#m", "is unknown: expected 'english'.*an address like vllm:http"),
    ],
)
def test_bad_addresses(name: str, said: str) -> None:
    with pytest.raises(EncoderError, match=said) as raised:
        load_encoder(name)
    assert "secret" not in str(raised.value)


def test_the_revision_is_what_decides_the_vectors(server: Server) -> None:
    plain = load_encoder(address(server))
    same = load_encoder(address(server, options="?batch=3&timeout=9"))
    assert EncoderId.of(plain).matches(EncoderId.of(same))
    with serving() as elsewhere:  # a server that has moved
        assert load_encoder(address(elsewhere)).revision == plain.revision
    for options in ("?revision=2", "?page=Look.", "?reads=text", "?query=Ask:{}"):
        other = load_encoder(address(server, options=options))
        assert not EncoderId.of(plain).matches(EncoderId.of(other)), options
    assert read_address(address(server, "infinity")).digest != plain.revision


def test_a_reduction(server: Server, tmp_path: Path) -> None:
    whole = load_encoder(address(server, options="?reads=text"))
    matrix = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, 4)))[0]
    write_reduction(tmp_path / "m.safetensors", matrix.astype(np.float32), whole)
    made = load_encoder(f"{whole.name}@{tmp_path / 'm.safetensors'}")
    assert made.encode_pages(["rotor blades"])[0].shape == (2, 4)


def test_an_index_from_the_command_line(
    server: Server,
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Index, search, and search at another address after a move."""
    monkeypatch.chdir(tmp_path)
    make_pdf(Path("reports/a.pdf"), ["Rotor blades", "Tide tables"])
    wanted = address(server, options="?reads=text")
    assert run("index", "reports", "--to", "x.glie", "--encoder", wanted).code == 0
    assert run("info", "x.glie", "--json").json["encoder"] == wanted
    found = run("search", "x.glie", "rotor", "--json")
    assert found.json["hits"][0]["id"].endswith("a.pdf#1")
    with serving() as elsewhere:
        moved = address(elsewhere, options="?reads=text")
        found = run("search", "x.glie", "tide", "--encoder", moved, "--json")
        assert found.json["hits"][0]["id"].endswith("a.pdf#2")
        other = address(elsewhere, options="?reads=text&revision=2")
        done = run("search", "x.glie", "tide", "--encoder", other)
        assert (done.code, "made with encoder" in done.err) == (1, True)


def test_an_endpoint_that_dies_midway(
    server: Server,
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was encoded stays; the next run encodes the rest."""
    monkeypatch.chdir(tmp_path)
    wanted = address(server, options="?reads=text&batch=16")
    make_pdf(Path("reports/first.pdf"), ["Tide tables"])
    assert run("index", "reports", "--to", "x.glie", "--encoder", wanted).code == 0
    for i in range(5):
        make_pdf(Path(f"reports/{i}.pdf"), [f"Rotor number {i}{j}" for j in range(20)])
    server[1].dies_after = len(server[1].asked) + 1 + 6
    done = run("index", "reports", "--to", "x.glie", "--encoder", wanted)
    assert done.code == 1
    assert "/pooling: the connection broke" in done.err
    assert len(done.err.strip().splitlines()[-1]) < 300
    kept = glie.Index.open("x.glie")
    assert 1 < len(kept) < 101
    assert not kept.verify().damage
    server[1].dies_after, before = None, len(server[1].asked)
    assert run("index", "reports", "--to", "x.glie", "--encoder", wanted).code == 0
    assert len(glie.Index.open("x.glie")) == 101
    again = [text for _, body in server[1].asked[before:] for text in body["input"]]
    assert len(again) == 1 + 101 - len(kept)


def test_nothing_is_made_where_the_endpoint_is_not(
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("Rotor blades")
    done = run("index", "a.txt", "--to", "x.glie", "--encoder", f"vllm:http://127.0.0.1:9#{MODEL}")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert not Path("x.glie").exists()


def test_the_documented_commands(
    server: Server,
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of docs/encoders.md, with the address of this server."""
    monkeypatch.chdir(tmp_path)
    make_pdf(Path("reports/a.pdf"), ["Capital expenditure in 2018"])
    doc = (Path(__file__).parents[2] / "docs/encoders.md").read_text(encoding="utf-8")
    section = doc.split("\n## Models on a server\n")[1].split("\n## ")[0]
    commands = section.split("```\n")[1].strip().splitlines()
    assert len(commands) == 2
    for command in commands:
        done = run(*shlex.split(command.replace("http://host:8000", server[0]))[1:])
        assert done.code == 0, done.err
    (example,) = re.findall(r'"(vllm:[^"]+\?[^"]+)"', section)
    assert read_address(example).batch == 32
    named = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert named == set(re.findall(r"\w+", said_options()))
    tried = f"after 0, 1, 2, 4 and 8 seconds or what the server asks for ({over_http.LONGEST_WAIT}"
    assert tried in section
    assert over_http.RETRIES == 5


def said_options() -> str:
    """The options that the error about an unknown one names."""
    with pytest.raises(EncoderError) as raised:
        read_address("vllm:http://h#m?x=1")
    return str(raised.value).split("expected ")[1].replace(" or ", ", ")
