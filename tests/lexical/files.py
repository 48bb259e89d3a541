"""Files of postings made from pages, and from other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from glie.index.lexical_file import LexicalFile, postings_bytes
from glie.lexical.postings import Postings, Selected


def lexical_bytes(pages: Sequence[Mapping[str, int]], segment: int) -> bytes:
    """Each page is given as how often each term occurs on it."""
    return postings_bytes(Postings.of(pages), segment)


def merged_bytes(parts: Sequence[tuple[LexicalFile, npt.NDArray[np.int64]]], segment: int) -> bytes:
    """Some rows of other files, end to end."""
    selected = [Selected(file.all_postings(), rows) for file, rows in parts]
    return postings_bytes(Postings.merged(selected), segment)
