"""Look up twenty exact figures, codes and names in PDF files: how many are found first?

    python tools/lookups.py FOLDER [--encoder NAME] [--bytes-per-page 520] [--mode late]
                             [--misses]

The look-ups (tools/lookups.jsonl) were written down before any of them was searched for. FOLDER
has the PDF files that they name. Prints how many have a right page first, and among the first five.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from glie.errors import GlieError
from glie.indexing import CodecChoice, open_or_create
from glie.ingest import ingest
from glie.retriever import Retriever

LOOKUPS = Path(__file__).with_name("lookups.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", help="as for glie index")
    parser.add_argument("--bytes-per-page", type=int, help="the default is that of glie index")
    parser.add_argument("--mode", help="as for glie search")
    parser.add_argument("--misses", action="store_true", help="show what was found instead")
    arguments = parser.parse_args()
    lookups = [json.loads(line) for line in LOOKUPS.read_text(encoding="utf-8").splitlines()]
    files = [arguments.folder / name for name in sorted({lookup["file"] for lookup in lookups})]
    with tempfile.TemporaryDirectory() as folder:
        choice = CodecChoice(bytes_per_page=arguments.bytes_per_page)
        index, encoder = open_or_create(Path(folder) / "index", files, arguments.encoder, choice)
        ingest(index, encoder, files)
        retriever = Retriever(index, encoder)
        first = five = 0
        for lookup in lookups:
            right = {(lookup["file"], page) for page in lookup["pages"]}
            hits = retriever.search(lookup["question"], top=5, mode=arguments.mode)
            found = [(Path(hit.metadata["path"]).name, hit.metadata["page"]) for hit in hits]
            first += found[0] in right
            five += bool(right.intersection(found))
            if arguments.misses and found[0] not in right:
                print(f"{lookup['question']}: {found[0]}, expected {sorted(right)}")
        info = index.info()
        each, words = info.lean_bytes / info.pages, info.text_bytes / info.pages
        print(f"{info.pages:,} pages, {each:,.0f} bytes each, of these {words:,.0f} words")
        print(f"{first} of {len(lookups)} first, {five} among the first five")


if __name__ == "__main__":
    try:
        main()
    except GlieError as error:
        raise SystemExit(f"lookups: {error}") from None
