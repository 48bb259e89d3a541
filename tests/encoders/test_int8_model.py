"""Models of int8 weights: exported by the tool, compared with torch, run without it."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glie
from glie.encoders import load_encoder
from glie.encoders.heads import weighted_pages, weighted_queries
from glie.encoders.int8_model import Int8Model, int8_encoder
from glie.encoders.text import TextEncoder
from tests.conftest import Floats
from tests.encoders.test_encoders import WORDS, cut, text_of, word_tokenizer

TOOL = Path(__file__).parents[2] / "tools" / "export_encoder.py"
FILES = ("model.onnx", "model.safetensors", "tokenizer.json")
DIM, HIDDEN, HEADS = 16, 64, 4
EXPORTER = runpy.run_path(str(TOOL))
export, quantised = EXPORTER["export"], EXPORTER["quantised"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT with random weights, biases and a head, as training writes it."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=96, max_position_embeddings=40, initializer_range=0.2,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False).eval()
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name in tensors:
        if name.endswith("bias") or "LayerNorm" in name:
            tensors[name] += 0.3 * torch.randn_like(tensors[name])
    tensors["head.weight"] = torch.randn(DIM, HIDDEN) / HIDDEN**0.5
    tensors["head.bias"] = torch.randn(DIM)
    save_file(tensors, folder / "model.safetensors")
    word_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "bert.json").write_text(config.to_json_string())
    return folder


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export(checkpoint, folder, HEADS)
    return folder


@pytest.fixture(scope="module")
def encoder(exported: Path) -> TextEncoder:
    return int8_encoder(exported, name="tiny")


def torch_model(checkpoint: Path) -> tuple[Any, Any, Any]:
    """The network in float32, and the weight and bias of its head."""
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    config = BertConfig.from_json_file(checkpoint / "bert.json")
    model = BertModel(config, add_pooling_layer=False).eval()
    tensors = load_file(checkpoint / "model.safetensors")
    weight, bias = tensors.pop("head.weight"), tensors.pop("head.bias")
    model.load_state_dict(tensors)
    return model, weight, bias


@pytest.fixture(scope="module")
def outputs(checkpoint: Path) -> Callable[[list[int]], Floats]:
    """What torch's float32 gives for the tokens of a window, without [CLS] and [SEP]."""
    import torch

    model, weight, bias = torch_model(checkpoint)

    def run(tokens: list[int]) -> Floats:
        with torch.inference_mode():
            states = model(input_ids=torch.tensor([[2, *tokens, 3]])).last_hidden_state[0, 1:-1]
            return np.asarray((states @ weight.T + bias).numpy())

    return run


def words(count: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(4, len(WORDS), count)]


def close(found: Floats, expected: Floats) -> None:
    """Unit vectors of 8-bit arithmetic."""
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(found, expected, atol=0.08)
    assert (found * expected).sum(axis=1).mean() > 0.998


def test_int8_is_close_to_float32(
    encoder: TextEncoder, outputs: Callable[[list[int]], Floats]
) -> None:
    for count in (1, 7, 38):
        tokens = words(count)
        close(encoder.encode_pages([text_of(tokens)])[0], weighted_pages(outputs(tokens)))
        close(encoder.encode_queries([text_of(tokens)])[0], weighted_queries(outputs(tokens)))


