"""Write the small indexes that tests keep of every released format.

    python tools/specimen.py tests/data/formats

Run once for a format, by the version that releases it: what is there already is left alone. Beside
each index stands what it must answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.codec.networks import random_codec

import glie
from glie.index import signing

DIM, PAGES = 8, 34
SPECIMENS: dict[str, tuple[Callable[[], glie.Codec], bool]] = {
    "manifest-1-bf16": (lambda: glie.Codec(k=2), False),
    "manifest-1-int4": (lambda: glie.Codec(k=3, dtype="int4"), False),
    "manifest-1-fitted": (lambda: random_codec(DIM, 0, k=2), False),
    "manifest-2-finder": (lambda: glie.Codec(k=2, dtype="int2"), True),
}


def queries() -> list[Any]:
    """What the specimens are asked; the same for ever."""
    rows = np.cos(np.arange(3 * DIM).reshape(3, DIM) ** 1.5)
    return [rows[:2] / np.linalg.norm(rows[:2], axis=1, keepdims=True)]


def answers(index: glie.Index) -> dict[str, Any]:
    """All that an index tells."""
    hits = index.search(queries(), top=PAGES, exact=True)[0]
    pictures = [index.image(name) for name in index.ids]
    return {
        "records": [list(record) for record in index.records()],
        "pictures": [None if picture is None else picture.decode() for picture in pictures],
        "ids": hits.ids,
        "scores": hits.scores,
    }


def write(folder: Path, name: str) -> None:
    codec, has_finder = SPECIMENS[name]
    signing.FINDER_PAGES = 20 if has_finder else 20_000
    index = glie.Index.create(folder / name, codec(), encoder={"name": "specimen"})
    rng = np.random.default_rng(0)
    for first, last in ((0, 30), (30, PAGES)):
        ids = [f"ü{i}.pdf#1" for i in range(first, last)]
        arrays = [rng.normal(size=(5, DIM)) for _ in ids]
        pictures = [f"picture {i}".encode() for i in range(first, last)] if first else None
        metadata = [{"document": name, "page": 1} for name in ids]
        index.add(glie.Pages(arrays, ids=ids, normalize=True), metadata, images=pictures)
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
