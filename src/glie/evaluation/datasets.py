"""Question sets on disk, in the BEIR shape: corpus.jsonl, queries.jsonl, qrels/test.tsv."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from glie.errors import DatasetError


class Dataset(NamedTuple):
    """Pages, questions, and which pages answer which question how well."""

    name: str
    pages: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, int]]  # by query, then page: 1 or a grade
    without_text: tuple[str, ...] = ()  # pages of the corpus that no encoder could read


def load(path: str | os.PathLike[str]) -> Dataset:
    """Read a folder. Questions without a relevant page are not in the set, nor are pages without
    text; a question whose answer is such a page stays, and counts as not answered."""
    folder = Path(path)
    pages = read_pages(folder)
    queries = {
        _field(row, "_id", place): _field(row, "text", place)
        for row, place in _rows(folder / "queries.jsonl")
    }
    without_text = tuple(page for page, text in pages.items() if not text)
    relevant: dict[str, dict[str, int]] = {}
    qrels = folder / "qrels" / "test.tsv"
    for line, row in enumerate(_table(qrels), start=2):
        if len(row) != 3 or not re.fullmatch(r"-?\d{1,9}", row[2]):
            raise DatasetError(f"{qrels}, line {line}: expected query, page and grade, found {row}")
        query, page, grade = row[0], row[1], int(row[2])
        if query not in queries or page not in pages:
            unknown = f"query {query!r}" if query not in queries else f"page {page!r}"
            raise DatasetError(f"{qrels}, line {line}: {unknown} is not in the set")
        if grade > 0:
            relevant.setdefault(query, {})[page] = grade
    if not relevant:
        raise DatasetError(f"{qrels}: no question has a relevant page")
    asked = {query: text for query, text in queries.items() if query in relevant}
    readable = {page: text for page, text in pages.items() if text}
    return Dataset(folder.resolve().name, readable, asked, relevant, without_text)


def load_pages(path: str | os.PathLike[str]) -> Dataset:
    """The pages of a folder alone, as a set without questions."""
    folder = Path(path)
    pages = read_pages(folder)
    readable = {page: text for page, text in pages.items() if text}
    if not readable:
        raise DatasetError(f"{folder}: no page has text")
    without_text = tuple(page for page, text in pages.items() if not text)
    return Dataset(folder.resolve().name, readable, {}, {}, without_text)


def read_pages(folder: Path) -> dict[str, str]:
    """The text of every page of a set, title first; of a set without questions too."""
    if not folder.is_dir():
        raise DatasetError(f"{folder}: no such folder; expected one with corpus.jsonl")
    return {
        _field(row, "_id", place): f"{row.get('title') or ''}\n{_field(row, 'text', place)}".strip()
        for row, place in _rows(folder / "corpus.jsonl")
    }


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a file of JSON lines, each with its place; ids must be unique."""
    seen: set[str] = set()
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                place = f"{path}, line {number}"
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise DatasetError(f"{place}: not JSON: {error}") from None
                if not isinstance(row, dict):
                    raise DatasetError(f"{place}: expected a JSON object")
                name = _field(row, "_id", place)
                if name in seen:
                    raise DatasetError(f"{place}: the id {name!r} is given twice")
                seen.add(name)
                yield row, place
    except FileNotFoundError:
        raise DatasetError(f"{path}: missing; expected a set in the BEIR shape") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 text (byte {error.start})") from None
    if not seen:
        raise DatasetError(f"{path}: empty")


def _field(row: dict[str, Any], name: str, place: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise DatasetError(f"{place}: expected a string {name!r}, found {value!r}")
    return value


def _table(path: Path) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    except FileNotFoundError:
        raise DatasetError(f"{path}: missing; expected query, page and grade a line") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 text (byte {error.start})") from None
