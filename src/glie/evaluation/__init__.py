"""Retrieval quality at a budget, measured on sets with known answers."""

from glie.evaluation.datasets import Dataset, load, load_pages, sets_in
from glie.evaluation.encoded import Encoded, joined
from glie.evaluation.encoding import encode
from glie.evaluation.sampling import blocks, sample
from glie.evaluation.vectors import read_corpora

__all__ = [
    "Dataset",
    "Encoded",
    "blocks",
    "encode",
    "joined",
    "load",
    "load_pages",
    "read_corpora",
    "sample",
    "sets_in",
]
