"""Question sets: pages, questions, and the relevant pages of each question.

This module reads folders in the BEIR format: corpus.jsonl, queries.jsonl, qrels/test.tsv.
`vidore.py` reads sets of the Hugging Face Hub, `cache.py` sets that are encoded already. `load`
chooses between them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from glie.documents import check_picture, open_picture
from glie.errors import DatasetError, DocumentError
from glie.pages import check_id
from glie.wording import count, listing

if TYPE_CHECKING:
    from PIL.Image import Image

    from glie.evaluation.encoded import Encoded

CORPUS = "corpus.jsonl"
UNREADABLE = "whose image cannot be read"


class Picture(NamedTuple):
    """A page's image file, read on demand: a corpus need not fit in memory."""

    name: str  # for errors
    stored: Callable[[], bytes]
    digest: str  # SHA-256 of the bytes

    @classmethod
    def checked(cls, name: str, stored: Callable[[], bytes]) -> Picture:
        """A picture; raises DocumentError if it is missing or damaged."""
        picture = cls(name, stored, "")
        data = picture.read()
        check_picture(data, name)
        return picture._replace(digest=hashlib.sha256(data).hexdigest())

    def read(self) -> bytes:
        """The bytes of the image file."""
        try:
            return self.stored()
        except FileNotFoundError:
            raise DocumentError(f"{self.name}: no such file") from None
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise DocumentError(f"{self.name}: cannot be read: {error}") from None

    def open(self) -> Image:
        """The decoded image: upright, in RGB."""
        return open_picture(io.BytesIO(self.read()), self.name)


class Dataset(NamedTuple):
    """Pages, questions, and the relevant pages of each question with their grades."""

    name: str
    pages: dict[str, str]  # the text of each; empty if there is only an image
    queries: dict[str, str]
    relevant: dict[str, dict[str, int]]  # by query, then page: 1 or a grade
    without_text: tuple[str, ...] = ()  # pages of the corpus with neither text nor image
    images: Mapping[str, Picture] = MappingProxyType({})
    warnings: tuple[str, ...] = ()  # what was left out

    @property
    def page_ids(self) -> list[str]:
        return list(self.pages)

    @property
    def query_ids(self) -> list[str]:
        return list(self.queries)


class Question(NamedTuple):
    """A question of a set."""

    id: str
    text: str
    language: str | None = None


class Judgement(NamedTuple):
    """The grade of a page for a question, and the place in the set that says so."""

    place: str
    query: str
    page: str
    grade: int


