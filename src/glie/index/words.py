"""The words of one committed state: BM25 over the pages that are not deleted."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from glie.errors import CorruptIndexError
from glie.identity import EncoderId
from glie.index.lexical_file import LexicalFile, LostPostings
from glie.lexical.bm25 import Statistics, bm25, statistics
from glie.lexical.query import Phrase, Query
from glie.lexical.terms import Analyzer
from glie.search.hybrid import WordScores

Mask = npt.NDArray[np.bool_]
AnyPostings = LexicalFile | LostPostings

ENGLISH = ("english", "minilm")  # encoders
FEWEST_PAGES = 20  # that tell which words are on most pages


@functools.lru_cache(8)
def analyzer_of(language: str | None) -> Analyzer:
    """The analyzer of a language; its cache of words is shared."""
    return Analyzer(language)


def language_of(encoder: EncoderId | None) -> str | None:
    """The language of texts, if none is named: English for glie's English encoders."""
    return "english" if encoder is not None and encoder.name in ENGLISH else None


def language_named(name: str) -> str | None:
    """A language by its name or code; "none" is None."""
    return None if name == "none" else Analyzer(name).language


class Words:
    """The postings of all segments; positions as in the state."""

    def __init__(
        self,
        language: str | None,
        files: Sequence[AnyPostings | None],
        bounds: npt.NDArray[np.int64],
        alive: Mask | None,
    ) -> None:
        """`alive`: the positions of pages that are not deleted; None: all."""
        self.language, self._bounds, self._alive = language, bounds, alive
        self._numbers = [number for number, file in enumerate(files) if file is not None]
        self._files = [file for file in files if file is not None]

    @property
    def analyzer(self) -> Analyzer:
        return analyzer_of(self.language)

    @functools.cached_property
    def pages(self) -> int:
        """How many live pages have text; 0 if that cannot be read."""
        try:
            return int(np.count_nonzero(self.with_text))
        except CorruptIndexError:
            return 0

    @property
    def gone(self) -> bool:
        """Whether all pages with text are deleted. A file of postings has one at least."""
        try:
            return self._alive is not None and not self.with_text.any()
        except CorruptIndexError:
            return False  # a search says so

    def common(self, terms: Iterable[str]) -> set[str] | None:
        """Those of some terms that most pages have: the stop words of whatever language. Numbers
        are none. None if too few pages have text to tell."""
        return None if self.pages < FEWEST_PAGES else common(self.statistics(terms))

    def statistics(self, terms: Iterable[str]) -> Statistics:
        """What BM25 knows of these pages and terms."""
        return statistics(self._files, self._live, terms)

    def scores(
        self, query: Query, allowed: Mask | None, of: Statistics | None = None
    ) -> WordScores:
        """BM25 of the allowed pages; those without a required phrase, or with an excluded one,
        have 0. Statistics are of all live pages with text, or those given, of several shards."""
        found = bm25(self._files, self._live, query.terms, of=of)
        scores = np.zeros(int(self._bounds[-1]), np.float32)
        for number, part in zip(self._numbers, found.pages, strict=True):
            scores[self._bounds[number] : self._bounds[number + 1]] = part
        if allowed is not None:
            scores[~allowed] = 0
        return WordScores(scores, found.most, self.with_text)

    def allowed(self, query: Query, allowed: Mask | None) -> Mask | None:
        """Those of the allowed pages that have each required phrase and no excluded one. Postings
        have no order: a page has a phrase if it has its words. If no page has them, phrases within
        a question are not required."""
        if query.required:
            having = functools.reduce(np.logical_and, map(self.having, query.required))
            if allowed is not None:
                having = having & allowed
            if self._alive is not None:
                having = having & self._alive
            allowed = having if query.only_quotes or having.any() else allowed
        for phrase in query.excluded:
            without = ~self.having(phrase)
            allowed = without if allowed is None else allowed & without
        if allowed is not None and self._alive is not None:
            allowed = allowed & self._alive
        return allowed

    @functools.cached_property
    def with_text(self) -> Mask:
        """The positions of live pages with text."""
        found = np.zeros(int(self._bounds[-1]), bool)
        for number, live in zip(self._numbers, self._live, strict=True):
            found[self._bounds[number] : self._bounds[number + 1]] = True if live is None else live
        return found

    @functools.cached_property
    def _live(self) -> list[Mask | None]:
        """The live pages with text of each file; None: all are."""
        found = list[Mask | None]()
        for number, file in zip(self._numbers, self._files, strict=True):
            live = file.lengths > 0
            if self._alive is not None:
                live &= self._alive[self._bounds[number] : self._bounds[number + 1]]
            found.append(None if live.all() else live)
        return found

    def having(self, phrase: Phrase) -> Mask:
        """The positions of pages with all terms of a phrase."""
        having = np.zeros(int(self._bounds[-1]), bool)
        for number, file in zip(self._numbers, self._files, strict=True):
            having[int(self._bounds[number]) + _rows_with_all(file, phrase.terms)] = True
        return having


def common(known: Statistics) -> set[str] | None:
    """The terms that most pages have. Numbers are none. None if too few pages have text to tell."""
    if known.pages < FEWEST_PAGES:
        return None
    words = {term: n for term, n in known.having.items() if not any(map(str.isdigit, term))}
    return {term for term, count in words.items() if count > known.pages / 2}


def _rows_with_all(file: AnyPostings, terms: Iterable[str]) -> npt.NDArray[np.int64]:
    return functools.reduce(np.intersect1d, (file.postings(term)[0] for term in terms))
