"""Read page vectors from files, corpus by corpus."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.codec.anchors import check_length
from glie.errors import DatasetError
from glie.evaluation import cache
from glie.evaluation.encoded import Encoded
from glie.geometry import checked_vectors

EXPECTED = (
    "expected an .npz file with one (n, D) array a page, as numpy.savez writes it, or a folder of "
    "cached vectors"
)
PAGE_NUMBER = re.compile(r"((^|[_#])p?\d+)+$")  # as in report_3, report.pdf#3, slide_3_1024, p3

Corpus = Iterable[tuple[str, npt.NDArray[Any]]]


def read_corpora(path: str | os.PathLike[str]) -> dict[str, Corpus]:
    """The corpora of a file, by name: page ids and vectors, read on demand. A folder of cached
    vectors is one corpus."""
    source = Path(path)
    if cache.is_cached(source):
        encoded = cache.read(source)
        return {encoded.name: vectors_of(encoded)}
    if source.is_dir():
        raise DatasetError(f"{source}: a folder; {EXPECTED}")
    with _opened(source) as file:
        keys = list(file.files)
    if not keys:
        raise DatasetError(f"{source}: no arrays in it; {EXPECTED}")
    return {name: _pages(source, mine) for name, mine in grouped(keys, source.stem).items()}


def shuffled(path: str | os.PathLike[str], rng: np.random.Generator) -> Corpus:
    """The pages of an .npz file in random order, read on demand."""
    source = Path(path)
    with _opened(source) as file:
        keys = list(file.files)
    return _pages(source, [keys[place] for place in rng.permutation(len(keys)).tolist()])


def grouped(keys: Sequence[str], otherwise: str) -> dict[str, list[str]]:
    """The keys of each corpus. A folder is a corpus; keys without a folder belong to `otherwise`.

    In a folder with several documents of several pages, each document is a corpus. The name of a
    document is its key without the page number.

    >>> keys = ["a/x_1", "a/x_2", "a/y_1", "a/y_2", "b/z_1", "c"]
    >>> {name: len(mine) for name, mine in grouped(keys, "pages").items()}
    {'a/x': 2, 'a/y': 2, 'b': 1, 'pages': 1}
    """
    folders: dict[str, dict[str, list[str]]] = {}
    for key in keys:
        folder, _, page = key.rpartition("/")
        document = PAGE_NUMBER.sub("", page)
        folders.setdefault(folder, {}).setdefault(document, []).append(key)
    corpora: dict[str, list[str]] = {}
    for folder, documents in folders.items():
        apart = len(documents) > 1 and min(map(len, documents.values())) > 1
        for document, mine in documents.items():
            name = "/".join(filter(None, (folder, document if apart else "")))
            corpora.setdefault(name or otherwise, []).extend(mine)
    return corpora


def _pages(source: Path, keys: Sequence[str]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    with _opened(source) as file:
        for key in keys:
            what = f"{source}, key {key!r}"
            try:
                array = file[key]
            except Exception as error:
                raise DatasetError(f"{what}: {_reason(error)}; {EXPECTED}") from None
            array = checked_vectors(array, what)
            check_length(len(array), what)
            yield key, array


def vectors_of(encoded: Encoded) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The pages of a set as a corpus."""
    for block in encoded.blocks():
        yield from zip(block.ids, block, strict=True)


@contextmanager
def _opened(source: Path) -> Iterator[np.lib.npyio.NpzFile]:
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(open(source, "rb"))
            file = np.load(stream, allow_pickle=False)
        except FileNotFoundError:
            raise DatasetError(f"{source}: no such file; {EXPECTED}") from None
        except Exception as error:  # zip, zlib and numpy raise different errors
            raise DatasetError(f"{source}: cannot be read ({_reason(error)}); {EXPECTED}") from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise DatasetError(f"{source}: a single array of shape {file.shape}; {EXPECTED}")
        yield stack.enter_context(file)


def _reason(error: Exception) -> str:
    if "unsafely" in str(error):  # numpy takes any other file for a pickle, and says how to load it
        return "not a file of arrays"
    return str(error).strip().split("\n")[0] or type(error).__name__
