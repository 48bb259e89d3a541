"""Quality of codec settings against bytes: the trials behind `Codec(bytes_per_page=...)`.

    python tools/frontier.py DATASET... 4:int2:52 8:int2:115 [--codebook FILE] [--cache DIR]

A setting is k, type and number of codewords of a page. The table has nDCG@5 in per cent of that of
uncompressed vectors, averaged over the sets, by length of the shortlist. The codebook is by default
the one that glie ships; tools/fit_codebook.py makes others.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np

from glie.cli.shared import encode_sets
from glie.codec.codec import Codec
from glie.codec.config import CodecConfig
from glie.codec.readout.codebook import Codebook
from glie.codec.readout.residual import Residual
from glie.errors import GlieError
from glie.evaluation.datasets import load
from glie.evaluation.encoded import Encoded
from glie.index.memory import CodesInMemory, search_codes, search_vectors
from glie.kernels.residual import ONE_LAYER
from glie.measures import DEPTH, ndcg_at_5

SETTING = re.compile(r"(\d+):(\w+):(\d+)")


def codec_of(setting: str, book: Codebook) -> Codec:
    match = SETTING.fullmatch(setting)
    assert match is not None
    k, dtype, codewords = match.groups()
    config = CodecConfig(k=int(k), dtype=dtype, codewords=int(codewords), first_layer=ONE_LAYER)
    return Codec.from_config(config, Residual(book) if config.codewords else None)


def kept(encoded: Encoded, codec: Codec, shortlists: list[int]) -> tuple[float, list[float]]:
    """Bytes a page of the codes, and nDCG@5 by length of the shortlist."""
    stored = CodesInMemory(map(codec.compress, encoded.blocks()))
    regenerate = codec.regenerate if codec.regenerates else None
    return stored.bytes_per_page, [
        ndcg_at_5(
            encoded,
            search_codes(encoded.asked, stored, regenerate, DEPTH, length).positions,
        )
        for length in shortlists
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", metavar="DATASET|SETTING")
    parser.add_argument("--codebook", type=Path, help="file; by default the shipped codebook")
    parser.add_argument("--shortlists", default="20,50,100,200,500")
    parser.add_argument("--cache", type=Path, help="folder that caches encoded vectors")
    arguments = parser.parse_args()
    settings = [argument for argument in arguments.what if SETTING.fullmatch(argument)]
    paths = [argument for argument in arguments.what if argument not in settings]
    file = arguments.codebook
    book = Codebook.from_bytes(file.read_bytes(), str(file)) if file else Codebook.shipped()
    sets = encode_sets([load(path) for path in paths], None, arguments.cache)
    whole = [ndcg_at_5(s, search_vectors(s.queries, s.blocks(), DEPTH).positions) for s in sets]
    lengths = list(map(int, arguments.shortlists.split(",")))
    print("| setting | bytes a page |", " | ".join(f"L = {n}" for n in lengths), "| by set |")
    print("| --- " * (len(lengths) + 3) + "|")
    for setting in settings:
        found = [kept(encoded, codec_of(setting, book), lengths) for encoded in sets]
        shares = np.array([scores for _, scores in found]) / np.array(whole)[:, None]
        means = " | ".join(f"{share:.1%}" for share in shares.mean(axis=0))
        each = ", ".join(f"{share:.1%}" for share in shares[:, -1])
        size = " / ".join(f"{size:,.0f}" for size, _ in found)
        print(f"| {setting} | {size} | {means} | {each} |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except GlieError as error:
        raise SystemExit(f"frontier: {error}") from None
