"""Make the files of an encoder from a trained checkpoint: int8 weights and their ONNX graph.

    python tools/export_encoder.py CHECKPOINT --to src/glie/encoders/english

CHECKPOINT is a folder with tokenizer.json and model.safetensors: a BERT as transformers names its
tensors, and `head.weight` (D, H) and `head.bias` (D). The head is described in
src/glie/encoders/heads.py, what is written in src/glie/encoders/int8_model.py.

The graph reads the tokens of one window and gives the head's outputs. Its products are of integers:
the weights have 8 bits and one scale an output, the activations 8 bits and one scale a token. So a
token's result depends on nothing but its window. Sums of integers are exact, and the weights are
such that no processor's 16 bit registers overflow (`fitted`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.encoders.int8_model import CONFIG, FORMAT, GRAPH, KEY, OUTPUT, TOKENIZER, TOKENS, WEIGHTS

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]
Tensors = dict[str, npt.NDArray[Any]]

FACTORS = np.linspace(0.6, 2, 57)  # of the scale that the largest weight needs; 2 always fits
LARGEST = 127
PAIR = 128  # 255 * 128 is the most that fits into 16 bits
DIP = np.float32(0.17)  # gelu(x) > -0.17
EPSILON = 1e-12
MICROSOFT = "com.microsoft"
OPSET, IR = 18, 9


def rounded(weights: Floats, scale: Floats) -> Floats:
    """The integers nearest to the weights (K, N) at a scale an output."""
    return np.asarray(np.clip(np.rint(weights / scale), -LARGEST, LARGEST), np.float32)


def fitted(whole: Floats) -> Floats:
    """Integers (K, N) of which no two neighbours of one sign add up to more than 128.

    AVX2 multiplies unsigned activations by signed weights and adds each two neighbours in 16 bits.
    """
    pairs = whole.reshape(-1, 2, whole.shape[1])
    excess = np.abs(pairs).sum(axis=1) - PAIR
    over = (pairs[:, 0] * pairs[:, 1] > 0) & (excess > 0)
    cut = np.where(over, np.ceil(excess / 2), 0)
    return np.asarray(pairs - np.sign(pairs) * cut[:, None], np.float32).reshape(whole.shape)


def quantised(weights: Floats, *, products: bool = True) -> tuple[Bytes, Floats]:
    """Weights (K, N) as integers and N scales: of several scales, that of the least square error.

    With `products`, the integers are `fitted`.
    """
    base = np.maximum(np.abs(weights).max(axis=0) / LARGEST, np.float32(1e-12))
    best, scales = np.zeros_like(weights), base.copy()
    least = np.full(weights.shape[1], np.inf)
    for factor in FACTORS.astype(np.float32):
        whole = rounded(weights, base * factor)
        whole = fitted(whole) if products else whole
        error = np.square(whole * (base * factor) - weights).sum(axis=0)
        better = error < least
        best[:, better], scales[better], least[better] = (
            whole[:, better],
            (base * factor)[better],
            error[better],
        )
    return best.astype(np.int8), scales.astype(np.float32)


class Graph:
    """Nodes of an ONNX graph, and the tensors that they use."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: Tensors = {}

    def tensor(self, name: str, array: Any) -> str:
        """Add a tensor, once: a weight if its name has a dot, else a constant of the graph."""
        self.tensors.setdefault(name, np.ascontiguousarray(array))
        return name

    def op(self, kind: str, *inputs: str, domain: str = "", name: str = "", **options: Any) -> str:
        """Add a node; its output's name."""
        from onnx import helper

        made = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [made], made, domain=domain, **options))
        return made

    def scaled(self, x: str, largest: str, share: float, zero: int) -> tuple[str, str, str]:
        """A token's numbers as 8 bits, its scale, and the integer that stands for 0."""
        part = self.tensor(f"one_of_{round(1 / share)}", np.float32(share))
        scale = self.op("Mul", largest, part)
        flat = self.op("Reshape", scale, self.tensor("flat", np.array([-1])))
        zeros = f"zeros_{zero}"
        point = self.tensor(f"zero_{zero}", np.uint8(zero))
        if not any(node.name == zeros for node in self.nodes):
            self.op("Expand", point, "length", name=zeros)
        return self.op("QuantizeLinear", x, flat, zeros, axis=1), scale, point

    def signed(self, x: str) -> tuple[str, str, str]:
        """Numbers of both signs in 8 bits."""
        largest = self.op("ReduceMax", self.op("Abs", x), self.tensor("last", np.array([-1])))
        return self.scaled(x, largest, 1 / 127, 128)

    def positive(self, x: str) -> tuple[str, str, str]:
        """Numbers above 0 in 8 bits."""
        largest = self.op("ReduceMax", x, self.tensor("last", np.array([-1])))
        return self.scaled(x, largest, 1 / 255, 0)

    def product(self, x: tuple[str, str, str], name: str, weights: Floats) -> tuple[str, Floats]:
        """x @ weights.T without bias, and the weights that this multiplies with."""
        whole, scales = quantised(np.ascontiguousarray(weights.T))
        numbers, scale, zero = x
        made = self.op(
            "MatMulIntegerToFloat",
            numbers,
            self.tensor(f"{name}.weight", whole),
            self.tensor("one", np.float32(1)),
            self.tensor(f"{name}.scale", scales),
            zero,
            domain=MICROSOFT,
        )
        return self.op("Mul", made, scale), whole.T * scales[:, None]

    def normalised(self, x: str, name: str, given: Tensors) -> str:
        """LayerNorm."""
        parts = [
            self.tensor(f"{name}.{part}", given[f"{name}.{part}"]) for part in ("weight", "bias")
        ]
        return self.op("LayerNormalization", x, *parts, axis=-1, epsilon=EPSILON)


