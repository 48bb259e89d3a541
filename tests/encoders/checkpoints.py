"""Tiny random checkpoints of real late-interaction models, in folders as the real ones are."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

from glie.encoders.loading import quietly, without_videos

DIM = 16
HIDDEN = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}  # fmt: skip
WORDS = ["red", "blue", "green", "black", "white", "pink", "what", "is", "a", "page", "the"]
TEXT = HIDDEN | {"num_key_value_heads": 1, "initializer_range": 0.3}

# One a line of what a page or a question becomes, in the words of no real model.
QWEN_PAGE = "<|vision_start|><|image_pad|><|vision_end|>Describe.<|im_end|>"
QWEN_QUERY = "Query: {{ part['text'] }}<|im_end|>{{ '<|endoftext|>' * 5 }}"
SMOL_PAGE = "User:<image>Describe.<end_of_utterance>"
SMOL_QUERY = "Query: {{ part['text'] }}{{ '<end_of_utterance>' * 5 }}"
TEMPLATE = (
    "{%% for message in messages %%}{%% for part in message['content'] %%}"
    "{%% if part['type'] == 'image' %%}%s{%% elif task == 'query' %%}%s"
    "{%% else %%}{{ part['text'] }}{%% endif %%}{%% endfor %%}{%% endfor %%}"
)


def tokenizer(special: list[str], **named: str) -> Any:
    """A token a letter; texts and prompts need no other."""
    letters = {letter: i for i, letter in enumerate([*special, *map(chr, range(32, 127)), "\n"])}
    letter_model = tokenizers.models.WordLevel(letters, unk_token="<unk>")
    made = tokenizers.Tokenizer(letter_model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", additional_special_tokens=special, **named
    )


def tiny_colpali(dim: int = 16) -> tuple[Any, Any]:
    images = transformers.SiglipImageProcessorPil(size={"height": 56, "width": 56})
    images.image_seq_length = 16
    text = tokenizer(["<pad>", "<bos>", "<unk>"], pad_token="<pad>", bos_token="<bos>")
    processor = transformers.ColPaliProcessor(images, text)
    config = transformers.ColPaliConfig(
        embedding_dim=dim,
        vlm_config={
            "model_type": "paligemma",
            "image_token_index": processor.image_token_id,
            "projection_dim": 32,
            "hidden_size": 32,
            "text_config": {
                "model_type": "gemma",
                "vocab_size": len(text),
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "head_dim": 16,
                "initializer_range": 0.3,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 56,
                "patch_size": 14,
                "projection_dim": 32,
            },
        },
    )
    return transformers.ColPaliForRetrieval(config), processor


def tiny_colqwen2() -> tuple[Any, Any]:
    special = ["<|endoftext|>", "<unk>", "<|im_start|>", "<|im_end|>"]
    special += ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    images = transformers.Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=28 * 28 * 16)
    text = tokenizer(special, pad_token="<|endoftext|>")
    processor = transformers.ColQwen2Processor(images, text)
    config = transformers.ColQwen2Config(
        embedding_dim=16,
        vlm_config={
            "model_type": "qwen2_vl",
            "image_token_id": special.index("<|image_pad|>"),
            "video_token_id": special.index("<|video_pad|>"),
            "vision_start_token_id": special.index("<|vision_start|>"),
            "vision_end_token_id": special.index("<|vision_end|>"),
            "text_config": {
                "model_type": "qwen2_vl_text",
                "vocab_size": len(text),
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "bos_token_id": None,
                "eos_token_id": 0,
                "initializer_range": 0.3,
                "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]},
            },
            "vision_config": {
                "depth": 2,
                "embed_dim": 32,
                "hidden_size": 32,
                "num_heads": 2,
                "mlp_ratio": 2,
            },
        },
    )
    return transformers.ColQwen2ForRetrieval(config), processor


RETRIEVAL: dict[str, Callable[[], tuple[Any, Any]]] = {
    "colpali": tiny_colpali,
    "colqwen2": tiny_colqwen2,
}


def save_colqwen25(place: Path) -> None:
    """Qwen2.5-VL, a projection, a mask and unit length, as ColQwen2.5 is published."""
    special = ["<|endoftext|>", "<unk>", "<|im_start|>", "<|im_end|>"]
    special += ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    text = tokenizer(special, pad_token="<|endoftext|>")
    images = transformers.Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=28 * 28 * 16)
    config = transformers.Qwen2_5_VLConfig(
        image_token_id=special.index("<|image_pad|>"),
        video_token_id=special.index("<|video_pad|>"),
        vision_start_token_id=special.index("<|vision_start|>"),
        vision_end_token_id=special.index("<|vision_end|>"),
        text_config=TEXT
        | {"vocab_size": len(text), "bos_token_id": None, "eos_token_id": 0}
        | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}},
        vision_config={"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2}
        | {"out_hidden_size": 32, "fullatt_block_indexes": [1], "window_size": 56},
    )
    template = TEMPLATE % (QWEN_PAGE, QWEN_QUERY)
    with without_videos():
        processor = transformers.Qwen2_5_VLProcessor(images, text, chat_template=template)
        save_stack(place, transformers.Qwen2_5_VLModel(config), processor)


def save_colsmol(place: Path) -> None:
    """Idefics3, which cuts pictures into tiles, as ColSmol is published."""
    tags = ["<global-img>", *(f"<row_{i}_col_{j}>" for i in range(1, 7) for j in range(1, 7))]
    special = ["<pad>", "<unk>", "<bos>", "<end_of_utterance>", "<fake_token_around_image>"]
    special += ["<image>", *tags]
    text = tokenizer(special, pad_token="<pad>", bos_token="<bos>")
    images = transformers.Idefics3ImageProcessorPil(
        size={"longest_edge": 112}, max_image_size={"longest_edge": 56}
    )
    template = TEMPLATE % (SMOL_PAGE, SMOL_QUERY)
    processor = transformers.Idefics3Processor(
        images, text, image_seq_len=4, chat_template=template
    )
    config = transformers.Idefics3Config(
        image_token_id=special.index("<image>"),
        scale_factor=2,
        pad_token_id=0,
        text_config=TEXT
        | {"model_type": "llama", "vocab_size": len(text), "head_dim": 16, "pad_token_id": 0},
        vision_config=HIDDEN | {"image_size": 56, "patch_size": 14},
    )
    save_stack(place, transformers.Idefics3Model(config), processor)


def save_colbert(place: Path, *, length: int = 24) -> None:
    """BERT with all that ColBERT has: markers, expanded questions, and no punctuation in pages."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q]", "[D]"]
    words = [*special, *string.punctuation, *WORDS]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]")
    )
    made.normalizer = tokenizers.normalizers.Lowercase()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    text = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        additional_special_tokens=["[Q]", "[D]"],
    )
    config = transformers.BertConfig(
        vocab_size=len(words), max_position_embeddings=48, **HIDDEN, initializer_range=0.3
    )
    save_stack(
        place,
        transformers.BertModel(config),
        text,
        prompts={"query": "[Q] ", "document": "[D] "},
        skiplist_words=list(string.punctuation),
        document_length=length,
        query_expansion={"strategy": "min", "length": 12},
    )


