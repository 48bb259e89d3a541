"""Text to terms: what is stored of a page, and what a question looks up.

A word is normalised (Unicode NFKC, case folded) and stemmed. Scripts that do not put spaces between
words give overlapping pairs of characters instead. Pieces joined without a space, as in
3M-2018-114, are a term each; the whole is one more where it says more than its pieces.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Container
from itertools import pairwise
from typing import NamedTuple

import Stemmer

from glie.errors import InputError

# The languages with a stemmer, by ISO 639 code.
LANGUAGES = {
    **{"ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german"},
    **{"el": "greek", "en": "english", "eo": "esperanto", "es": "spanish", "et": "estonian"},
    **{"eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish"},
    **{"hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian"},
    **{"lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish"},
    **{"pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "st": "sesotho"},
    **{"sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish"},
}

# Scripts without spaces between words, by the first word of their characters' names. Korean has
# spaces, but its particles are part of the word.
UNSPACED = {
    *("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HANGUL"),
    *("THAI", "LAO", "KHMER", "MYANMAR"),
}
JOINERS = "-.,/:_@'&+#"
DASHES = dict.fromkeys("\N{HYPHEN}\N{EN DASH}\N{MINUS SIGN}", "-")
LIKE_JOINERS = (
    {joiner: joiner for joiner in JOINERS} | DASHES | {"\N{RIGHT SINGLE QUOTATION MARK}": "'"}
)
# Characters that are not seen: soft hyphens, joiners of letters.
UNSEEN = dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u2060\ufeff"))

LETTER, DIGIT, MARK, ALONE, OTHER = "a0mc "  # kinds of characters; ALONE is one of UNSPACED
PIECE = f"[{LETTER}{DIGIT}][{LETTER}{DIGIT}{MARK}]*"
CHARACTER = f"{ALONE}{MARK}*"
WORD = re.compile(f"{PIECE}(?:[{JOINERS}]{PIECE})*|(?:{CHARACTER})+")
PART = re.compile(f"{PIECE}|{CHARACTER}")
SPACED = re.compile(r"\S+")
CHUNK = re.compile(f"(?:{CHARACTER}){{1,2}}{OTHER}*|[^{ALONE}]+")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
CACHED = 1 << 16  # words whose terms are kept
LONGEST_CACHED = 32


class Word(NamedTuple):
    """A word of a text, at text[start:end], and its terms."""

    start: int
    end: int
    terms: tuple[str, ...]


class Analyzer:
    """Finds the terms of texts in a language, named or by its ISO 639 code; None does not stem."""

    def __init__(self, language: str | None = None) -> None:
        self.language = None if language is None else _known(language)
        # a stemmer's own cache would keep what ours keeps
        self._stemmer = None if self.language is None else Stemmer.Stemmer(self.language, 0)
        self._cached = functools.lru_cache(CACHED)(self._terms)

    def terms(self, text: str) -> list[str]:
        """The terms of a text in their order, repeats included. Stop words stay: BM25 weighs them
        next to nothing, and a phrase may ask for them."""
        return [term for word in self.words(text) for term in word.terms]

    def words(self, text: str) -> list[Word]:
        """The words of a text. Pairs of characters overlap."""
        kinds = text.translate(_KINDS)
        found = []
        for match in WORD.finditer(kinds):
            start, end = match.span()
            if kinds[start] == ALONE:
                found += self._pairs(text, kinds, start, end)
            else:
                word = text[start:end]
                terms = self._cached if end - start <= LONGEST_CACHED else self._terms
                found.append(Word(start, end, terms(word)))
        return found

    def counted(self, text: str) -> Counter[str]:
        """How often each term is in a text."""
        return Counter(self.terms(text))

    def places(self, text: str, wanted: Container[str]) -> list[tuple[int, int]]:
        """Where a text has the wanted terms: (start, end) of each, overlapping ones as one. Of a
        compound, it is the pieces that are wanted, or the whole."""
        found = list[tuple[int, int]]()
        for word in self.words(text):
            for start, end in _places(word, text, wanted):
                if found and start < found[-1][1]:  # pairs of characters
                    start, end = found.pop()[0], end
                found.append((start, end))
        return found

    def parts(self, text: str) -> list[str]:
        """The terms of a text without those of whole compounds, which differ where the text is a
        part of another: "2018-114" in "3M-2018-114"."""
        kinds = zip(text, text.translate(_KINDS), strict=True)
        return self.terms("".join(OTHER if kind in JOINERS else letter for letter, kind in kinds))

    def _terms(self, word: str) -> tuple[str, ...]:
        """The terms of a word or compound: the whole, if it is kept, and the pieces."""
        kinds = word.translate(_KINDS)
        pieces = (
            self._stem(normal(word[slice(*piece.span())]), piece[0])
            for piece in PART.finditer(kinds)
        )
        return (_whole(word, kinds), *pieces) if _is_kept_whole(kinds) else tuple(pieces)

    def _stem(self, piece: str, kinds: str) -> str:
        if self._stemmer is None or DIGIT in kinds:
            return piece
        return str(self._stemmer.stemWord(piece))

    def _pairs(self, text: str, kinds: str, start: int, end: int) -> list[Word]:
        """Each character with the next one; a single one stays itself."""
        spans = [match.span() for match in PART.finditer(kinds, start, end)]
        pairs = [(one[0], two[1]) for one, two in pairwise(spans)] or spans
        return [Word(first, last, (normal(text[first:last]),)) for first, last in pairs]


def normal(word: str) -> str:
    """A word as it is compared: NFKC, case folded, without characters that are not seen."""
    if word.isascii():
        return word.lower()
    folded = unicodedata.normalize("NFKC", word).casefold()
    return unicodedata.normalize("NFKC", folded).translate(UNSEEN)


def exact_words(text: str) -> list[str]:
    """The words of a text, not stemmed: pieces of compounds, and single characters of UNSPACED."""
    return [normal(text[slice(*part.span())]) for part in PART.finditer(text.translate(_KINDS))]


def chunks(text: str) -> list[tuple[int, int]]:
    """Where a reader would count words: (start, end) of what stands between spaces, and of every
    two characters of UNSPACED."""
    kinds, found = text.translate(_KINDS), list[tuple[int, int]]()
    for match in SPACED.finditer(text):
        start, end = match.span()
        if ALONE in kinds[start:end]:
            found += [part.span() for part in CHUNK.finditer(kinds, start, end)]
        else:
            found.append((start, end))
    return found


def _places(word: Word, text: str, wanted: Container[str]) -> list[tuple[int, int]]:
    """Where a word of a text has the wanted terms."""
    start, end, terms = word
    if len(terms) == 1:
        return [(start, end)] if terms[0] in wanted else []
    spans = [piece.span() for piece in PART.finditer(text[start:end].translate(_KINDS))]
    if len(terms) > len(spans) and terms[0] in wanted:
        return [(start, end)]
    pieces = zip(spans, terms[-len(spans) :], strict=True)
    return [(start + first, start + last) for (first, last), term in pieces if term in wanted]


def _is_kept_whole(kinds: str) -> bool:
    """Whether a word is a compound that is a term besides its pieces. Numbers, codes, dates and
    addresses are: their pieces are on many pages, they on few. The words of "state-of-the-art" are
    enough."""
    return kinds.strip(LETTER + DIGIT + MARK) != "" and (DIGIT in kinds or "@" in kinds)


def _whole(word: str, kinds: str) -> str:
    """A compound as a term: joined by the plain form of what joins it, numbers without the commas
    between thousands."""
    joined = "".join(
        kind if kind in JOINERS else letter for letter, kind in zip(word, kinds, strict=True)
    )
    return THOUSANDS.sub("", normal(joined))


class _Kinds(dict[int, str]):
    """The kind of every character, found when it is first met. A joiner is its own kind."""

    def __missing__(self, code: int) -> str:
        self[code] = kind = _kind(chr(code))
        return kind


def _kind(character: str) -> str:
    plain = unicodedata.normalize("NFKC", character)
    if unicodedata.category(character)[0] not in "LMN":
        return MARK if ord(character) in UNSEEN else LIKE_JOINERS.get(plain, OTHER)
    name = unicodedata.name(plain[0], "").replace("-", " ").split()
    if unicodedata.category(plain[0])[0] == "M" or name[1:2] in (["JUNGSEONG"], ["JONGSEONG"]):
        return MARK
    if unicodedata.category(plain[0])[0] == "N":
        return DIGIT
    return ALONE if name[:1] and name[0] in UNSPACED else LETTER


_KINDS = _Kinds()


def _known(language: str) -> str:
    """The name of a language."""
    name = language.casefold() if isinstance(language, str) else ""
    name = LANGUAGES.get(name, name)
    if name not in LANGUAGES.values():
        known = ", ".join(f"{name} ({code})" for code, name in LANGUAGES.items())
        raise InputError(f"language: found {language!r:.40}, expected none or one of {known}")
    return name
