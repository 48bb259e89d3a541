"""Encoding pages of text: pages and tokens a second of each encoder, in turns.

    python benchmarks/encode.py english minilm

With OMP_NUM_THREADS=1 on one core, otherwise on all. Pages have 540 tokens of ordinary words.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from common import interleaved, machine, publish

from glie.encoders import Encoder, load_encoder

TOKENS = 540
WORDS = "the of and to in for a is on that by this with you it not or be are from at as your all"


def page(tokens: int, seed: int) -> str:
    """A page of common words: each is one token."""
    return " ".join(np.random.default_rng(seed).choice(WORDS.split(), tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("encoder", nargs="+", help="names or folders")
    parser.add_argument("--pages", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    texts = [page(TOKENS, seed) for seed in range(asked.pages)]
    loaded: dict[str, Encoder] = {}
    seconds: dict[str, float] = {}
    for name in asked.encoder:
        began = time.perf_counter()
        loaded[name] = load_encoder(name)
        seconds[name] = time.perf_counter() - began
    runs = {name: (lambda e=encoder: e.encode_pages(texts)) for name, encoder in loaded.items()}
    times = interleaved(runs, asked.rounds)
    print(f"{asked.pages} pages of {TOKENS} tokens, {machine()}\n")
    print("| encoder | pages a second | tokens a second | seconds to load |")
    print("| --- | --- | --- | --- |")
    first, *others = times
    for name in others:
        rates = [asked.pages / times[which] for which in (first, name)]
        what = f"encode pages of {TOKENS} tokens with {first}"
        publish(what, rates[0], "pages/s", peer=name, theirs=rates[1])
    for name, taken in times.items():
        rate = asked.pages / taken
        print(f"| {name} | {rate:.1f} | {rate * TOKENS:,.0f} | {seconds[name]:.2f} |")


if __name__ == "__main__":
    main()
