"""A text model in the ONNX format in a local folder, run by onnxruntime: no PyTorch needed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from glie.encoders.base import Floats
from glie.encoders.files import digest_of
from glie.encoders.text import WINDOW, Ints, framing
from glie.errors import EncoderError, MissingExtraError
from glie.kernels.parallel import cores

# If a folder has several forms of a model: full precision first. An int8 model scales its
# activations by the whole batch, so a page's vectors would vary with its neighbours.
PREFERRED = ("model.onnx", "model_quantized.onnx")

INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
OUTPUT = "last_hidden_state"
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
SILENT = 4  # onnxruntime's log level: failures are raised, so they need not be printed


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


class OnnxModel:
    """The model of a folder with tokenizer.json, config.json and an .onnx file."""

    def __init__(self, folder: Path, weights: Path) -> None:
        try:
            import onnxruntime
            import tokenizers
        except ImportError:
            raise MissingExtraError("a text model in the ONNX format", "onnx") from None
        self._weights = weights
        vocabulary, config = folder / "tokenizer.json", folder / "config.json"
        # weights of more than 2 GB are in a second file, named after the model
        parts = [p for p in weights.parent.iterdir() if p.name.startswith(weights.name)]
        self.revision = digest_of([*parts, vocabulary, *([config] if config.exists() else [])])
        self.positions, self.pad = _read_config(config)

        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
            # no truncation or padding: the file may ask for 128 tokens
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            probe = self._tokenizer.encode("a")
            self.before, self.after = framing(probe.ids, probe.special_tokens_mask)
        except Exception as error:  # both readers raise their own types, and plain ones
            raise _unusable(vocabulary, "a tokenizer", error) from None

        onnxruntime.set_default_logger_severity(SILENT)
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = SILENT
        options.intra_op_num_threads = _threads()
        options.inter_op_num_threads = 1
        # waiting threads sleep instead of spinning
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(
                str(weights), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise _unusable(weights, "an ONNX model", error) from None
        self._inputs = _check_inputs(weights, self._session.get_inputs())
        outputs = [output.name for output in self._session.get_outputs()]
        if OUTPUT not in outputs:
            raise EncoderError(
                f"{weights}: its outputs are {', '.join(outputs)}; expected {OUTPUT}, one vector "
                "a token"
            )

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, without special tokens."""
        return [e.ids for e in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each token in the text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

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
            raise _unusable(self._weights, "a model of this tokenizer's tokens", error) from None
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
        raise _unusable(path, "a model's configuration", error) from None


def _threads() -> int:
    """OMP_NUM_THREADS or, like PyTorch, the cores that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(asked) or cores()) if asked.isdecimal() else cores()


def _unusable(path: Path, expected: str, error: Exception) -> EncoderError:
    return EncoderError(f"{path}: not {expected}: {str(error).strip().partition(chr(10))[0]}")
