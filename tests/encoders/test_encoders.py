"""The embedded encoder, and local text models of other kinds."""

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
from PIL import Image, ImageDraw, ImageFont

import glie
import glie.encoders.minilm as minilm_module
from glie.documents import DocumentPage
from glie.encoders import Encoder, load_encoder
from glie.encoders.text import WINDOW, TextEncoder
from tests.conftest import Floats, unit

TOOL = Path(__file__).parents[2] / "tools" / "fit_reduction.py"
LONG = " ".join(f"The {i}th turbine stands in {i * 7} metres of water." for i in range(200))


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return load_encoder("minilm")


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(50))]


def word_tokenizer() -> Any:
    """One token a word, between [CLS] and [SEP]."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT with random weights and a word tokenizer, saved as transformers saves it."""
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40,
    )  # fmt: skip
    BertModel(config).eval().save_pretrained(folder)
    return folder


class Network:
    """A network of one line: a token's state is the sum of what its word, its place and the mean of
    the words around it give. In numpy, and saved in the ONNX format."""

    def __init__(self, *, seed: int = 0, width: int = 24, positions: int = 40) -> None:
        rng = np.random.default_rng(seed)
        self.words = rng.normal(size=(len(WORDS), width)).astype(np.float32)
        self.places = rng.normal(size=(positions, width)).astype(np.float32)

    def vectors(self, tokens: list[int]) -> Floats:
        """Unit vectors of the tokens of a window, without those of [CLS] and [SEP]."""
        words = self.words[[2, *tokens, 3]]
        return unit(words + self.places[: len(words)] + words.mean(axis=0))[1:-1]

    def save(
        self,
        folder: Path,
        file: str = "onnx/model.onnx",
        *,
        inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids"),
        output: str = "last_hidden_state",
        pooled: bool = False,
        rows: str | int = "rows",
    ) -> Path:
        """As exporters lay out a model's folder."""
        from onnx import TensorProto, helper, numpy_helper, save

        def node(kind: str, given: str, made: str, **options: Any) -> Any:
            return helper.make_node(kind, given.split(), [made], **options)

        nodes = [
            node("Gather", "words input_ids", "x"),
            node("Cast", "attention_mask", "flat_mask", to=TensorProto.FLOAT),
            node("Unsqueeze", "flat_mask last", "mask"),
            node("Mul", "x mask", "seen"),
            node("ReduceSum", "seen first", "total"),
            node("ReduceSum", "mask first", "count"),
            node("Div", "total count", "mean"),
            node("CumSum", "attention_mask one", "place", exclusive=1),
            node("Gather", "places place", "placed"),
            node("Add", "x placed", "there"),
            node("Add", "there mean", "states"),
            node("ReduceMean" if pooled else "Identity", "states", output),
        ]
        constants = {
            "words": self.words,
            "places": self.places,
            "last": np.array([-1]),
            "first": np.array([1]),
            "one": np.array(1),
        }
        graph = helper.make_graph(
            nodes,
            "network",
            [helper.make_tensor_value_info(n, TensorProto.INT64, [rows, "row"]) for n in inputs],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(folder / file))
        tokenizer = word_tokenizer()
        # as in published folders: cut and padded to a length that is not ours
        tokenizer.enable_truncation(8)
        tokenizer.enable_padding(length=8)
        tokenizer.save(str(folder / "tokenizer.json"))
        settings = {"max_position_embeddings": len(self.places), "pad_token_id": 0}
        (folder / "config.json").write_text(json.dumps(settings))
        return folder


def test_one_unit_vector_a_token(minilm: Encoder) -> None:
    pages = minilm.encode_pages(["Tidal energy", LONG])
    assert len(pages[0]) == 2  # two words, no special tokens
    assert all(page.dtype == np.float32 and page.shape[1] == 128 for page in pages)
    for page in pages:
        np.testing.assert_allclose(np.linalg.norm(page, axis=1), 1, atol=1e-5)
    assert len(glie.Pages(pages)) == 2


def test_long_texts_keep_every_token_once(minilm: Encoder) -> None:
    assert isinstance(minilm, TextEncoder)
    tokens = minilm.model.tokenize([LONG])[0]
    assert len(tokens) > 3 * WINDOW
    assert len(minilm.encode_pages([LONG])[0]) == len(tokens)


