"""How often a search rightly says that nothing matches well: the table in docs/results.md.

    python tools/weak.py SET... [--foreign FILE...] [--english FILE...] [--pages 500]
                         [--questions 200] [--bytes-per-page 520] [--mode MODE] [--kept DIR]

A SET is a folder in the BEIR format; an index of at most so many of its pages is made. Asked are
the set's own questions whose page is in the index, the questions of the other sets, strings of
nonsense, and with --foreign the questions of *.jsonl.gz files with lines {"query"}. Prints the
share that is called weak, of the own questions also of those whose page is among the first 5. Then
the share of foreign questions whose language is noticed, and of all English ones that are wrongly
called foreign (--english: further files). With --kept, indexes are made once.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

import glie
from glie.encoders import Encoder, load_encoder
from glie.errors import InputError
from glie.lexical.language import foreign_language
from glie.retriever import Retriever

NONSENSE = (
    *("zzzz qqqq", "asdf jkl qwer", "blorp fizzle gronk", "xkcd 99887766", "qwertyuiop"),
    *("lorem ipsum dolor sit amet", "flurb the wizzle of snorp", "aaaa bbbb cccc dddd"),
    *("hjkl hjkl", "wibble wobble wubble", "1234567890", "krzt vnmp qlst", "foo bar baz quux"),
    *("ghjghj tyutyu", "zxcvb nm", "umpteen gloopy smerfs", "trrrr prrrr", "oiuwer lkjsdf mnbx"),
)


def lines(path: Path) -> list[dict[str, str]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def some(found: Iterable[str], most: int) -> list[str]:
    """A sample that is the same every time."""
    listed = list(found)
    return random.Random(0).sample(listed, min(most, len(listed)))


def relevant(folder: Path) -> dict[str, set[str]]:
    """The pages that answer each question."""
    pages: dict[str, set[str]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        question, page, grade = line.split("\t")
        if float(grade) > 0:
            pages.setdefault(question, set()).add(page)
    return pages


def made(folder: Path, encoder: Encoder, place: Path, pages: int, size: int) -> glie.Index:
    """The index of a set, unless it is there."""
    if (place / "manifest.json").exists():
        return glie.Index.open(place)
    texts = {
        page["_id"]: f"{page.get('title', '')}\n{page['text']}".strip()
        for page in lines(folder / "corpus.jsonl")
    }
    ids = some(sorted(name for name, text in texts.items() if text), pages)
    chosen = [texts[name] for name in ids]
    vectors = [
        rows for at in range(0, len(ids), 16) for rows in encoder.encode_pages(chosen[at : at + 16])
    ]
    index = glie.Index.create(place, glie.Codec(bytes_per_page=size), encoder=encoder)
    index.add(glie.Pages(vectors, ids=ids), texts=chosen)
    return index


def weak(retriever: Retriever, questions: Iterable[str], mode: str | None) -> str:
    """The share of questions that nothing matches well."""
    found = []
    for question in questions:
        try:
            found.append(retriever.search(question, 5, mode=mode).weak)
        except InputError:  # it only excludes words
            continue
    return f"{sum(found) / len(found):.3f}" if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--foreign", type=Path, nargs="*", default=[])
    parser.add_argument("--english", type=Path, nargs="*", default=[])
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--bytes-per-page", type=int, default=520)
    parser.add_argument("--mode")
    parser.add_argument("--kept", type=Path)
    given = parser.parse_args()
    encoder = load_encoder()
    asked = {
        folder.name: {line["_id"]: line["text"] for line in lines(folder / "queries.jsonl")}
        for folder in given.sets
    }
    foreign = {path: [line["query"] for line in lines(path)] for path in given.foreign}
    strangers = some((q for found in foreign.values() for q in found), given.questions)
    print("| pages of | own | own, found | other sets | other languages | nonsense |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        for folder in given.sets:
            place = (given.kept or Path(temporary)) / f"{folder.name}.glie"
            index = made(folder, encoder, place, given.pages, given.bytes_per_page)
            retriever, answers = Retriever(index, encoder), relevant(folder)
            held = set(index.ids)
            own = [name for name in asked[folder.name] if answers.get(name, set()) & held]
            own = some(own, given.questions)
            right = [
                name
                for name in own
                if answers[name] & set(retriever.search(asked[folder.name][name], 5).ids)
            ]
            named = [[asked[folder.name][name] for name in names] for names in (own, right)]
            others = [
                q for name, found in asked.items() if name != folder.name for q in found.values()
            ]
            cells = [
                *(weak(retriever, questions, given.mode) for questions in named),
                weak(retriever, some(others, given.questions), given.mode),
                weak(retriever, strangers, given.mode),
                weak(retriever, NONSENSE, given.mode),
            ]
            print(f"| {folder.name} ({len(index)}) | {' | '.join(cells)} |", flush=True)
    for path, questions in foreign.items():
        noticed = sum(foreign_language(q) is not None for q in questions) / len(questions)
        print(f"{path.name}: {noticed:.3f} of {len(questions)} noticed")
    english = [q for found in asked.values() for q in found.values()]
    english += [line["query"] for path in given.english for line in lines(path)]
    wrong = [question for question in english if foreign_language(question) is not None]
    print(f"English: {len(wrong)} of {len(english):,} called foreign", *wrong[:5], sep="\n  ")


if __name__ == "__main__":
    main()
