"""Where a page has the words of a question: the snippet shown beside a hit, and its marks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glie.errors import InputError
from glie.lexical.query import Query, parse
from glie.lexical.terms import Analyzer, chunks, exact_words
from glie.wording import printable

WORDS = 28  # in a snippet
Floats = npt.NDArray[np.float32]

# Stop words of English, many of them in questions alone.
COMMON = set(
    re.findall(
        r"\w+",
        "a an and are as at be by did do does for from had has have how in is it its many much of "
        "no not on or out s than that the their there this to was were what when where which who "
        "why will with",
    )
)


class Asked(NamedTuple):
    """What `best_snippet(text, *asked)` and `matches(text, *asked)` know of a question."""

    question: str
    analyzer: Analyzer
    common: Collection[str] | None = None


def is_stop_word(word: str, analyzer: Analyzer, common: Collection[str] | None = None) -> bool:
    """Whether a word says little. `common` are terms that are on most pages, in whatever language;
    None if that is not known. English has a list besides, and what has no language."""
    listed = analyzer.language == "english" or (analyzer.language is None and common is None)
    if listed and COMMON.issuperset(exact_words(word)):
        return True
    return common is not None and all(term in common for term in analyzer.terms(word))


def question_terms(
    question: str, analyzer: Analyzer, common: Collection[str] | None = None
) -> set[str]:
    """The terms of a question without those of stop words, unless they are quoted or there is
    nothing else; and without what it excludes."""
    try:
        query = parse(question, analyzer)
    except InputError:  # quotes around nothing; a search by meaning alone takes them
        query = Query(question, analyzer.counted(question))
    wanted = {term for phrase in query.required for term in analyzer.terms(phrase.text)}
    for start, end, terms in analyzer.words(query.text):
        if not is_stop_word(query.text[start:end], analyzer, common):
            wanted.update(terms)
    return wanted or set(query.terms)


def best_snippet(
    text: str, question: str, analyzer: Analyzer, common: Collection[str] | None = None
) -> str:
    """The run of 28 words that holds most of the question's words; words that are rare on the
    page count more. Of equals, the earliest. `common`: as for `is_stop_word`."""
    places = chunks(text)
    wanted = question_terms(question, analyzer, common)
    found = [set[str]() for _ in places]
    starts = [start for start, _ in places]
    for word in analyzer.words(text):
        found[bisect_right(starts, word.start) - 1] |= wanted.intersection(word.terms)
    often = Counter(term for here in found for term in here)
    best, best_weight = 0, -1.0
    for start in range(len(places)):
        if found[start]:  # a run that starts on a match is never worse
            run = found[start : start + WORDS]
            matched = sum(map(len, run))  # breaks ties
            weight = sum(often[term] ** -0.5 for term in set().union(*run)) + 0.1 * matched
            if weight > best_weight:
                best, best_weight = start, weight
    return _passage(text, places, best - 4)  # so that the sentence can be read


def nearest_snippet(text: str, spans: Sequence[tuple[int, int]], similar: Floats) -> str:
    """The run of 28 words with the highest MaxSim: for a page that matches by meaning. `similar`
    are the products of the question's vectors (rows) and the page's, `spans` the characters that
    each of these comes from. Of equals, the earliest."""
    places = chunks(text)
    if not places or not len(spans):
        return _passage(text, places, 0)
    starts = [start for start, _ in places]
    of_span = np.array([max(bisect_right(starts, start) - 1, 0) for start, _ in spans])
    best = np.full((len(similar), len(places)), -1.0, np.float32)
    np.maximum.at(best.T, of_span, similar.T)
    width = min(WORDS, len(places))
    runs = np.lib.stride_tricks.sliding_window_view(best, width, axis=1).max(axis=2).sum(axis=0)
    # of the runs that are as good, the one whose middle is nearest to what matched
    good = np.flatnonzero(runs >= runs.max() - 1e-6)
    return _passage(text, places, int(good[len(good) // 2]))


def _passage(text: str, places: Sequence[tuple[int, int]], first: int) -> str:
    """The run of words from the place `first` on, with dots where the text goes on."""
    first = max(0, min(first, len(places) - WORDS))
    last = min(first + WORDS, len(places))
    passage = text[places[first][0] : places[last - 1][1]] if places else ""
    shown = printable(" ".join(passage.split()))
    return f"{'… ' if first else ''}{shown}{' …' if last < len(places) else ''}"


def matches(
    text: str, question: str, analyzer: Analyzer, common: Collection[str] | None = None
) -> list[tuple[int, int]]:
    """Where the question's words are in a text, as BM25 finds them: (start, end) of each.
    `common`: as for `is_stop_word`."""
    return analyzer.places(text, question_terms(question, analyzer, common))
