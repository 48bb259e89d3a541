"""Fit a matrix that reduces an encoder's vectors to fewer dimensions, by default 128.

    python tools/fit_reduction.py DATASET... --encoder FOLDER --to gte-128.safetensors
    python tools/fit_reduction.py DATASET... --to src/glie/encoders/minilm-128.safetensors
    python tools/fit_reduction.py DATASET... --leave-one-out

The first form is for a model in a folder or on the Hugging Face Hub. Wherever glie takes an
encoder, `--encoder FOLDER@gte-128.safetensors` then gives its reduced vectors. The second form
makes the matrix of `minilm`.

A DATASET is a folder with corpus.jsonl; only its pages are used, never its questions. The matrix is
V L^-p: the top principal directions V of the page tokens (second moments, every set with the same
weight), each divided by a power of its eigenvalue L. p = 0 is plain PCA; p = 0.5 makes all
directions equally long. Between the two, the few directions that all tokens share count for less:
they do not help to tell pages apart.

--leave-one-out measures and writes nothing: for each set with questions, nDCG@5 at the encoder's
own dimension and reduced by matrices fitted on the other sets, of all vectors and of normalised
k-means.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.codec.codec import Codec
from glie.encoders import WHOLE, Encoder, load_encoder
from glie.encoders.base import reads
from glie.encoders.reduction import write_reduction
from glie.errors import GlieError
from glie.evaluation.datasets import Dataset, load, load_pages
from glie.index.memory import search_codes, search_vectors
from glie.measures import DEPTH, ndcg_at_5
from glie.pages import Floats, Pages, Queries

DIM = 128
POWER = 0.4
PAGES = 500  # of each set, evenly spaced: more make no difference
POWERS = (0.0, 0.25, 0.4, 0.5)
BUDGETS = (4, 16)

Moment = npt.NDArray[np.float64]


def contents(encoder: Encoder, dataset: Dataset) -> list[Any]:
    """The texts or images of the pages, whichever the encoder reads."""
    if reads(encoder) == "image":
        return [dataset.images[page] for page in dataset.pages if page in dataset.images]
    return [text for text in dataset.pages.values() if text]


def corpus(encoder: Encoder, folder: Path) -> list[Any]:
    dataset = load_pages(folder)
    assert isinstance(dataset, Dataset)
    pages = contents(encoder, dataset)
    return pages[:: max(1, len(pages) // PAGES)][:PAGES]


def second_moment(encoder: Encoder, folder: Path) -> Moment:
    total, count = np.zeros(()), 0
    pages = corpus(encoder, folder)
    for at in range(0, len(pages), 50):
        for vectors in encoder.encode_pages(pages[at : at + 50]):
            total = total + vectors.T.astype(np.float64) @ vectors
            count += len(vectors)
        print(f"{folder.name}: {min(at + 50, len(pages))} of {len(pages)} pages", end="\r")
    print(f"{folder.name}: {len(pages)} pages, {count:,} vectors")
    return total / count


def reduction(moments: list[Moment], dim: int, power: float) -> Floats:
    values, directions = np.linalg.eigh(np.mean(moments, axis=0))
    values, directions = values[::-1][:dim], directions[:, ::-1][:, :dim]
    # the sign of a direction is arbitrary: fix it, so that the same data give the same file
    directions = directions * np.sign(directions.sum(axis=0))
    matrix = directions * values**-power
    return np.asarray(matrix / np.linalg.norm(matrix) * np.sqrt(dim), dtype=np.float32)


def leave_one_out(encoder: Encoder, folders: list[Path], dim: int) -> None:
    moments = {folder: second_moment(encoder, folder) for folder in folders}
    ks = " | ".join(f"k = {k}" for k in BUDGETS)
    print(f"| held-out set | dimensions | all vectors | {ks} |")
    print("| --- | --- | --- |" + " --- |" * len(BUDGETS))
    for folder in folders:
        if not (folder / "queries.jsonl").exists():
            continue
        dataset = load(folder)
        assert isinstance(dataset, Dataset)
        given = contents(encoder, dataset)
        assert len(given) == len(dataset.pages), f"{folder}: pages that the encoder cannot take"
        pages = encoder.encode_pages(given)
        queries = encoder.encode_queries(list(dataset.queries.values()))
        others = [moment for other, moment in moments.items() if other != folder]
        own = pages[0].shape[1]
        matrices = {f"{own}": np.eye(own, dtype=np.float32)}
        matrices |= {f"{dim}, p = {power}": reduction(others, dim, power) for power in POWERS}
        for name, matrix in matrices.items():
            p = Pages([page @ matrix for page in pages], normalize=True)
            q = Queries([query @ matrix for query in queries], normalize=True)
            lists = [f"{score:.3f}" for score in scores(dataset, p, q)]
            print(f"| {dataset.name} | {name} | {' | '.join(lists)} |", flush=True)


def scores(dataset: Dataset, pages: Pages, queries: Queries) -> Iterator[float]:
    """nDCG@5 of all vectors, then of normalised k-means at each budget."""
    yield ndcg_at_5(dataset, search_vectors(queries, [pages], DEPTH).positions)
    for k in BUDGETS:
        codes = Codec(k=k).compress(pages)
        yield ndcg_at_5(dataset, search_codes(queries, codes, None, DEPTH).positions)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--encoder", default=WHOLE, help="as for glie index")
    parser.add_argument("--dim", type=int, default=DIM, help="dimensions to reduce to")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", type=Path, help="file to write the matrix to")
    what.add_argument("--leave-one-out", action="store_true", help="measure, write nothing")
    arguments = parser.parse_args()
    if arguments.to and not arguments.to.parent.is_dir():  # before minutes of work
        parser.error(f"--to {arguments.to}: there is no folder {arguments.to.parent}")
    try:
        encoder = load_encoder(arguments.encoder)
        own = encoder.encode_queries(["a"])[0].shape[1]
        if not 0 < arguments.dim <= own:
            parser.error(f"--dim {arguments.dim}: expected 1 to {own}, the encoder's own")
        if arguments.leave_one_out:
            leave_one_out(encoder, arguments.datasets, arguments.dim)
            return
        moments = [second_moment(encoder, folder) for folder in arguments.datasets]
        matrix = reduction(moments, arguments.dim, POWER)
        write_reduction(arguments.to, matrix, encoder)
    except GlieError as error:
        parser.exit(1, f"{error}\n")
    print(f"{arguments.to}: {matrix.shape[0]} x {matrix.shape[1]}")


if __name__ == "__main__":
    main()
