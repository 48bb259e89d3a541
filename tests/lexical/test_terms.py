"""Text to terms: scripts, compounds, stems and spans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glie.errors import InputError
from glie.lexical.terms import LANGUAGES, Analyzer, exact_words

PLAIN = Analyzer()


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" -- … \N{PILE OF POO} \n", []),
        ("The Annual REPORTS", ["the", "annual", "reports"]),
        ("Straße ΣΊΣΥΦΟΣ", ["strasse", "σίσυφοσ"]),
        ("e\N{COMBINING ACUTE ACCENT}te\N{COMBINING ACUTE ACCENT}", ["été"]),
        ("ﬁne \uff21\uff22\uff23", ["fine", "abc"]),
        ("co\N{SOFT HYPHEN}operate", ["cooperate"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("العربية נִקּוּד", ["العربية", "נִקּוּד"]),
        ("東京都", ["東京", "京都"]),
        ("3月 A東b", ["3", "月", "a", "東", "b"]),
        ("ｶﾞﾗｽ", ["ガラ", "ラス"]),
        ("ราคา", ["รา", "าค", "คา"]),
        ("ครับ", ["ครั", "รับ"]),  # a mark stays with its letter
        ("한국어", ["한국", "국어"]),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", ["한국"]),  # as single letters
    ],
)
def test_words_of_many_scripts(text: str, terms: list[str]) -> None:
    assert PLAIN.terms(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("3M-2018-114", ["3m-2018-114", "3m", "2018", "114"]),
        ("1,234.56", ["1234.56", "1", "234", "56"]),
        ("1,234,567", ["1234567", "1", "234", "567"]),
        ("1,23", ["1,23", "1", "23"]),
        ("Foo@Bar.com.", ["foo@bar.com", "foo", "bar", "com"]),
        ("(2020-01-15)", ["2020-01-15", "2020", "01", "15"]),
        ("2018\N{EN DASH}2020", ["2018-2020", "2018", "2020"]),
        ("covid-19, covid--19", ["covid-19", "covid", "19", "covid", "19"]),
        ("don't don\N{RIGHT SINGLE QUOTATION MARK}t", ["don", "t", "don", "t"]),
        ("U.S. R&D state-of-the-art", ["u", "s", "r", "d", "state", "of", "the", "art"]),
        ("A4 12% $5m C++", ["a4", "12", "5m", "c"]),
    ],
)
def test_compounds_are_split_and_those_with_digits_kept_whole(text: str, terms: list[str]) -> None:
    assert PLAIN.terms(text) == terms


def test_only_letters_are_stemmed() -> None:
    english = Analyzer("en")
    assert english.terms("Reports reporting 3Ms ids-2s") == [
        "report",
        "report",
        "3ms",
        "ids-2s",
        "id",
        "2s",
    ]
    assert Analyzer("german").terms("Häusern") == ["haus"]
    assert Analyzer("ru").terms("книгами") == ["книг"]
    assert english.terms("東京都") == ["東京", "京都"]


def test_every_language_has_a_stemmer() -> None:
    for code, name in LANGUAGES.items():
        assert Analyzer(code).language == Analyzer(name.upper()).language == name
    assert Analyzer(None).language is None


@pytest.mark.parametrize("language", ["klingon", "", "xx", 7])
def test_an_unknown_language_is_refused(language: str) -> None:
    with pytest.raises(InputError) as refused:
        Analyzer(language)
    message = str(refused.value)
    assert message.startswith(
        f"language: found {language!r}, expected none or one of arabic (ar), "
    )
    assert "\n" not in message


def test_words_say_where_they_are() -> None:
    text = "Net  income,\n1,234: 東京都"
    found = [(text[word.start : word.end], word.terms) for word in PLAIN.words(text)]
    assert found == [
        ("Net", ("net",)),
        ("income", ("income",)),
        ("1,234", ("1234", "1", "234")),
        ("東京", ("東京",)),
        ("京都", ("京都",)),
    ]


TEXTS = st.text(
    st.one_of(st.characters(), st.sampled_from("aZ9 -.,'@東ｶﾞข้\u00ad\u0301\u1112\u1161"))
)


@given(TEXTS)
def test_any_text_has_terms(text: str) -> None:
    """Terms can be stored, do not change when analysed again as normal text, and lie in order."""
    words = PLAIN.words(text)
    assert PLAIN.terms(text) == [term for word in words for term in word.terms]
    for word in words:
        assert 0 <= word.start < word.end <= len(text)
        assert word.terms
        for term in word.terms:
            assert term
            term.encode()
    assert [word.start for word in words] == sorted(word.start for word in words)
    assert set(PLAIN.parts(text)) <= set(PLAIN.terms(text))
    assert bool(words) == bool(exact_words(text))


def test_a_long_word_costs_no_more_than_its_letters() -> None:
    text = "a-1" * 100_000
    assert len(PLAIN.terms(text)) == 1 + 100_001