class Corpus:
    """The pages of a set while it is read. Images are checked here, once."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}  # of all pages
        self.images: dict[str, Picture] = {}
        self.unreadable: dict[str, str] = {}  # errors of images, by page
        self.merged: dict[str, str] = {}  # pages that are another one, and that page

    def add(self, page: str, text: str, image: tuple[str, Callable[[], bytes]] | None) -> None:
        """Add a page; an image is its name and a function that reads its bytes."""
        self.texts[page] = text.strip()
        if image is not None:
            try:
                self.images[page] = Picture.checked(*image)
            except DocumentError as error:
                self.unreadable[page] = str(error)

    def merge_images(self) -> None:
        """Make pages with the same image one: the first of them."""
        first: dict[str, str] = {}
        for page, picture in list(self.images.items()):
            if first.setdefault(picture.digest, page) != page:
                self.merged[page] = first[picture.digest]
                del self.images[page], self.texts[page]


def load(path_or_name: str | os.PathLike[str], *, language: str | None = None) -> Dataset | Encoded:
    """Load a set: a folder in the BEIR format, a folder of cached vectors, or a ViDoRe set by its
    name on the Hugging Face Hub (or a copy on disk). `language` selects questions.

    Questions without a relevant page are left out, and so are pages with neither text nor image.
    A question whose answer is such a page stays, and counts as not answered.
    """
    from glie.evaluation import cache, vidore

    given = os.fspath(path_or_name)
    folder = Path(given)
    if cache.is_cached(folder):
        if language is not None:
            raise DatasetError(
                f"{folder}: cached vectors have no languages; load the set they were made of"
            )
        return cache.read(folder)
    if not (folder / CORPUS).exists() and (vidore.is_copy(folder) or vidore.is_name(given)):
        return vidore.read(given, language)
    return _read_folder(folder, language)


def is_set(folder: Path) -> bool:
    """Whether a folder is a set of any kind that `load` reads."""
    from glie.evaluation import cache, vidore

    return (folder / CORPUS).exists() or cache.is_cached(folder) or vidore.is_copy(folder)


def sets_in(path_or_name: str | os.PathLike[str]) -> list[str]:
    """The sets that a name stands for: itself or, if it is a folder of sets, these, in order of
    their names."""
    name, folder = os.fspath(path_or_name), Path(path_or_name)
    if not folder.is_dir() or is_set(folder):
        return [name]
    inside = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    if not inside:
        raise DatasetError(f"{folder}: an empty folder; expected a set, or a folder of sets")
    folders = [path for path in inside if path.is_dir()]
    if not any(map(is_set, folders)):
        return [name]  # `load` says what it lacks
    for path in folders:
        if not is_set(path):  # were it skipped, a mean would silently lack a set
            raise DatasetError(f"{path}: not a set, unlike others in {folder}; move it elsewhere")
    return [str(path) for path in folders]


def load_pages(path_or_name: str | os.PathLike[str]) -> Dataset | Encoded:
    """Load the pages of a set alone; a folder with corpus.jsonl needs no questions."""
    folder = Path(path_or_name)
    if (folder / CORPUS).exists():
        return assemble(folder.resolve().name, str(folder / CORPUS), _read_corpus(folder))
    loaded = load(path_or_name)
    return loaded._replace(queries={}, relevant={}) if isinstance(loaded, Dataset) else loaded


def assemble(
    name: str,
    place: str,
    corpus: Corpus,
    questions: Sequence[Question] | None = None,
    judgements: Iterable[Judgement] = (),
    language: str | None = None,
) -> Dataset:
    """Make a set of what was read, without what cannot be used. Errors name `place`. `questions`
    None makes a set of pages alone. Of several grades of a page for a question, the highest
    counts."""
    usable = {p: text for p, text in corpus.texts.items() if text or p in corpus.images}
    broken = corpus.unreadable
    without_text = tuple(p for p in corpus.texts if p not in usable and p not in broken)
    warnings = [
        *left_out(without_text, "page", "without text or image"),
        *left_out([why for p, why in broken.items() if p not in usable], "page", UNREADABLE),
    ]
    if not usable:
        raise DatasetError(f"{place}: no page that can be used; {'; '.join(warnings)}")
    if corpus.merged:
        pages = count(len(corpus.merged), "page")
        warnings.append(f"{pages} merged with one of the same image: {listing([*corpus.merged])}")
    half = [why for page, why in broken.items() if page in usable]
    if half:
        warnings.append(f"{count(len(half), 'page')} {UNREADABLE}, with text: {listing(half)}")
    if questions is None:
        return Dataset(name, usable, {}, {}, without_text, corpus.images, tuple(warnings))
    if language is not None:
        name = f"{name}-{language}"  # a set with its own results
    known = {question.id for question in questions}
    relevant: dict[str, dict[str, int]] = {}
    for where, query, judged, grade in judgements:
        page = corpus.merged.get(judged, judged)
        if query not in known or page not in corpus.texts:
            unknown = f"query {query!r}" if query not in known else f"page {page!r}"
            raise DatasetError(f"{where}: {unknown} is not in the set")
        if grade > 0:
            grades = relevant.setdefault(query, {})
            grades[page] = max(grade, grades.get(page, 0))
    asked = _in_language(questions, language, place)
    wordless = [question.id for question in asked if not question.text.strip()]
    unanswered = [q.id for q in asked if q.text.strip() and q.id not in relevant]
    warnings += left_out(wordless, "question", "without text")
    warnings += left_out(unanswered, "question", "without a relevant page")
    queries = {q.id: q.text for q in asked if q.text.strip() and q.id in relevant}
    if not queries:
        raise DatasetError(f"{place}: no question has a relevant page")
    return Dataset(
        name,
        usable,
        queries,
        {query: pages for query, pages in relevant.items() if query in queries},
        without_text,
        corpus.images,
        tuple(warnings),
    )


def left_out(names: Sequence[str], what: str, why: str) -> list[str]:
    """A warning that counts what was left out and names the first few; empty if there is none."""
    return [f"{count(len(names), what)} {why} left out: {listing(names)}"] if names else []


def check_new(name: str, seen: set[str], place: str) -> None:
    """Raise if an id is not valid or not unique."""
    check_id(name, place)
    if name in seen:
        raise DatasetError(f"{place}: the id {name!r} is given twice")
    seen.add(name)


def _in_language(
    questions: Sequence[Question], language: str | None, place: str
) -> Sequence[Question]:
    if language is None:
        return questions
    spoken = [question for question in questions if question.language == language]
    if not spoken:
        found = sorted({question.language for question in questions if question.language})
        known = f"found {', '.join(found)}" if found else "the set names no languages"
        raise DatasetError(f"{place}: no question in {language!r}; {known}")
    return spoken


def _read_folder(folder: Path, language: str | None) -> Dataset:
    corpus = _read_corpus(folder)
    questions = [
        Question(_field(row, "_id", place), _field(row, "text", place), row.get("language"))
        for row, place in _rows(folder / "queries.jsonl")
    ]
    qrels = folder / "qrels" / "test.tsv"
    judgements = _judgements(qrels)
    return assemble(folder.resolve().name, str(qrels), corpus, questions, judgements, language)


def _read_corpus(folder: Path) -> Corpus:
    if not folder.is_dir():
        raise DatasetError(f"{folder}: no such folder; expected one with {CORPUS}")
    corpus = Corpus()
    for row, place in _rows(folder / CORPUS):
        image = row.get("image")
        text = "" if image and row.get("text") is None else _field(row, "text", place)
        source = None
        if image:
            name = _inside(_field(row, "image", place), place)
            source = name, (folder / name).read_bytes
        corpus.add(_field(row, "_id", place), f"{row.get('title') or ''}\n{text}", source)
    return corpus


def _inside(name: str, place: str) -> str:
    """A relative path that stays in its folder, on every system."""
    outside = any(
        path.is_absolute() or path.drive or path.root or ".." in path.parts
        for path in (PurePosixPath(name), PureWindowsPath(name))
    )
    if outside:
        raise DatasetError(f"{place}: expected an image inside the folder, found {name!r}")
    return name


def _judgements(qrels: Path) -> Iterator[Judgement]:
    for line, row in enumerate(_table(qrels), start=2):
        place = f"{qrels}, line {line}"
        if len(row) != 3 or not re.fullmatch(r"-?\d{1,9}", row[2]):
            raise DatasetError(f"{place}: expected query, page and grade, found {row}")
        yield Judgement(place, row[0], row[1], int(row[2]))


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a JSON Lines file, each with its place; ids must be unique."""
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
                check_new(_field(row, "_id", place), seen, place)
                yield row, place
    except FileNotFoundError:
        raise DatasetError(
            f"{path}: missing; expected a set in the BEIR format, cached vectors, or a copy of a "
            "ViDoRe set"
        ) from None
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
