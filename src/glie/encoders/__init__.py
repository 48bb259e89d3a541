"""Encoders: pages and questions to vectors.

`load_encoder()` loads the embedded one: a small model trained for late interaction over English
text, without a download, a GPU or PyTorch; "multilingual" is like it, for many languages. A path,
or a name on the Hugging Face Hub, loads a late-interaction model: one for text, like ColBERT, or
one for pictures of pages, like ColPali and ColQwen. The path of any other text model
(`transformers` or ONNX) gives one vector a token. An address, like "vllm:http://host:8000#MODEL",
is that of a model on a server. `BatchEncoder` makes an encoder from a model that is already loaded.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from glie.encoders.base import Encoder, Grid
from glie.encoders.batches import BatchEncoder
from glie.encoders.checkpoint import Checkpoint, reader_of
from glie.encoders.endpoint import EXAMPLE, endpoint_encoder, is_endpoint
from glie.encoders.int8_model import english, int8_encoder, is_int8_model
from glie.encoders.minilm import minilm_encoder
from glie.encoders.multi_vector import multi_vector_encoder
from glie.encoders.multilingual_model import multilingual
from glie.encoders.onnx_model import OnnxModel, model_file
from glie.encoders.reduction import read_reduction
from glie.encoders.text import TextEncoder
from glie.encoders.torch_model import TorchModel
from glie.errors import EncoderError

EMBEDDED = "english"
MULTILINGUAL = "multilingual"
MINILM = "minilm"
WHOLE = f"{MINILM}-384"
ON_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # a name on the Hugging Face Hub: AUTHOR/NAME
COMMIT = re.compile(r"[0-9a-f]{40}")

__all__ = [
    "EMBEDDED",
    "MINILM",
    "MULTILINGUAL",
    "WHOLE",
    "BatchEncoder",
    "Encoder",
    "Grid",
    "load_encoder",
]


def load_encoder(
    name: str | os.PathLike[str] | None = None,
    *,
    revision: str | None = None,
    device: str | None = None,
) -> Encoder:
    """Load an encoder by name: "english" (the default), "multilingual", "minilm" (the default of
    earlier versions), "minilm-384" (the same at 384 instead of 128 dimensions), the path of a
    folder with a model, or the name of a late-interaction model on the Hugging Face Hub.
    "vllm:URL#MODEL", "infinity:URL#MODEL" and "openai:URL#MODEL" are models on a server.
    "NAME@MATRIX.safetensors" is one of these, reduced by a matrix from tools/fit_reduction.py.

    `revision` is a commit, tag or branch on the Hub, or the revision that an index records.
    `device` is where a late-interaction model runs; the default is CUDA, MPS or the CPU, whichever
    is there first.
    """
    wanted = EMBEDDED if name is None else os.fspath(name)
    if wanted == EMBEDDED:
        return english()
    if wanted == MULTILINGUAL:
        return multilingual()
    if wanted == MINILM:
        return minilm_encoder(reduced=True)
    if _is_whole(wanted):
        return _whole(wanted, revision, device)
    # a folder's name may contain @, so try the last @ first
    for at in [i for i, letter in enumerate(wanted) if letter == "@"][::-1]:
        whole, path = wanted[:at], Path(wanted[at + 1 :])
        elsewhere = ON_HUB.fullmatch(whole) or is_endpoint(whole)
        if _is_whole(whole) or (path.suffix == ".safetensors" and elsewhere):
            return _reduced(_whole(whole, revision, device), path)
    if ON_HUB.fullmatch(wanted) or is_endpoint(wanted):
        return _whole(wanted, revision, device)
    raise EncoderError(
        f"encoder {wanted!r} is unknown: expected {EMBEDDED!r}, {MULTILINGUAL!r}, {MINILM!r}, "
        f"{WHOLE!r}, the path of a folder with a late-interaction, transformers or ONNX text "
        "model, AUTHOR/NAME on the Hugging Face Hub, an address like "
        f"{EXAMPLE}, or one of these and @MATRIX.safetensors"
    )


def _is_whole(name: str) -> bool:
    return name == WHOLE or (name != "" and Path(name).is_dir())


def _whole(name: str, revision: str | None, device: str | None) -> TextEncoder | BatchEncoder:
    """Load an encoder without reduction."""
    if name == WHOLE:
        return minilm_encoder(reduced=False)
    if is_endpoint(name):
        return endpoint_encoder(name)
    folder = Path(name)
    if not folder.is_dir():
        commit = COMMIT.match(revision or "")  # a matrix's digest may follow it
        found = Checkpoint.on_hub(name, commit[0] if commit else revision)
        return multi_vector_encoder(found, device)
    if is_int8_model(folder):
        return int8_encoder(folder, name=str(folder.resolve()))
    if reader_of(folder) is not None:
        return multi_vector_encoder(Checkpoint.in_folder(folder), device)
    weights = None if list(folder.glob("model*.safetensors")) else model_file(folder)
    if weights is None and not list(folder.glob("*.safetensors")):
        raise EncoderError(
            f"{folder}: no text model in it; expected safetensors weights as transformers saves "
            "them, or onnx/model.onnx, and a tokenizer.json"
        )
    model = OnnxModel(folder, weights) if weights else TorchModel(folder)
    return TextEncoder(model, name=str(folder.resolve()))


def _reduced(whole: TextEncoder | BatchEncoder, path: Path) -> Encoder:
    """An encoder whose vectors are reduced by the matrix in a file."""
    return whole.reduced(read_reduction(path, whole.revision), f"{whole.name}@{path.resolve()}")
