"""Whether a text is in English, told by its small words and its letters."""

from __future__ import annotations

import re
import unicodedata

LOOKED_AT = 4000  # characters of a text
FEWEST = 20  # words by which a text can be told
WORDS = re.compile(r"[^\W\d_]+")

# The commonest words of English, and those of other languages that are no English words.
ENGLISH = """
the of and to is for that with are this be from or by it was not which have has can at an you we
they their will would were been its"""
OTHERS = """
der das und den von zu mit ist nicht ein eine auf für dem sich im auch werden wird het een van dat
zijn voor niet met och att det som på är av til og ikke ja hän että oli ei
le la les des et un une du est pour que qui dans sur au el los las y en por con para se es os e da
em um uma não com il di che della per si del și în este cu
w i z nie na jest że się do v je že po za az és hogy egy bir ve bu için dan yang di untuk dengan
của và là các"""
OF_ENGLISH, OF_OTHERS = frozenset(ENGLISH.split()), frozenset(OTHERS.split())


def seems_english(text: str) -> bool:
    """False if most letters are not Latin, or small words of other languages are the commoner ones.
    Short texts, and tables without small words, count as English."""
    words = WORDS.findall(text[:LOOKED_AT].lower())
    letters = "".join(words)
    latin = sum("LATIN" in unicodedata.name(letter, "LATIN") for letter in letters)
    if latin < len(letters) / 2:
        return False
    other, english = (sum(word in small for word in words) for small in (OF_OTHERS, OF_ENGLISH))
    return len(words) < FEWEST or other <= max(english, len(words) / 20)