def test_vectors_know_their_place_in_a_text(minilm: Encoder, tmp_path: Path) -> None:
    assert isinstance(minilm, TextEncoder)
    text = "The Rotorblades, again"
    spans = minilm.spans(text)
    assert len(spans) == len(minilm.encode_queries([text])[0])
    parts = [text[start:end] for start, end in spans]
    assert (parts[0], "".join(parts)) == ("The", text.replace(" ", ""))
    assert len(minilm.spans(LONG)) == len(minilm.encode_pages([LONG])[0])
    onnx = load_encoder(Network().save(tmp_path))
    assert isinstance(onnx, TextEncoder)
    assert onnx.spans("w1  w20") == [(0, 2), (4, 7)]


def test_batching_does_not_change_vectors(minilm: Encoder) -> None:
    texts = ["short", LONG, "The rotor was cleaned in May.", "x " * 300]
    together = minilm.encode_pages(texts)
    for text, vectors in zip(texts, together, strict=True):
        np.testing.assert_allclose(minilm.encode_pages([text])[0], vectors, atol=2e-5)


def test_finds_the_right_sentence(minilm: Encoder) -> None:
    texts = [
        "The invoice was paid in March.",
        "Rotor blades are inspected for erosion twice a year.",
        "Holiday allowance is 25 days for full-time staff.",
    ]
    pages = minilm.encode_pages(texts)
    questions = ["How often are blades checked?", "how many vacation days do employees get"]
    best = [
        int(np.argmax([(q @ page.T).max(axis=1).sum() for page in pages]))
        for q in minilm.encode_queries(questions)
    ]
    assert best == [1, 2]


def test_takes_document_pages_and_images(minilm: Encoder) -> None:
    page = DocumentPage("a.txt", 1, Path("a.txt"), "Harbour invoice", "text")
    image = Image.new("L", (1000, 300), 255)
    ImageDraw.Draw(image).text(
        (40, 100), "Harbour invoice", fill=0, font=ImageFont.load_default(60)
    )
    vectors = minilm.encode_pages([page, image, "Harbour invoice"])
    np.testing.assert_allclose(vectors[0], vectors[2], atol=2e-5)
    np.testing.assert_allclose(vectors[1], vectors[2], atol=2e-5)


@pytest.mark.parametrize("bad", ["", "  \n", 7])
def test_nothing_to_encode(minilm: Encoder, bad: Any) -> None:
    with pytest.raises(glie.InputError, match="page 1"):
        minilm.encode_pages(["fine", bad])
    with pytest.raises(glie.InputError, match="query 0: no text"):
        minilm.encode_queries([bad])


def test_a_page_without_text_is_named(minilm: Encoder) -> None:
    with pytest.raises(glie.InputError, match=r"page 'a\.pdf#3': it has no text.*glie\[ocr\]"):
        minilm.encode_pages([DocumentPage("a.pdf", 3, Path("a.pdf"), "", "none")])


def test_no_items_no_vectors(minilm: Encoder) -> None:
    assert minilm.encode_pages([]) == []
    assert minilm.encode_queries([]) == []
    with pytest.raises(glie.InputError, match="expected a list of texts"):
        minilm.encode_queries("what")


def test_unreduced_variant_is_another_encoder(minilm: Encoder) -> None:
    full = load_encoder("minilm-384")
    assert full.encode_queries(["a"])[0].shape[1] == 384
    assert (full.name, minilm.name) == ("minilm-384", "minilm")
    assert full.revision != minilm.revision


def test_the_reduction_keeps_maxsim(minilm: Encoder) -> None:
    """128 dimensions rank nearly as 384 do."""
    full = load_encoder("minilm-384")
    texts = [LONG[i : i + 200] for i in range(0, 4000, 200)]
    scores = []
    for encoder in (minilm, full):
        q = encoder.encode_queries(["water depth of the 41st turbine"])[0]
        scores.append([float((q @ p.T).max(axis=1).mean()) for p in encoder.encode_pages(texts)])
    assert np.corrcoef(scores[0], scores[1])[0, 1] > 0.8


def test_damaged_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm_module, "MINILM_SHA256", "0" * 64)
    with pytest.raises(
        glie.EncoderError, match="sha256 53aa51172d142c89…, expected 0000000000000000…"
    ):
        load_encoder("minilm")


def test_a_local_model_is_an_encoder(tiny: Path) -> None:
    encoder = load_encoder(str(tiny))
    assert encoder.name == str(tiny.resolve())
    text = " ".join(f"w{i % 50}" for i in range(111))
    vectors = encoder.encode_pages([text, "w1 w2"])
    assert [v.shape for v in vectors] == [(111, 24), (2, 24)]  # windows of 40 tokens, not 256
    np.testing.assert_allclose(encoder.encode_queries(["w1 w2"])[0], vectors[1], atol=2e-5)
    assert load_encoder(tiny).revision == encoder.revision


