"""What a budget costs: retrieval quality on sets with known answers."""

from glie.evaluation.datasets import Dataset, load
from glie.evaluation.sweep import Row, sweep

__all__ = ["Dataset", "Row", "load", "sweep"]
