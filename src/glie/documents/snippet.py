"""The snippet of a page that best answers a question."""

from __future__ import annotations

import re
from collections import Counter

from glie.wording import printable

WORDS = 28  # in a snippet

# Stop words: in every question and on every page.
COMMON = set(
    re.findall(
        r"\w+",
        "a an and are as at be by did do does for from had has have how in is it its many much of "
        "no not on or out s than that the their there this to was were what when where which who "
        "why will with",
    )
)


def _stem(word: str) -> str:
    """A crude stem, so that "expenditures" matches "expenditure"."""
    return re.sub(r"(ing|ed|es|s|e)$", "", word) if len(word) > 4 else word


def question_words(question: str) -> set[str]:
    """The stems of a question, without stop words."""
    words = re.findall(r"\w+", question.lower())
    return {_stem(word) for word in words if word not in COMMON} or {_stem(w) for w in words}


def best_snippet(text: str, question: str) -> str:
    """The run of 28 words that holds most of the question's words; words that are rare on the
    page count more. Of equals, the earliest."""
    words = text.split()
    wanted = question_words(question)
    found = [{_stem(part) for part in re.findall(r"\w+", w.lower())} & wanted for w in words]
    often = Counter(word for here in found for word in here)
    best, best_weight = 0, -1.0
    for start in range(0, max(1, len(words) - WORDS + 1)):
        if start == 0 or found[start]:  # a run that starts on a match is never worse
            run = found[start : start + WORDS]
            matched = sum(map(len, run))  # breaks ties
            weight = sum(often[word] ** -0.5 for word in set().union(*run)) + 0.1 * matched
            if weight > best_weight:
                best, best_weight = start, weight
    # start a few words earlier, so that the sentence can be read
    first = max(0, min(best - 4, len(words) - WORDS))
    shown = printable(" ".join(words[first : first + WORDS]))
    return f"{'… ' if first else ''}{shown}{' …' if first + WORDS < len(words) else ''}"


def matches(text: str, question: str) -> list[tuple[int, int]]:
    """Where the question's words are in a text: (start, end) of each."""
    wanted = question_words(question)
    found = re.finditer(r"\w+", text)
    return [word.span() for word in found if _stem(word[0].lower()) in wanted]
