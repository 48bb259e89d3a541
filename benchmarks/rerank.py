"""Milliseconds to rerank a shortlist: regenerating its pages from their codes and scoring them,
compared with exact MaxSim over the original vectors in memory.

    python benchmarks/rerank.py [--pages FILE.npz] [--shortlist 20] [--k 4] [--rounds 7]
    python benchmarks/rerank.py --bytes-per-page 520 --shortlist 200 [--pages FILE.npz]

The first is the paper's decoder, the second codewords of the shipped codebook.

The originals take N / k times the bytes; regenerating takes time instead. The weights are random:
their values do not change the work. A query has 20 vectors.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from common import interleaved, load_pages, machine, publish

import glie
from glie.codec.readout.decoder import new_decoder
from glie.codec.readout.generative import FitScores, Fitted, Generative
from glie.codec.readout.refiner import new_refiner
from glie.kernels.maxsim import maxsim
from glie.pages import Floats

QUERY_VECTORS = 20


def codec_of(dim: int, k: int, bytes_per_page: int | None) -> glie.Codec:
    """A codec with a decoder, or with codewords if a budget is given."""
    if bytes_per_page:
        return glie.Codec(bytes_per_page=bytes_per_page)
    rng = np.random.default_rng(0)
    refiner = new_refiner(dim, rng)
    decoder = new_decoder(dim, rng, width=256, depth=1)
    fitted = Fitted(refiner, decoder, refiner, (FitScores(k, 0.0, 1.0, 1.0),))
    return glie.Codec.from_config(glie.CodecConfig(k=k), Generative(fitted))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--shortlist", type=int, default=20)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--bytes-per-page", type=int, help="codewords of this budget instead")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    pages = load_pages(arguments.pages, arguments.shortlist)
    rng = np.random.default_rng(0)
    query = pages[0][rng.choice(len(pages[0]), QUERY_VECTORS, replace=False)]
    codec = codec_of(pages.dim, arguments.k, arguments.bytes_per_page)
    codes = codec.compress(pages)
    made = codec.regenerate(codes)
    asked, budget = glie.Queries([query]), arguments.bytes_per_page

    def score(vectors: glie.Pages) -> Floats:
        tokens = np.array([0, len(query)])
        return maxsim(query, tokens, vectors.vectors, vectors.offsets[:-1], vectors.offsets[1:])

    seconds = interleaved(
        {
            "exact MaxSim over the originals": lambda: score(pages),
            "regenerate and score": lambda: score(codec.regenerate(codes)),
            **({"score the codes": lambda: codec.maxsim(asked, codes)} if budget else {}),
            "of which: scoring": lambda: score(made),
        },
        arguments.rounds,
    )
    peer = seconds["exact MaxSim over the originals"]
    mean = pages.lengths.mean()
    how = "score the codes" if budget else "regenerate and score"
    what = f"rerank {arguments.shortlist} pages, " + ("codewords" if budget else "the decoder")
    publish(
        what,
        1000 * seconds[how],
        peer="exact MaxSim over the originals",
        theirs=1000 * peer,
        goal="3 ms" if budget else "12 ms",
    )
    print(
        f"{arguments.shortlist} pages of {mean:,.0f} x {pages.dim}, k = {codec.k}, "
        f"{QUERY_VECTORS} vectors a query; {machine()}"
    )
    print("| method | bytes a page | ms a query | times exact |")
    print("| --- | --- | --- | --- |")
    code = budget or codec.k * (2 * pages.dim + 4)
    stored = {True: code, False: round(mean * 2 * pages.dim)}
    for name, time in seconds.items():
        kept = f"{stored['exact' not in name]:,}" if "of which" not in name else ""
        print(f"| {name} | {kept} | {1000 * time:.1f} | {time / peer:.1f} |")


if __name__ == "__main__":
    main()
