"""A codec is kept in two files, comes back the same, and damage is named."""

from __future__ import annotations

import http.server
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.codec.card import model_card
from glie.storage import digest
from tests.codec.networks import fitted_of, random_codec
from tests.conftest import make_arrays

MINILM = {"name": "minilm", "revision": "722ab47901980717"}  # that the shipped codec is for


def test_a_free_codec_is_its_settings(tmp_path: Path) -> None:
    glie.Codec.from_config(glie.CodecConfig(k=7, restarts=3)).save(tmp_path / "c")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["config.json"]
    loaded = glie.Codec.load(tmp_path / "c")
    assert (loaded.k, loaded.config.restarts, loaded.scores) == (7, 3, ())


@pytest.mark.parametrize("layout", ["light", "paper"])
@pytest.mark.parametrize("cascade", [True, False])
def test_a_fitted_codec_comes_back_the_same(tmp_path: Path, cascade: bool, layout: str) -> None:
    codec = random_codec(16, 0, layout=layout)
    codec = codec if cascade else codec.single_stage
    codec.save(tmp_path / "c")
    names = {path.name for path in (tmp_path / "c").iterdir()}
    assert names == {"config.json", "model.safetensors"}
    loaded = glie.Codec.load(tmp_path / "c")
    pages = glie.Pages(make_arrays(4))
    codes = codec.compress(pages)
    assert loaded.compress(pages).vectors.tobytes() == codes.vectors.tobytes()
    again = loaded.regenerate(codes)
    assert again.vectors.tobytes() == codec.regenerate(codes).vectors.tobytes()
    assert repr(loaded) == repr(codec)
    assert loaded.measured == codec.measured


def test_saving_in_place_of_another(tmp_path: Path) -> None:
    random_codec(16, 0).save(tmp_path / "c")
    glie.Codec(k=3).save(tmp_path / "c")
    assert not glie.Codec.load(tmp_path / "c").scores
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(glie.CodecError, match="not empty and not a codec"):
        glie.Codec().save(tmp_path / "mine")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").write_text("of somebody else")
    with pytest.raises(glie.CodecError, match="not empty and not a codec"):
        glie.Codec().save(tmp_path / "weights")
    with pytest.raises(glie.CodecError, match="a file"):
        glie.Codec().save(tmp_path / "mine" / "thesis.txt")


def test_one_budget_and_another() -> None:
    codec = random_codec(16, 0, k=4)
    assert codec.at(9).k == 9
    assert fitted_of(codec.at(9)) is fitted_of(codec)
    assert codec.at(9).single_stage.at(3).decoder is None
    pages = glie.Pages(make_arrays(2))
    assert codec.at(2).compress(pages).k == 2


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("config.json", b"{", "not a codec"),
        ("config.json", b"[]", "not a codec"),
        ("config.json", b'{"format": "other", "version": 1}', "format 'other'"),
        ("config.json", b'{"format": "glie-codec", "version": 99}', "upgrade"),
        ("config.json", b'{"format": "glie-codec", "version": 1, "k": 0}', "damaged"),
        ("config.json", b'{"format": "glie-codec", "version": 1, "dim": 16}', "missing"),
        ("model.safetensors", b"", "damaged"),
        ("model.safetensors", b"\xff" * 64, "damaged"),
        ("model.safetensors", None, "missing"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, change: bytes | None, said: str) -> None:
    random_codec(16, 0).save(tmp_path)
    if change is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(change)
    with pytest.raises(glie.CodecError, match=said) as caught:
        glie.Codec.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_weights_must_fit_together(tmp_path: Path) -> None:
    import safetensors.numpy

    random_codec(16, 0).save(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    config = tmp_path / "config.json"

    def save(changed: dict[str, Any]) -> None:
        """Other weights, which the settings name as theirs."""
        safetensors.numpy.save_file(changed, path)
        named = digest(path.read_bytes())
        config.write_text(json.dumps({**json.loads(config.read_text()), "weights": named}))

    for name, wrong in (
        ("decoder.step", np.zeros((3, 3), np.float16)),
        ("refiner.query", np.zeros((16, 3), np.float16)),
        ("refiner.key", np.full(tensors["refiner.key"].shape, np.nan, np.float16)),
        ("refiner.value", tensors["refiner.value"].astype(np.float32)),
        ("decoder.up", np.zeros((), np.float16)),
    ):
        save({**tensors, name: wrong})
        with pytest.raises(glie.CodecError, match="damaged: weights"):
            glie.Codec.load(tmp_path)
    save({"other": tensors["decoder.up"]})
    with pytest.raises(glie.CodecError, match="missing or unknown"):
        glie.Codec.load(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cascade", "false"),
        ("encoder", {}),
        ("encoder", {"name": "x", "revision": [1]}),
        ("weights", "0" * 16),
        ("dim", 17),
        ("budgets", []),
        *(
            ("budgets", [{"k": 4, "free": 0.1, "single_stage": 0.2, "cascade": 0.3, **wrong}])
            for wrong in (
                *({"k": 0}, {"k": "4"}, {"step": float("nan")}, {"step": 1e30}, {"step": "1"}),
                *({"cascade": "9"}, {"free": None}, {"other": 1}),
            )
        ),
    ],
)
def test_settings_are_checked(tmp_path: Path, key: str, value: object) -> None:
    random_codec(16, 0).save(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), key: value}))
    with pytest.raises(glie.CodecError, match="damaged"):
        glie.Codec.load(tmp_path)