def embedded(graph: Graph, given: Tensors) -> str:
    """The sum of what the words and their places give, normalised."""
    from onnx import TensorProto

    words = given["embeddings.word_embeddings.weight"]
    whole, scales = quantised(np.ascontiguousarray(words.T), products=False)
    places = given["embeddings.position_embeddings.weight"]
    places = places + given["embeddings.token_type_embeddings.weight"][0]
    rows = graph.op("Gather", graph.tensor("words.weight", whole.T), TOKENS)
    scale = graph.op("Gather", graph.tensor("words.scale", scales[:, None]), TOKENS)
    words_seen = graph.op("Mul", graph.op("Cast", rows, to=TensorProto.FLOAT), scale)
    graph.op("Shape", TOKENS, start=1, name="length")
    zero = graph.tensor("first", np.array([0]))
    table = graph.tensor("places.weight", places.astype(np.float16))
    seen = graph.op("Cast", graph.op("Slice", table, zero, "length", zero), to=TensorProto.FLOAT)
    return graph.normalised(graph.op("Add", words_seen, seen), "embeddings.LayerNorm", given)


def layer(graph: Graph, x: str, name: str, given: Tensors, heads: int) -> str:
    """Attention, then two products with a gelu between them."""

    def joined(made: str, x: str, place: str, bias: Floats) -> str:
        bias_name = graph.tensor(f"{name}.{place}.dense.bias", bias)
        both = graph.op("Add", graph.op("Add", made, bias_name), x)
        return graph.normalised(both, f"{name}.{place}.LayerNorm", given)

    def dense(place: str) -> tuple[Floats, Floats]:
        return given[f"{name}.{place}.weight"], given[f"{name}.{place}.bias"]

    seen = graph.signed(x)
    parts = {}
    for part in ("query", "key", "value"):
        place = f"attention.self.{part}"
        parts[part], _ = graph.product(seen, f"{name}.{place}", dense(place)[0])
    # A key's bias adds the same to all products of a query, so it changes no attention. Attention
    # sums to 1, so a value's bias is a constant and joins the next bias.
    query, value = dense("attention.self.query")[1], dense("attention.self.value")[1]
    biases = np.concatenate([query, np.zeros(2 * len(query), np.float32)])
    mixed = graph.op(
        "MultiHeadAttention",
        *parts.values(),
        graph.tensor(f"{name}.attention.self.bias", biases),
        domain=MICROSOFT,
        num_heads=heads,
    )
    weights, bias = dense("attention.output.dense")
    made, _ = graph.product(graph.signed(mixed), f"{name}.attention.output.dense", weights)
    x = joined(made, x, "attention.output", bias + weights @ value)

    weights, bias = dense("intermediate.dense")
    made, _ = graph.product(graph.signed(x), f"{name}.intermediate.dense", weights)
    bias_name = graph.tensor(f"{name}.intermediate.dense.bias", bias)
    active = graph.op("BiasGelu", made, bias_name, domain=MICROSOFT)
    # without its negative part, a gelu uses all of 8 bits; the next bias takes the shift back
    shifted = graph.positive(graph.op("Add", active, graph.tensor("dip", DIP)))
    weights, bias = dense("output.dense")
    made, used = graph.product(shifted, f"{name}.output.dense", weights)
    return joined(made, x, "output", bias - DIP * used.sum(axis=1))


