"""Write the small indexes of every format version that the tests open.

    python tools/specimen.py tests/data/formats

Run it once for each new format, with the version of glie that introduces it: existing indexes are
left alone. A JSON file beside each index has the answers that it must give. Indexes with a date in
their name were written by the code of that date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.codec.networks import random_codec

import glie
from glie.candidates import build
from glie.codec.readout.codebook import fit_codebook
from glie.index import column_file

DIM, CODEWORD_DIM, PAGES = 8, 16, 34
WORDS = "Häuser 3 -ebbe"  # asked of those whose pages have words


class Specimen(NamedTuple):
    codec: Callable[[], glie.Codec]
    dim: int = DIM
    vectors: int = 5  # a page
    has_candidates: bool = False
    language: str | None = None  # of the words of its pages; None: they have none
    has_columns: bool = False  # of metadata


def codeword_codec() -> glie.Codec:
    """A codec with codewords, as `glie index` makes it, and a codebook of a few kilobytes."""
    rest = np.random.default_rng(0).normal(0, 0.2, (400, CODEWORD_DIM)).astype(np.float32)
    return glie.Codec.with_codebook(fit_codebook(rest, 96), 100)


# by the name of their folder, some of which are older than our terms
SPECIMENS = {
    "manifest-1-bf16": Specimen(lambda: glie.Codec(k=2)),
    "manifest-1-int4": Specimen(lambda: glie.Codec(k=3, dtype="int4")),
    "manifest-1-fitted": Specimen(lambda: random_codec(DIM, 0, k=2)),
    "manifest-1-words": Specimen(codeword_codec, CODEWORD_DIM, vectors=60),
    "manifest-1-marked": Specimen(lambda: glie.Codec(k=2)),  # pictures and tombstones of version 2
    "manifest-2-finder": Specimen(lambda: glie.Codec(k=2, dtype="int2"), has_candidates=True),
    "manifest-3-text": Specimen(lambda: glie.Codec(k=2), language="de"),
    "manifest-3-text-finder": Specimen(
        lambda: glie.Codec(k=2, dtype="int2"), has_candidates=True, language="none"
    ),
    "manifest-4-columns": Specimen(
        *(codeword_codec, CODEWORD_DIM, 60), has_candidates=True, language="de", has_columns=True
    ),
}


def queries(dim: int) -> list[Any]:
    """The query that all specimens answer; it never changes."""
    rows = np.cos(np.arange(3 * dim).reshape(3, dim) ** 1.5)
    return [rows[:2] / np.linalg.norm(rows[:2], axis=1, keepdims=True)]


def answers(index: glie.Index, shortlist: int | None = None) -> dict[str, Any]:
    """Records, pictures and hits of an index, and those of its words."""
    assert index.dim is not None
    hits = index.search(queries(index.dim), top=PAGES, exact=True, shortlist=shortlist)[0]
    pictures = [index.image(name) for name in index.ids]
    words = {}
    if index.has_text:
        found = index.search(None, top=PAGES, text=[WORDS], mode="lexical")[0]
        words = {"language": index.language, "words": [found.ids, found.scores]}
    return {
        "records": [list(record) for record in index.records()],
        "pictures": [None if picture is None else picture.decode() for picture in pictures],
        "ids": hits.ids,
        "scores": hits.scores,
        **words,
    }


def _text(number: int) -> str:
    house = "Haus" if number % 2 else "zwei Häuser"
    return f"{house} am Meer, Nr. {number % 7}" + (", bei Ebbe" if number % 3 == 0 else "")


def write(folder: Path, name: str) -> None:
    specimen = SPECIMENS[name]
    build.CANDIDATE_PAGES = 20 if specimen.has_candidates else 200_000
    column_file.FEWEST_PAGES = 4 if specimen.has_columns else 1024
    language = specimen.language
    index = glie.Index.create(
        folder / name, specimen.codec(), encoder={"name": "specimen"}, language=language
    )
    rng = np.random.default_rng(0)
    for first, last in ((0, 30), (30, PAGES)):
        ids = [f"ü{i}.pdf#1" for i in range(first, last)]
        arrays = [rng.normal(size=(specimen.vectors, specimen.dim)) for _ in ids]
        pictures = [f"picture {i}".encode() for i in range(first, last)] if first else None
        metadata = [{"document": name, "page": 1} for name in ids]
        texts = None
        if language is not None:  # every fifth page has none
            texts = [_text(i) if i % 5 else None for i in range(first, last)]
        new = glie.Pages(arrays, ids=ids, normalize=True)
        index.add(new, metadata, images=pictures, texts=texts)
    index.delete(["ü3.pdf#1", "ü31.pdf#1"])
    told = json.dumps(answers(index), ensure_ascii=False, indent=1)
    (folder / f"{name}.json").write_text(told + "\n")
    (folder / name / "lock").unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in SPECIMENS:
        if not (folder / name).exists():
            write(folder, name)
            print(folder / name)


if __name__ == "__main__":
    main()