def test_the_graph_is_the_network(exported: Path, checkpoint: Path) -> None:
    """Torch with the same weights, and inputs of products rounded in the same way, gives the same:
    no bias is lost and nothing is in the wrong place."""
    import torch
    from safetensors.torch import load_file

    def signed(x: Any) -> Any:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round() * scale

    def active(x: Any) -> Any:
        scale = (x.amax(-1, keepdim=True) + 0.17) / 255
        return ((x + 0.17) / scale).round() * scale - 0.17

    model, weight, bias = torch_model(checkpoint)
    tensors = load_file(exported / "model.safetensors")
    parts = model.embeddings
    parts.word_embeddings.weight.data = tensors["words.weight"] * tensors["words.scale"]
    parts.position_embeddings.weight.data = tensors["places.weight"].float()
    parts.token_type_embeddings.weight.data.zero_()  # in the places
    for name, part in model.named_modules():
        if isinstance(part, torch.nn.Linear):
            before = part.weight.data
            part.weight.data = (tensors[f"{name}.weight"] * tensors[f"{name}.scale"]).T.contiguous()
            rounding = active if name.endswith("output.dense") else signed
            if name.endswith("attention.output.dense"):  # the bias of the values is added here
                values = model.get_submodule(name.replace("output.dense", "self.value"))
                part.bias.data += before @ values.bias.data
                values.bias.data.zero_()
                rounding = signed
            part.register_forward_pre_hook(lambda _, x, rounding=rounding: (rounding(x[0]),))
    tokens = [2, *words(30), 3]
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([tokens])).last_hidden_state[0]
        expected = (states @ weight.T + bias).numpy()
    found = Int8Model(exported, "").states(np.array([tokens]), np.ones((1, 32), np.int64))[0]
    # a number between two integers may be rounded to the other one
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 0.002


def test_vectors_do_not_depend_on_the_batch(encoder: TextEncoder) -> None:
    """Bit for bit, also in several threads."""
    texts = [text_of(words(1 + i * 5 % 60, seed=i)) for i in range(24)]
    encoder.model._threads = 3  # type: ignore[attr-defined]
    for encode in (encoder.encode_pages, encoder.encode_queries):
        for text, vectors in zip(texts, encode(texts), strict=True):
            assert np.array_equal(encode([text])[0], vectors)


def test_pages_and_questions(encoder: TextEncoder) -> None:
    """A question's vectors are a page's directions, each with a weight."""
    text = text_of(words(12))
    page, query = encoder.encode_pages([text])[0], encoder.encode_queries([text])[0]
    assert page.shape == query.shape == (12, DIM)
    assert not page[:, -1].any()
    weights = (page * query).sum(axis=1)
    assert len(set(weights.round(4))) > 6
    np.testing.assert_allclose(query[:, :-1], weights[:, None] * page[:, :-1], atol=1e-6)
    np.testing.assert_allclose(query[:, -1], np.sqrt(1 - weights**2), atol=1e-4)


@given(st.floats(-1e4, 1e4, width=32))
def test_weights_of_any_logit(logit: float) -> None:
    (vector,) = weighted_queries(np.array([[3, 4, logit]], np.float32))
    assert np.isfinite(vector).all()
    assert abs(np.linalg.norm(vector) - 1) < 1e-6
    expected = 1 / (1 + np.exp(-np.clip(logit, -700, 700)))
    np.testing.assert_allclose(vector[:2], [0.6 * expected, 0.8 * expected], atol=1e-6)


def test_windows_and_spans(encoder: TextEncoder, outputs: Callable[[list[int]], Floats]) -> None:
    """40 positions leave 38 for text; two windows share 9 tokens, 5 of them from the second."""
    tokens = words(60)
    vectors = encoder.encode_pages([text_of(tokens)])[0]
    parts = [outputs(tokens[:38])[:33], outputs(tokens[29:])[4:]]
    close(vectors, weighted_pages(np.concatenate(parts)))
    text = "w1 w22  w3"
    assert [text[a:b] for a, b in encoder.spans(text)] == ["w1", "w22", "w3"]


