"""Indexing documents: pages a second of each stage alone, and of the whole run, in which reading
and OCR run ahead of encoding, beside the same run one stage after the other.

    python benchmarks/ingest.py FOLDER... [--rounds 3] [--encoder english]

Without a folder it makes text files and scans of its own. The two whole runs take turns, each into
a new index, after one that loads everything.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from common import interleaved, machine, publish
from PIL import Image, ImageDraw, ImageFont

import glie
from glie.documents import DocumentPage, FoundDocument, find_documents, ocr_available, read_document
from glie.documents.images import OCR_PIXELS, picture_text
from glie.encoders import Encoder, load_encoder
from glie.encoders.base import reads
from glie.identity import EncoderId
from glie.ingest import PAGES_PER_COMMIT, PAGES_PER_ENCODE, Reading, store_documents

TOKENS = 200
WORDS = "the of and to in for a is on that by this with you it not or be are from at as your all"
TEXTS, SCANS = 200, 8


def make_documents(folder: Path) -> None:
    """Text files and pictures of text, a page each."""
    font = ImageFont.load_default(size=28)
    for number in range(TEXTS + SCANS):
        words = np.random.default_rng(number).choice(WORDS.split(), TOKENS).tolist()
        if number < TEXTS:
            (folder / f"{number:04}.txt").write_text(" ".join(words))
            continue
        lines = "\n".join(" ".join(words[at : at + 10]) for at in range(0, TOKENS, 10))
        picture = Image.new("RGB", (1200, 1000), "white")
        ImageDraw.Draw(picture).text((60, 60), lines, fill="black", font=font, spacing=14)
        picture.save(folder / f"{number:04}.png")


T = TypeVar("T")


def timed(run: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began


def slices(pages: glie.Pages, size: int) -> list[glie.Pages]:
    return [pages.slice(at, min(at + size, len(pages))) for at in range(0, len(pages), size)]


def stages(
    found: Sequence[FoundDocument], encoder: Encoder, folder: Path
) -> dict[str, tuple[int, float]]:
    """The pages of each stage, and its seconds if nothing else runs."""
    read, reading = timed(lambda: [read_document(one, ocr=False).pages for one in found])
    pages: list[DocumentPage] = [page for document in read for page in document]
    scans = [page for page in pages if page.origin == "none"] if ocr_available() else []
    texts = [page.text for page in pages if page.origin == "text"]
    done = {"reading": (len(pages), reading)}
    if reads(encoder) == "image":
        pictures, drawing = timed(lambda: [page.image() for page in pages])
        done["drawing"] = len(pages), drawing
        given: Sequence[object] = pictures
    else:
        if scans:
            seen, ocr = timed(lambda: [picture_text(page.image(OCR_PIXELS)) for page in scans])
            done["OCR"] = len(scans), ocr
            texts += [text for text in seen if text]
        given = texts
    size = PAGES_PER_ENCODE
    parts = [given[at : at + size] for at in range(0, len(given), size)]
    vectors, encoding = timed(lambda: [v for part in parts for v in encoder.encode_pages(part)])
    done["encoding"] = len(given), encoding
    every = glie.Pages(vectors)
    codec, adapting = timed(lambda: glie.Codec(bytes_per_page=520).for_pages([every]).frozen)
    done["adapting the codec, once"] = len(every), adapting
    index, compressing, adding = glie.Index.create(folder / "stages", codec), 0.0, 0.0
    for some in slices(every, PAGES_PER_COMMIT):
        compressing += timed(functools.partial(codec.compress, some))[1]
        adding += timed(functools.partial(index.add, some))[1]
    done["compressing"] = len(every), compressing
    done["committing"] = len(every), max(adding - compressing, 0.0)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encoder", default="english")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if not asked.documents:
            (folder / "documents").mkdir()
            make_documents(folder / "documents")
        found = find_documents(asked.documents or [folder / "documents"])
        encoder, made, pages = load_encoder(asked.encoder), 0, 0

        def run(readers: int | None) -> None:
            nonlocal made, pages
            made += 1
            codec = glie.Codec(bytes_per_page=520)
            index = glie.Index.create(folder / f"{made}", codec, encoder=EncoderId.of(encoder))
            with index.writing():
                store_documents(index, encoder, found, {}, Reading(), readers=readers)
            pages = len(index)

        whole = interleaved(
            {"one after the other": lambda: run(0), "overlapping": lambda: run(None)}, asked.rounds
        )
        alone = stages(found, encoder, folder)
    print(f"{len(found):,} documents, {pages:,} pages with text; {machine()}\n")
    print("| stage alone | pages | seconds | pages a second |")
    print("| --- | --- | --- | --- |")
    total = sum(seconds for _, seconds in alone.values())
    rows = [*alone.items(), ("sum of the stages", (pages, total))]
    for name, (count, seconds) in [*rows, *((f"whole, {n}", (pages, s)) for n, s in whole.items())]:
        print(f"| {name} | {count:,} | {seconds:.2f} | {count / max(seconds, 1e-9):,.1f} |")
    sequential, ahead = whole.values()
    what = f"index {len(found):,} documents of {pages:,} pages"
    publish(
        what, pages / ahead, "pages/s", peer="one stage after the other", theirs=pages / sequential
    )


if __name__ == "__main__":
    main()
