"""Draw sample pages from a file of vectors, a set, or documents."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glie.documents import DocumentPage, FoundDocument, find_documents, has_picture, read_document
from glie.errors import DatasetError, DocumentError, IdError, VectorError
from glie.evaluation import vidore
from glie.evaluation.datasets import Dataset, Picture, is_set, load_pages
from glie.evaluation.encoded import Encoded
from glie.evaluation.vectors import read_corpora, shuffled
from glie.geometry import drawn_from
from glie.identity import EncoderId
from glie.pages import Pages

ACCEPTED = (
    "an .npz file of page vectors, documents, a set (a folder with corpus.jsonl, or its name on "
    "the Hub), or a folder of cached vectors"
)


BLOCK = 64  # pages that `blocks` encodes at a time


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
        return Sample(_npz_pages(path, drawn), None)
    if _are_documents(path_or_name):
        loaded: Dataset | Encoded = _documents(path, most, _shuffled(path, rng))
        if not loaded.page_ids:
            raise _without_pages(path)
    else:
        loaded = load_pages(path_or_name)
    if isinstance(loaded, Dataset):
        ids = list(loaded.pages)
        loaded = _some(loaded, [ids[row] for row in _rows(len(ids), most, rng)])
    encoded = encode(loaded)
    pages = encoded.take(_rows(len(encoded.page_ids), most, rng))
    texts = None
    if isinstance(loaded, Dataset):
        texts = [loaded.pages[page] for page in pages.ids]
    return Sample(pages, encoded.encoder, texts)


def blocks(
    path_or_name: str | os.PathLike[str],
    vectors: int,
    seed: int,
    encode: Callable[[Dataset | Encoded], Encoded],
) -> Iterator[Sample]:
    """Random pages of what `sample` accepts, block by block, until they have so many vectors. What
    is not needed is not read, nor encoded."""
    rng, path = np.random.default_rng(seed), Path(path_or_name)
    if path.suffix == ".npz":
        found = _npz_blocks(path, rng)
    else:
        found = _encoded_blocks(path_or_name, encode, rng)
    for block in found:
        yield block
        vectors -= len(block.pages.vectors)
        if vectors <= 0:
            return


def _npz_blocks(path: Path, rng: np.random.Generator) -> Iterator[Sample]:
    pages = iter(shuffled(path, rng))
    while some := list(islice(pages, BLOCK)):
        yield Sample(_npz_pages(path, some), None)


def _encoded_blocks(
    path_or_name: str | os.PathLike[str],
    encode: Callable[[Dataset | Encoded], Encoded],
    rng: np.random.Generator,
) -> Iterator[Sample]:
    """The pages of a set or of documents, part by part."""
    unusable: DatasetError | None = _without_pages(path_or_name)
    for part in _parts(path_or_name, rng):
        try:
            encoded = encode(part)
        except DatasetError as error:  # it may be a few scanned pages that an encoder cannot read
            unusable = unusable and error
            continue
        ends = np.cumsum(encoded.shard_pages)
        for shard in rng.permutation(len(ends)).tolist():
            rows = np.arange(ends[shard] - encoded.shard_pages[shard], ends[shard])
            yield Sample(encoded.take(rows), encoded.encoder)
        unusable = None
    if unusable is not None:
        raise unusable


def _parts(
    path_or_name: str | os.PathLike[str], rng: np.random.Generator
) -> Iterator[Dataset | Encoded]:
    """A set in parts of BLOCK random pages; one of cached vectors as it is."""
    path = Path(path_or_name)
    if _are_documents(path_or_name):
        found = _shuffled(path, rng)
        while (read := _documents(path, BLOCK, found)).pages:
            yield read
        return
    loaded = load_pages(path_or_name)
    if isinstance(loaded, Encoded):
        yield loaded
        return
    ids = list(loaded.pages)
    order = [ids[row] for row in rng.permutation(len(ids)).tolist()]
    for at in range(0, len(order), BLOCK):
        yield _some(loaded, order[at : at + BLOCK])


def _are_documents(path_or_name: str | os.PathLike[str]) -> bool:
    """Whether a path is one of documents, not of a set."""
    path = Path(path_or_name)
    if not path.exists() and not vidore.is_name(os.fspath(path_or_name)):
        raise DatasetError(f"{path}: no such file or folder; expected {ACCEPTED}")
    return path.exists() and not is_set(path)


def _without_pages(path: str | os.PathLike[str]) -> DatasetError:
    return DatasetError(f"{os.fspath(path)}: no pages in it; expected {ACCEPTED}")


def _npz_pages(path: Path, drawn: Sequence[tuple[str, Any]]) -> Pages:
    try:
        return Pages([array for _, array in drawn], [key for key, _ in drawn])
    except (VectorError, IdError) as error:
        raise type(error)(f"{path}: {error}") from None


def _some(dataset: Dataset, ids: Sequence[str]) -> Dataset:
    """Some of the pages of a set."""
    images = {page: dataset.images[page] for page in ids if page in dataset.images}
    return dataset._replace(pages={page: dataset.pages[page] for page in ids}, images=images)


def _rows(count: int, most: int, rng: np.random.Generator) -> Any:
    return np.sort(rng.permutation(count)[:most])


def _shuffled(path: Path, rng: np.random.Generator) -> Iterator[FoundDocument]:
    """The documents of a path in random order."""
    found = find_documents([path])
    return (found[number] for number in rng.permutation(len(found)).tolist())


def _documents(path: Path, most: int, found: Iterator[FoundDocument]) -> Dataset:
    """Pages of documents, text and picture; documents are read until these are enough."""
    texts: dict[str, str] = {}
    images: dict[str, Picture] = {}
    warnings: list[str] = []
    for document in found:
        try:
            pages, problems = read_document(document, ocr=False)
        except DocumentError as error:
            warnings.append(str(error))
            continue
        warnings += problems
        if has_picture(document.path):
            images |= _pictures(pages)
        texts |= {page.id: page.text for page in pages if page.text or page.id in images}
        if len(texts) >= most:
            break
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
