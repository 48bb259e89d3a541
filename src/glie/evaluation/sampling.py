"""Draw sample pages from a file of vectors, a set, or documents."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glie.documents import DocumentPage, find_documents, has_picture, read_document
from glie.errors import DatasetError, DocumentError, IdError, VectorError
from glie.evaluation import vidore
from glie.evaluation.datasets import Dataset, Picture, is_set, load_pages
from glie.evaluation.encoded import Encoded
from glie.evaluation.vectors import read_corpora
from glie.geometry import drawn_from
from glie.identity import EncoderId
from glie.pages import Pages

ACCEPTED = (
    "an .npz file of page vectors, documents, a set (a folder with corpus.jsonl, or its name on "
    "the Hub), or a folder of cached vectors"
)


class Sample(NamedTuple):
    """Pages, and their encoder and texts if they are known."""

    pages: Pages
    encoder: EncoderId | None
    texts: list[str] | None = None


def sample(
    path_or_name: str | os.PathLike[str],
    most: int,
    seed: int,
    encode: Callable[[Dataset | Encoded], Encoded],
) -> Sample:
    """Draw at most `most` random pages from an .npz file of page vectors, a set (cached vectors
    included), or documents. Only these are encoded."""
    path, rng = Path(path_or_name), np.random.default_rng(seed)
    if path.suffix == ".npz":
        corpora = read_corpora(path)
        _, drawn = drawn_from(chain.from_iterable(corpora.values()), most, rng)
        try:
            pages = Pages([array for _, array in drawn], [key for key, _ in drawn])
        except (VectorError, IdError) as error:
            raise type(error)(f"{path}: {error}") from None
        return Sample(pages, None)
    if not path.exists() and not vidore.is_name(os.fspath(path_or_name)):
        raise DatasetError(f"{path}: no such file or folder; expected {ACCEPTED}")
    if path.exists() and not is_set(path):
        loaded: Dataset | Encoded = _documents(path, most, rng)
    else:
        loaded = load_pages(path_or_name)
    if isinstance(loaded, Dataset):
        ids = [list(loaded.pages)[row] for row in _rows(len(loaded.pages), most, rng)]
        images = {page: loaded.images[page] for page in ids if page in loaded.images}
        loaded = loaded._replace(pages={page: loaded.pages[page] for page in ids}, images=images)
    encoded = encode(loaded)
    pages = encoded.take(_rows(len(encoded.page_ids), most, rng))
    texts = None
    if isinstance(loaded, Dataset):
        texts = [loaded.pages[page] for page in pages.ids]
    return Sample(pages, encoded.encoder, texts)


def _rows(count: int, most: int, rng: np.random.Generator) -> Any:
    return np.sort(rng.permutation(count)[:most])


def _documents(path: Path, most: int, rng: np.random.Generator) -> Dataset:
    """Pages of documents, text and picture; documents are read in random order until enough."""
    found = find_documents([path])
    texts: dict[str, str] = {}
    images: dict[str, Picture] = {}
    warnings: list[str] = []
    for number in rng.permutation(len(found)).tolist():
        try:
            pages, problems = read_document(found[number], ocr=False)
        except DocumentError as error:
            warnings.append(str(error))
            continue
        warnings += problems
        if has_picture(found[number].path):
            images |= _pictures(pages)
        texts |= {page.id: page.text for page in pages if page.text or page.id in images}
        if len(texts) >= most:
            break
    if not texts:
        raise DatasetError(f"{path}: no pages in it; expected {ACCEPTED}")
    return Dataset(path.resolve().name, texts, {}, {}, images=images, warnings=tuple(warnings))


def _pictures(pages: Sequence[DocumentPage]) -> dict[str, Picture]:
    """The pages of one file as pictures, rendered on demand."""
    digest = hashlib.sha256(pages[0].path.read_bytes()).hexdigest()
    return {
        page.id: Picture(page.id, partial(_drawn, page), f"{digest}#{page.number}")
        for page in pages
    }


def _drawn(page: DocumentPage) -> bytes:
    file = io.BytesIO()
    page.image().save(file, "PNG", compress_level=1)
    return file.getvalue()
