"""Heat map: where on a page each word of a question matches.

Late interaction scores a page by the best match of every question vector. So a match has a place:
the word of the page, or the patch of its picture, that the matching vector comes from.
"""

from __future__ import annotations

import difflib
import re
import string
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.documents import Word
from glie.encoders.base import Grid
from glie.lexical.snippet import is_stop_word
from glie.lexical.terms import Analyzer

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Span = tuple[int, int]  # characters of a text
Box = tuple[float, float, float, float]  # left, top, right, bottom, as fractions of the page

MOST_PLACES = 40  # shown for a word of the question
FAINTEST = 0.25  # places with less of the best place's heat are left out


class Places(NamedTuple):
    """The places of a page, and for each of its vectors the place it comes from (-1: none)."""

    kind: Literal["boxes", "spans"]  # parts of the picture, or of the text
    places: Sequence[Box] | Sequence[Span]
    labels: Sequence[str]  # the word at each place, if it is known
    of_vector: Ints


class Warm(NamedTuple):
    """A place where a word matches. A heat of 1 marks the word's best place on the page."""

    place: int
    heat: float
    similarity: float


class WordHeat(NamedTuple):
    """A word of the question, its part of the page's score, and the places it matches."""

    text: str
    common: bool  # a stop word
    start: int
    end: int
    score: float
    warm: list[Warm]  # the warmest first
    by_words: float = 0.0  # its part of the page's score by words


def words_of(text: str) -> list[Span]:
    """The spans of the words of a text: runs without white space."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def span_places(text: str, spans: Sequence[Span]) -> Places:
    """The words of a text as places. `spans` are the characters that each vector comes from."""
    words = words_of(text)
    return Places("spans", words, [text[a:b] for a, b in words], owners(words, spans))


def word_places(text: str, spans: Sequence[Span], words: Sequence[Word]) -> Places:
    """The words of a drawn page as places: `text` was encoded, `words` are the same with boxes."""
    runs = words_of(text)
    boxed = _matched([text[a:b] for a, b in runs], [word.text for word in words])
    mine = owners(runs, spans)
    return Places(
        "boxes",
        [word[1:] for word in words],
        [word.text for word in words],
        np.where(mine >= 0, boxed[mine], -1) if len(boxed) else mine,
    )


def patch_places(grid: Grid, vectors: int) -> Places:
    """The patches of a picture as places, row by row. `vectors` is how many the page has."""
    down, across = 1 / grid.rows, 1 / grid.columns
    boxes = [
        (column * across, row * down, (column + 1) * across, (row + 1) * down)
        for row in range(grid.rows)
        for column in range(grid.columns)
    ]
    of_vector = np.full(vectors, -1, np.int64)
    of_vector[grid.vectors.ravel()] = np.arange(len(boxes))
    return Places("boxes", boxes, [""] * len(boxes), of_vector)


def nowhere(vectors: Floats) -> Places:
    """Vectors that come from no place that is known."""
    return Places("spans", [], [], np.full(len(vectors), -1, np.int64))


def owners(words: Sequence[Span], spans: Sequence[Span]) -> Ints:
    """The word in which each span begins, or -1."""
    starts = np.array([start for start, _ in words], np.int64)
    found = np.full(len(spans), -1, np.int64)
    for vector, (start, end) in enumerate(spans):
        word = int(np.searchsorted(starts, start, side="right")) - 1
        if word >= 0 and start < min(end, words[word][1]):
            found[vector] = word
    return found


def heat(
    question: str,
    spans: Sequence[Span],
    asked: Floats,
    page: Floats,
    places: Places,
    scored: Floats | None = None,
    stop_word: Callable[[str], bool] = lambda word: is_stop_word(word, Analyzer()),
) -> list[WordHeat]:
    """For each word of the question: its part of the score, and the places it matches.

    `scored` are the vectors that the score comes from, if not those of the page. If `spans` do not
    fit the question's vectors, the whole question counts as one word. `stop_word` says which words
    say little.
    """
    words = words_of(question)
    mine = owners(words, spans)
    if len(mine) != len(asked):
        words, mine = [(0, len(question))], np.zeros(len(asked), np.int64)
    similar = asked @ page.T  # (m, n)
    best = (similar if scored is None else asked @ scored.T).max(axis=1)
    placed = np.flatnonzero(places.of_vector >= 0)
    found = []
    for number, (start, end) in enumerate(words):
        rows = np.flatnonzero(mine == number)
        if not len(rows):
            continue
        score = float(best[rows].sum())
        here = np.full(len(places.places), -1.0, np.float32)
        np.maximum.at(here, places.of_vector[placed], similar[rows][:, placed].max(axis=0))
        text = question[start:end].strip(string.punctuation) or question[start:end]
        found.append(WordHeat(text, stop_word(text), start, end, score, _warmest(here)))
    return found


def _warmest(similar: Floats) -> list[Warm]:
    """The best places. Heat rises from 0 at the page's median similarity to 1 at its best."""
    if not len(similar):
        return []
    usual, best = float(np.median(similar)), float(similar.max())
    span = best - usual
    heats = ((similar - usual).clip(0) / span) ** 2 if span > 0 else np.ones_like(similar)
    order = np.argsort(-similar, kind="stable")[:MOST_PLACES]
    return [
        Warm(int(place), float(heats[place]), float(similar[place]))
        for place in order
        if heats[place] >= FAINTEST
    ]


def _matched(runs: list[str], words: list[str]) -> Ints:
    """For each word of a text the same word among those with boxes, in order, or -1. The two lists
    differ where a word was hyphenated at the end of a line."""
    found = np.full(len(runs), -1, np.int64)
    blocks = difflib.SequenceMatcher(None, runs, words, autojunk=False).get_opcodes()
    for what, first, last, other, other_last in blocks:
        if what == "equal":
            found[first:last] = np.arange(other, other_last)
        elif what == "replace":
            ends = np.cumsum([len(word) for word in words[other:other_last]])
            at = 0
            for run in range(first, last):
                place = int(np.searchsorted(ends, at, side="right"))
                if place < len(ends):
                    found[run] = other + place
                at += len(runs[run])
    return found
