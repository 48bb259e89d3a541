"""Questions that an English encoder does not read."""

from __future__ import annotations

import pytest

from glie.lexical.language import foreign_language

ENGLISH = [
    *("capital expenditure", "turbines", "What is EBITDA?", "3M-2018-114", "El Niño", "la jolla"),
    *("Rio de Janeiro", "die casting", "Der Spiegel", "de facto standard", "zzzz qqqq", "US$ 5 bn"),
    *("Universidad Nacional de la Plata", "Ludwig van Beethoven", "Côte d'Ivoire", "résumé"),
    *("Ministerio de Asuntos Exteriores y de Cooperación", "Don Quijote de la Mancha"),
    *("β-sheet", "5 µm", "pro rata", "vis a vis", "coup d'etat", "Eine kleine Nachtmusik"),
    *(
        "When was the Banco de la República founded?",
        "Who wrote Der Zauberberg?",
        "",
        "???",
        "1234",
    ),
    *("Das Leben der Anderen", "Was the war in on as due to die?", "Los Angeles", "im"),
]
FOREIGN = {
    "Wie hoch waren die Investitionen im Jahr 2018?": "German",
    "quel est le prix de la machine": "French",
    "¿Cuál es el precio de la máquina?": "Spanish",
    "Cosa fa la macchina della fabbrica?": "Italian",
    "Quais são os resultados da empresa?": "Portuguese",
    "Hoeveel werd er geïnvesteerd in het bedrijf?": "Dutch",
    "Hvor mange ansatte har selskapet?": "a Scandinavian language",
    "Jakie są wyniki firmy i co było w roku 2018?": "Polish",
    "Каковы результаты компании?": "a language in Cyrillic letters",
    "会社の業績はどうですか": "Japanese",
    "公司的业绩如何": "Chinese or Japanese",
    "회사의 실적은 어떻습니까": "Korean",
    "ما هي نتائج الشركة؟": "a language in Arabic letters",
    "Ποια είναι τα αποτελέσματα;": "Greek",
}


@pytest.mark.parametrize("question", ENGLISH)
def test_english_names_and_numbers_pass(question: str) -> None:
    assert foreign_language(question) is None


@pytest.mark.parametrize(("question", "language"), FOREIGN.items())
def test_other_languages(question: str, language: str) -> None:
    assert foreign_language(question) == language
