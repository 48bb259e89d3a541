"""Fit the codebook that glie ships for an encoder.

    python tools/fit_codebook.py PAIRS:6500 --to src/glie/codec/shipped/english/codebook.safetensors

It is made as by `glie codec make`, but of all pages that are given, and without a codec. Each
corpus is a folder with corpus.jsonl; only its pages are used, never its questions. A number takes
a random sample of so many pages. A codebook works best for vectors like those it was fitted
on, and a corpus of one kind covers few; so the shipped one is fitted on passages of all sources
of its encoder (tools/encoder_pairs.py), and on none of the sets that it is measured on.
That of `minilm` was fitted on a dictionary (tools/glosses.py) and on annual reports.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from glie.cli.shared import encode_sets
from glie.codec.make import make_codebook
from glie.errors import GlieError
from glie.evaluation.datasets import Dataset, load_pages


def some_pages(corpus: str) -> Dataset:
    """Load the pages of FOLDER, or of FOLDER:PAGES a sample."""
    folder, _, count = corpus.rpartition(":")
    if not count.isdigit():
        folder, count = corpus, ""
    dataset = load_pages(folder)
    if not isinstance(dataset, Dataset):
        raise GlieError(f"{folder}: expected a folder with corpus.jsonl, found cached vectors")
    if count and int(count) < len(dataset.pages):
        drawn = random.Random(0).sample(list(dataset.pages), int(count))
        dataset = dataset._replace(pages={page: dataset.pages[page] for page in drawn})
    return dataset


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", nargs="+", metavar="CORPUS[:PAGES]")
    parser.add_argument("--encoder", help="as for `glie index`")
    parser.add_argument("--cache", type=Path, help="folder that caches encoded vectors")
    parser.add_argument("--codewords", "--words", type=int, default=65_536, help="their number")
    parser.add_argument("--to", type=Path, required=True, help="file to write")
    arguments = parser.parse_args()
    sets = encode_sets(
        [some_pages(corpus) for corpus in arguments.corpora], arguments.encoder, arguments.cache
    )
    sources = {}
    for encoded in sets:
        vectors = int(encoded.lengths.sum())
        sources[encoded.name] = {"pages": len(encoded.page_ids), "vectors": vectors}
        print(f"{encoded.name}: {vectors:,} vectors", flush=True)
    book = make_codebook(
        (block for encoded in sets for block in encoded.blocks()),
        sets[0].encoder,
        arguments.codewords,
        notes={"fitted_on": sources},
        progress=lambda step: print(step, flush=True),
    )
    arguments.to.write_bytes(book.to_bytes())
    print(f"{arguments.to}: {len(book):,} codewords, {arguments.to.stat().st_size:,} bytes")


if __name__ == "__main__":
    try:
        main()
    except GlieError as error:
        raise SystemExit(f"fit_codebook: {error}") from None
