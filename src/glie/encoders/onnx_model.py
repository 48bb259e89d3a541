"""A text model in the ONNX format in a local folder, run by onnxruntime: no PyTorch needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from glie.encoders.base import Floats
from glie.encoders.files import digest_of
from glie.encoders.onnx_session import (
    FastTokenizer,
    check_installed,
    session_of,
    thread_count,
    unusable,
)
from glie.encoders.text import TOKENS_PER_BATCH, WINDOW, Ints
from glie.errors import EncoderError

# If a folder has several forms of a model: full precision first. An int8 model scales its
# activations by the whole batch, so a page's vectors would vary with its neighbours.
PREFERRED = ("model.onnx", "model_quantized.onnx")

INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
OUTPUT = "last_hidden_state"
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def model_file(folder: Path) -> Path | None:
    """The ONNX file of a folder or of its subfolder onnx; None if there is none."""
    found = [*sorted(folder.glob("onnx/*.onnx")), *sorted(folder.glob("*.onnx"))]
    for name in PREFERRED:
        for path in found:
            if path.name == name:
                return path
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise EncoderError(
            f"{folder}: several models ({names}); name the one to use {PREFERRED[0]}"
        )
    return found[0] if found else None


class OnnxModel(FastTokenizer):
    """The model of a folder with tokenizer.json, config.json and an .onnx file."""

    batch = TOKENS_PER_BATCH

    def __init__(self, folder: Path, weights: Path) -> None:
        check_installed("a text model in the ONNX format", "onnx")
        self._weights = weights
        vocabulary, config = folder / "tokenizer.json", folder / "config.json"
        # weights of more than 2 GB are in a second file, named after the model
        parts = [p for p in weights.parent.iterdir() if p.name.startswith(weights.name)]
        self.revision = digest_of([*parts, vocabulary, *([config] if config.exists() else [])])
        self.positions, self.pad = _read_config(config)
        super().__init__(vocabulary)
        self._session = session_of(weights, threads=thread_count())
        self._inputs = _check_inputs(weights, self._session.get_inputs())
        outputs = [output.name for output in self._session.get_outputs()]
        if OUTPUT not in outputs:
            raise EncoderError(
                f"{weights}: its outputs are {', '.join(outputs)}; expected {OUTPUT}, one vector "
                "a token"
            )

    def states(self, tokens: Ints, mask: Ints) -> Floats:
        """The last hidden states of rows of tokens."""
        given = {
            "input_ids": tokens,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(tokens),
        }
        feed = {name: given[name].astype(kind) for name, kind in self._inputs.items()}
        try:
            states = self._session.run([OUTPUT], feed)[0]
        except Exception as error:
            raise unusable(self._weights, "a model of this tokenizer's tokens", error) from None
        if states.ndim != 3 or states.shape[:2] != tokens.shape:
            raise EncoderError(
                f"{self._weights}: {OUTPUT} has the shape {states.shape} for tokens of "
                f"{tokens.shape}; expected one vector a token"
            )
        return np.asarray(states, dtype=np.float32)


def _check_inputs(weights: Path, inputs: list[Any]) -> dict[str, Any]:
    """The type of each input, by name."""
    names = {entry.name for entry in inputs}
    if not {"input_ids", "attention_mask"} <= names <= INPUTS:
        raise EncoderError(
            f"{weights}: its inputs are {', '.join(sorted(names))}; expected input_ids, "
            "attention_mask and perhaps token_type_ids"
        )
    for entry in inputs:
        fixed = any(isinstance(size, int) for size in entry.shape)
        if entry.type not in INTEGERS or len(entry.shape) != 2 or fixed:
            raise EncoderError(
                f"{weights}: its input {entry.name} is a {entry.type} of {entry.shape}; expected "
                "integers, any number of rows of any length"
            )
    return {entry.name: INTEGERS[entry.type] for entry in inputs}


def _read_config(path: Path) -> tuple[int, int]:
    """How many tokens the network accepts, and its padding token."""
    try:
        config = json.loads(path.read_bytes()) if path.exists() else {}
        # null stands for what a model does not have
        positions = config.get("max_position_embeddings")
        pad = config.get("pad_token_id")
        return int(WINDOW if positions is None else positions), int(pad or 0)
    except Exception as error:
        raise unusable(path, "a model's configuration", error) from None
