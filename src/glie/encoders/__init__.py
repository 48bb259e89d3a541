"""Encoders: from pages and questions to vectors.

`load_encoder()` gives the embedded one, all-MiniLM-L6-v2 as a late-interaction retriever: no hub,
no GPU. A path gives the text model in that folder, of `transformers` or in the ONNX format.
"""

from __future__ import annotations

import os
from pathlib import Path

from glie.encoders.base import Encoder
from glie.encoders.minilm import embedded
from glie.encoders.onnx_model import OnnxModel, model_file
from glie.encoders.reduction import read_reduction
from glie.encoders.text import TextEncoder
from glie.encoders.torch_model import TorchModel
from glie.errors import EncoderError

EMBEDDED = "minilm"
WHOLE = f"{EMBEDDED}-384"

__all__ = ["EMBEDDED", "WHOLE", "Encoder", "load_encoder"]


def load_encoder(name: str | os.PathLike[str] | None = None) -> Encoder:
    """The encoder of that name: "minilm" (the default), "minilm-384" (the same, not reduced to
    128 dimensions), or the path of a folder with a text model: one of `transformers`, or
    tokenizer.json and onnx/model.onnx. "FOLDER@MATRIX.safetensors" is that folder's, reduced by
    the matrix in a file that tools/fit_reduction.py made."""
    wanted = EMBEDDED if name is None else os.fspath(name)
    if wanted == EMBEDDED:
        return embedded(reduced=True)
    if _is_whole(wanted):
        return _whole(wanted)
    # folders may have an @ in their names, so the last one that follows an encoder
    for at in [i for i, letter in enumerate(wanted) if letter == "@"][::-1]:
        if _is_whole(wanted[:at]):
            whole, path = _whole(wanted[:at]), Path(wanted[at + 1 :])
            matrix = read_reduction(path, whole.revision)
            return TextEncoder(whole.model, name=f"{whole.name}@{path.resolve()}", reduction=matrix)
    raise EncoderError(
        f"encoder {wanted!r} is unknown: expected {EMBEDDED!r}, {WHOLE!r}, the path of a folder "
        "with a transformers or ONNX text model, or FOLDER@MATRIX.safetensors"
    )


def _is_whole(name: str) -> bool:
    return name == WHOLE or (name != "" and Path(name).is_dir())


def _whole(name: str) -> TextEncoder:
    """An encoder at its own dimensions."""
    if name == WHOLE:
        return embedded(reduced=False)
    folder = Path(name)
    weights = None if list(folder.glob("model*.safetensors")) else model_file(folder)
    if weights is None and not list(folder.glob("*.safetensors")):
        raise EncoderError(
            f"{folder}: no text model in it; expected safetensors weights as transformers saves "
            "them, or onnx/model.onnx, and a tokenizer.json"
        )
    model = OnnxModel(folder, weights) if weights else TorchModel(folder)
    return TextEncoder(model, name=str(folder.resolve()))
