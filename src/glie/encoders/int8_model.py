"""Text models of glie's own, run by onnxruntime: 8-bit weights, a head for late interaction.

A folder, which tools/export_encoder.py writes:

    model.safetensors   the weights
    model.onnx          the graph, which refers to the weights by their place in that file
    tokenizer.json      read by `tokenizers`
    config.json         the version of this format, sizes, and the SHA-256 of the files above

A window is run on its own and in one thread; several windows run in several threads. So a page's
vectors are the same, bit for bit, whatever is encoded with it. Another processor or version of
onnxruntime may add in another order, and then round an activation to the next integer: its vectors
differ by as much as int8 differs from float32.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.encoders.base import Floats
from glie.encoders.files import sha256
from glie.encoders.heads import WEIGHTED
from glie.encoders.onnx_session import (
    FastTokenizer,
    check_installed,
    session_of,
    thread_count,
    unusable,
)
from glie.encoders.text import Ints, TextEncoder
from glie.errors import EncoderError
from glie.kernels.parallel import over_ranges

FORMAT = 1
KEY = "glie_encoder"  # in config.json: the version of the format
CONFIG = "config.json"
GRAPH, WEIGHTS, TOKENIZER = "model.onnx", "model.safetensors", "tokenizer.json"
TOKENS, OUTPUT = "tokens", "outputs"
ENGLISH = Path(__file__).parent / "english"
Tensors = dict[str, npt.NDArray[Any]]
REINSTALL = "reinstall glie with pip install --force-reinstall --no-deps glie"


def english() -> TextEncoder:
    """The encoder that ships with glie."""
    return int8_encoder(ENGLISH, name="english", remedy=REINSTALL)


def int8_encoder(folder: Path, *, name: str, remedy: str = "export it again") -> TextEncoder:
    """The encoder of a folder; `remedy` is what to do about a damaged one."""
    return TextEncoder(Int8Model(folder, remedy), name=name, head=WEIGHTED)


def is_int8_model(folder: Path) -> bool:
    """Whether a folder holds a model of this format, of any version."""
    try:
        return KEY in json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError, TypeError):
        return False


class WindowModel(FastTokenizer):
    """A graph that reads one window. Its states are the outputs of the head."""

    batch = 1 << 16  # many windows a call: each thread takes the next one
    pad = 0  # never read: a window is run at its own length

    def open_graph(self, folder: Path, dim: int, weights: Tensors | None = None) -> None:
        """Open the graph of a folder; `weights` are tensors that its files have not."""
        self._dim, self._threads = dim, thread_count()
        try:  # the graph is written as it runs best
            self._session = session_of(folder / GRAPH, threads=1, optimise=False, weights=weights)
        except EncoderError as error:  # the file is as it was written, so this is not its fault
            raise EncoderError(f"{error}; pip install --upgrade onnxruntime") from None

    def given(self, tokens: Ints) -> Tensors:
        """The inputs of the graph for the tokens of a window."""
        return {TOKENS: tokens[None]}

    def states(self, tokens: Ints, mask: Ints) -> Floats:
        """The head's outputs for rows of tokens; 0 at padding."""
        lengths = mask.sum(axis=1)
        found = np.zeros((*tokens.shape, self._dim), np.float32)

        def run(first: int, last: int) -> None:
            for row in range(first, last):
                length = lengths[row]
                given = self.given(tokens[row, :length])
                found[row, :length] = self._session.run([OUTPUT], given)[0][0]

        over_ranges(run, len(tokens), chunk=1, threads=self._threads)
        return found


class Int8Model(WindowModel):
    """The model of a folder."""

    def __init__(self, folder: Path, remedy: str) -> None:
        check_installed("the embedded encoder", "encoder")
        config = read_config(folder, KEY, (GRAPH, WEIGHTS, TOKENIZER), remedy)
        check_files(folder, config.digests, remedy)
        super().__init__(folder / TOKENIZER)
        self.positions, self.revision = config.positions, config.revision
        self.open_graph(folder, config.dim)


class Config(NamedTuple):
    dim: int
    positions: int
    digests: dict[str, str]  # the SHA-256 of each file
    lower: int  # layers of another model, below: multilingual_model.py

    @property
    def revision(self) -> str:
        """A digest of all files."""
        return hashlib.sha256("".join(self.digests.values()).encode()).hexdigest()


def read_config(folder: Path, key: str, files: Sequence[str], remedy: str) -> Config:
    """The configuration of a folder: of the format `key`, with these files."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_bytes())
        version = int(config[key])
        if version <= FORMAT:
            digests = {name: str(config["sha256"][name]) for name in files}
            sizes = int(config["dim"]), int(config["positions"])
            return Config(*sizes, digests, int(config.get("lower", 0)))
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read: {error.strerror}; {remedy}") from None
    except Exception as error:  # no JSON, or JSON of something else
        raise EncoderError(f"{unusable(path, 'an encoder of glie', error)}; {remedy}") from None
    raise EncoderError(
        f"{path}: format {version}, from a newer glie; this one reads format {FORMAT}: "
        "pip install --upgrade glie"
    )


def check_files(folder: Path, digests: dict[str, str], remedy: str) -> None:
    """Raise unless all files are as they were written."""
    for name, expected in digests.items():
        file = folder / name
        if not file.is_file():
            raise EncoderError(f"{file}: missing; {remedy}")
        found = sha256(file)
        if found != expected:
            raise EncoderError(
                f"{file}: damaged: sha256 {found[:16]}…, expected {expected[:16]}…; {remedy}"
            )