def save_stack(
    place: Path,
    model: Any,
    processor: Any,
    *,
    prompts: dict[str, str] | None = None,
    skiplist_words: list[str] | None = None,
    **options: Any,
) -> None:
    """A network and its processor under a projection, a mask and unit length."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    network = place / "network"
    model.save_pretrained(network)
    processor.save_pretrained(network)
    visual = {} if prompts else {"processor_kwargs": {"backend": "pil"}}
    with without_videos():
        stack = MultiVectorEncoder(
            modules=[
                Transformer(str(network), **visual, **options),
                Dense(32, DIM, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings"),
                MultiVectorMask(skiplist_words=skiplist_words),
                Normalize(module_input_name="token_embeddings"),
            ],
            prompts=prompts,
            device="cpu",
        )  # fmt: skip
        stack.save_pretrained(str(place), create_model_card=False)
    for path in network.iterdir():
        path.unlink()
    network.rmdir()


STACKS: dict[str, Callable[[Path], None]] = {
    "colbert": save_colbert,
    "colqwen2.5": save_colqwen25,
    "colsmol": save_colsmol,
}
VISUAL = [*RETRIEVAL, "colqwen2.5", "colsmol"]


def saved(kind: str, place: Path, *, seed: int = 0) -> Path:
    """A folder as a real model has it: weights, configuration, and the files of its processor."""
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(seed)
        if kind in STACKS:
            STACKS[kind](place)
        else:
            model, processor = RETRIEVAL[kind]()
            model.save_pretrained(place)
            processor.save_pretrained(place)
    return place
