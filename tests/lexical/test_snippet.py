"""The words shown beside a hit."""

from __future__ import annotations

from glie.lexical.snippet import best_snippet, matches
from glie.lexical.terms import Analyzer

ENGLISH = Analyzer("en")


def test_shows_where_the_question_is_answered() -> None:
    text = "filler " * 200 + "the capital expenditures of 2018 were high " + "more " * 200
    snippet = best_snippet(text, "What was the capital expenditure in 2018?", ENGLISH)
    assert "capital expenditures of 2018" in snippet
    assert snippet.startswith("… ")
    assert snippet.endswith(" …")
    assert len(snippet.split()) < 35


def test_short_and_odd_texts() -> None:
    assert best_snippet("just this", "anything", ENGLISH) == "just this"
    assert best_snippet("", "anything", ENGLISH) == ""
    assert best_snippet("one two", "", ENGLISH) == "one two"


def marked(text: str, question: str, analyzer: Analyzer = ENGLISH) -> list[str]:
    return [text[start:end] for start, end in matches(text, question, analyzer)]


def test_marks_what_bm25_matches() -> None:
    assert marked("the seals of 2018", "which seal in 2018") == ["seals", "2018"]
    assert marked("Expenditures rose", "expenditure") == ["Expenditures"]
    assert marked("Expenditures rose", "expenditure", Analyzer()) == []
    assert marked("it was 1,577 million, not 577", "1577") == ["1,577"]
    assert marked("order 3M-2018-114, in 2018", "3M-2018-114") == ["3M-2018-114", "2018"]
    assert marked("order 3M-2018-114", "2018") == ["2018"]
    assert marked("state-of-the-art", "art") == ["art"]
    assert marked("x", "") == []


def test_stop_words_are_marked_if_they_are_quoted() -> None:
    text = "the art of the deal"
    assert marked(text, "what is the art of it?") == ["art"]
    assert marked(text, '"the art"') == ["the", "art", "the"]
    assert marked("to be or not to be", "to be or not") == ["to", "be", "or", "not", "to", "be"]


def test_what_is_excluded_is_not_marked() -> None:
    assert marked("a draft of the report", "report -draft") == ["report"]
    assert marked("a draft", 'draft "--"') == ["draft"]  # such quotes are ordinary text here


def test_pairs_of_characters_are_marked_once() -> None:
    assert marked("今年の設備投資額", "設備投資", Analyzer()) == ["設備投資"]


def test_a_terminal_is_not_commanded() -> None:
    assert "\x1b" not in best_snippet("red \x1b[31m alarm", "alarm", ENGLISH)