def test_damaged_local_weights(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(glie.EncoderError, match="not a transformers text model"):
        load_encoder(tmp_path / "cut")


def test_unknown_encoders(tmp_path: Path) -> None:
    with pytest.raises(
        glie.EncoderError,
        match="encoder 'colbert' is unknown: expected 'english', 'multilingual', 'minilm'",
    ):
        load_encoder("colbert")
    with pytest.raises(glie.EncoderError, match="no text model in it"):
        load_encoder(tmp_path)


def text_of(tokens: list[int]) -> str:
    return " ".join(WORDS[token] for token in tokens)


def test_an_onnx_folder_is_an_encoder(tmp_path: Path) -> None:
    network = Network()
    encoder = load_encoder(network.save(tmp_path))
    assert encoder.name == str(tmp_path.resolve())
    short, other = [4, 9, 4], [30, 7, 8, 11, 12]
    together = encoder.encode_pages([text_of(short), text_of(other)])
    for tokens, vectors in zip((short, other), together, strict=True):
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, network.vectors(tokens), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(encoder.encode_queries([text_of(short)])[0], together[0], atol=1e-6)


def test_windows_of_an_onnx_model(tmp_path: Path) -> None:
    """40 positions leave 38 for text; two windows share 9 tokens, 5 of them from the second."""
    network = Network()
    encoder = load_encoder(network.save(tmp_path))
    tokens = [4 + i * 7 % 50 for i in range(60)]
    expected = np.concatenate([network.vectors(tokens[:38])[:33], network.vectors(tokens[29:])[4:]])
    vectors = encoder.encode_pages([text_of([5]), text_of(tokens)])[1]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_an_onnx_model_needs_no_torch(tmp_path: Path) -> None:
    Network().save(tmp_path)
    code = f"""
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
from glie.encoders import load_encoder
print(load_encoder({str(tmp_path)!r}).encode_pages(["w1 w2"])[0].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("(2, 24)", "")


def test_the_revision_of_an_onnx_folder(tmp_path: Path) -> None:
    first = load_encoder(Network().save(tmp_path / "a")).revision
    assert load_encoder(Network().save(tmp_path / "b")).revision == first
    assert load_encoder(Network(seed=1).save(tmp_path / "b")).revision != first
    for name in ("tokenizer.json", "config.json"):
        folder = Network().save(tmp_path / name)
        (folder / name).write_text((folder / name).read_text() + "\n")
        assert load_encoder(folder).revision != first


def test_which_onnx_model(tmp_path: Path) -> None:
    """Full precision before int8, another name if it is the only one."""
    full, small = Network(seed=0), Network(seed=1)

    def loaded(folder: Path) -> Floats:
        return load_encoder(folder).encode_queries([text_of([4, 5])])[0]

    small.save(tmp_path / "a", "onnx/model_quantized.onnx")
    np.testing.assert_allclose(loaded(tmp_path / "a"), small.vectors([4, 5]), atol=1e-6)
    full.save(tmp_path / "a", "model.onnx")
    np.testing.assert_allclose(loaded(tmp_path / "a"), full.vectors([4, 5]), atol=1e-6)
    full.save(tmp_path / "b", "bert.onnx")
    np.testing.assert_allclose(loaded(tmp_path / "b"), full.vectors([4, 5]), atol=1e-6)
    full.save(tmp_path / "b", "albert.onnx")
    with pytest.raises(glie.EncoderError, match=r"several models \(albert.onnx, bert.onnx\)"):
        load_encoder(tmp_path / "b")


def test_transformers_weights_come_before_onnx(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "both")
    shutil.copytree(Network().save(tmp_path / "onnx") / "onnx", tmp_path / "both" / "onnx")
    assert load_encoder(tmp_path / "both").revision == load_encoder(tiny).revision


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inputs": ("input_ids", "attention_mask", "pixels")}, "inputs are .*pixels; expected"),
        ({"output": "logits"}, "outputs are logits; expected last_hidden_state"),
        (
            {"pooled": True},
            r"shape \(1, 1, 1\) for tokens of \(1, 3\); expected one vector a token",
        ),
        ({"rows": 1}, r"of \[1, 'row'\]; expected integers, any number of rows"),
    ],
)
def test_onnx_models_of_another_kind(tmp_path: Path, options: Any, said: str) -> None:
    Network().save(tmp_path, **options)
    with pytest.raises(glie.EncoderError, match=said):
        load_encoder(tmp_path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        ("onnx/model.onnx", cut, "not an ONNX model"),
        ("tokenizer.json", cut, "not a tokenizer"),
        ("tokenizer.json", Path.unlink, "tokenizer.json: cannot be read: No such file"),
        ("config.json", cut, "not a model's configuration"),
        ("config.json", lambda p: p.write_text("[]"), "not a model's configuration"),
        (
            "config.json",
            lambda p: p.write_text('{"max_position_embeddings": 2}'),
            "no room for text in the 2 tokens",
        ),
    ],
)
def test_damaged_onnx_folders(
    tmp_path: Path, file: str, damage: Callable[[Path], object], said: str
) -> None:
    Network().save(tmp_path)
    damage(tmp_path / file)
    with pytest.raises(glie.EncoderError, match=said):
        load_encoder(tmp_path)


def test_a_vocabulary_larger_than_the_network(tmp_path: Path) -> None:
    network = Network()
    network.words = network.words[:10]
    encoder = load_encoder(network.save(tmp_path))
    with pytest.raises(glie.EncoderError, match="not a model of this tokenizer's tokens"):
        encoder.encode_pages(["w40"])


def run_tool(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["fit_reduction.py", *map(str, arguments)])
    runpy.run_path(str(TOOL), run_name="__main__")


def word_set(folder: Path) -> Path:
    """Pages of words, and a question about each."""
    (folder / "qrels").mkdir(parents=True)
    rng = np.random.default_rng(0)
    texts = [text_of(list(rng.integers(4, 54, 30))) for _ in range(12)]
    pages = [{"_id": f"p{i}", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": text[:20]} for i, text in enumerate(texts)]
    for name, entries in (("corpus", pages), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, entries)))
    rows = [f"q{i}\tp{i}\t1" for i in range(len(texts))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    return folder


def test_a_folder_and_a_reduction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.numpy import load_file

    folder = Network().save(tmp_path / "@scope" / "tiny")
    file = tmp_path / "@scope" / "tiny-8.safetensors"
    words = word_set(tmp_path / "words")
    run_tool(monkeypatch, words, "--encoder", folder, "--dim", 8, "--to", file)

    whole, reduced = load_encoder(folder), load_encoder(f"{folder}@{file}")
    matrix = load_file(file)["reduction"].astype(np.float32)
    assert matrix.shape == (24, 8)
    vectors = reduced.encode_queries(["w1 w2 w3"])[0]
    np.testing.assert_allclose(
        vectors, unit(whole.encode_queries(["w1 w2 w3"])[0] @ matrix), atol=1e-6
    )
    assert reduced.name == f"{folder.resolve()}@{file.resolve()}"
    assert load_encoder(reduced.name).revision == reduced.revision != whole.revision

    with pytest.raises(glie.EncoderError, match="fitted for an encoder of revision"):
        load_encoder(f"{Network(seed=1).save(tmp_path / 'other')}@{file}")


def test_what_a_reduction_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Network().save(tmp_path / "tiny")
    sets = word_set(tmp_path / "a"), word_set(tmp_path / "b")
    run_tool(monkeypatch, *sets, "--encoder", folder, "--dim", 8, "--leave-one-out")
    rows = [line.split(" | ")[1] for line in capsys.readouterr().out.split("\n") if "| " in line]
    dims = ["24", "8, p = 0.0", "8, p = 0.25", "8, p = 0.4", "8, p = 0.5"]
    assert rows == ["dimensions", "---", *dims, *dims]


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"other": np.eye(24, dtype=np.float32)}, "with the tensor 'reduction'"),
        ({"reduction": np.eye(24, dtype=np.int64)}, r"int64 of shape \(24, 24\); expected floats"),
        ({"reduction": np.ones(24, np.float32)}, r"float32 of shape \(24,\)"),
        ({"reduction": np.ones((24, 0), np.float32)}, r"shape \(24, 0\)"),
        ({"reduction": np.ones((8, 24), np.float32)}, r"shape \(8, 24\); expected .* not more"),
        ({"reduction": np.full((24, 8), np.inf, np.float16)}, "not finite"),
        ({"reduction": np.eye(30, dtype=np.float16)}, "of 30 dimensions for vectors of 24"),
    ],
)
def test_reductions_that_do_not_fit(tmp_path: Path, tensors: Any, said: str) -> None:
    from safetensors.numpy import save_file

    save_file(tensors, tmp_path / "matrix.safetensors")
    with pytest.raises(glie.EncoderError, match=said):
        load_encoder(f"{Network().save(tmp_path)}@{tmp_path / 'matrix.safetensors'}")


def test_a_reduction_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(glie.EncoderError, match=r"gone\.safetensors: not a safetensors file"):
        load_encoder(f"{Network().save(tmp_path)}@{tmp_path / 'gone.safetensors'}")
    with pytest.raises(glie.EncoderError, match=r"encoder 'gone@a\.safetensors' is unknown"):
        load_encoder("gone@a.safetensors")