def network(given: Tensors, heads: int) -> Graph:
    """The graph of a checkpoint's tensors."""
    graph = Graph()
    upper(graph, embedded(graph, given), given, heads)
    return graph


def upper(graph: Graph, x: str, given: Tensors, heads: int, at: int = 0) -> None:
    """The layers from one on, and the head."""
    while f"encoder.layer.{at}.output.dense.weight" in given:
        x = layer(graph, x, f"encoder.layer.{at}", given, heads)
        at += 1
    weights = graph.tensor("head.weight", given["head.weight"].T)
    made = graph.op("MatMul", x, weights)
    graph.op("Add", made, graph.tensor("head.bias", given["head.bias"]), name=OUTPUT)


def outside(name: str, array: npt.NDArray[Any], file: str, offset: int) -> Any:
    """A tensor that is in another file."""
    from onnx import TensorProto, helper

    tensor = TensorProto(name=name, dims=array.shape)
    tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.data_location = TensorProto.EXTERNAL
    where = {"location": file, "offset": offset, "length": array.nbytes}
    for key, entry in where.items():
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def onnx_bytes(
    graph: Graph, weights: bytes, dim: int, given: Any, more: Sequence[Any] = ()
) -> bytes:
    """The graph in the ONNX format: its tensors in the file of weights, or in itself, and `more`;
    `given` is its input."""
    from onnx import TensorProto, helper, numpy_helper

    offsets = offsets_of(weights)
    tensors = [
        outside(name, array, WEIGHTS, offsets[name])
        if name in offsets
        else numpy_helper.from_array(array, name)
        for name, array in graph.tensors.items()
    ]
    made = helper.make_graph(
        graph.nodes,
        "encoder",
        [given],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, "n", dim])],
        [*tensors, *more],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=IR)
    return bytes(model.SerializeToString(deterministic=True))


def offsets_of(weights: bytes) -> dict[str, int]:
    """Where each tensor is in a safetensors file."""
    start = 8 + int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8:start])
    return {
        name: start + entry["data_offsets"][0] for name, entry in header.items() if name[:2] != "__"
    }


def export(checkpoint: Path, place: Path, heads: int) -> dict[str, Any]:
    """Write the files of an encoder; its configuration."""
    from onnx import TensorProto, helper
    from safetensors.numpy import load_file, save
    from tokenizers import Tokenizer

    given = load_file(checkpoint / "model.safetensors")
    given = {name: array.astype(np.float32) for name, array in given.items()}
    rows = len(given["embeddings.word_embeddings.weight"])
    words = Tokenizer.from_file(str(checkpoint / TOKENIZER)).get_vocab_size()
    if words > rows:
        raise SystemExit(f"{checkpoint}: {words} words in {TOKENIZER}, weights for {rows}")
    graph = network(given, heads)
    weights = save({name: a for name, a in graph.tensors.items() if "." in name})
    dim, hidden = given["head.weight"].shape
    tokens = helper.make_tensor_value_info(TOKENS, TensorProto.INT64, [1, "n"])
    files = {
        GRAPH: onnx_bytes(graph, weights, dim, tokens),
        WEIGHTS: weights,
        TOKENIZER: (checkpoint / TOKENIZER).read_bytes(),
    }
    config = {
        KEY: FORMAT,
        "dim": dim,
        "hidden": hidden,
        "layers": sum(name.endswith("intermediate.dense.weight") for name in given),
        "heads": heads,
        "vocabulary": rows,
        "positions": len(given["embeddings.position_embeddings.weight"]),
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    write(place, files, config)
    return config


def write(place: Path, files: dict[str, bytes], config: dict[str, Any]) -> None:
    """Write the files of an encoder."""
    place.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (place / name).write_bytes(data)
    (place / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--heads", type=int, default=12, help="of attention")
    asked = parser.parse_args()
    config = export(asked.checkpoint, asked.to, asked.heads)
    size = sum((asked.to / name).stat().st_size for name in config["sha256"])
    print(f"{asked.to}: {size / 1e6:.1f} MB, {config['dim']} dimensions")


if __name__ == "__main__":
    main()
