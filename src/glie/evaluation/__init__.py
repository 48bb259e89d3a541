"""What a budget costs: retrieval quality on sets with known answers."""

from glie.evaluation.datasets import Dataset, load, load_pages
from glie.evaluation.encoded import Encoded
from glie.evaluation.encoding import encode
from glie.evaluation.fits import joined
from glie.evaluation.sampling import sample
from glie.evaluation.vectors import read_corpora

__all__ = [
    "Dataset",
    "Encoded",
    "encode",
    "joined",
    "load",
    "load_pages",
    "read_corpora",
    "sample",
]
