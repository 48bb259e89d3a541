"""The embedded encoder, and local text models of other kinds."""

from __future__ import annotations

import shutil
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

LONG = " ".join(f"The {i}th turbine stands in {i * 7} metres of water." for i in range(200))


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return load_encoder()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT with random weights and a word tokenizer, saved as transformers saves it."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(50))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40,
    )  # fmt: skip
    BertModel(config).eval().save_pretrained(folder)
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
        load_encoder()


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
    with pytest.raises(glie.EncoderError, match="encoder 'colbert' is unknown: expected 'minilm'"):
        load_encoder("colbert")
    with pytest.raises(glie.EncoderError, match="not a transformers text model"):
        load_encoder(tmp_path)
