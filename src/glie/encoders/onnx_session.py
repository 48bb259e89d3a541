"""What models run by onnxruntime share: their tokenizer, and a session on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.encoders.text import framing
from glie.errors import EncoderError, MissingExtraError
from glie.kernels.parallel import cores

SILENT = 4  # onnxruntime's log level: failures are raised, so they need not be printed


class FastTokenizer:
    """A tokenizer.json, read by `tokenizers`; or what `load` makes of another file."""

    def __init__(self, path: Path, load: Callable[[], Any] | None = None) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = load() if load else Tokenizer.from_file(str(path))
            # no truncation or padding: the file may ask for 128 tokens
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            probe = self._tokenizer.encode("a")
            self.before, self.after = framing(probe.ids, probe.special_tokens_mask)
        except Exception as error:  # both readers raise their own types, and plain ones
            raise unusable(path, "a tokenizer", error) from None

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, without special tokens."""
        return [e.ids for e in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each token in the text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)


def check_installed(what: str, extra: str) -> None:
    """Raise unless onnxruntime and tokenizers can be imported; `what` is what needs them."""
    try:
        import onnxruntime  # noqa: F401
        import tokenizers  # noqa: F401
    except ImportError:
        raise MissingExtraError(what, extra) from None


def session_of(
    path: Path,
    *,
    threads: int,
    optimise: bool = True,
    weights: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Any:
    """A session of an .onnx file on the CPU, with this many threads. `weights` are tensors that the
    file names and has not."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(SILENT)
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = SILENT
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # waiting threads sleep instead of spinning
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = {name: np.ascontiguousarray(array) for name, array in (weights or {}).items()}
    try:
        tensors = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in given.values()]
        if tensors:
            options.add_external_initializers(list(given), tensors)
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise unusable(path, "an ONNX model", error) from None


def thread_count() -> int:
    """OMP_NUM_THREADS or, like PyTorch, the cores that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(asked) or cores()) if asked.isdecimal() else cores()


def unusable(path: Path, expected: str, error: Exception) -> EncoderError:
    """The error for a file that its reader refused."""
    return EncoderError(f"{path}: not {expected}: {str(error).strip().partition(chr(10))[0]}")
