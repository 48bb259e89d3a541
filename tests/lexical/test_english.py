"""Whether a text is in English."""

from __future__ import annotations

import pytest

from glie.lexical.english import seems_english

ENGLISH = (
    "Capital expenditure in the year was 1,577 million dollars, which is more than the company "
    "had planned at the beginning of it.",
    "Der Spiegel, Le Monde, El País",  # too short to tell
    "Revenue Cost Margin Total Net Income Assets Debt Equity Cash Flow " * 4,  # no small words
    "",
)
OTHERS = (
    "Die Aufwendungen des Unternehmens lagen in diesem Jahr deutlich über dem Plan, und für das "
    "nächste Jahr wird mit einer weiteren Steigerung gerechnet.",
    "Les dépenses de la société pour cette année ont été plus élevées que prévu, et elles vont "
    "encore augmenter dans les années qui viennent.",
    "Los gastos de la empresa en este año fueron mayores de lo previsto y se espera que aumenten "
    "otra vez en los próximos años.",
    "Расходы компании в этом году были выше, чем планировалось.",
    "今年、会社の支出は計画を上回りました。",
)


@pytest.mark.parametrize("text", ENGLISH)
def test_english(text: str) -> None:
    assert seems_english(text)


@pytest.mark.parametrize("text", OTHERS)
def test_other_languages(text: str) -> None:
    assert not seems_english(text)
