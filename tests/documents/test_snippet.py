"""The words shown beside a hit."""

from __future__ import annotations

from glie.documents.snippet import best_snippet, matches


def test_shows_where_the_question_is_answered() -> None:
    text = "filler " * 200 + "the capital expenditures of 2018 were high " + "more " * 200
    snippet = best_snippet(text, "What was the capital expenditure in 2018?")
    assert "capital expenditures of 2018" in snippet
    assert snippet.startswith("… ")
    assert snippet.endswith(" …")
    assert len(snippet.split()) < 35


def test_short_and_odd_texts() -> None:
    assert best_snippet("just this", "anything") == "just this"
    assert best_snippet("", "anything") == ""
    assert best_snippet("one two", "") == "one two"


def test_finds_the_words_of_the_question() -> None:
    text = "the seals of 2018"
    assert [text[a:b] for a, b in matches(text, "which seal in 2018")] == ["seals", "2018"]


def test_a_terminal_is_not_commanded() -> None:
    assert "\x1b" not in best_snippet("red \x1b[31m alarm", "alarm")