def test_a_save_that_was_cut_off(tmp_path: Path) -> None:
    """New weights under old settings are told apart, and saving again mends it."""
    random_codec(16, 0).save(tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    random_codec(16, 1).save(tmp_path)
    (tmp_path / "config.json").write_bytes(before)
    (tmp_path / "config.json.new").write_bytes(b"{")
    with pytest.raises(glie.CodecError, match="is not the file that"):
        glie.Codec.load(tmp_path)
    random_codec(16, 1).save(tmp_path)
    assert glie.Codec.load(tmp_path).scores


@pytest.mark.parametrize("moments", list(itertools.product(range(4), repeat=2)))
def test_a_save_that_is_killed_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moments: tuple[int, int]
) -> None:
    """It leaves no codec, which a later run would take for one, and nothing in that run's way,
    even if that is killed too."""

    class Killed(BaseException):
        pass

    def mortal(action: Any, steps: Iterator[int]) -> Any:
        def act(path: Path, given: Any) -> Any:
            if next(steps, None) is not None:
                return action(path, given)
            if isinstance(given, bytes):
                action(path, given[: len(given) // 2])
            raise Killed

        return act

    codec = random_codec(16, 0)
    for moment in moments:
        with monkeypatch.context() as life:
            steps = iter(range(moment))
            for name in ("write_bytes", "replace"):
                life.setattr(Path, name, mortal(getattr(Path, name), steps))
            with pytest.raises(Killed):
                codec.save(tmp_path / "c")
        assert not (tmp_path / "c" / "config.json").exists()
    codec.save(tmp_path / "c")
    assert glie.Codec.load(tmp_path / "c").same_as(codec)


def test_no_codec_there(tmp_path: Path) -> None:
    with pytest.raises(glie.CodecError, match="no such folder"):
        glie.Codec.load(tmp_path / "none")
    with pytest.raises(glie.CodecError, match=r"no config\.json"):
        glie.Codec.load(tmp_path)


def test_other_vectors_are_refused() -> None:
    codec = random_codec(16, 0)
    with pytest.raises(glie.VectorError, match="have 8 numbers, the codec was fitted for 16"):
        codec.compress(glie.Pages(make_arrays(2, dim=8)))
    with pytest.raises(glie.VectorError, match="fitted for 16"):
        codec.regenerate(glie.Codec(k=2).compress(glie.Pages(make_arrays(2, dim=8))))


def test_the_hubs_names_on_a_folder(tmp_path: Path) -> None:
    codec = random_codec(16, 0)
    codec.save_pretrained(tmp_path / "c")
    card = (tmp_path / "c" / "README.md").read_text()
    assert "library_name: glie" in card
    assert "| 4 | 144 | 0.100 | 0.200 | 0.300 |" in card
    assert glie.Codec.from_pretrained(tmp_path / "c").k == 4


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the Hub's protocol as uploading and downloading a small repository takes."""

    files: dict[str, bytes]
    calls: list[str]

    def answer(self, body: Any, headers: dict[str, str] | None = None, code: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.calls.append(f"{self.command} {self.path}")
        if self.path == "/api/repos/create":
            self.answer(
                {"url": "https://huggingface.co/me/codec", "name": "me/codec", "id": "me/codec"}
            )
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            asked = json.loads(body)["files"]
            plan = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked
            ]
            self.answer({"files": plan})
        elif "/commit/" in self.path:
            import base64

            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.files[line["value"]["path"]] = content
            self.answer(
                {"commitUrl": "https://huggingface.co/me/codec/commit/1", "commitOid": "1" * 40}
            )
        else:
            self.answer({"error": "unknown"}, code=404)

    def do_GET(self) -> None:
        self.calls.append(f"{self.command} {self.path}")
        if self.path.startswith("/api/models/me/codec/tree/"):
            self.answer(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": "2" * 40}
                    for name, data in self.files.items()
                ]
            )
        elif self.path.startswith("/api/models/me/codec"):
            siblings = [{"rfilename": name} for name in self.files]
            self.answer({"id": "me/codec", "sha": "1" * 40, "siblings": siblings})
        elif self.path.startswith("/me/codec/resolve/"):
            name = self.path.rsplit("/", 1)[1]
            headers = {"X-Repo-Commit": "1" * 40, "ETag": f'"{name}"'}
            self.answer(self.files[name], headers)
        else:
            self.answer({"error": "unknown"}, code=404)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    Hub.files, Hub.calls = {}, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    import huggingface_hub.constants as constants
    import huggingface_hub.file_download as file_download
    import huggingface_hub.hf_api as hf_api

    for module in (constants, hf_api, file_download):
        for name in ("ENDPOINT", "HF_HUB_CACHE"):
            if hasattr(module, name):
                new = address if name == "ENDPOINT" else str(tmp_path / "hub")
                monkeypatch.setattr(module, name, new)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE",
        address + "/{repo_id}/resolve/{revision}/{filename}",
    )  # fmt: skip
    monkeypatch.setattr(hf_api.api, "endpoint", address)
    yield Hub
    server.shutdown()
    server.server_close()
    thread.join()


def test_to_the_hub_and_back(hub: type[Hub], tmp_path: Path) -> None:
    codec = random_codec(16, 0)
    assert codec.push_to_hub("me/codec", token="hf_x").endswith("/commit/1")
    assert set(hub.files) == {"config.json", "model.safetensors", "README.md"}
    assert hub.files["README.md"].decode() == model_card(codec, "me/codec")
    loaded = glie.Codec.from_pretrained("me/codec", cache_dir=tmp_path / "cache")
    pages = glie.Pages(make_arrays(2))
    assert loaded.compress(pages).vectors.tobytes() == codec.compress(pages).vectors.tobytes()
    assert not any("README" in call for call in hub.calls if "resolve" in call)


def test_what_the_hub_does_not_have(hub: type[Hub], tmp_path: Path) -> None:
    with pytest.raises(glie.CodecError, match="could not be downloaded from the Hub"):
        glie.Codec.from_pretrained("you/other", cache_dir=tmp_path / "cache")