@given(st.integers(0, 2**32))
def test_no_processor_overflows(seed: int) -> None:
    """255 times two neighbours of one sign fits into 16 bits."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_t(3, size=(32, 5)).astype(np.float32)
    whole, scales = quantised(weights)
    pairs = whole.astype(np.int64).reshape(16, 2, 5)
    for sign in (1, -1):
        assert 255 * np.maximum(sign * pairs, 0).sum(axis=1).max() < 2**15
    error = np.linalg.norm(whole * scales - weights) / np.linalg.norm(weights)
    assert error < 0.02


def test_the_best_scale_loses_least() -> None:
    weights = np.random.default_rng(0).normal(size=(256, 8)).astype(np.float32)
    weights[0] *= 3
    whole, scales = quantised(weights, products=False)
    plain = np.abs(weights).max(axis=0) / 127
    error = np.square(whole * scales - weights).sum(axis=0)
    assert (error <= np.square(np.rint(weights / plain) * plain - weights).sum(axis=0)).all()


def test_a_folder_is_an_encoder(exported: Path, encoder: TextEncoder) -> None:
    loaded = load_encoder(exported)
    assert (loaded.name, loaded.revision) == (str(exported.resolve()), encoder.revision)
    assert len(loaded.revision) == 16
    text = text_of(words(9))
    assert np.array_equal(loaded.encode_pages([text])[0], encoder.encode_pages([text])[0])


def test_exports_are_reproducible(
    checkpoint: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [str(TOOL), str(checkpoint), "--to", str(tmp_path), "--heads", str(HEADS)]
    monkeypatch.setattr(sys, "argv", said)
    runpy.run_path(str(TOOL), run_name="__main__")
    for name in (*FILES, "config.json"):
        assert (tmp_path / name).read_bytes() == (exported / name).read_bytes()


def test_it_needs_neither_torch_nor_onnx(exported: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = sys.modules["transformers"] = sys.modules["onnx"] = None
from glie.encoders import load_encoder
print(load_encoder({str(exported)!r}).encode_pages(["w1 w2"])[0].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (f"(2, {DIM})", "")


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_missing_packages(exported: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("glie.encoders.int8_model.Int8Model", Int8Model)  # not one kept by others
    for name in ("english", exported):
        with pytest.raises(glie.MissingExtraError, match=r'pip install "glie\[encoder\]"'):
            load_encoder(name)


def test_an_onnxruntime_that_cannot_run_it(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glie.encoders.int8_model.check_files", lambda *_: None)
    folder = shutil.copytree(exported, tmp_path / "x")
    graph = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(graph.replace(b"BiasGelu", b"NewsGelu"))
    with pytest.raises(glie.EncoderError, match=r"NewsGelu.*; pip install --upgrade onnxruntime"):
        load_encoder(folder)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def set_version(version: Any) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        path.write_text(json.dumps({"glie_encoder": version}))

    return change


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        *((name, flip, f"{name}: damaged: sha256 .*…, expected .*…; reinstall") for name in FILES),
        *((name, cut, f"{name}: damaged") for name in FILES),
        *((name, Path.unlink, f"{name}: missing; reinstall") for name in FILES),
        ("config.json", Path.unlink, "config.json: cannot be read: No such file.*; reinstall"),
        ("config.json", cut, "not an encoder of glie: .*; reinstall"),
        ("config.json", lambda p: p.write_text("[]"), "not an encoder of glie"),
        ("config.json", set_version(1), "not an encoder of glie: 'sha256'; reinstall"),
        (
            "config.json",
            set_version(2),
            "format 2, from a newer glie; this one reads format 1: pip install --upgrade glie",
        ),
    ],
)
def test_damaged_folders(
    exported: Path,
    tmp_path: Path,
    file: str,
    damage: Callable[[Path], object],
    said: str,
) -> None:
    folder = shutil.copytree(exported, tmp_path / "x")
    damage(folder / file)
    with pytest.raises(glie.EncoderError, match=said) as caught:
        int8_encoder(folder, name="tiny", remedy="reinstall glie")
    assert "\n" not in str(caught.value)


def test_a_tokenizer_larger_than_the_network(checkpoint: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(checkpoint, tmp_path / "x")
    tensors = load_file(folder / "model.safetensors")
    table = "embeddings.word_embeddings.weight"
    save_file(tensors | {table: tensors[table][:10].copy()}, folder / "model.safetensors")
    with pytest.raises(SystemExit, match=r"54 words in .*, weights for 10"):
        export(folder, tmp_path / "y", HEADS)
