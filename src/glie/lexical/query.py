"""What a person types, as a question.

    "net income"     these words must be on the page, as they are and in this order; if no page
                     has them, they are ordinary words, unless nothing else was typed
    -draft           no page with this word; also -"first draft"
    anything else    ordinary words

An exclusion follows white space: the hyphen of "well-known" excludes nothing, nor does that of a
negative number. Quotes open at the beginning, behind white space or behind a bracket. A quote that
is never closed, or that stands behind a word as in 5" disks, is ordinary text: people paste text.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from glie.errors import InputError
from glie.lexical.terms import Analyzer, exact_words

QUOTES = (
    '"\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\N{DOUBLE LOW-9 QUOTATION MARK}'
)
SPECIAL = re.compile(
    rf"""(?<![^\s(])
    (?:(?P<minus>-)?[{QUOTES}](?P<quoted>[^{QUOTES}]*)[{QUOTES}]
    |-(?P<word>(?![\d.,%-]+(?!\S))[^\s{QUOTES}-][^\s{QUOTES}]*))""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Phrase:
    """Words that follow each other on a page, exactly as they are but for upper and lower case.

    A page with the phrase has all its terms; whether a page with them has it, its text says. In
    scripts without spaces the terms are pairs of characters: there, a phrase of one character, or
    one with a line break in it on the page, is on pages without its terms.
    """

    text: str
    terms: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def inexact(self) -> bool:
        """Whether a page with all its terms may lack the phrase: their order is not stored, and
        stems are shared."""
        return self.terms != self.words or len(self.words) > 1

    def in_text(self, text: str) -> bool:
        """Whether the words follow each other in a text, whatever is between them."""
        return f" {' '.join(self.words)} " in f" {' '.join(exact_words(text))} "


@dataclass(frozen=True)
class Query:
    """A question, read by `parse`."""

    text: str  # for the encoder: without exclusions and quotes; empty if nothing else was typed
    terms: Counter[str]  # of that text, and how often each occurs
    required: tuple[Phrase, ...] = ()
    excluded: tuple[Phrase, ...] = ()
    # Whether nothing but quotes was typed. In a longer question they may be those of a title that
    # no page has: then they are ordinary words.
    only_quotes: bool = False


def parse(text: str, analyzer: Analyzer) -> Query:
    """Read a question. Raises InputError for quotes without a word between them."""
    required: list[Phrase] = []
    excluded: list[Phrase] = []

    def take(found: re.Match[str]) -> str:
        if found["word"] is not None:
            if not exact_words(found["word"]):  # a dash or an arrow
                return found[0]
            excluded.append(_phrase(found["word"], analyzer))
            return ""
        (excluded if found["minus"] else required).append(_phrase(found["quoted"], analyzer))
        return "" if found["minus"] else found["quoted"]

    rest = SPECIAL.sub(take, text)
    if required or excluded:
        rest = " ".join(rest.split())
    only_quotes = bool(required) and not exact_words(SPECIAL.sub(" ", text))
    terms = analyzer.counted(rest)
    return Query(rest, terms, tuple(required), tuple(excluded), only_quotes)


def _phrase(text: str, analyzer: Analyzer) -> Phrase:
    words = tuple(exact_words(text))
    if not words:
        raise InputError(f"question: found {text!r:.40} in quotes, expected a word in it")
    # the parts alone: a page with "3M-2018-114" contains "2018-114"
    return Phrase(text, tuple(dict.fromkeys(analyzer.parts(text))), words)
