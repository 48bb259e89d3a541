"""Read ViDoRe sets from the Hugging Face Hub or a copy on disk, with the `datasets` package.

Version 1 has one table, with a row for each question: the question, the image of the page that
answers it, and a file name. Versions 2 and 3, and version 1 as published again later, have three
tables: corpus, queries and qrels.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from glie.errors import DatasetError, GlieError, MissingExtraError
from glie.evaluation.datasets import (
    Corpus,
    Dataset,
    Judgement,
    Question,
    assemble,
    check_new,
)

TABLES = ("corpus", "queries", "qrels")
SPLIT = "test"
QUERY_ID = ("query-id", "query_id")  # in version 2, and in version 3
PAGE_ID = ("corpus-id", "corpus_id")
TEXT = ("markdown", "text")


def is_name(name: str) -> bool:
    """Whether this may be the name of a set on the Hub, and not a path on this disk."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", name)) and not Path(name).exists()


def is_copy(folder: Path) -> bool:
    """Whether this may be a copy of a set, as downloaded from the Hub: it has tables and a card
    that describes them, or tables where sets have them. Tables elsewhere may be those of several
    sets, a folder each."""
    if _has_card(folder):
        places = [folder.rglob("*.parquet")]
    else:
        named = (folder / name for name in ("data", "default", *TABLES))
        places = [folder.glob("*.parquet"), *(place.rglob("*.parquet") for place in named)]
    return any(next(place, None) is not None for place in places)


def _has_card(folder: Path) -> bool:
    """Whether there is a README that begins with settings, as those of the Hub do."""
    try:
        with open(folder / "README.md", "rb") as file:
            return file.read(3) == b"---"
    except OSError:
        return False


def read(name: str, language: str | None = None) -> Dataset:
    """Read the set with this name, or in this folder."""
    try:
        import datasets
    except ImportError:
        what = "a copy of a ViDoRe set" if Path(name).exists() else "no such folder; a Hub set"
        raise MissingExtraError(f"{name}: {what}", "datasets") from None
    with _as_dataset_error(name), _quiet(datasets):
        configurations = datasets.get_dataset_config_names(name)
        if set(TABLES) <= set(configurations):
            tables = [datasets.load_dataset(name, table, split=SPLIT) for table in TABLES]
            parts = _three_tables(name, *tables)
        elif len(configurations) == 1:
            parts = _rows_of_questions(name, datasets.load_dataset(name, split=SPLIT))
        else:
            raise DatasetError(
                f"{name}: found configurations {', '.join(configurations)}; expected "
                f"{', '.join(TABLES)}, or a single one"
            )
    short = Path(name).resolve().name if Path(name).exists() else name.rpartition("/")[2]
    return assemble(short, name, *parts, language)


Parts = tuple[Corpus, list[Question], list[Judgement]]


def _rows_of_questions(name: str, table: Any) -> Parts:
    """Read version 1. Rows with the same image bytes are one page, named by its first file name.
    Each row with a question is one of its own, even if another asks the same: the paper counts
    them so, each with the page of its row."""
    _check_columns(name, table, [("query",), ("image",), ("image_filename",)])
    table = _undecoded(table)
    images = table.select_columns(["image"])
    corpus, pages = Corpus(), dict[str, str]()  # the id of each page, by its image
    questions, judgements = list[Question](), list[Judgement]()
    for row, record in enumerate(table):
        place = f"{name}, row {row}"
        file_name, data = record["image_filename"] or f"row {row}", _stored(record)
        shows = f"name {file_name}" if data is None else hashlib.sha256(data).hexdigest()
        if shows not in pages:
            pages[shows] = page = _distinct(str(file_name), corpus.texts)
            corpus.add(page, "", (page, partial(_image, images, row)))
        text = (record["query"] or "").strip()
        if text:
            questions.append(Question(f"q{len(questions) + 1}", text, record.get("language")))
            judgements.append(Judgement(place, questions[-1].id, pages[shows], 1))
    if not corpus.texts:
        raise DatasetError(f"{name}: empty")
    return corpus, questions, judgements


def _three_tables(name: str, pages: Any, queries: Any, qrels: Any) -> Parts:
    """Read versions 2 and 3. Ids may be numbers and become strings; grades may be floats. Pages
    with the same image are one."""
    (page_id,) = _check_columns(f"{name}, corpus", pages, [PAGE_ID])
    query_id, question = _check_columns(f"{name}, queries", queries, [QUERY_ID, ("query",)])
    judged = _check_columns(f"{name}, qrels", qrels, [QUERY_ID, PAGE_ID, ("score",)])
    text = next((column for column in TEXT if column in pages.column_names), None)
    images = None
    if "image" in pages.column_names:
        images = _undecoded(pages.select_columns(["image"]))
    elif text is None:
        raise DatasetError(f"{name}, corpus: expected a column 'image' or 'markdown'")
    corpus = Corpus()
    seen: set[str] = set()
    for row, record in enumerate(pages.select_columns([page_id, *([text] if text else [])])):
        page = str(record[page_id])
        check_new(page, seen, f"{name}, corpus, row {row}")
        source = None if images is None else (page, partial(_image, images, row))
        corpus.add(page, (record[text] or "") if text else "", source)
    if not seen:
        raise DatasetError(f"{name}, corpus: empty")
    corpus.merge_images()
    questions, asked = list[Question](), set[str]()
    for row, record in enumerate(queries):
        check_new(str(record[query_id]), asked, f"{name}, queries, row {row}")
        about = str(record[query_id]), record[question] or "", record.get("language")
        questions.append(Question(*about))
    judgements = []
    for row, record in enumerate(qrels):
        place = f"{name}, qrels, row {row}"
        query, page, score = (record[column] for column in judged)
        judgements.append(Judgement(place, str(query), str(page), _grade(score, place)))
    return corpus, questions, judgements


def _check_columns(place: str, table: Any, wanted: list[tuple[str, ...]]) -> list[str]:
    """The name of each column in the table, or an error."""
    found = []
    for spellings in wanted:
        mine = [spelling for spelling in spellings if spelling in table.column_names]
        if not mine:
            raise DatasetError(
                f"{place}: expected a column {' or '.join(map(repr, spellings))}, found "
                f"{', '.join(table.column_names)}"
            )
        found.append(mine[0])
    return found


def _undecoded(table: Any) -> Any:
    """The table with its images as file contents, not decoded."""
    import datasets

    return table.cast_column("image", datasets.Image(decode=False))


def _stored(record: dict[str, Any]) -> bytes | None:
    image = record["image"] or {}
    data: bytes | None = image.get("bytes")
    return data


def _image(images: Any, row: int) -> bytes:
    data = _stored(images[row])
    if data is None:
        raise FileNotFoundError
    return data


def _distinct(file_name: str, taken: dict[str, str]) -> str:
    """The name, with a number if another page has it."""
    name, number = file_name, 1
    while name in taken:
        number += 1
        name = f"{file_name}#{number}"
    return name


def _grade(score: Any, place: str) -> int:
    if isinstance(score, (int, float)) and float(score).is_integer():
        return int(score)
    raise DatasetError(f"{place}: expected a whole number as a score, found {score!r}")


@contextmanager
def _as_dataset_error(name: str) -> Iterator[None]:
    try:
        yield
    except GlieError:
        raise
    except Exception as error:  # files, formats and transports raise different errors
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        what = "cannot be read" if Path(name).exists() else "no such folder, and no set on the Hub"
        raise DatasetError(f"{name}: {what} ({reason})") from None


@contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """Turn off progress bars unless stderr is a terminal."""
    if sys.stderr.isatty() or datasets.utils.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()
