"""The grammar of what a person types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glie.errors import InputError
from glie.lexical.query import Phrase, Query, parse
from glie.lexical.terms import Analyzer

ENGLISH = Analyzer("english")


def texts(phrases: tuple[Phrase, ...]) -> list[str]:
    return [phrase.text for phrase in phrases]


@pytest.mark.parametrize(
    ("typed", "text", "required", "excluded"),
    [
        ("", "", [], []),
        ("capital  expenditure in 2018?", "capital  expenditure in 2018?", [], []),
        ('"net income" of 3M', "net income of 3M", ["net income"], []),
        ('income -draft  -"first draft" 2018', "income 2018", [], ["draft", "first draft"]),
        ("-only", "", [], ["only"]),
        ("a well-known semi -well-known", "a well-known semi", [], ["well-known"]),
        ('"a""b"', 'a"b"', ["a"], []),
        ('("in brackets")', "(in brackets)", ["in brackets"], []),
        # ordinary text
        ('an "open quote', 'an "open quote', [], []),
        ('5" disks and 3" disks', '5" disks and 3" disks', [], []),
        ("at -40 degrees or -2.5%", "at -40 degrees or -2.5%", [], []),
        ("one - two -- three -> four --five", "one - two -- three -> four --five", [], []),
        # not a number alone
        ("tape -3M -2018-114a", "tape", [], ["3M", "2018-114a"]),
        ('tape -"40"', "tape", [], ["40"]),
        # quotes of other keyboards
        ("“net income” -„erster Entwurf“", "net income", ["net income"], ["erster Entwurf"]),
        ('-word"quoted"', '"quoted"', [], ["word"]),
    ],
)
def test_what_is_typed(typed: str, text: str, required: list[str], excluded: list[str]) -> None:
    query = parse(typed, ENGLISH)
    assert query.text == text
    assert (texts(query.required), texts(query.excluded)) == (required, excluded)
    assert list(query.terms.elements()) == sorted(ENGLISH.terms(text), key=list(query.terms).index)


@pytest.mark.parametrize("typed", ['""', 'a "--" b', '-"."'])
def test_quotes_without_a_word_are_refused(typed: str) -> None:
    with pytest.raises(
        InputError, match=r"^question: found '.*' in quotes, expected a word in it$"
    ):
        parse(typed, ENGLISH)


def test_terms_are_counted() -> None:
    query = parse('reports reporting "the reports" -annual', ENGLISH)
    assert query.terms == {"report": 3, "the": 1}
    assert query.required == (Phrase("the reports", ("the", "report"), ("the", "reports")),)


def test_the_same_question_is_equal() -> None:
    assert parse('a "b" -c', ENGLISH) == parse('a "b"  -c', ENGLISH)
    assert parse("a", ENGLISH) == Query("a", ENGLISH.counted("a"))


@pytest.mark.parametrize(
    ("phrase", "text", "found"),
    [
        ("net income", "Its NET\n  income, in 2018", True),
        ("net income", "net incomes", False),
        ("net income", "net of income", False),
        ("net income", "internet income", False),
        ("2018-114", "see 3M-2018-114.", True),
        ("don't", "I don\u2019t know", True),
        ("covid 19", "COVID-19", True),
        ("京都", "東京都", True),
        ("京市", "東京 都市", False),
        ("\uff21\uff22\uff23", "abc", True),
        ("été", "e\u0301te\u0301", True),
    ],
)
def test_a_phrase_is_exact(phrase: str, text: str, found: bool) -> None:
    (wanted,) = parse(f'"{phrase}"', ENGLISH).required
    assert wanted.in_text(text) == found
    if found:  # then the postings have its terms
        assert set(wanted.terms) <= set(ENGLISH.terms(text))


WORDS = st.lists(st.sampled_from(["net", "3M-2018", "-x", '"', '-"', "…", "東京", " ", "("]))


@given(WORDS.map("".join) | WORDS.map(" ".join) | st.text())
def test_anything_can_be_typed(typed: str) -> None:
    try:
        query = parse(typed, ENGLISH)
    except InputError:
        return
    assert query.terms == ENGLISH.counted(query.text)
    for phrase in query.required:
        assert phrase.in_text(query.text)
    for phrase in query.required + query.excluded:
        assert phrase.in_text(phrase.text)
        assert phrase.terms
        assert phrase.words
