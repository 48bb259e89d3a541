"""Make the codebook that is shipped for an encoder.

    python tools/fit_codebook.py CORPUS... --to src/glie/codec/shipped/minilm/codebook.safetensors

A CORPUS is a folder with corpus.jsonl, of which pages are used, never questions, or cached vectors.
A codebook lives by having met a word before, and a corpus of one kind meets few; so the shipped one
is fitted on annual reports and on a dictionary (tools/glosses.py), and on none of the sets that it
is measured on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from glie.cli.shared import encode_sets
from glie.codec.codebook import Codebook, fit_codebook, leftovers
from glie.codec.codec import Codec
from glie.errors import GlieError
from glie.evaluation.datasets import load_pages

K, DTYPE = 4, "int2"  # of the anchors; the words fit those of other budgets as well


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--encoder", help="as for `glie index`")
    parser.add_argument("--cache", type=Path, help="where vectors are kept")
    parser.add_argument("--pages", type=int, default=5000, help="the most of a corpus")
    parser.add_argument("--vectors", type=int, default=600_000, help="the most of a corpus")
    parser.add_argument("--words", type=int, default=65_536)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    codec = Codec(K, dtype=DTYPE)
    rest, sources = [], {}
    sets = encode_sets(
        [load_pages(path) for path in arguments.corpora], arguments.encoder, arguments.cache
    )
    for encoded in sets:
        pages = vectors = 0
        for block in encoded.blocks():
            if pages >= arguments.pages or vectors >= arguments.vectors:
                break
            rest.append(leftovers(block, codec.compress(block), Codebook.anchor_share)[0])
            pages, vectors = pages + len(block), vectors + len(block.vectors)
        sources[encoded.name] = {"pages": pages, "vectors": vectors}
        print(f"{encoded.name}: {pages:,} pages, {vectors:,} vectors", flush=True)
    book = fit_codebook(
        np.concatenate(rest),
        arguments.words,
        encoder=sets[0].encoder,
        notes={"fitted_on": sources},
        progress=lambda step: print(step, flush=True),
    )
    arguments.to.write_bytes(book.to_bytes())
    print(f"{arguments.to}: {len(book):,} words, {arguments.to.stat().st_size:,} bytes")


if __name__ == "__main__":
    try:
        main()
    except GlieError as error:
        raise SystemExit(f"fit_codebook: {error}") from None
